//! Policies of garbage collection: their choices, and the cost of these, counted.

use crate::kit::{Random, content, device, recovered, small_config, small_geometry};
use remap_ssd_ftl::policy::{VictimCandidate, Wear};
use remap_ssd_ftl::{Config, Ftl, GcPolicy, Lpn, SchemeKind, Stream, SuperblockState};
use remap_ssd_media::geometry::Shape;
use remap_ssd_media::{Geometry, SbId};
use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::BTreeMap;

fn candidate(sb: u32, live: u32, opened: u64) -> VictimCandidate {
    VictimCandidate {
        sb: SbId(sb),
        capacity: 100,
        live,
        erases: 0,
        opened,
    }
}

fn chosen(policy: GcPolicy, candidates: &[VictimCandidate], now: u64) -> Option<u32> {
    chosen_of(10, policy, candidates, now)
}

fn chosen_of(
    choices: u32,
    policy: GcPolicy,
    candidates: &[VictimCandidate],
    now: u64,
) -> Option<u32> {
    policy
        .victim(candidates.iter().copied(), &Cell::new(0), choices, now)
        .map(|victim| victim.sb.0)
}

// Superblock n of 100 has n pages of garbage. The best of ten of them is at rank 91 in the mean (10/11 of
// 100), in the best half with a probability of 1 - 1/1024, and the very best one in a tenth of all draws.
#[test]
fn d_choices_takes_the_best_of_ten_drawn_at_random() {
    let candidates: Vec<VictimCandidate> = (0..=100).map(|n| candidate(n, 100 - n, 7)).collect();
    let draws: Vec<u32> = (0..4000)
        .map(|now| chosen(GcPolicy::DChoices, &candidates, now).unwrap())
        .collect();
    let mean = draws.iter().map(|sb| f64::from(*sb)).sum::<f64>() / 4000.0;
    assert!((mean - 91.8).abs() < 0.7, "{mean}");
    let best = draws.iter().filter(|sb| **sb == 100).count();
    assert!((330..470).contains(&best), "{best}");
    assert!(draws.iter().filter(|sb| **sb < 50).count() < 20);
    assert!(draws.iter().all(|sb| *sb > 0), "none without garbage");

    let again = chosen(GcPolicy::DChoices, &candidates, 17);
    assert_eq!(again, Some(draws[17]), "a run repeats");

    // The better one of two is at rank 67 in the mean; one alone, at 50.5; the best of all is the greedy choice.
    let mean = |choices| {
        let draws = (0..4000).map(|now| chosen_of(choices, GcPolicy::DChoices, &candidates, now));
        draws.map(|sb| f64::from(sb.unwrap())).sum::<f64>() / 4000.0
    };
    for (choices, rank) in [(1, 50.5), (2, 67.3), (1000, 100.0)] {
        let mean = mean(choices);
        assert!((mean - rank).abs() < 1.5, "{choices}: {mean}");
    }
}

#[test]
fn cost_benefit_prefers_an_old_superblock_to_an_emptier_young_one_and_the_others_do_not() {
    let candidates = [
        candidate(0, 60, 100),
        candidate(1, 50, 9_900),
        candidate(2, 100, 0),
    ];

    for policy in GcPolicy::ALL {
        let wanted = if policy == GcPolicy::CostBenefit {
            0
        } else {
            1
        };
        assert_eq!(
            chosen(policy, &candidates, 10_000),
            Some(wanted),
            "{policy}"
        );
        assert_eq!(
            chosen(policy, &candidates[2..], 10_000),
            None,
            "{policy} collects nothing where nothing is gained"
        );
        let empty = [candidate(3, 99, 0), candidate(4, 0, 9_999)];
        assert_eq!(
            chosen(policy, &empty, 10_000),
            Some(4),
            "{policy} takes an empty superblock first"
        );
    }

    let in_need =
        GcPolicy::victim_in_need(candidates.into_iter(), &Cell::new(0)).expect("there is garbage");
    assert_eq!(
        in_need.sb,
        SbId(1),
        "a host that waits needs the most space"
    );
}

/// Not only from a list of candidates, but from all superblocks of a working device: the search for
/// a victim skips superblocks that cannot win, and must not skip the winner.
#[test]
fn a_device_collects_the_most_garbage_and_of_several_the_oldest() {
    let config = small_config(SchemeKind::RemapSsd);
    collects_the_best(small_geometry(), &config, 20_000);
}

/// The same with many superblocks of one die each, most of which are skipped.
#[test]
fn a_device_of_many_superblocks_does_too() {
    let shape = Shape {
        channels: 2,
        dies: 1,
        superblocks: 260,
        pages_per_block: 16,
    };
    let geometry = Geometry::grouped(shape, 4).expect("valid");
    let config = Config {
        lpns: 3_050,
        log_bytes: 64 << 10,
        ..small_config(SchemeKind::RemapSsd)
    };
    collects_the_best(geometry, &config, 30_000);
}

