//! Results of `torture`, as text.
//!
//! Invariant: a failure always has its seed, its replay code and the recording's file. Absent:
//! finding it.

use crate::output::{counted, pairs};
use remap_ssd_sim::report::format::{bytes, exact};
use remap_ssd_torture::{Cut, Event, Failed, Recording, Results, Verdict, last_lines};

/// Lost blocks that are shown.
const BLOCKS: usize = 12;

/// An outcome in the table. A passing check may print anything, even text that reads like an error.
fn outcome_line(passed: bool, name: &str) -> String {
    match (passed, name) {
        // A failure is named by its finding.
        (false, _) => name.into(),
        (true, "") => "passed".into(),
        (true, _) => format!("passed: {name}"),
    }
}

/// What a cut keeps or loses as a whole.
fn atomic(recording: &Recording, results: &Results) -> String {
    let block = exact(recording.shape.block_bytes.into());
    let Some(unit) = results.atomic else {
        return format!("each block of {block} bytes is old or new");
    };
    let size = match unit {
        _ if unit % (1 << 20) == 0 => format!("{} MiB", exact(unit >> 20)),
        _ if unit % (1 << 10) == 0 => format!("{} KiB", exact(unit >> 10)),
        _ => format!("{} bytes", exact(unit)),
    };
    let longer = exact(recording.writes_longer_than(unit));
    format!(
        "a write of at most {size} is old or new as a whole; {longer} longer ones tear at {block} bytes"
    )
}

/// The results as text.
pub(super) fn text(recording: &Recording, results: &Results) -> String {
    let mut rows: Vec<(&str, String)> = Vec::new();
    let writes = recording.count(|event| matches!(event, Event::Write { .. }));
    let flushes = recording.count(|event| *event == Event::Flush);
    let marks = recording.count(|event| matches!(event, Event::Mark(_)));
    let blocks: u64 =
        u64::from(recording.contents.count()) * u64::from(recording.shape.block_bytes);
    let counts = [
        counted(writes, "write"),
        // `counted` forms a plural with an `s`.
        counted(flushes, "flush").replace("flushs", "flushes"),
        counted(marks, "mark"),
    ];
    let (id, counts, data) = (&results.id, counts.join(", "), bytes(blocks));
    rows.push(("recording", format!("{id}: {counts}; {data} of data")));

    rows.push(("atomic", atomic(recording, results)));
    if let Some(firmware) = &results.firmware {
        rows.push(("device", format!("{firmware}{}", results.set)));
    }
    if !recording.about.faults.is_empty() {
        rows.push(("faults", recording.about.faults.join(", ")));
    }

    // Nothing else is worth showing: the check fails without a cut.
    if let Some(verdict) = &results.without_cut {
        let finding = &verdict.finding;
        rows.push((
            "FAILED",
            format!("without any power cut: {finding}; mend that first"),
        ));
        quote(&mut rows, &verdict.output);
        return pairs(&rows);
    }
    let lost = match results.cuts_losing {
        0 => "no block lost anything".into(),
        some => format!(
            "{} lost something, up to {}",
            exact(some),
            counted(results.lost_max, "block")
        ),
    };
    let ([cuts, distinct], seed) = ([results.cuts, results.distinct].map(exact), results.seed);
    rows.push((
        "cuts",
        format!("{cuts}, {distinct} different, seed {seed}: {lost}"),
    ));
    for ((passed, name), (count, _)) in &results.outcomes {
        // A single passing outcome needs no table.
        if results.outcomes.len() > 1 || !passed {
            rows.push((
                "",
                format!("{:>6}  {}", exact(*count), outcome_line(*passed, name)),
            ));
        }
    }
    match &results.first {
        None => rows.push(("result", "every check passed".into())),
        Some(failed) => tell(&mut rows, recording, results, failed),
    }
    pairs(&rows)
}

fn quote(rows: &mut Vec<(&str, String)>, output: &str) {
    rows.extend(
        last_lines(output)
            .into_iter()
            .map(|line| ("", format!("| {line}"))),
    );
}

fn tell(rows: &mut Vec<(&str, String)>, recording: &Recording, results: &Results, failed: &Failed) {
    let Failed {
        round,
        cut,
        verdict,
        smallest,
    } = failed;
    let Verdict { pending, lost, .. } = verdict;
    let round = round.map_or_else(
        || "the replayed cut".to_owned(),
        |round| format!("round {round}, seed {}", results.seed),
    );
    rows.push(("FAILED", format!("{round}: {}", verdict.finding)));
    quote(rows, &verdict.output);

    let mark = match recording.marks_before(cut.instant).last() {
        Some(mark) => format!("last mark `{mark}`"),
        None => "before any mark".into(),
    };
    let [entry, entries] = [cut.instant, recording.events.len()].map(|count| exact(count as u64));
    let of_blocks = format!("{lost} of {pending} blocks lost something");
    rows.push((
        "cut",
        format!("before entry {entry} of {entries}, {mark}; {of_blocks}"),
    ));
    let (code, set) = (|cut: &Cut| results.code(cut), &results.set);
    let replay = |cut: &Cut| format!("remap-ssd torture --replay {}{set}", code(cut));
    if let Some(smallest) = smallest {
        let left = if smallest.finished {
            "none can be left out"
        } else {
            "there may be fewer: see --shrink"
        };
        let mut blocks = counted(smallest.lost.len() as u64, "lost block");
        let count = smallest.writes.unwrap_or(smallest.lost.len());
        if smallest.writes.is_some() {
            blocks = format!("{} ({blocks})", counted(count as u64, "lost write"));
        }
        let verb = if count == 1 {
            "still fails"
        } else {
            "still fail"
        };
        let tried = counted(smallest.tried, "more cut");
        rows.push(("smallest", format!("{blocks} {verb} ({tried}; {left})")));
        let lost = smallest.described(recording).take(BLOCKS);
        rows.extend(lost.map(|lost| ("", lost)));
        if smallest.lost.len() > BLOCKS {
            rows.push(("", format!("and {} more", smallest.lost.len() - BLOCKS)));
        }
        rows.push(("replay", replay(&smallest.cut)));
    }
    rows.push(("replay", replay(cut)));
    if let Some(file) = &results.file {
        rows.push(("saved", file.display().to_string()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_that_passed_is_listed_as_passed_whatever_its_check_wrote() {
        assert_eq!(outcome_line(true, ""), "passed");
        assert_eq!(
            outcome_line(true, "error: N rows missing"),
            "passed: error: N rows missing"
        );
        let failed = "the check failed: N rows missing";
        assert_eq!(outcome_line(false, failed), failed);
    }
}
