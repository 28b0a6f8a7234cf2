//! Every command of a script, cut after each of its operations and with each of them missing; and
//! many recoveries too.
//!
//! Commands are settled one by one, so a cut concerns one command. The campaign has many in
//! progress and draws its cuts; here the enumeration is complete.

use crate::kit::script::{
    Command, Contents, apply, draw, durable_schemes, execute, geometry, geometry_for, nearly_full,
    share, with_log,
};
use crate::kit::{self, Random, choices, content, cut, device};
use remap_ssd_ftl::{
    BufferedRemaps, Config, EntrySize, Ftl, Granularity, Guard, Guards, Lpn, Remap, SchemeKind,
};
use remap_ssd_media::{Geometry, Image, Media, Outcome, Page, Ppn, WordLine};
use std::collections::BTreeMap;
use std::ops::Range;

/// Dies, superblocks and pages per block. In the first shape superblocks have five pages of data,
/// so nearly every command collects.
const SHAPES: [(u32, u32, u32); 5] = [(1, 48, 7), (2, 30, 6), (2, 24, 8), (1, 30, 12), (3, 20, 5)];

/// Maximum number of pages of a command.
const LEN_MAX: u32 = 24;

/// Largest count of a counter of four bits.
const SMALL_COUNT: u16 = 15;

/// Pages of the smallest word lines of which not every cut is made, and the number of cuts then.
const SAMPLED_STRIPE: u32 = 12;
const SAMPLED_CUTS: usize = 12;

/// Owners of a page that needs the table of counts beyond the counter.
const MANY_OWNERS: u32 = 24;

/// A device with the maximum number of logical pages for the scheme, and little NVRAM.
fn tight(
    scheme: SchemeKind,
    entry: EntrySize,
    guards: Guards,
    variant: usize,
) -> (Geometry, Config) {
    mapped(Granularity::Page, scheme, entry, guards, variant)
}

fn mapped(
    mapping: Granularity,
    scheme: SchemeKind,
    entry: EntrySize,
    guards: Guards,
    variant: usize,
) -> (Geometry, Config) {
    let geometry = geometry_for(mapping, SHAPES[variant % SHAPES.len()]);
    let config = Config {
        lpns: 40,
        scheme,
        entry,
        guards,
        mapping,
        block_pages: [2, 2, 4, 3, 5][variant % SHAPES.len()],
        extension: [0.1, 0.0, 0.4][variant / 5 % 3],
        segment_bytes: [96, 72, 144][variant / 3 % 3],
        untorn_bytes: [64 << 10, 0][variant / 2 % 2],
        dealloc_slots: [64, 16, 6][variant / 7 % 3],
        count_max: [4, 2, 10][variant / 5 % 3],
        dedup: variant.is_multiple_of(2),
        gc_free: 0.0,
        ..Config::default()
    };

    let config = with_log(&geometry, &config, 128 * (variant as u64 + 2) % 768);
    (geometry, nearly_full(&geometry, &config, 0))
}

fn read_all(ftl: &mut Ftl) -> Result<Contents, String> {
    let identity = |(lpn, page)| match page {
        Ok(Page::Identity(identity)) => Ok(Some(identity)),
        Ok(_) => Ok(None),
        Err(error) => Err(format!("LPN {lpn}: {error}")),
    };
    let contents = (0..ftl.config().lpns)
        .map(|lpn| (lpn, ftl.read(Lpn(lpn))))
        .map(identity)
        .collect();
    ftl.media_mut().ops.clear();
    contents
}

/// Writes every LPN. If pages may have more owners than a small counter holds, the first LPN's page has them.
fn fill(ftl: &mut Ftl) {
    let owners = match ftl.config().count_max {
        0..=SMALL_COUNT => 1,
        _ => MANY_OWNERS,
    };
    for lpn in 0..ftl.config().lpns {
        if (1..owners).contains(&lpn) {
            ftl.remap(&share(lpn, 0)).unwrap();
        } else {
            ftl.write(Lpn(lpn), &content(u64::from(lpn) + 1000))
                .unwrap();
        }
    }
    assert!(
        ftl.stats().remaps >= u64::from(owners - 1),
        "{:?}",
        ftl.config()
    );
}

