//! A remap of several pieces whose range overlaps itself. A later piece may deallocate a target whose source is unmapped, and an
//! earlier one may have given that page to another target, as a copy that has not landed yet.

use crate::kit::script::{Command, Contents, apply, geometry, share, with_log};
use crate::kit::{Random, choices, cut, device, put, read_all};
use remap_ssd_ftl::{Config, Ftl, Lpn, Remap, SchemeKind};
use remap_ssd_media::Media;
use std::collections::BTreeSet;

const SCHEMES: [SchemeKind; 4] = [
    SchemeKind::None,
    SchemeKind::RemapSsd,
    SchemeKind::NLog,
    SchemeKind::RemapSsdX,
];

/// The least: a piece is half as many pages.
const DEALLOC_SLOTS: u32 = 4;
const PIECE: u32 = DEALLOC_SLOTS / 2;

/// LPNs from here on are in no command; a source that shares its page with one of them has no room for another owner.
const OTHERS: u32 = 40;

/// A device on which every LPN below `OTHERS` is unmapped, has its own page, or has one that cannot be shared again.
/// Both pages of a pair are of one kind, so that many pieces copy nothing.
fn drawn(scheme: SchemeKind, random: &mut Random) -> Ftl {
    let geometry = geometry((2, 40, 12));
    let config = Config {
        lpns: 2 * OTHERS,
        scheme,
        untorn_bytes: 0,
        dealloc_slots: DEALLOC_SLOTS,
        count_max: 2,
        ..Config::default()
    };
    let mut ftl = device(geometry, &with_log(&geometry, &config, 2048));
    for pair in (0..OTHERS).step_by(2) {
        let kind = random.below(3);
        for lpn in pair..pair + 2 {
            if kind > 0 {
                put(&mut ftl, lpn, u64::from(lpn) + 1);
            }
            if kind == 1 {
                ftl.remap(&share(OTHERS + lpn, lpn)).expect("possible");
            }
        }
    }
    ftl
}

fn overlapping(random: &mut Random) -> Remap {
    let len = 8 + random.below(9) as u32;
    let (low, distance) = (random.below(10) as u32, 1 + random.below(6) as u32);
    let ends = [low, low + distance];
    let down = random.below(2) as usize;
    Remap {
        target: Lpn(ends[down]),
        source: Lpn(ends[1 - down]),
        len,
        relocate: true,
        atomic: false,
    }
}

/// Pages that the command deallocates where they are, in a later piece than that which copies them.
fn lost_later(remap: &Remap, before: &Contents, after: &Contents) -> usize {
    // As in memmove, the end that is no source of a later page comes first.
    let piece = |at: u32| match remap.target < remap.source {
        true => at / PIECE,
        false => (remap.len - 1 - at) / PIECE,
    };
    let is_late = |at: &u32| {
        let source = remap.source.offset(*at);
        let within = source.0.checked_sub(remap.target.0);
        before[source.index()].is_some()
            && after[source.index()].is_none()
            && within.is_some_and(|loss| loss < remap.len && piece(loss) > piece(*at))
    };
    (0..remap.len).filter(is_late).count()
}

/// A cut leaves each page where it was, or where it was to go, unless the command gives the source another page.
fn judge(
    remap: &Remap,
    before: &Contents,
    after: &Contents,
    read: &Contents,
) -> Result<(), String> {
    for at in 0..remap.len {
        let source = remap.source.offset(at).index();
        let target = remap.target.offset(at).index();
        let held = before[source];
        if held.is_some() && after[source].is_none() && read[source] != held && read[target] != held
        {
            return Err(format!(
                "{held:?} is neither at LPN {source} nor at LPN {target}"
            ));
        }
    }
    match (0..).zip(read).find(|(lpn, read)| {
        let lpn: usize = *lpn;
        **read != before[lpn] && **read != after[lpn]
    }) {
        Some((lpn, read)) => Err(format!("LPN {lpn} reads as {read:?}")),
        None => Ok(()),
    }
}

#[test]
fn what_a_later_piece_deallocates_has_landed_elsewhere() {
    for scheme in SCHEMES {
        let (mut late, mut cuts) = (0, 0);
        for seed in 1..=60 {
            let mut random = Random(seed * 7919);
            let mut ftl = drawn(scheme, &mut random);
            ftl.media_mut().attach_rail();
            let (before, remap) = (read_all(&mut ftl), overlapping(&mut random));
            let mut after = before.clone();
            apply(Command::Remap(remap), &mut after);
            ftl.remap(&remap).expect("possible");
            assert_eq!(read_all(&mut ftl), after, "{scheme}, {remap:?}");
            late += lost_later(&remap, &before, &after);

            let pending = choices(&ftl);
            let prefixes = (0..=pending).map(|landed| landed..pending);
            let but_one = (0..pending).map(|missing| missing..missing + 1);
            let mut seen = BTreeSet::new();
            for absent in prefixes.chain(but_one) {
                let left = cut(&ftl, &absent);
                if !seen.insert(left.digest()) {
                    continue;
                }
                let recovered = Ftl::recover(Media::from_image(&left), ftl.config().clone());
                let read = read_all(&mut recovered.expect("recovers").0);
                judge(&remap, &before, &after, &read).unwrap_or_else(|what| {
                    panic!("{scheme}, seed {seed}, {remap:?}, cut without {absent:?} of {pending}: {what}")
                });
                cuts += 1;
            }
        }
        println!("{scheme}: {late} pages, {cuts} cuts");
        assert!(late > 20, "{scheme}: {late} pages");
    }
}
