//! Entries that collection or reclaiming stores again carry the number of the command that made them. If they landed before
//! its last store, and its own entries did not, a part of the command would count.

use crate::kit::{Random, content, device, page_of, put};
use remap_ssd_ftl::{Config, EntrySize, Ftl, Lpn, Remap, SchemeKind};
use remap_ssd_media::geometry::Shape;
use remap_ssd_media::{Geometry, Media, OpKind, Outcome, Page};

const SCHEMES: [SchemeKind; 4] = [
    SchemeKind::RemapSsd,
    SchemeKind::NLog,
    SchemeKind::RemapSsdX,
    SchemeKind::Pebble,
];

/// The command changes this page and the next one.
const TARGET: u32 = 10;

/// A device on which each write collects a little, with many pages of two owners.
fn collecting(scheme: SchemeKind, dedup: bool, random: &mut Random) -> Ftl {
    let shape = Shape {
        channels: 1,
        dies: 1,
        superblocks: 60,
        pages_per_block: 12,
    };
    let geometry = Geometry::new(shape).expect("valid");
    let config = Config {
        lpns: 300,
        scheme,
        entry: EntrySize::Bytes16,
        untorn_bytes: 16 << 10,
        dedup,
        dealloc_slots: 64,
        segment_bytes: 128,
        gc_free: 0.3,
        ..Config::default()
    };
    let log_bytes = (32 << 10).max(4 * config.tables_bytes(&geometry));
    let mut ftl = device(
        geometry,
        &Config {
            log_bytes,
            ..config
        },
    );

    (0..300).for_each(|lpn| put(&mut ftl, lpn, u64::from(lpn) + 1));
    for step in 0..400 {
        put(&mut ftl, 20 + random.below(280) as u32, 1000 + step);
    }
    for at in 0..60 {
        // Some have no room for their entry, and are copied.
        let _ = ftl.remap(&remap(200 + at, 100 + at, 1));
    }
    for step in 0..60 {
        put(&mut ftl, 20 + random.below(80) as u32, 5000 + step);
    }
    ftl
}

fn remap(target: u32, source: u32, len: u32) -> Remap {
    Remap {
        target: Lpn(target),
        source: Lpn(source),
        len,
        relocate: false,
        atomic: len > 1,
    }
}

fn pair(ftl: &mut Ftl, lpn: u32) -> [Page; 2] {
    [lpn, lpn + 1].map(|lpn| ftl.read(Lpn(lpn)).expect("readable"))
}

/// Cuts the power: all programs land, and of the stores those after the first `absent` that nothing forbids.
fn without_first_stores(ftl: &Ftl, absent: u32) -> Ftl {
    let mut stores = 0;
    let image = ftl.media().cut_by(|kind| {
        stores += u32::from(kind == OpKind::NvWrite);
        match kind {
            OpKind::Program => Outcome::Whole,
            OpKind::NvWrite if stores > absent => Outcome::Whole,
            _ => Outcome::Absent,
        }
    });
    let recovered = Ftl::recover(Media::from_image(&image), ftl.config().clone());
    recovered.expect("recovers").0
}

/// `command` gives the target's two pages new contents, the first of them those of the source, and returns them.
fn is_whole_after(dedup: bool, command: impl Fn(&mut Ftl, u32, u64) -> [Page; 2]) {
    for scheme in SCHEMES {
        let mut moves = 0;
        for seed in 1..=8 {
            let mut random = Random(seed * 77);
            let mut ftl = collecting(scheme, dedup, &mut random);
            ftl.media_mut().attach_rail();
            for trial in 0..400 {
                ftl.media_mut().settle_all();
                let source = 20 + random.below(78) as u32;
                let old = pair(&mut ftl, TARGET);
                let new = command(&mut ftl, source, trial);
                let of_pair = |ftl: &mut Ftl| [TARGET, TARGET + 1].map(|lpn| page_of(ftl, lpn));
                let places = of_pair(&mut ftl);

                // Until collection moves one of the two.
                for step in 0..4 {
                    let others = (20..100).filter(|lpn| !(source..source + 2).contains(lpn));
                    let nth = random.below(78) as usize;
                    let lpn = others.clone().nth(nth).expect("78 others");
                    put(&mut ftl, lpn, 10_000 + trial * 10 + step);
                    if of_pair(&mut ftl) != places {
                        moves += 1;
                        for absent in 0..12 {
                            let found = pair(&mut without_first_stores(&ftl, absent), TARGET);
                            assert!(
                                found == old || found == new,
                                "{scheme}, seed {seed}, command {trial}, without {absent} stores: {found:?} is neither {old:?} nor {new:?}"
                            );
                        }
                        break;
                    }
                }
            }
        }
        assert!(moves > 10, "{scheme}: {moves} moves of an entry's page");
    }
}

#[test]
fn entries_of_a_remap_that_are_stored_again_land_after_it() {
    is_whole_after(false, |ftl, source, _| {
        let new = pair(ftl, source);
        ftl.remap(&remap(TARGET, source, 2)).expect("possible");
        new
    });
}

#[test]
fn entries_of_a_write_that_are_stored_again_land_after_it() {
    is_whole_after(true, |ftl, source, trial| {
        let Page::Identity(known) = pair(ftl, source)[0] else {
            panic!("it was written");
        };
        let identities = [known, 1_000_000 + trial];
        ftl.begin_write(Lpn(TARGET), 2).expect("possible");
        for (lpn, identity) in (TARGET..).zip(identities) {
            let written = ftl.write_more(Lpn(lpn), &content(identity));
            written.expect("possible");
        }
        ftl.end_write();
        identities.map(Page::Identity)
    });
}
