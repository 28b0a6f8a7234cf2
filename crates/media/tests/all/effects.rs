//! Fast paths are equivalent to the general one.
//!
//! Media without rail, folder and faults change only their cells, sometimes many at a time. The
//! same script runs on them and on media where every effect takes the general path: cells, NVRAM,
//! counts and the record of operations must agree throughout.

use crate::kit::numbers::Numbers;
use remap_ssd_media::geometry::{PAGE_BYTES, PageSlot, Shape};
use remap_ssd_media::{
    After, BlockId, ContentMode, Geometry, Lpn, Media, MediaError, Oob, Payload, Ppn, Purpose,
    SbId, StoredPage,
};

/// At least as long as the longest record of a folder's journal.
const WORDS: usize = 600;
/// A word that no script stores to.
const UNUSED: usize = WORDS;

fn geometry() -> Geometry {
    Geometry::new(Shape {
        channels: 1,
        dies: 4,
        superblocks: 4,
        pages_per_block: 4,
    })
    .expect("valid")
}

fn blank(mode: ContentMode) -> Media {
    Media::blank(geometry(), mode, WORDS + 1)
}

fn in_memory() -> Media {
    Media::in_memory(geometry(), WORDS + 1).expect("there is memory")
}

fn watched(mut media: Media) -> Media {
    media.attach_rail();
    media
}

/// Planted faults disable fast paths, even if none is hit.
fn faulty(mut media: Media) -> Media {
    media.plant(|faults| faults.flips.extend([(UNUSED, 1)]));
    media
}

/// One step of a script.
#[derive(Clone, Copy, Debug)]
enum Step {
    Data { to: Ppn, value: u64 },
    Meta { to: Ppn, value: u64 },
    Copy { from: Ppn, to: Ppn },
    Row { from: [Option<Ppn>; 4], to: Ppn },
    Erase(BlockId),
    FailedProgram { to: Ppn },
    FailedErase(BlockId),
    Store { word: usize, value: u64 },
    Record { word: usize, value: u64 },
    LongRecord { word: usize, value: u64 },
    Records { word: usize, value: u64 },
    Moved { from: usize, to: usize },
    Change { word: usize, value: u64 },
    Capacitor { word: usize, value: u64 },
    Clear { start: usize, len: usize },
    ClearCapacitor { start: usize, len: usize },
}

/// Pages of a superblock that hold data.
fn data_pages(media: &Media, sb: SbId) -> Vec<Ppn> {
    let (geometry, first) = (media.geometry(), media.geometry().page(sb, 0).0);
    (first..first + geometry.pages_per_superblock())
        .map(Ppn)
        .filter(|ppn| media.is_readable(*ppn) && !media.is_meta(*ppn))
        .collect()
}

fn draw_flash(numbers: &mut Numbers, media: &Media) -> Step {
    let geometry = media.geometry();
    let block = BlockId(numbers.below(geometry.blocks().into()) as u32);
    let (row, (sb, die)) = (media.next_row(block), geometry.place_of_block(block));
    let fails = numbers.below(150) == 0;
    if row == geometry.pages_per_block() {
        return if fails {
            Step::FailedErase(block)
        } else {
            Step::Erase(block)
        };
    }

    let to = geometry.page(sb, row * geometry.dies() + die);
    if fails {
        return Step::FailedProgram { to };
    }

    let value = numbers.below(u64::MAX);
    let sources = data_pages(
        media,
        SbId(numbers.below(geometry.superblocks().into()) as u32),
    );
    let nth = numbers.below(sources.len().max(1) as u64) as usize;
    match numbers.below(8) {
        0 => Step::Meta { to, value },
        1..3 => Step::Data { to, value },
        _ if sources.is_empty() => Step::Data { to, value },
        3 => {
            let from = sources[nth];
            Step::Copy { from, to }
        }
        _ => {
            // Uses consecutive dies at the same row, as far as there are sources.
            let mut from = [None; 4];
            let dies = (die..geometry.dies())
                .take_while(|die| media.next_row(geometry.block(sb, *die)) == row)
                .count();
            let runs = sources[nth..].iter().step_by(1 + numbers.below(2) as usize);
            for (place, source) in from[..dies].iter_mut().zip(runs) {
                *place = Some(*source);
            }
            Step::Row { from, to }
        }
    }
}

