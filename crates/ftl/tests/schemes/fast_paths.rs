//! The fast paths by rows and runs have the same result as the path page by page.
//!
//! Two devices get the same commands. One is plain; the other has a power rail attached, so that
//! every page and every entry is handled individually. Media, tables, counters and times must be
//! equal at the end. So the results of the campaign, which always has a rail, apply to both.

use crate::kit::{Random, content, device, fullest, put};
use remap_ssd_ftl::{Config, EntrySize, Ftl, GcPolicy, Lpn, Remap, SchemeKind};
use remap_ssd_media::geometry::Shape;
use remap_ssd_media::{Geometry, Oob, Op, OpKind, Ppn, WordLine};
use std::collections::BTreeMap;

/// Operations independent of the path: pages read and programmed, in order; bytes of NVRAM for each
/// purpose.
#[derive(Default, PartialEq, Debug)]
struct Done {
    pages: Vec<(Did, Ppn)>,
    bytes: BTreeMap<(&'static str, u8), u64>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Did {
    Read,
    Program,
}

impl Done {
    fn add(&mut self, ops: &[Op]) {
        for op in ops {
            match op.kind {
                OpKind::Read | OpKind::ReadTable => self.pages.push((Did::Read, op.page)),
                OpKind::Program => self.pages.push((Did::Program, op.page)),
                OpKind::CopyRow => {
                    let sources = (0..64).filter(|bit| op.sources >> bit & 1 == 1);
                    for (index, bit) in sources.enumerate() {
                        self.pages.push((Did::Read, Ppn(op.amount + bit)));
                        self.pages
                            .push((Did::Program, Ppn(op.page.0 + index as u32)));
                    }
                }
                OpKind::NvWrite | OpKind::NvMark => self.count("stored", op),
                OpKind::NvRead => self.count("loaded", op),
                OpKind::NvClear => self.count("cleared", op),
                OpKind::ScanFlash => self.count("scanned", op),
                OpKind::Erase | OpKind::LookupBegin | OpKind::LookupEnd | OpKind::Wait => {}
            }
        }
    }