/// The earlier contents of each LPN that a cut may bring back, since its newer ones are in a volatile write buffer.
type Unflushed = Vec<Vec<Option<u64>>>;

/// Notes that a command was acknowledged.
fn note_unflushed(unflushed: &mut Unflushed, command: Command, before: &Contents, ftl: &Ftl) {
    if !ftl.config().has_volatile_buffer() {
        return;
    }
    let mut clear = |lpn: u32, len: u32| {
        unflushed[lpn as usize..(lpn + len) as usize]
            .iter_mut()
            .for_each(Vec::clear);
    };
    match command {
        Command::Flush => clear(0, before.len() as u32),
        Command::Deallocate { lpn, len } => clear(lpn, len),
        Command::WriteFor { lpn, .. } if ftl.config().scheme.uses_hints() => clear(lpn, 1),
        Command::Remap(Remap {
            target,
            source,
            len,
            ..
        }) => {
            clear(target.0, len);
            clear(source.0, len);
        }
        Command::Write { lpn, .. } | Command::WriteFor { lpn, .. } => {
            unflushed[lpn as usize].push(before[lpn as usize]);
        }
        Command::WriteMore { lpn, len, .. } => {
            for lpn in lpn as usize..(lpn + len) as usize {
                unflushed[lpn].push(before[lpn]);
            }
        }
    }
}

/// Pages of the largest write, and of the largest remap, that a cut leaves whole or absent.
fn untorn(ftl: &Ftl) -> (u32, u32) {
    let (writes, config) = (ftl.untorn_pages_max(), ftl.config());
    match config.buffered_remaps {
        BufferedRemaps::Wait if writes > 1 => (writes, writes.min(ftl.atomic_pages_max())),
        _ => (writes, 1),
    }
}

/// Checks that a cut of the command may leave these contents.
fn judge(
    command: Command,
    untorn: (u32, u32),
    (before, unflushed): (&Contents, &Unflushed),
    after: &Contents,
    read: &Contents,
) -> Result<(), String> {
    let is_before = |lpn: usize| read[lpn] == before[lpn] || unflushed[lpn].contains(&read[lpn]);
    for (lpn, read) in read.iter().enumerate() {
        if !is_before(lpn) && *read != after[lpn] {
            return Err(format!(
                "LPN {lpn}: from {:?} to {:?}, and {read:?} is read",
                before[lpn], after[lpn]
            ));
        }
    }

    if let Command::WriteMore { lpn, len, .. } = command
        && (2..=untorn.0).contains(&len)
    {
        let mut written = lpn as usize..(lpn + len) as usize;
        let is_absent = written.clone().all(is_before);
        let is_whole = written.all(|lpn| read[lpn] == after[lpn]);
        return match is_absent || is_whole {
            true => Ok(()),
            false => Err("a part of a write".into()),
        };
    }

    let Command::Remap(Remap {
        target,
        source,
        len,
        relocate,
        atomic,
    }) = command
    else {
        return Ok(());
    };
    let atomic = atomic || (2..=untorn.1).contains(&len);

    let touched = || {
        let sources = if relocate { len } else { 0 };
        let targets = Lpn::range(target, len);
        targets.chain(Lpn::range(source, sources)).map(Lpn::index)
    };
    let is_whole = || touched().all(|lpn| read[lpn] == after[lpn]);
    if atomic && !touched().all(is_before) && !is_whole() {
        return Err("a part of an atomic command".into());
    }

    // A page that the command overwrites anyway may be lost before its move has landed, like in
    // memmove.
    let gone = |at: &u32| {
        let stays = (target..target.offset(len)).contains(&source.offset(*at));
        let (target, source) = (target.offset(*at).index(), source.offset(*at).index());
        !stays && !is_before(source) && read[target] != after[target]
    };

    match (0..len).find(gone) {
        Some(at) if relocate => Err(format!(
            "page {at} is neither where it was nor where it was to go"
        )),
        _ => Ok(()),
    }
}