fn draw(numbers: &mut Numbers, media: &Media) -> Step {
    let word = numbers.below(WORDS as u64 - 300) as usize;
    let value = numbers.below(u64::MAX);
    let (start, len) = (word, (value % 300) as usize);

    match numbers.below(18) {
        0 => Step::Store { word, value },
        1 => Step::Record { word, value },
        2 => Step::LongRecord { word, value },
        3 => Step::Records { word, value },
        4 => Step::Moved {
            from: word,
            to: (value % (WORDS as u64 - 12)) as usize,
        },
        5 => Step::Change { word, value },
        6 => Step::Capacitor { word, value },
        7 => Step::Clear { start, len },
        8 => Step::ClearCapacitor { start, len },
        _ => draw_flash(numbers, media),
    }
}

fn oob(value: u64) -> Oob {
    Oob::new(Lpn(value as u32 / 2), value >> 30, 1)
}

fn program(media: &mut Media, to: PageSlot, value: u64) {
    let bytes = [value as u8; PAGE_BYTES];
    let payload = match media.mode() {
        ContentMode::Bytes => Payload::Bytes(&bytes),
        ContentMode::None | ContentMode::Identity => Payload::Identity(value),
    };
    media
        .program_payload(to, oob(value), &payload, Purpose::Host, After::NOTHING)
        .expect("no fault is met");
}

fn copy(media: &mut Media, from: Ppn, to: Ppn) {
    let to = media.geometry().slot(to);
    let oob = oob(from.0.into());
    media
        .copy(from, to, oob, b"lost", Purpose::Gc, After::NOTHING)
        .expect("no fault is met");
}

fn copy_row(media: &mut Media, from: [Option<Ppn>; 4], to: Ppn) {
    let pages: Vec<(Ppn, Oob)> = from
        .into_iter()
        .flatten()
        .map(|from| (from, oob(from.0.into())))
        .collect();
    let recorded = media.ops.len();
    if media.is_sound() {
        let slot = media.geometry().slot(to);
        media.copy_row(slot, pages.into_iter(), After::NOTHING);
    } else {
        for (place, (from, _)) in (to.0..).zip(pages) {
            copy(media, from, Ppn(place));
        }
    }
    // A row is one operation or many; the firmware's tests compare their records.
    media.ops.truncate(recorded);
}

fn take(media: &mut Media, step: Step) {
    const HOST: Purpose = Purpose::Host;
    let record = |value: u64| [value, !value, value ^ 1];
    match step {
        Step::Data { to, value } => program(media, geometry().slot(to), value),
        Step::Meta { to, value } => {
            let bytes = vec![value as u8; (value % (PAGE_BYTES as u64 + 1)) as usize];
            media
                .program(
                    to,
                    oob(value),
                    StoredPage::Meta(bytes.into()),
                    Purpose::Meta,
                    After::NOTHING,
                )
                .expect("no fault is met");
        }
        Step::Copy { from, to } => copy(media, from, to),
        Step::Row { from, to } => copy_row(media, from, to),
        Step::Erase(block) => {
            let id = media.name_next();
            media
                .erase(block, id, After::NOTHING)
                .expect("no fault is met");
        }
        Step::FailedProgram { to } => {
            let PageSlot { block, row, .. } = geometry().slot(to);
            media.plant(|faults| faults.program.extend([(block, row)]));
            let stored = StoredPage::Meta(b"head".as_slice().into());
            let done = media.program(to, oob(1), stored, HOST, After::NOTHING);
            assert_eq!(done, Err(MediaError::ProgramFailed));
            media.plant(|faults| faults.program.clear());
        }
        Step::FailedErase(block) => {
            media.plant(|faults| faults.erase.extend([block]));
            let id = media.name_next();
            let done = media.erase(block, id, After::NOTHING);
            assert_eq!(done, Err(MediaError::EraseFailed));
            media.plant(|faults| faults.erase.clear());
        }
        Step::Store { word, value } => media.store(word, value, HOST, After::NOTHING),
        Step::Record { word, value } => {
            media.store_record(word, &record(value), HOST, After::FENCE)
        }
        Step::LongRecord { word, value } => {
            media.store_record(word, &[value; 300], HOST, After::NOTHING)
        }
        Step::Records { word, value } => {
            let records = [record(value), record(!value)];
            media.store_records(word, &records, Purpose::Gc, |_| After::NOTHING);
        }
        Step::Moved { from, to } => {
            // Records move to a disjoint range.
            if from.abs_diff(to) >= 12 {
                let after = |_: &[u64; 3]| After::NOTHING;
                media.move_records::<3>(from..from + 12, to, Purpose::Gc, after);
            }
        }
        Step::Change { word, value } => {
            media.change_record(word..word + 3, word + 1, value, HOST, After::NOTHING)
        }
        Step::Capacitor { word, value } => {
            media.store_capacitor(word, &record(value), HOST, After::FENCE)
        }
        Step::Clear { start, len } => drop(media.clear(start, len, After::NOTHING)),
        Step::ClearCapacitor { start, len } => {
            media.clear_capacitor(start, len, After::NOTHING);
        }
    }
}

