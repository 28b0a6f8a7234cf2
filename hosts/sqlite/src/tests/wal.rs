//! A write-ahead log reads as the bytes that SQLite wrote, independent of the stored layout: the
//! same script on a log and on a flat file. And the cost of a transaction, counted.

use super::host::{FILE_HEADER, HEADER, Log, Writer, recover};
use super::noting::{Change, Noting};
use crate::mark::Mark;
use crate::wal::{Wal, WalCounters};
use rand::{Rng, RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use remap_ssd_store::{Create, FileId, NewVolume, OpenOptions, Processes, Store, Volume};
use remap_ssd_testkit::MemDisk;
use remap_ssd_testkit::PAGE;
use std::sync::Arc;
use std::sync::atomic::Ordering;

type Random = Xoshiro256PlusPlus;

struct Bench {
    store: Arc<Noting<Volume<MemDisk>>>,
    file: FileId,
    mark: Mark,
}

impl Bench {
    fn new() -> Self {
        let disk = MemDisk::new(20_000);
        let volume = Volume::create(disk, &Processes::One, &NewVolume::default(), &mut |_, _| {})
            .expect("possible");
        let mark = Mark::of(&volume.identity().expect("a volume has one"));
        let store = Noting::new(volume);
        let options = OpenOptions {
            create: Create::New,
            open_end: true,
            written_next: false,
        };
        let file = store.open("wal", options).expect("possible");
        Self { store, file, mark }
    }

    fn wal(&self) -> Wal {
        Wal::open(self.store.clone(), self.file, self.mark)
    }

    /// A log with a header, and its writer.
    fn started(&self, page_bytes: usize) -> (Wal, Writer) {
        let mut wal = self.wal();
        let writer = Writer::restart(&mut wal, page_bytes, 1);
        self.store.changes();
        (wal, writer)
    }
}

/// A page: with room at its end, without, of zeroes, or with one nonzero byte in the last 32.
fn page(random: &mut Random, page_bytes: usize) -> Vec<u8> {
    let mut page = vec![0; page_bytes];
    match random.random_range(0..8) {
        0 => {}
        1 => random.fill_bytes(&mut page),
        2 => page[page_bytes - random.random_range(1..=32)] = 1,
        _ => random.fill_bytes(&mut page[..page_bytes - 32]),
    }
    page
}

fn with_room(tag: u8, page_bytes: usize) -> Vec<u8> {
    let mut page = vec![tag; page_bytes];
    page[page_bytes - 32..].fill(0);
    page
}

/// A log and a flat file with the same writes.
struct Both<'a> {
    wal: &'a mut Wal,
    flat: &'a mut Vec<u8>,
}

impl Log for Both<'_> {
    fn write(&mut self, offset: usize, data: &[u8]) {
        Log::write(self.wal, offset, data);
        Log::write(self.flat, offset, data);
    }

    fn read(&mut self, offset: usize, bytes: usize) -> Vec<u8> {
        let read = Log::read(self.wal, offset, bytes);
        assert_eq!(read, Log::read(self.flat, offset, bytes));
        read
    }

    fn size(&mut self) -> usize {
        Log::size(self.wal)
    }
}

/// A partially written frame counts as whole, except in the plain form (pages below 4 KiB).
fn round_up(flat: &mut Vec<u8>, page_bytes: usize) {
    if flat.len() > FILE_HEADER && page_bytes >= PAGE {
        let frames = (flat.len() - FILE_HEADER).div_ceil(HEADER + page_bytes);
        flat.resize(FILE_HEADER + frames * (HEADER + page_bytes), 0);
    }
}

fn compare(random: &mut Random, wal: &mut Wal, flat: &[u8], page_bytes: usize) {
    assert_eq!(Log::size(wal), flat.len());
    let frame_bytes = HEADER + page_bytes;
    for _ in 0..6 {
        let frame = FILE_HEADER + random.random_range(0..=flat.len() / frame_bytes) * frame_bytes;
        let (offset, bytes) = match random.random_range(0..6) {
            0 => (0, FILE_HEADER),
            1 => (frame, frame_bytes),
            2 => (frame, HEADER),
            3 => (frame + HEADER, page_bytes),
            4 => (frame + 16, 8),
            _ => (
                random.random_range(0..=flat.len()),
                random.random_range(0..3 * frame_bytes),
            ),
        };
        let mut into = vec![0xaa; bytes];
        let there = flat.len().saturating_sub(offset).min(bytes);
        assert_eq!(
            wal.read(offset as u64, &mut into).expect("readable"),
            there,
            "{bytes} bytes at {offset}"
        );
        assert_eq!(
            into[..there],
            flat[offset.min(flat.len())..][..there],
            "{bytes} bytes at {offset}"
        );
        assert!(into[there..].iter().all(|byte| *byte == 0));
    }
}

