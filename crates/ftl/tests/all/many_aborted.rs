//! Atomic commands interrupted one after the other: many aborted numbers.

use crate::kit::{device, durable, put, small_config, small_geometry};
use remap_ssd_ftl::{Config, EntrySize, Ftl, Lpn, Remap, SchemeKind};
use remap_ssd_media::{Media, Outcome, Page};

/// Power fails when everything is durable except the last operation: the commit.
fn without_commit(ftl: &Ftl) -> Result<Ftl, String> {
    let last = ftl.media().pending() - 1;
    let mut ops = 0..;
    let image = ftl.media().cut(|| {
        if ops.next() == Some(last) {
            Outcome::Absent
        } else {
            Outcome::Whole
        }
    });
    let found = Ftl::recover(Media::from_image(&image), ftl.config().clone());
    found.map(|(ftl, _)| ftl).map_err(|error| error.to_string())
}

/// Interrupts `count` atomic commands, with sources below `sources`.
fn cut_off(scheme: SchemeKind, (sources, relocate): (u32, bool), count: u32) {
    let firmware = small_config(scheme);
    let config = Config {
        entry: EntrySize::Bytes24,
        dedup: false,
        dealloc_slots: 512,
        log_bytes: firmware.log_bytes + (56 << 10),
        ..firmware
    };

    let mut ftl = device(small_geometry(), &config);
    let written = if sources == 600 { 600 } else { sources };
    (0..written).for_each(|lpn| put(&mut ftl, lpn, u64::from(lpn) + 1));
    let before = |lpn: u32| {
        if lpn < written {
            Page::Identity(u64::from(lpn) + 1)
        } else {
            Page::Zeroes
        }
    };

    for nth in 0..count {
        ftl.media_mut().ops.clear();
        ftl.media_mut().attach_rail();
        let (target, source) = (400 + nth % 150, nth % (sources.min(300) - 1));
        ftl.remap(&Remap {
            target: Lpn(target),
            source: Lpn(source),
            len: 2,
            relocate,
            atomic: true,
        })
        .unwrap();
        let found = without_commit(&ftl);
        ftl = found
            .unwrap_or_else(|error| panic!("{scheme}, relocating {relocate}: cut {nth}: {error}"));
        ftl.check().unwrap();
        for lpn in [target, target + 1, source, source + 1] {
            assert_eq!(
                ftl.read(Lpn(lpn)),
                Ok(before(lpn)),
                "{scheme}, cut {nth}: LPN {lpn}"
            );
        }
    }

    // Everything is as if none of them had happened, even after everything has been collected.
    assert!(
        (0..600).all(|lpn| ftl.read(Lpn(lpn)) == Ok(before(lpn))),
        "{scheme}"
    );
    (0..4000u32).for_each(|step| put(&mut ftl, 100 + step % 300, u64::from(step) + 5000));
    ftl.check().unwrap();

    let config = ftl.config().clone();
    let (mut ftl, _) =
        Ftl::recover(Media::from_image(&ftl.media().to_image()), config).expect("recovers");
    let spared = (0..100).chain(400..600);
    assert!(
        spared
            .into_iter()
            .all(|lpn| ftl.read(Lpn(lpn)) == Ok(before(lpn))),
        "{scheme}, in the end"
    );
}

/// The superblocks with the commands' entries and copies can be collected.
#[test]
fn as_many_commands_may_be_cut_off_as_power_fails() {
    for scheme in durable().filter(|scheme| !scheme.uses_hints()) {
        cut_off(scheme, (600, false), 150);
    }
}

/// All witnesses are in the superblock that is being filled, where they stay: their numbers are
/// kept.
#[test]
fn more_numbers_than_half_the_list_are_kept() {
    for scheme in durable().filter(|scheme| !scheme.uses_hints()) {
        cut_off(scheme, (20, false), 60);
    }
}

/// Records of deallocations stay until they are flushed.
#[test]
fn relocations_may_be_cut_off_as_often_as_power_fails() {
    for scheme in durable().filter(|scheme| !scheme.uses_hints()) {
        cut_off(scheme, (600, true), 150);
    }
}

/// The same with witnesses that cannot be collected.
#[test]
fn commands_on_new_pages_may_be_cut_off_as_often_as_power_fails() {
    for scheme in durable().filter(|scheme| !scheme.uses_hints()) {
        cut_off(scheme, (20, false), 150);
    }
}