/// Cuts after each of the pending operations, and with each one missing; returns the number of
/// cuts. Where pages share word lines, the operation after the last one that landed is also torn. Where word lines
/// are large, `SAMPLED_CUTS` evenly spaced ones of these are made; which is the first depends on the number of the newest write.
fn each_cut(ftl: &Ftl, mut judge: impl FnMut(Media) -> Result<(), String>) -> Result<u64, String> {
    let pending = choices(ftl);
    let stripe = ftl.media().geometry().stripe();
    let prefixes = (0..pending).map(|landed| (landed..pending, false));
    let but_one = (0..pending.saturating_sub(1)).map(|missing| (missing..missing + 1, false));
    let torn = (0..if stripe > 1 { pending } else { 0 }).map(|landed| (landed..pending, true));
    let all: Vec<(Range<usize>, bool)> = prefixes.chain(but_one).chain(torn).collect();

    let step = match stripe {
        SAMPLED_STRIPE.. => all.len().div_ceil(SAMPLED_CUTS).max(1),
        _ => 1,
    };
    let mut cuts = 0;
    for (absent, is_torn) in all.iter().skip(ftl.wsn() as usize % step).step_by(step) {
        let left = match is_torn {
            true => tear(ftl, absent.start),
            false => cut(ftl, absent),
        };
        cuts += 1;
        let how = if *is_torn { "torn, " } else { "" };
        judge(Media::from_image(&left))
            .map_err(|what| format!("{how}cut without {absent:?} of {pending}: {what}"))?;
    }
    Ok(cuts)
}

/// What a cut within one of the pending operations leaves; those after it have not begun.
fn tear(ftl: &Ftl, landed: usize) -> Image {
    let mut ops = 0..;
    ftl.media().cut(|| match ops.next().expect("without end") {
        op if op < landed => Outcome::Whole,
        op if op == landed => Outcome::Torn(landed as u64),
        _ => Outcome::Absent,
    })
}

/// Returns the number of cuts, or the loss found by one of them.
fn run(device: &(Geometry, Config), seed: u64, commands: u64) -> Result<u64, String> {
    run_counted(device, seed, commands).map(|run| run.cuts)
}

/// What happened in a run.
#[derive(Default)]
struct RunCounts {
    cuts: u64,
    /// Superblocks refreshed before a cut.
    refreshed: u64,
    /// Commands during which a page with more owners than a small counter holds was moved.
    many_moved: u64,
    table_programs: u64,
    /// Pages that left the write buffer.
    written_back: u64,
    /// Pages that remaps put into it.
    named: u64,
    /// Pages moved from superblocks in SLC mode before a cut, and pages written past these.
    folded: u64,
    past_slc: u64,
}

/// The place of the page that most LPNs have, if these are more than a small counter holds.
fn most_owned(ftl: &mut Ftl, contents: &Contents) -> Option<Ppn> {
    if ftl.config().count_max <= SMALL_COUNT {
        return None;
    }
    let mut pages: BTreeMap<Ppn, u16> = BTreeMap::new();
    for lpn in (0..)
        .zip(contents)
        .filter(|(_, held)| held.is_some())
        .map(|(lpn, _)| lpn)
    {
        *pages.entry(kit::page_of(ftl, lpn)).or_default() += 1;
    }
    let most = pages.into_iter().max_by_key(|(_, owners)| *owners)?;
    (most.1 > SMALL_COUNT).then_some(most.0)
}