/// One transaction of a script: appended frames, some rewritten, rolled back or committed.
fn transaction(random: &mut Random, both: &mut Both, writer: &mut Writer, longest: usize) {
    let frames = if random.random_bool(0.1) {
        longest
    } else {
        random.random_range(1..6)
    };
    let commits = random.random_bool(0.8);
    for frame in 0..frames {
        if writer.frames > writer.committed && random.random_bool(0.1) {
            let again = random.random_range(writer.committed..writer.frames);
            writer.overwrite(both, again, &page(random, writer.page_bytes));
        }
        // SQLite also flushes in the middle: it syncs, or passes a barrier.
        if random.random_bool(0.05) {
            both.wal.flush().expect("possible");
        }
        let size = if frame + 1 == frames && commits { 9 } else { 0 };
        writer.append(
            both,
            random.random_range(1..99),
            size,
            &page(random, writer.page_bytes),
        );
    }
    if !commits {
        writer.roll_back();
    }
}

/// Writes at any offset: SQLite does not do that, but a file must support it.
fn anywhere(random: &mut Random, both: &mut Both, page_bytes: usize) {
    let frame_bytes = HEADER + page_bytes;
    let end = both.flat.len() + frame_bytes;
    let offset = random.random_range(FILE_HEADER..end);
    let mut data = vec![0; random.random_range(1..3 * frame_bytes)];
    random.fill_bytes(&mut data);
    both.write(offset, &data);
}

fn script(seed: u64, page_bytes: usize, stamps: bool) -> WalCounters {
    let random = &mut Random::seed_from_u64(seed);
    let bench = Bench::new();
    let mut wals = [bench.wal(), bench.wal(), bench.wal()];
    wals.iter_mut().for_each(|wal| wal.set_stamps(stamps));
    let mut flat = Vec::new();
    let mut round = 0;
    let mut writer = None;
    let longest = (1 << 20) / page_bytes.max(PAGE);

    for step in 0..60 {
        let both = &mut Both {
            wal: &mut wals[random.random_range(0..3)],
            flat: &mut flat,
        };
        let restart = both.flat.len() < FILE_HEADER || random.random_bool(0.1);
        if restart {
            round += 1;
            writer = Some(Writer::restart(both, page_bytes, round));
        }
        let writer = writer.as_mut().expect("a log begins with a restart");
        match random.random_range(0..20) {
            0 => {
                let frames = random.random_range(0..=writer.frames);
                let size = match random.random_range(0..4) {
                    0 => 0,
                    1 => random.random_range(0..both.flat.len() + 2 * page_bytes),
                    _ => writer.place(frames),
                };
                both.wal.truncate(size as u64).expect("possible");
                both.flat.resize(size, 0);
            }
            1 => anywhere(random, both, page_bytes),
            _ => transaction(random, both, writer, longest),
        }
        round_up(both.flat, page_bytes);
        compare(random, both.wal, both.flat, page_bytes);

        // The write lock is released.
        both.wal.flush().expect("possible");
        for wal in &mut wals {
            wal.set_checkpointing(step % 2 == 0);
            compare(random, wal, &flat, page_bytes);
            wal.set_checkpointing(false);
        }
    }
    let sum = |field: fn(&WalCounters) -> u64| wals.iter().map(|wal| field(&wal.counters())).sum();
    WalCounters {
        frames_stamped: sum(|counters| counters.frames_stamped),
        frames_raw: sum(|counters| counters.frames_raw),
        header_pages: sum(|counters| counters.header_pages),
        headers_alone: sum(|counters| counters.headers_alone),
        pages_alone: sum(|counters| counters.pages_alone),
        ..WalCounters::default()
    }
}

