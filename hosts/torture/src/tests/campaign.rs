//! Cuts of a campaign: where they are, and the disks that they leave. No check runs here.

use super::kit::Script;
use crate::campaign::Campaign;
use crate::cut::{Choice, Cut, DiskState};
use crate::record::{Event, Recording};
use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

static STOP: AtomicBool = AtomicBool::new(false);
const ROUNDS: u64 = 400;

/// A disk that is prepared with writes and flushes, then a workload of writes, flushes and marks.
/// It is served over TCP: that needs no rights.
fn recording() -> Recording {
    let mut script = Script::new(16);
    script.recording.about.nvme_tcp = true;
    for block in 0..6 {
        script.written(block);
        script.written(block + 1);
        script.flushed();
    }

    script.written(8);
    script.recording.events.push(Event::Start);
    for round in 0..5 {
        for block in 0..8 {
            script.written(block);
            script.written(block * 2 % 7);
        }
        script.flushed();
        script.written(9 + round);
        script.recording.marks.push(format!("round {round}"));
        script.recording.events.push(Event::Mark(round as u32));
    }
    script.recording.events.push(Event::End);
    script.written(15);
    script.recording
}

fn campaign(recording: &Recording) -> Campaign<'_> {
    Campaign::new(recording, "true", Duration::MAX, &STOP).unwrap()
}

// A code may name an instant before the workload, of which a campaign keeps only the end.
#[test]
fn a_cut_at_any_instant_finds_the_disk_of_that_instant() {
    let recording = recording();
    let campaign = campaign(&recording);
    assert!(recording.instants().start > 20);
    assert_eq!(campaign.instant_max(), recording.events.len());

    for instant in 0..=campaign.instant_max() {
        let expected = DiskState::at(&recording, instant);
        for choice in [Choice::Lost(Vec::new()), Choice::Drawn(instant as u64)] {
            let cut = Cut { instant, choice };
            let (state, lost) = campaign.state(&cut);
            assert_eq!(
                (&state.durable, &state.pending),
                (&expected.durable, &expected.pending),
                "before entry {instant}"
            );
            assert_eq!(lost, expected.lost(&cut.choice), "before entry {instant}");
        }
    }
}

#[test]
fn odd_rounds_cut_after_each_flush_and_mark_and_even_ones_at_any_instant_of_the_workload() {
    let recording = recording();
    let mut campaign = campaign(&recording);
    let (mut even, mut odd) = (BTreeSet::new(), BTreeSet::new());
    for round in 0..ROUNDS {
        let cut = campaign.cut(7, round);
        let instants = if round % 2 == 0 { &mut even } else { &mut odd };
        instants.insert(cut.instant);
    }

    let workload: BTreeSet<usize> = recording.instants().collect();
    let promises = workload.iter().copied().filter(|instant| {
        match &recording.events[instant.saturating_sub(1)] {
            Event::Done(request) => recording.events[*request as usize] == Event::Flush,
            event => matches!(event, Event::Mark(_)),
        }
    });
    assert_eq!(odd, promises.collect());
    assert!(even.is_subset(&workload));
    assert!(even.len() > workload.len() / 2, "{even:?} of {workload:?}");
}

#[test]
fn a_seed_gives_the_same_cuts_again_and_even_rounds_lose_something() {
    let recording = recording();
    let (mut first, mut second) = (campaign(&recording), campaign(&recording));
    let mut disks = BTreeSet::new();
    for round in 0..ROUNDS {
        let cut = first.cut(7, round);
        assert_eq!(second.cut(7, round), cut, "round {round}");

        let (state, lost) = first.state(&cut);
        assert!(round % 2 == 1 || !lost.is_empty(), "round {round}");
        let marks = recording.marks_before(cut.instant).count();
        disks.insert((state.after(&lost), marks));
    }
    assert_eq!(first.distinct(), disks.len());
    assert_ne!(second.cut(8, 0), campaign(&recording).cut(7, 0));
}