/// Runs a script on a plain device and on others; returns the number of rows of copies.
fn run(mut plain: Media, others: &mut [(&str, Media)], seed: u64, steps: u32) -> u32 {
    let mut numbers = Numbers(seed);
    let mut rows = 0;
    for nth in 0..steps {
        let step = draw(&mut numbers, &plain);
        rows += u32::from(matches!(step, Step::Row { .. }));
        plain.ops.clear();
        take(&mut plain, step);
        for (name, other) in others.iter_mut() {
            let at = || format!("{name}, seed {seed}, step {nth}: {step:?}");
            other.ops.clear();
            take(other, step);
            assert_eq!(other.counts, plain.counts, "{}", at());
            let (done, plainly) = (format!("{:?}", other.ops), format!("{:?}", plain.ops));
            assert_eq!(done, plainly, "{}", at());
            if nth % 4 != 0 {
                continue;
            }

            let plainly = plain.to_image().digest();
            assert_eq!(other.to_image().digest(), plainly, "{}", at());
            assert_eq!(other.erase_counts(), plain.erase_counts(), "{}", at());

            // The pending operations are those done.
            if other.has_rail() && nth % 16 == 0 {
                other.settle_all();
                let settled = other.cut(|| unreachable!("nothing is pending"));
                assert_eq!(settled.digest(), plainly, "settled {}", at());
            }
        }
    }
    rows
}

#[test]
fn plain_media_of_identities_do_what_watched_and_faulty_ones_do() {
    for mode in [ContentMode::Identity, ContentMode::None] {
        let mut rows = 0;
        for seed in 1..=3 {
            let mut others = [
                ("watched", watched(blank(mode))),
                ("faulty", faulty(blank(mode))),
                ("both", watched(faulty(blank(mode)))),
            ];
            rows += run(blank(mode), &mut others, seed, 1500);
        }
        assert!(rows > 100, "{rows} rows");
    }
}

#[test]
fn bytes_are_the_same_wherever_they_are_kept() {
    let (mut rows, mut states) = (0, 0);
    for seed in 1..=2 {
        let folders = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
        let create = |nth: usize| {
            Media::create_folder(folders[nth].path(), geometry(), WORDS + 1, Some(16 << 10))
                .expect("an empty folder")
        };
        let mut others = [
            ("watched", watched(blank(ContentMode::Bytes))),
            ("mapped", in_memory()),
            ("mapped and watched", watched(in_memory())),
            ("mapped and faulty", faulty(in_memory())),
            ("in a folder", create(0)),
            ("in a folder and faulty", faulty(create(1))),
        ];
        rows += run(blank(ContentMode::Bytes), &mut others, seed, 600);

        let [.., (_, left), _] = others;
        let image = left.to_image().digest();
        states += left.generation().expect("it is in a folder");
        drop(left);
        let (found, report) = Media::open_folder(folders[0].path()).expect("the files are whole");
        assert_eq!((found.to_image().digest(), report.dropped), (image, 0));
    }
    assert!(rows > 50 && states > 10, "{rows} rows, {states} states");
}