#[test]
fn a_log_reads_as_it_was_written() {
    for (page_bytes, seeds) in [(1024, 4), (4096, 24), (8192, 12), (65536, 6)] {
        for seed in 0..seeds {
            let counters = script(seed, page_bytes, true);
            let all = [
                counters.frames_stamped,
                counters.frames_raw,
                counters.header_pages,
                counters.pages_alone,
            ];
            assert!(
                all.iter().all(|count| (*count > 0) == (page_bytes >= PAGE)),
                "{counters:?}"
            );
        }
    }
}

#[test]
fn without_stamps_every_frame_has_its_header_in_a_header_page() {
    for seed in 0..4 {
        let counters = script(seed, 4096, false);
        assert_eq!(counters.frames_stamped, 0);
        assert!(counters.frames_raw > 0);
    }
}

#[test]
fn a_stamp_is_data_where_there_are_no_stamps() {
    let bench = Bench::new();
    let (mut wal, mut writer) = bench.started(4096);
    wal.set_stamps(false);
    let mut page = vec![7; 4096];
    bench.mark.stamp(&mut page, &[9; HEADER]);
    writer.append(&mut wal, 1, 1, &page);
    assert!(recover(&mut wal).expect("a log").frames == [(1, page)]);
}

#[test]
fn a_transaction_whose_pages_have_room_is_one_write_of_its_pages() {
    for page_bytes in [4096, 8192] {
        let bench = Bench::new();
        let (mut wal, mut writer) = bench.started(page_bytes);
        for frame in 0..5 {
            writer.append(
                &mut wal,
                frame + 1,
                if frame == 4 { 5 } else { 0 },
                &with_room(frame as u8, page_bytes),
            );
            assert_eq!(
                bench.store.writes().len(),
                usize::from(frame == 4),
                "the commit frame hands all over"
            );
        }
        wal.sync().expect("possible");
        let counters = wal.counters();
        assert_eq!(
            (counters.runs, counters.pages),
            (1, 5 * (page_bytes / PAGE) as u64)
        );
        assert_eq!(
            (
                counters.frames_stamped,
                counters.frames_raw,
                counters.header_pages
            ),
            (5, 0, 0)
        );
        assert_eq!(recover(&mut bench.wal()).expect("a log").frames.len(), 5);
    }
}

// The header page is written between the transaction's first run and the one with the commit frame.
#[test]
fn a_transaction_without_room_writes_one_header_page_in_front_of_the_commit_frame() {
    let bench = Bench::new();
    let (mut wal, mut writer) = bench.started(4096);
    for frame in 0..5 {
        writer.append(
            &mut wal,
            frame + 1,
            if frame == 4 { 5 } else { 0 },
            &[1; 4096],
        );
    }
    assert_eq!(bench.store.writes(), [(4096, PAGE), (2 * 4096, 5 * PAGE)]);
    assert_eq!(recover(&mut bench.wal()).expect("a log").frames.len(), 5);

    // Frames 5 to 174 pass the limit twice, and the end of the first group.
    for frame in 5..175 {
        writer.append(&mut wal, 1, if frame == 174 { 5 } else { 0 }, &[2; 4096]);
    }
    let group = 4096 * 171;
    let writes = bench.store.writes();
    assert_eq!(writes[..2], [(7 * 4096, 64 * PAGE), (71 * 4096, 64 * PAGE)]);
    let end = [
        (135 * 4096, 37 * PAGE),
        (4096, PAGE),
        (4096 + group, PAGE),
        (2 * 4096 + group, 5 * PAGE),
    ];
    assert_eq!(writes[2..], end);
    assert_eq!(recover(&mut bench.wal()).expect("a log").frames.len(), 175);
}

// Frames after an overwritten one are provisional until the commit: their pages are written once,
// and so is the header page.
#[test]
fn provisional_frames_are_not_written_twice() {
    let bench = Bench::new();
    let (mut wal, mut writer) = bench.started(65536);
    writer.append(&mut wal, 1, 0, &with_room(1, 65536));
    wal.flush().expect("possible");
    writer.overwrite(&mut wal, 0, &with_room(2, 65536));
    for frame in 1..9 {
        writer.append(
            &mut wal,
            frame + 1,
            if frame == 8 { 9 } else { 0 },
            &with_room(3, 65536),
        );
    }
    let counters = wal.counters();
    let pages = |frames: u64| frames * 16;
    // Frame 0 first, then its new page, then its new stamp; the other frames once.
    assert_eq!(counters.pages, pages(3 + 8), "{counters:?}");
    assert_eq!(
        (
            counters.headers_alone,
            counters.pages_alone,
            counters.header_pages
        ),
        (9, 1, 1),
        "{counters:?}"
    );
    assert_eq!(recover(&mut bench.wal()).expect("a log").frames.len(), 9);
}