/// Cuts each command of a run; returns the loss found by a cut, if any. One recovery in `RECOVERY_CUT` is cut as
/// well.
fn run_counted(
    (geometry, config): &(Geometry, Config),
    seed: u64,
    commands: u64,
) -> Result<RunCounts, String> {
    const RECOVERY_CUT: u64 = 16;
    let mut ftl = device(*geometry, config);
    let mut random = Random(seed);
    fill(&mut ftl);
    ftl.flush().expect("there is room");
    ftl.media_mut().ops.clear();
    ftl.media_mut().attach_rail();
    let mut contents = read_all(&mut ftl)?;
    let mut unflushed: Unflushed = vec![Vec::new(); contents.len()];

    let mut done = RunCounts::default();
    for number in 0..commands {
        let (before, earlier) = (contents, ftl.stats());
        let many = most_owned(&mut ftl, &before);
        let command = if config.has_volatile_buffer() && random.below(6) == 0 {
            Command::Flush
        } else {
            draw(&mut random, &ftl, 10_000 + number, LEN_MAX)
        };
        let at = |what: String| {
            format!(
                "{}, seed {seed}, command {number} {command:?}: {what}",
                config.scheme
            )
        };
        execute(&mut ftl, command).map_err(|refusal| at(refusal.to_string()))?;
        // Folds in idle time are cut with the command before them.
        if (config.slc_share > 0.0 || config.slc_dynamic > 0.0) && random.below(3) == 0 {
            for _ in 0..1 + random.below(4) {
                ftl.background();
            }
        }
        ftl.media_mut().ops.clear();
        contents = before.clone();
        apply(command, &mut contents);
        if read_all(&mut ftl)? != contents {
            return Err(at("it does something else".into()));
        }
        let counts = ftl.stats() - earlier;
        done.refreshed += counts.refresh_runs;
        done.table_programs += counts.table_programs;
        done.written_back += counts.buffer_written_back;
        done.named += counts.buffer_remapped;
        done.folded += counts.slc_folded;
        done.past_slc += counts.host_programs.saturating_sub(counts.slc_programs);
        let now = most_owned(&mut ftl, &contents);
        done.many_moved += u64::from(many.is_some() && now.is_some() && now != many);
        ftl.media_mut().ops.clear();

        let power_on = |media: Media| -> Result<Ftl, String> {
            let (mut ftl, _) =
                Ftl::recover(media, config.clone()).map_err(|error| error.to_string())?;
            ftl.check().map_err(|wrong| wrong.to_string())?;
            let read = read_all(&mut ftl)?;
            judge(
                command,
                untorn(&ftl),
                (&before, &unflushed),
                &contents,
                &read,
            )?;
            Ok(ftl)
        };

        let mut again = 0;
        done.cuts += each_cut(&ftl, |mut media| {
            if random.below(RECOVERY_CUT) > 0 {
                return power_on(media).map(|_| ());
            }
            media.attach_rail();
            again += each_cut(&power_on(media)?, |media| power_on(media).map(|_| ()))?;
            Ok(())
        })
        .map_err(at)?;
        done.cuts += again;

        // Sometimes one of the cuts really happens.
        if random.below(4) == 0 {
            let pending = choices(&ftl);
            let landed = random.below(pending as u64 + 1) as usize;
            let left = cut(&ftl, &(landed..pending));
            ftl = power_on(Media::from_image(&left)).map_err(at)?;
            contents = read_all(&mut ftl)?;
            unflushed.iter_mut().for_each(Vec::clear);
            ftl.media_mut().attach_rail();
        } else {
            note_unflushed(&mut unflushed, command, &before, &ftl);
        }
        ftl.media_mut().settle_all();
    }
    Ok(done)
}

/// Number of devices of each scheme, of each shape and with several sizes of everything else: ten,
/// or the value of `EVERY_CUT`.
fn variants() -> usize {
    kit::number_from("EVERY_CUT").unwrap_or(10)
}

#[test]
fn nothing_is_lost() {
    let mut cuts = 0;
    for (scheme, entry) in durable_schemes() {
        for variant in 0..variants() {
            cuts += run(
                &tight(scheme, entry, Guards::ALL, variant),
                variant as u64 + 1,
                120,
            )
            .unwrap();
        }
    }

    for seed in 2..=4 {
        cuts += run(
            &tight(SchemeKind::WalSsd, EntrySize::Bytes16, Guards::ALL, 0),
            seed,
            700,
        )
        .unwrap();
    }
    println!("{cuts} cuts");
}

/// Cuts while a page has more owners than a small counter holds, gains and loses some, and moves.
#[test]
fn nothing_is_lost_of_pages_with_many_owners() {
    let (mut cuts, mut moved) = (0, 0);
    let few = |scheme| {
        matches!(
            scheme,
            SchemeKind::None | SchemeKind::Pebble | SchemeKind::WalSsd
        )
    };
    for (scheme, entry) in durable_schemes().filter(|(scheme, _)| !few(*scheme)) {
        for variant in (0..variants()).step_by(5) {
            let (geometry, config) = tight(scheme, entry, Guards::ALL, variant);
            let config = Config {
                lpns: 40,
                count_max: [u16::MAX, MANY_OWNERS as u16][variant / 5 % 2],
                gc_free: 0.5,
                wear_gap: 1,
                ..config
            };
            let config = with_log(&geometry, &config, 2048);
            let device = (geometry, nearly_full(&geometry, &config, 0));
            let done = run_counted(&device, variant as u64 + 1, 12).unwrap();
            cuts += done.cuts;
            moved += done.many_moved;
        }
    }
    println!("{cuts} cuts, {moved} moves of such a page");
    assert!(moved > 3, "{moved} moves");
}