    fn count(&mut self, what: &'static str, op: &Op) {
        *self.bytes.entry((what, op.purpose as u8)).or_default() += u64::from(op.amount);
    }
}

fn draw(random: &mut Random, ftl: &mut Ftl, number: u64) {
    let config = ftl.config().clone();
    let lpns = u64::from(config.lpns);
    let lpn = random.below(lpns) as u32;
    let fresh = content(100_000 + number);

    if config.scheme.uses_hints() && random.below(2) == 0 {
        let half = config.lpns / 2;
        let home = random.below(half.into()) as u32;
        match random.below(2) {
            0 => ftl.write_for(Lpn(home + half), &fresh, Lpn(home)).unwrap(),
            _ => ftl
                .remap(&Remap {
                    target: Lpn(home),
                    source: Lpn(home + half),
                    len: 1,
                    relocate: false,
                    atomic: false,
                })
                .unwrap(),
        }
        return;
    }

    match random.below(16) {
        0..9 => put(ftl, lpn, 100_000 + number),
        9..12 => put(ftl, lpn, 1 + random.below(200)),
        12..15 => {
            let len = (1 + random.below(12) as u32).min(config.lpns - lpn);
            let source = random.below(lpns - u64::from(len) + 1) as u32;
            let atomic = config.entry == EntrySize::Bytes24 && random.below(2) == 0;
            let len = if atomic {
                len.min(ftl.atomic_pages_max())
            } else {
                len
            };
            ftl.remap(&Remap {
                target: Lpn(lpn),
                source: Lpn(source),
                len,
                relocate: random.below(3) == 0,
                atomic,
            })
            .unwrap();
        }
        _ => ftl
            .deallocate(
                Lpn(lpn),
                (1 + random.below(6) as u32).min(config.lpns - lpn),
            )
            .unwrap(),
    }
}

/// The first difference between the devices.
fn difference(plain: &mut Ftl, watched: &mut Ftl) -> Result<(), String> {
    let same = |what: &str, is_same: bool| {
        if is_same {
            Ok(())
        } else {
            Err(what.to_owned())
        }
    };

    let geometry = plain.media().geometry();
    same("statistics", plain.stats() == watched.stats())?;
    same("sequence numbers", plain.wsn() == watched.wsn())?;
    let (one, other) = (plain.media().counts, watched.media().counts);

    same(
        &format!("counts of operations: {one:?} and {other:?}"),
        one == other,
    )?;
    same("usage", plain.usage() == watched.usage())?;

    for word in 0..plain.media().nvram_words() {
        same(
            &format!("word {word} of NVRAM"),
            plain.media().peek(word) == watched.media().peek(word),
        )?;
    }

    for (sb, superblock) in plain.superblocks() {
        let other = watched
            .superblocks()
            .find(|(id, _)| *id == sb)
            .expect("as many")
            .1;
        let of = |sb: &remap_ssd_ftl::Superblock| {
            (sb.state, sb.capacity, sb.opened, sb.life, sb.bad, sb.head)
        };
        same(
            &format!("{sb:?}"),
            of(superblock) == of(other) && plain.owners(sb) == watched.owners(sb),
        )?;
        let groups = (plain.group(sb), watched.group(sb));
        let entries = |group: Option<remap_ssd_ftl::GroupInfo>| {
            group.map(|group| (group.segments, group.entries))
        };
        same(
            &format!("the group of {sb:?}"),
            entries(groups.0) == entries(groups.1),
        )?;
    }

    for page in (0..geometry.pages()).map(Ppn) {
        let (one, other) = (plain.media(), watched.media());
        same(
            &format!("{page:?} is programmed"),
            one.is_programmed(page) == other.is_programmed(page),
        )?;
        if !one.is_programmed(page) {
            continue;
        }
        same(
            &format!("OOB of {page:?}"),
            one.oob(page) == other.oob(page),
        )?;
        // Without a rail a tail page is stored without its contents, the records.
        if one.oob(page).lpn() != Oob::TAIL {
            let contents = (
                one.is_meta(page),
                one.meta_uncharged(page).ok(),
                one.page(page),
            );
            let others = (
                other.is_meta(page),
                other.meta_uncharged(page).ok(),
                other.page(page),
            );
            same(&format!("content of {page:?}"), contents == others)?;
        }
    }

    for lpn in 0..plain.config().lpns {
        same(
            &format!("LPN {lpn}"),
            plain.read(Lpn(lpn)) == watched.read(Lpn(lpn)),
        )?;
    }

    let checked = plain.check().and_then(|()| watched.check());
    checked.map_err(|wrong| wrong.to_string())
}

/// Runs a script on both; returns the number of pages copied in rows.
fn run(geometry: Geometry, config: &Config, seed: u64, commands: u64) -> u64 {
    let (mut plain, mut watched) = (device(geometry, config), device(geometry, config));
    watched.media_mut().attach_rail();
    let at = |number: u64, what: String| {
        format!("{}, seed {seed}, command {number}: {what}", config.scheme)
    };
    let (mut random, mut rows) = (Random(seed * 0x9e37_79b9 + 1), 0);
    let lpns = u64::from(config.lpns);

    for number in 0..lpns + commands {
        let before = random.0;
        let step = |ftl: &mut Ftl, random: &mut Random| {
            ftl.media_mut().ops.clear();
            if number < lpns {
                put(ftl, number as u32, 1000 + number)
            } else {
                draw(random, ftl, number)
            }
        };
        step(&mut plain, &mut random);
        let after = std::mem::replace(&mut random.0, before);
        step(&mut watched, &mut random);
        assert_eq!(random.0, after, "{}", at(number, "the same script".into()));
        watched.media_mut().settle_all();
        let (mut one, mut other) = (Done::default(), Done::default());
        one.add(&plain.media().ops);
        other.add(&watched.media().ops);
        assert_eq!(one, other, "{}", at(number, "operations".into()));
        rows += plain
            .media()
            .ops
            .iter()
            .filter(|op| op.kind == OpKind::CopyRow)
            .count() as u64;
        if number % 257 == 0 {
            difference(&mut plain, &mut watched)
                .unwrap_or_else(|what| panic!("{}", at(number, what)));
        }
    }

    difference(&mut plain, &mut watched).unwrap_or_else(|what| panic!("{}", at(commands, what)));
    rows
}

// Pages that share word lines are copied in rows of a word line.
#[test]
fn rows_of_word_lines_do_what_pages_do() {
    for (seed, (dies, bits, one_shot)) in [(3, 3, true), (2, 2, false)].into_iter().enumerate() {
        let word_line = WordLine {
            page_bytes: 8192,
            bits,
            one_shot,
            ..WordLine::SINGLE
        };
        let shape = Shape {
            channels: 1,
            dies,
            superblocks: 24,
            pages_per_block: 8 * word_line.pages(),
        };
        let geometry = Geometry::new(shape).expect("valid");
        let geometry = geometry.with_word_line(word_line).expect("whole lines");
        for scheme in [SchemeKind::RemapSsd, SchemeKind::Opt] {
            let config = Config {
                lpns: 300,
                scheme,
                gc_free: 0.0,
                segment_bytes: 128,
                dealloc_slots: 24,
                dedup: seed == 0,
                log_bytes: 6 << 10,
                power_loss_protection: seed == 0,
                ..Config::default()
            };
            let config = Config {
                log_bytes: config.log_bytes.max(config.tables_bytes(&geometry) * 40),
                ..config
            };
            let config = fullest(&geometry, &config);
            let rows = run(geometry, &config, seed as u64 + 1, 3000);
            assert!(rows > 50, "{scheme} copied {rows} rows");
        }
    }
}

#[test]
fn rows_and_runs_do_what_pages_and_entries_do() {
    let shapes = [(4, 24, 16), (16, 16, 12), (3, 40, 9)];
    for (nth, scheme) in SchemeKind::ALL.into_iter().enumerate() {
        let mut rows = 0;
        for (variant, (dies, superblocks, pages_per_block)) in shapes.into_iter().enumerate() {
            let shape = Shape {
                channels: 1,
                dies,
                superblocks: superblocks * 2,
                pages_per_block,
            };
            let geometry = Geometry::new(shape).expect("valid");
            let policy = GcPolicy::ALL[(nth + variant) % GcPolicy::ALL.len()];
            let config = Config {
                lpns: 100,
                scheme,
                entry: if variant == 1 {
                    EntrySize::Bytes24
                } else {
                    EntrySize::Bytes16
                },
                gc_policy: policy,
                gc_free: 0.0,
                segment_bytes: [128, 96, 72][variant],
                dealloc_slots: 24,
                count_max: [3, 9, 15][variant],
                dedup: variant != 2 || nth % 2 == 0,
                log_bytes: 6 << 10,
                ..Config::default()
            };
            let config = Config {
                log_bytes: config.log_bytes.max(config.tables_bytes(&geometry) * 40),
                ..config
            };
            let config = fullest(&geometry, &config);
            rows += run(geometry, &config, (3 * nth + variant) as u64 + 1, 1500);
        }

        assert!(
            rows > 50 || scheme.uses_hints() || scheme == SchemeKind::Pebble,
            "{scheme} copied {rows} rows"
        );
    }
}