#[test]
fn the_origin_of_a_page_is_where_the_store_has_it() {
    let bench = Bench::new();
    let (mut wal, mut writer) = bench.started(8192);
    let mut pages = [with_room(1, 8192), vec![2; 8192]];
    pages
        .iter()
        .zip([0, 2])
        .for_each(|(page, size)| writer.append(&mut wal, 1, size, page));

    for (frame, page) in pages.iter_mut().enumerate() {
        let place = writer.place(frame) + HEADER;
        assert_eq!(Log::read(&mut wal, place, 8192), *page);
        let origin = wal.origin().expect("the store has it");
        let mut stored = vec![0; 8192];
        bench
            .store
            .read(bench.file, origin, &mut stored)
            .expect("possible");
        bench.mark.strip(&mut stored);
        assert_eq!(stored, *page);
    }

    // Not for gathered frames, a partial page, a page after the end, or after a write.
    writer.append(&mut wal, 1, 0, &pages[0]);
    assert_eq!(wal.origin(), None);
    for (frame, within, bytes) in [
        (2, HEADER, 8192),
        (0, HEADER, 4096),
        (0, 0, 8192 + HEADER),
        (9, HEADER, 8192),
    ] {
        let place = writer.place(frame) + within;
        Log::read(&mut wal, place, bytes);
        assert_eq!(
            wal.origin(),
            None,
            "{bytes} bytes at {within} of frame {frame}"
        );
    }
    wal.flush().expect("possible");
    let place = writer.place(2) + HEADER;
    Log::read(&mut wal, place, 8192);
    assert!(wal.origin().is_some());
    wal.truncate(0).expect("possible");
    assert_eq!(wal.origin(), None);
}

#[test]
fn a_checkpoint_reads_many_frames_at_once() {
    for page_bytes in [4096, 65536] {
        let bench = Bench::new();
        let (mut one, mut writer) = bench.started(page_bytes);
        let frames = (4 << 20) / page_bytes;
        let tag = |frame: usize, round: u8| with_room(round + (frame % 100) as u8, page_bytes);
        (0..frames).for_each(|frame| writer.append(&mut one, 1, 1, &tag(frame, 0)));

        // As a checkpoint reads them: not in the log's order.
        let mut two = bench.wal();
        Log::read(&mut two, 0, FILE_HEADER);
        two.set_checkpointing(true);
        let before = bench.store.reads.load(Ordering::Relaxed);
        for frame in (0..frames).map(|frame| frame * 37 % frames) {
            assert!(
                Log::read(&mut two, writer.place(frame) + HEADER, page_bytes) == tag(frame, 0),
                "frame {frame}"
            );
            assert!(
                two.origin().is_some(),
                "what was read ahead can be shared like what was read"
            );
        }
        let reads = bench.store.reads.load(Ordering::Relaxed) - before;
        assert!(
            reads <= 4096 / 256 + 2 + 16,
            "{reads} reads for {frames} frames"
        );

        // The checkpoint is done, and another connection restarts the log.
        two.set_checkpointing(false);
        let mut writer = Writer::restart(&mut one, page_bytes, 2);
        (0..frames).for_each(|frame| writer.append(&mut one, 1, 1, &tag(frame, 100)));
        for checkpointing in [false, true] {
            two.set_checkpointing(checkpointing);
            assert!(
                Log::read(&mut two, writer.place(9) + HEADER, page_bytes) == tag(9, 100),
                "{checkpointing}"
            );
        }

        // This connection's own writes are visible immediately.
        writer.append(&mut two, 1, 0, &tag(9, 3));
        two.flush().expect("possible");
        let place = writer.place(frames) + HEADER;
        two.set_checkpointing(true);
        assert!(Log::read(&mut two, place, page_bytes) == tag(9, 3));
        writer.overwrite(&mut two, frames, &tag(9, 5));
        two.flush().expect("possible");
        assert!(Log::read(&mut two, place, page_bytes) == tag(9, 5));
    }
}