#[test]
fn nothing_is_lost_of_blocks_in_order() {
    let mut cuts = 0;
    for (scheme, entry) in durable_schemes().filter(|(scheme, _)| scheme.needs_pages().is_none()) {
        for variant in (0..variants()).step_by(3) {
            let device = mapped(Granularity::Hybrid, scheme, entry, Guards::ALL, variant);
            cuts += run(&device, variant as u64 + 1, 60).unwrap();
        }
    }
    println!("{cuts} cuts");
}

/// Word lines of a device: planes, pages of a cell, whether they are programmed at once.
const WORD_LINES: [(u32, u32, bool); 4] =
    [(4, 1, true), (2, 2, false), (2, 3, true), (1, 3, false)];

/// The same, with word lines of 12 and of 48 pages of 4 KiB: planes, bytes of a page, bits of a cell, whether they are programmed at
/// once.
const LARGE_LINES: [(u32, u32, u32, bool); 4] = [
    (2, 8192, 3, true),
    (4, 16384, 3, true),
    (2, 8192, 3, false),
    (4, 16384, 3, false),
];

/// A device without power-loss protection, unless the scheme needs it, with the maximum number of logical pages.
fn in_lines(scheme: SchemeKind, entry: EntrySize, variant: usize) -> (Geometry, Config) {
    let (planes, bits, one_shot) = WORD_LINES[variant % WORD_LINES.len()];
    let word_line = WordLine {
        planes,
        bits,
        one_shot,
        ..WordLine::SINGLE
    };
    in_lines_of(word_line, scheme, entry, variant)
}

fn in_lines_of(
    word_line: WordLine,
    scheme: SchemeKind,
    entry: EntrySize,
    variant: usize,
) -> (Geometry, Config) {
    let is_large = word_line.pages() >= SAMPLED_STRIPE;
    let shape = if is_large { (1, 16, 4) } else { (2, 30, 4) };
    let (dies, superblocks, lines) = shape;
    let geometry = geometry((dies, superblocks, lines * word_line.pages()))
        .with_word_line(word_line)
        .expect("blocks of four word lines");
    let config = Config {
        lpns: 40,
        scheme,
        entry,
        power_loss_protection: scheme.keeps_entries_on_flash(),
        dealloc_slots: [64, 16, 6][variant / 4 % 3],
        dedup: variant.is_multiple_of(2),
        gc_free: 0.0,
        ..Config::default()
    };
    let config = with_log(&geometry, &config, 256);
    (geometry, nearly_full(&geometry, &config, 0))
}

#[test]
fn nothing_is_lost_of_word_lines() {
    let mut cuts = 0;
    for (scheme, entry) in durable_schemes().filter(|(scheme, _)| !scheme.keeps_entries_on_flash())
    {
        for variant in 0..variants().min(4) {
            let device = in_lines(scheme, entry, variant);
            cuts += run(&device, variant as u64 + 1, 30).unwrap();
        }
    }
    println!("{cuts} cuts");
}

/// Word lines of 12 and of 48 pages, and sampled cuts.
#[test]
fn nothing_is_lost_of_large_word_lines() {
    let mut cuts = 0;
    for (scheme, entry) in durable_schemes().filter(|(scheme, _)| !scheme.keeps_entries_on_flash())
    {
        for (variant, (planes, page_bytes, bits, one_shot)) in (0..).zip(LARGE_LINES) {
            let word_line = WordLine {
                planes,
                page_bytes,
                bits,
                one_shot,
                ..WordLine::SINGLE
            };
            let device = in_lines_of(word_line, scheme, entry, variant);
            cuts += run(&device, variant as u64 + 1, 20).unwrap();
        }
    }
    println!("{cuts} cuts");
}