/// Writes at random, and checks each victim.
fn collects_the_best(geometry: Geometry, config: &Config, writes: u32) {
    let config = Config {
        gc_at_once: true,
        wear_gap: 0,
        ..config.clone()
    };
    let mut ftl = device(geometry, &config);
    let lpns = u64::from(config.lpns);
    let contents = lpns / 2;
    let closed = |ftl: &Ftl| -> BTreeMap<SbId, (u32, Reverse<u64>, u32)> {
        let closed = ftl
            .superblocks()
            .filter(|(_, sb)| sb.state == SuperblockState::Closed);
        closed
            .map(|(id, sb)| {
                let garbage = sb.capacity - ftl.owners(id).live;
                (id, (garbage, Reverse(sb.opened), sb.life.incarnation()))
            })
            .collect()
    };

    let mut random = Random(7);
    let (mut collected, mut ties) = (0, 0);
    for _ in 0..writes {
        let (before, runs) = (closed(&ftl), ftl.stats().gc_runs);
        ftl.write(
            Lpn(random.below(lpns) as u32),
            &content(1 + random.below(contents)),
        )
        .expect("there is room");
        ftl.media_mut().ops.clear();
        if ftl.stats().gc_runs != runs + 1 {
            continue;
        }

        let after = ftl.superblocks();
        let erased = after.filter(|(id, sb)| {
            before
                .get(id)
                .is_some_and(|(_, _, incarnation)| sb.life.incarnation() > *incarnation)
        });
        let victims: Vec<SbId> = erased.map(|(id, _)| id).collect();
        let best = before.values().max().expect("something was closed");
        ties += u32::from(before.values().filter(|other| other.0 == best.0).count() > 1);
        assert!(
            victims.len() == 1 && before[&victims[0]] == *best,
            "{victims:?} of {before:?}"
        );
        collected += 1;
        // Includes the cached maxima of superblocks taken for unchanged.
        ftl.check().expect("all is as it is told");
    }
    assert!(
        collected > 100 && ties > 10,
        "{collected} of {} {ties}",
        ftl.stats().gc_runs
    );
}

#[test]
fn a_page_with_one_reference_goes_to_the_first_zone_and_zones_grow_with_references() {
    for policy in GcPolicy::ALL {
        let zones: Vec<usize> = (1..20).map(|references| policy.zone(references)).collect();
        assert_eq!(zones[0], 0, "{policy}");
        assert!(
            zones.is_sorted() && zones[18] == policy.zones() - 1,
            "{policy}: {zones:?}"
        );
        assert_eq!(policy.wear(0), Wear::Least, "{policy}");
        assert_eq!(policy.name().parse(), Ok(policy));
    }
    assert_eq!(GcPolicy::Coldmap.wear(1), Wear::Most);
    assert!("lazy".parse::<GcPolicy>().is_err());
}

fn worked(policy: GcPolicy) -> Ftl {
    let config = Config {
        gc_policy: policy,
        count_max: 8,
        ..small_config(SchemeKind::RemapSsd)
    };
    let mut ftl = device(small_geometry(), &config);
    let mut random = Random(5);
    for _ in 0..20_000 {
        let lpn = random.below(600) as u32;
        ftl.write(Lpn(lpn), &content(1 + random.below(300)))
            .expect("there is room");
        ftl.media_mut().ops.clear();
    }
    ftl.check().expect("consistent");
    ftl
}

/// The placement of pages by their reference count after garbage collection: no zone holds a page
/// that belonged to another when it was moved, each page is moved once, and everything is the same
/// after recovery.
#[test]
fn zones_hold_what_belongs_there_and_outlive_power() {
    for policy in GcPolicy::ALL {
        let ftl = worked(policy);
        let stats = ftl.stats();
        assert!(
            stats.gc_runs > 100 && stats.gc_copies == 0,
            "{policy}: {stats:?}"
        );
        assert_eq!(stats.gc_zoned > 0, policy.zones() > 1, "{policy}");

        let streams = |ftl: &Ftl| {
            let mut streams: BTreeMap<u8, u32> = BTreeMap::new();
            for (_, sb) in ftl.superblocks().filter(|(_, sb)| {
                matches!(sb.state, SuperblockState::Open | SuperblockState::Closed)
            }) {
                *streams.entry(sb.stream as u8).or_default() += 1;
            }
            streams
        };

        let before = streams(&ftl);
        let zones = Stream::ZONES
            .iter()
            .filter(|stream| before.contains_key(&(**stream as u8)))
            .count();
        assert_eq!(zones, policy.zones(), "{policy}: {before:?}");

        let reads = |ftl: &mut Ftl| (0..600).map(|lpn| ftl.read(Lpn(lpn))).collect::<Vec<_>>();
        let mut ftl = ftl;
        let read = reads(&mut ftl);
        let (mut ftl, _) = recovered(ftl);
        assert_eq!((streams(&ftl), reads(&mut ftl)), (before, read), "{policy}");
    }
}