#[test]
fn a_size_of_pages_is_learned_again_from_a_new_header() {
    let bench = Bench::new();
    let (mut one, mut writer) = bench.started(4096);
    writer.append(&mut one, 1, 1, &with_room(1, 4096));
    let mut two = bench.wal();
    assert_eq!(recover(&mut two).expect("a log").frames.len(), 1);

    one.truncate(0).expect("possible");
    assert_eq!(Log::size(&mut two), 0);
    let mut writer = Writer::restart(&mut one, 8192, 2);
    writer.append(&mut one, 1, 2, &with_room(2, 8192));
    assert!(recover(&mut two).expect("a log").frames == [(1, with_room(2, 8192))]);
}

// Two writers take turns within one group: each updates the header page left by the other one.
#[test]
fn a_header_page_keeps_what_another_connection_wrote() {
    let bench = Bench::new();
    let (mut one, mut writer) = bench.started(4096);
    let mut two = bench.wal();
    for turn in 0..6 {
        let wal = if turn % 2 == 0 { &mut one } else { &mut two };
        writer.append(wal, 1, 0, &[turn; 4096]);
        writer.append(wal, 2, 2, &[turn; 4096]);
        assert_eq!(recover(wal).expect("a log").frames.len(), writer.committed);
    }
}

#[test]
fn a_flush_and_a_sync_hand_over_what_is_not_committed() {
    let bench = Bench::new();
    let (mut wal, mut writer) = bench.started(4096);
    for frames in 1..5 {
        writer.append(&mut wal, 1, 0, &[1; 4096]);
        assert_eq!(bench.store.writes(), []);
        assert_eq!(
            Log::size(&mut bench.wal()),
            writer.place(frames - 1),
            "another connection does not see it"
        );
        if frames % 2 == 0 {
            wal.flush().expect("possible")
        } else {
            wal.sync().expect("possible")
        }
        assert_eq!(bench.store.writes().len(), 2, "a page and its header page");
        assert_eq!(Log::size(&mut bench.wal()), writer.place(frames));
    }
}

// The pages of many frames cannot be written. Their headers must not be written either, once
// another connection writes.
#[test]
fn what_could_not_be_written_is_dropped() {
    let bench = Bench::new();
    let (mut wal, writer) = bench.started(4096);
    *bench.store.writes_left.lock().expect("nothing fails here") = Some(0);
    let failed = (0..64).any(|frame| {
        let header = wal.write(
            writer.place(frame) as u64,
            &[0x10, 0, 0, 0, 0, 0, 0, 0].repeat(3),
        );
        let page = wal.write((writer.place(frame) + HEADER) as u64, &[1; 4096]);
        header.is_err() || page.is_err()
    });
    assert!(failed);
    *bench.store.writes_left.lock().expect("nothing fails here") = None;

    let mut other = bench.wal();
    let mut writer = Writer::restart(&mut other, 4096, 2);
    writer.append(&mut other, 1, 1, &[2; 4096]);
    wal.sync().expect("possible");
    assert!(recover(&mut wal).expect("a log").frames == [(1, vec![2; 4096])]);
}

// After a crash of the machine the file's size is its allocated space.
#[test]
fn an_end_in_the_middle_of_a_group_is_a_size_in_whole_frames() {
    for page_bytes in [4096, 65536] {
        let bench = Bench::new();
        let (mut wal, mut writer) = bench.started(page_bytes);
        writer.append(&mut wal, 1, 1, &with_room(1, page_bytes));
        for pages in 2..400_u64 {
            bench
                .store
                .set_size(bench.file, pages * PAGE as u64)
                .expect("there is room");
            let size = Log::size(&mut wal);
            assert_eq!(
                (size - FILE_HEADER) % (HEADER + page_bytes),
                0,
                "{pages} pages"
            );
            let found = recover(&mut wal).map_or(0, |log| log.frames.len());
            assert_eq!(
                found,
                usize::from(pages >= 2 + (page_bytes / PAGE) as u64),
                "{pages} pages"
            );
            let mut into = vec![1; page_bytes];
            wal.read((size + HEADER) as u64, &mut into)
                .expect("nothing follows the end");
            assert!(into.iter().all(|byte| *byte == 0));
            if found == 0 {
                writer = Writer::restart(&mut wal, page_bytes, 1);
                writer.append(&mut wal, 1, 1, &with_room(1, page_bytes));
            }
        }
        let changes = bench.store.changes();
        assert!(
            changes
                .iter()
                .any(|change| matches!(change, Change::SetSize(_)))
        );
    }
}