/// Superblocks are refreshed while each LPN is read after a command, so that the cuts of the command are also
/// those of the refresh.
#[test]
fn nothing_is_lost_while_superblocks_are_refreshed() {
    let reads = |(geometry, config): (Geometry, Config)| {
        let config = Config {
            refresh_reads: 8 * geometry.pages_per_block(),
            refresh_writes: geometry.pages().into(),
            ..config
        };
        (geometry, config)
    };
    let (mut cuts, mut refreshed) = (0, 0);
    let mut try_all = |device: (Geometry, Config), variant: usize, commands: u64| {
        let seed = variant as u64 + 1;
        let run = run_counted(&reads(device), seed, commands).unwrap();
        cuts += run.cuts;
        refreshed += run.refreshed;
        run.refreshed
    };
    for (scheme, entry) in durable_schemes() {
        let (on_flash, mut runs) = (scheme.keeps_entries_on_flash(), 0);
        for variant in (0..variants()).step_by(5) {
            let device = tight(scheme, entry, Guards::ALL, variant);
            runs += try_all(device, variant, 20);
        }
        if !on_flash {
            let device = in_lines(scheme, entry, variants() / 3);
            runs += try_all(device, 1, 15);
        }
        if scheme.needs_pages().is_none() {
            let device = mapped(Granularity::Hybrid, scheme, entry, Guards::ALL, 0);
            runs += try_all(device, 1, 15);
        }
        assert!(runs > 0, "{scheme}");
    }
    println!("{cuts} cuts, {refreshed} refreshes");
}

/// L2P is on flash, and few of its entries are cached: all commands and reads program translation pages.
#[test]
fn nothing_is_lost_while_a_part_of_the_table_is_cached() {
    let (mut cuts, mut programs) = (0, 0);
    for (scheme, entry) in durable_schemes().filter(|(scheme, _)| *scheme != SchemeKind::Pebble) {
        let (on_flash, seed) = (scheme.keeps_entries_on_flash(), 1);
        for variant in (0..variants()).step_by(3) {
            let in_lines = (!on_flash && variant == 3).then(|| in_lines(scheme, entry, variant));
            let (geometry, config) =
                in_lines.unwrap_or_else(|| tight(scheme, entry, Guards::ALL, variant));
            let config = Config {
                lpns: 40,
                mapping_cache_bytes: [64, 160][variant % 2],
                ..config
            };
            let device = (geometry, nearly_full(&geometry, &config, 0));
            let run = run_counted(&device, seed + variant as u64, 20).unwrap();
            cuts += run.cuts;
            programs += run.table_programs;
        }
    }
    println!("{cuts} cuts, {programs} programs of translation pages");
    assert!(programs > 1000);
}

/// Commands of up to 24 pages on a device whose write buffer holds 2 to 9: they fill each slot several times.
fn buffering(
    scheme: SchemeKind,
    entry: EntrySize,
    guards: Guards,
    variant: usize,
) -> (Geometry, Config) {
    let (geometry, config) = tight(scheme, entry, guards, variant);
    let config = Config {
        lpns: 40,
        write_buffer_bytes: [2, 5, 9][variant % 3] * 4096,
        mapping_cache_bytes: match scheme {
            SchemeKind::Pebble => 0,
            _ => [0, 64][variant / 3 % 2],
        },
        ..config
    };
    (geometry, nearly_full(&geometry, &config, 0))
}

#[test]
fn nothing_is_lost_of_pages_in_the_write_buffer() {
    let (mut cuts, mut written_back) = (0, 0);
    for (scheme, entry) in durable_schemes() {
        for variant in 0..variants().min(6) {
            let device = buffering(scheme, entry, Guards::ALL, variant);
            let run = run_counted(&device, 1 + variant as u64, 12).unwrap();
            cuts += run.cuts;
            written_back += run.written_back;
        }
    }
    println!("{cuts} cuts, {written_back} pages written back");
    assert!(written_back > 1000);
}