/// Under Coldmap a shared page and a single one of the same victim are separated; the shared one
/// goes to the most worn of the free superblocks, the single one to the least worn.
#[test]
fn coldmap_opens_the_most_worn_superblock_for_shared_pages() {
    let mut ftl = worked(GcPolicy::Coldmap);
    let mut random = Random(11);
    let mut opened = 0;

    for _ in 0..20_000 {
        let free = |ftl: &Ftl| {
            let free = ftl
                .superblocks()
                .filter(|(_, sb)| sb.state == SuperblockState::Free);
            free.map(|(id, sb)| (sb.life.incarnation(), id))
                .collect::<Vec<_>>()
        };
        let (before, cold) = (free(&ftl), open_of(&ftl, Stream::GcShared));
        ftl.write(
            Lpn(random.below(600) as u32),
            &content(1 + random.below(500)),
        )
        .expect("there is room");
        ftl.media_mut().ops.clear();
        let now = open_of(&ftl, Stream::GcShared);
        if let Some(sb) = now.filter(|_| now != cold)
            && let Some((erases, _)) = before.iter().find(|(_, id)| *id == sb)
        {
            opened += 1;
            let most = before
                .iter()
                .map(|(erases, _)| *erases)
                .max()
                .expect("one was free");
            assert_eq!(*erases, most, "{sb:?} of {before:?}");
        }
    }
    assert!(opened > 5, "opened {opened} times");
}

fn open_of(ftl: &Ftl, stream: Stream) -> Option<SbId> {
    ftl.superblocks()
        .find(|(_, sb)| sb.state == SuperblockState::Open && sb.stream == stream)
        .map(|(id, _)| id)
}

/// A policy with zones only costs more open superblocks.
#[test]
fn each_zone_costs_one_superblock_of_reserve_and_one_that_is_open() {
    let geometry = small_geometry();
    let most = |policy| {
        let fits = |lpns| {
            Config {
                lpns,
                gc_policy: policy,
                ..small_config(SchemeKind::None)
            }
            .check(&geometry)
            .is_ok()
        };
        (1..geometry.pages())
            .take_while(|lpns| fits(*lpns))
            .last()
            .expect("one page fits")
    };

    let data = Config::default().data_pages(&geometry);
    assert_eq!(most(GcPolicy::Greedy), most(GcPolicy::CostBenefit));
    assert_eq!(most(GcPolicy::Greedy) - most(GcPolicy::Coldmap), 2 * data);
    assert_eq!(most(GcPolicy::Greedy) - most(GcPolicy::Cagc), 4 * data);
}

/// Collection that waits for garbage and empties a victim at once, like FEMU's: no victim is
/// collected for less while free superblocks are left, none is ever half empty between two writes,
/// and moved pages lie among pages written by the host.
#[test]
fn collection_may_wait_for_garbage_and_join_the_host() {
    let base = Config {
        gc_free: 0.4,
        lpns: 400,
        dedup: false,
        ..small_config(SchemeKind::None)
    };

    let eager = Config {
        gc_garbage: 0.25,
        gc_at_once: true,
        gc_joins_host: true,
        ..base.clone()
    };

    for (config, joined) in [(base, false), (eager, true)] {
        let mut ftl = device(small_geometry(), &config);
        let (mut random, mut least) = (Random(3), u32::MAX);
        for index in 0..20_000 {
            let before = ftl.stats();
            ftl.write(Lpn(random.below(400) as u32), &content(index + 1))
                .expect("there is room");
            ftl.media_mut().ops.clear();
            let now = ftl.stats();
            if now.gc_runs == before.gc_runs + 1 && joined {
                let capacity = ftl
                    .superblocks()
                    .map(|(_, sb)| sb.capacity)
                    .max()
                    .expect("there are superblocks");
                least = least.min(capacity - (now.gc_programs - before.gc_programs) as u32);
                assert!(
                    least * 4 >= capacity,
                    "a victim with {least} pages of garbage of {capacity}"
                );
            }
        }
        ftl.check().expect("consistent");
        assert!(ftl.stats().gc_runs > 100, "{:?}", ftl.stats());
        let apart = ftl
            .superblocks()
            .filter(|(_, sb)| sb.stream == Stream::Gc)
            .count();
        assert_eq!(
            apart == 0,
            joined,
            "superblocks of collection's own: {apart}"
        );
        assert_eq!(least < u32::MAX, joined, "whole victims between two writes");
        let read = |ftl: &mut Ftl| (0..400).map(|lpn| ftl.read(Lpn(lpn))).collect::<Vec<_>>();
        let expected = read(&mut ftl);
        let (mut ftl, _) = recovered(ftl);
        assert_eq!(read(&mut ftl), expected);
    }
}