/// Remaps name pages in the buffer. Half of the devices find no duplicates on their own.
#[test]
fn nothing_is_lost_of_remaps_that_name_pages_in_the_write_buffer() {
    let (mut cuts, mut written_back, mut named) = (0, 0, 0);
    for scheme in kit::durable() {
        for variant in 0..variants().min(6) {
            let (geometry, config) = buffering(scheme, EntrySize::Bytes16, Guards::ALL, variant);
            let config = Config {
                write_buffer_bytes: [4, 9, 24][variant % 3] * 4096,
                buffered_remaps: BufferedRemaps::Name,
                dedup: variant % 2 == 0,
                ..config
            };
            let run = run_counted(&(geometry, config), 30 + variant as u64, 30).unwrap();
            cuts += run.cuts;
            written_back += run.written_back;
            named += run.named;
        }
    }
    println!("{cuts} cuts, {written_back} pages written back, {named} pages named");
    assert!(written_back > 500 && named > 200, "{named}");
}

/// A device whose write buffer a cut empties, where the scheme permits it in word lines too.
fn volatile(
    scheme: SchemeKind,
    entry: EntrySize,
    guards: Guards,
    variant: usize,
) -> (Geometry, Config) {
    let (geometry, config) = if variant % 4 == 3 && !scheme.keeps_entries_on_flash() {
        let (geometry, config) = in_lines(scheme, entry, variant / 4);
        let bytes = u64::from(2 * geometry.stripe()) * 4096;
        (
            geometry,
            Config {
                write_buffer_bytes: bytes,
                guards,
                ..config
            },
        )
    } else {
        buffering(scheme, entry, guards, variant)
    };
    let config = Config {
        lpns: 40,
        power_loss_protection: false,
        ..config
    };
    (geometry, nearly_full(&geometry, &config, 0))
}

/// A cut leaves a page in a volatile buffer as it was at any time since the last flush, and everything else as
/// without a buffer.
#[test]
fn nothing_is_lost_that_was_flushed_from_a_volatile_write_buffer() {
    let (mut cuts, mut written_back) = (0, 0);
    for (scheme, entry) in durable_schemes() {
        for variant in 0..variants().min(6) {
            let device = volatile(scheme, entry, Guards::ALL, variant);
            let run = run_counted(&device, 1 + variant as u64, 16).unwrap();
            cuts += run.cuts;
            written_back += run.written_back;
        }
    }
    println!("{cuts} cuts, {written_back} pages written back");
    assert!(written_back > 1000);
}

/// Without its guard a flush, or a command that names a page, promises too much.
#[test]
fn a_volatile_write_buffer_needs_its_guard() {
    let guards = Guards::without(Guard::FlushWaits);
    let lost = (0..6).any(|variant| {
        let device = volatile(SchemeKind::RemapSsd, EntrySize::Bytes16, guards, variant);
        acknowledged_flush(&device, variant as u64 + 1).is_err()
    });
    assert!(lost, "{} is not needed", Guard::FlushWaits);
    for variant in 0..6 {
        let device = volatile(
            SchemeKind::RemapSsd,
            EntrySize::Bytes16,
            Guards::ALL,
            variant,
        );
        acknowledged_flush(&device, variant as u64 + 1).unwrap();
    }
}

/// Writes, flushes, and cuts right after the acknowledgement: every operation that it did not wait for may be missing.
fn acknowledged_flush((geometry, config): &(Geometry, Config), seed: u64) -> Result<(), String> {
    let mut ftl = device(*geometry, config);
    let mut random = Random(seed);
    fill(&mut ftl);
    ftl.flush().expect("there is room");
    ftl.media_mut().attach_rail();
    for number in 0..20 {
        for at in 0..1 + random.below(4) {
            let lpn = random.below(u64::from(config.lpns)) as u32;
            ftl.write(Lpn(lpn), &content(10_000 + 10 * number + at))
                .expect("there is room");
        }
        ftl.media_mut().begin_command();
        ftl.flush().expect("there is room");
        let ack = ftl.media_mut().take_ack();
        ftl.media_mut().settle(&ack);

        let contents = read_all(&mut ftl)?;
        each_cut(&ftl, |media| judge_flushed(media, config, &contents))?;
        let left = cut(&ftl, &(0..choices(&ftl)));
        judge_flushed(Media::from_image(&left), config, &contents)?;
    }
    Ok(())
}

fn judge_flushed(media: Media, config: &Config, contents: &Contents) -> Result<(), String> {
    let (mut ftl, _) = Ftl::recover(media, config.clone()).map_err(|error| error.to_string())?;
    match read_all(&mut ftl)? == *contents {
        true => Ok(()),
        false => Err("a page that was flushed is lost".into()),
    }
}

/// Without each of its guards something is lost.
#[test]
fn the_write_buffer_needs_its_guards() {
    for guard in [Guard::BufferReuse, Guard::BufferWhole, Guard::BufferedExist] {
        let lost = (0..variants().max(12)).any(|variant| {
            let entry = EntrySize::Bytes16;
            let device = buffering(SchemeKind::RemapSsd, entry, Guards::without(guard), variant);
            run(&device, variant as u64 + 1, 60).is_err()
        });
        assert!(lost, "{guard} is not needed");
    }
}

/// Pages are written in SLC mode and folded, with all owners, with and without a buffer that survives a cut.
#[test]
fn nothing_is_lost_while_pages_are_folded() {
    let (mut cuts, mut folded, mut past) = (0, 0, 0);
    for (scheme, entry) in durable_schemes() {
        let mut folded_here = 0;
        // Cells of two bits and of three, programmed at once and page by page.
        let variants = [1, 6, 7, 2, 3, 5].into_iter().take(variants() / 3);
        for variant in variants {
            let (geometry, config) = in_lines(scheme, entry, variant);
            let protected = scheme.keeps_entries_on_flash() || variant < WORD_LINES.len();
            let config = Config {
                lpns: 40,
                slc_share: [0.1, 0.2][variant % 2],
                slc_fold_garbage: [0.5, 0.0][variant / 2 % 2],
                power_loss_protection: protected,
                ..config
            };
            let config = with_log(&geometry, &config, 512);
            let device = (geometry, nearly_full(&geometry, &config, 0));
            let run = run_counted(&device, variant as u64 + 1, 12).unwrap();
            cuts += run.cuts;
            folded_here += run.folded;
            past += run.past_slc;
        }
        assert!(folded_here > 10, "{scheme}: {folded_here}");
        folded += folded_here;
    }
    println!("{cuts} cuts, {folded} pages folded, {past} pages past the SLC area");
    assert!(past > 50, "{past}");
}

/// Superblocks are opened in SLC mode where there is room, and are folded, erased and opened with all bits.
#[test]
fn nothing_is_lost_while_superblocks_change_their_mode() {
    let (mut cuts, mut folded, mut past) = (0, 0, 0);
    for (scheme, entry) in durable_schemes() {
        let mut folded_here = 0;
        let variants = [1, 6, 7, 2, 3, 5].into_iter().take(variants() / 3);
        for variant in variants {
            let (geometry, config) = in_lines(scheme, entry, variant);
            let protected = scheme.keeps_entries_on_flash() || variant < WORD_LINES.len();
            let config = Config {
                lpns: 40,
                slc_dynamic: [0.2, 1.0][variant % 2],
                slc_fold_garbage: [0.5, 0.0][variant / 2 % 2],
                power_loss_protection: protected,
                ..config
            };
            let config = with_log(&geometry, &config, 512);
            // Two superblocks more than the device needs.
            let spared = 2 * config.data_pages(&geometry);
            let device = (geometry, nearly_full(&geometry, &config, spared));
            let run = run_counted(&device, variant as u64 + 1, 12).unwrap();
            cuts += run.cuts;
            folded_here += run.folded;
            past += run.past_slc;
        }
        assert!(folded_here > 10, "{scheme}: {folded_here}");
        folded += folded_here;
    }
    println!("{cuts} cuts, {folded} pages folded, {past} pages past the cache");
    assert!(past > 50, "{past}");
}

/// The campaign, which draws few of many cuts, does not notice the absence of this guard.
#[test]
fn a_record_that_is_stored_too_late_is_missed() {
    let setup = tight(
        SchemeKind::WalSsd,
        EntrySize::Bytes16,
        Guards::without(Guard::RecordBeforeReclaim),
        0,
    );
    let end = (1..=4).try_for_each(|seed| run(&setup, seed, 2000).map(|_| ()));
    assert!(end.is_err(), "wal-ssd does as well without it");
}
