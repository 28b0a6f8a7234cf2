//! Results of `torture`, as text and as JSON.
//!
//! Invariant: a failure always has its seed, its replay code and the recording's file. Absent:
//! finding it.

use super::Outcomes;
use crate::output::{counted, pairs};
use remap_ssd_sim::report::format::{bytes, exact};
use remap_ssd_torture::{
    Code, ContentId, Cut, DiskState, Event, Firmware, Lost, Recording, Smallest, Verdict, ZEROES,
};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;

/// Lines of output, and lost blocks, that are shown.
const LINES: usize = 12;
const BLOCKS: usize = 12;

/// Results of all cuts.
pub(super) struct Results {
    pub seed: u64,
    pub recorded: Duration,
    /// Identifier of the recording, as in replay codes.
    pub id: String,
    /// The device that loses power, if there is one.
    pub firmware: Option<Firmware>,
    /// Other settings of that device, as options; a replay needs them again.
    pub set: String,
    /// File of the recording, if saved.
    pub file: Option<PathBuf>,
    pub cuts: u64,
    /// Number of distinct disks among the cuts.
    pub distinct: u64,
    /// Cuts after which at least one block did not have its newest version.
    pub cuts_losing: u64,
    pub lost_max: u64,
    pub failed: u64,
    pub outcomes: Outcomes,
    pub first: Option<Failed>,
    /// The check failed on the cleanly shut down disk.
    pub without_cut: Option<Verdict>,
}

/// A cut after which the check failed.
pub(super) struct Failed {
    /// The round of its cut; none: it was replayed.
    pub round: Option<u64>,
    pub cut: Cut,
    pub verdict: Verdict,
    pub smallest: Option<Smallest>,
}

impl Results {
    pub(super) fn new(
        seed: u64,
        recorded: Duration,
        id: String,
        firmware: Option<Firmware>,
        set: String,
        file: Option<PathBuf>,
    ) -> Self {
        Self {
            seed,
            recorded,
            id,
            firmware,
            set,
            file,
            cuts: 0,
            distinct: 1,
            cuts_losing: 0,
            lost_max: 0,
            failed: 0,
            outcomes: Outcomes::new(),
            first: None,
            without_cut: None,
        }
    }

    pub(super) fn add(&mut self, cut: &Cut, verdict: &Verdict) {
        let lost = verdict.lost as u64;
        self.cuts += 1;
        self.cuts_losing += u64::from(lost > 0);
        self.lost_max = self.lost_max.max(lost);
        // The first cut of each outcome is kept for a replay.
        let key = (verdict.passed(), outcome(verdict));
        self.outcomes
            .entry(key)
            .or_insert_with(|| (0, cut.clone()))
            .0 += 1;
    }

    fn code(&self, cut: &Cut) -> String {
        Code {
            recording: self.id.clone(),
            cut: cut.clone(),
            firmware: self.firmware,
        }
        .to_string()
    }
}

/// Default file name of a recording.
pub(super) fn file_name(id: &str) -> PathBuf {
    format!("torture-{id}.recording").into()
}

/// An outcome's name: the last line of the check, with all numbers replaced by N, so that similar
/// outcomes are grouped.
fn outcome(verdict: &Verdict) -> String {
    // A check reports its finding at the end.
    let Some(line) = verdict
        .output
        .lines()
        .rev()
        .find(|line| !line.trim().is_empty())
    else {
        return verdict.finding.to_string();
    };

    let mut name = String::new();

    // Numbers vary between cuts: without them similar outcomes have the same name.
    for c in line.trim().chars().take(120) {
        match c {
            '0'..='9' if name.ends_with('N') => {}
            '0'..='9' => name.push('N'),
            _ => name.push(c),
        }
    }

    if verdict.passed() {
        name
    } else {
        format!("{}: {name}", verdict.finding)
    }
}

/// An outcome in the table. A passing check may print anything, even text that reads like an error.
fn outcome_line(passed: bool, name: &str) -> String {
    match (passed, name) {
        // A failure is named by its finding.
        (false, _) => name.into(),
        (true, "") => "passed".into(),
        (true, _) => format!("passed: {name}"),
    }
}

fn last_lines(text: &str) -> Vec<&str> {
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    lines[lines.len().saturating_sub(LINES)..].to_vec()
}

fn writes(recording: &Recording) -> u64 {
    recording.count(|event| matches!(event, Event::Write { .. }))
}

fn flushes(recording: &Recording) -> u64 {
    recording.count(|event| *event == Event::Flush)
}

/// The results as text.
pub(super) fn text(recording: &Recording, results: &Results) -> String {
    let mut rows: Vec<(&str, String)> = Vec::new();
    let [writes, flushes] = [writes(recording), flushes(recording)];
    let marks = recording.count(|event| matches!(event, Event::Mark(_)));
    let blocks: u64 =
        u64::from(recording.contents.count()) * u64::from(recording.shape.block_bytes);
    let counts = [
        counted(writes, "write"),
        // `counted` forms a plural with an `s`.
        counted(flushes, "flush").replace("flushs", "flushes"),
        counted(marks, "mark"),
    ];
    rows.push((
        "recording",
        format!(
            "{}: {}; {} of data",
            results.id,
            counts.join(", "),
            bytes(blocks)
        ),
    ));

    if let Some(firmware) = &results.firmware {
        rows.push(("device", format!("{firmware}{}", results.set)));
    }
    if !recording.about.faults.is_empty() {
        rows.push(("faults", recording.about.faults.join(", ")));
    }

    // Nothing else is worth showing: the check fails without a cut.
    if let Some(verdict) = &results.without_cut {
        rows.push((
            "FAILED",
            format!(
                "without any power cut: {}; mend that first",
                verdict.finding
            ),
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
    rows.push((
        "cuts",
        format!(
            "{}, {} different, seed {}: {lost}",
            exact(results.cuts),
            exact(results.distinct),
            results.seed
        ),
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
    rows.push((
        "cut",
        format!(
            "before entry {} of {}, {mark}; {lost} of {pending} blocks lost something",
            exact(cut.instant as u64),
            exact(recording.events.len() as u64)
        ),
    ));
    let replay = |cut: &Cut| {
        format!(
            "remap-ssd torture --replay {}{}",
            results.code(cut),
            results.set
        )
    };
    if let Some(smallest) = smallest {
        let left = if smallest.finished {
            "none can be left out"
        } else {
            "there may be fewer: see --shrink"
        };
        rows.push((
            "smallest",
            format!(
                "{} still fail ({}; {left})",
                counted(smallest.lost.len() as u64, "lost block"),
                counted(smallest.tried, "more cut")
            ),
        ));
        let state = DiskState::at(recording, smallest.cut.instant);
        rows.extend(
            smallest
                .lost
                .iter()
                .take(BLOCKS)
                .map(|lost| ("", described(recording, &state, lost))),
        );
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

/// A lost block: its newest content, and the content that it kept.
fn described(recording: &Recording, state: &DiskState, lost: &Lost) -> String {
    // Versions pending at the cut; if all are lost, the durable one remains.
    let versions = state
        .pending
        .get(&lost.block)
        .map_or(&[][..], Vec::as_slice);

    let kept = versions.len().saturating_sub(lost.versions as usize);

    let kept = kept
        .checked_sub(1)
        .map_or(state.durable[lost.block as usize], |index| {
            versions[index].content
        });

    let newest = versions.last().map_or(kept, |version| version.content);
    let offset = lost.block * u64::from(recording.shape.block_bytes);

    match [kept, newest].map(|id| content(recording, id)) {
        [Ok(kept), Ok(newest)] => difference(offset, &kept, &newest),
        [Err(error), _] | [_, Err(error)] => format!("byte {offset}: {error}"),
    }
}

/// The bytes of a block.
fn content(recording: &Recording, id: ContentId) -> std::io::Result<Vec<u8>> {
    let mut block = vec![0; recording.shape.block_bytes as usize];
    if id != ZEROES {
        recording.contents.get(id, &mut block)?;
    }
    Ok(block)
}

/// Contents of a block at `offset`, kept and newest, from the first byte that differs.
fn difference(offset: u64, kept: &[u8], newest: &[u8]) -> String {
    let mut bytes = kept.iter().zip(newest);
    let Some(at) = bytes.position(|(kept, newest)| kept != newest) else {
        return format!("byte {offset}: an older write of the same bytes");
    };
    format!(
        "byte {}: {} instead of {}",
        offset + at as u64,
        glimpse(&kept[at..]),
        glimpse(&newest[at..])
    )
}

/// The first few bytes.
fn glimpse(bytes: &[u8]) -> String {
    const SHOWN: usize = 16;
    if bytes.iter().all(|byte| *byte == 0) {
        return "zeroes".into();
    }
    let shown = &bytes[..SHOWN.min(bytes.len())];
    let more = if shown.len() < bytes.len() { ".." } else { "" };
    format!("\"{}\"{more}", shown.escape_ascii())
}

/// The results as one JSON object.
pub(super) fn json(recording: &Recording, results: &Results) -> Value {
    let about = &recording.about;

    let outcomes: Vec<Value> = results.outcomes.iter().map(|((passed, name), (count, cut))| {
        json!({ "passed": passed, "last_line": name, "cuts": count, "first": results.code(cut) })
    }).collect();

    json!({
        "result": if results.failed > 0 { "failed" } else { "passed" },
        "seed": results.seed,
        "device": results.firmware.map(|firmware| firmware.to_string()),
        "faults": about.faults,
        "fs": about.fs,
        "nvme_tcp": about.nvme_tcp,
        "workload": about.workload,
        "check": about.check,
        "recording": {
            "id": results.id,
            "file": results.file,
            "seconds": results.recorded.as_secs_f64(),
            "size_bytes": recording.shape.bytes(),
            "block_bytes": recording.shape.block_bytes,
            "writes": writes(recording),
            "flushes": flushes(recording),
            "zeroes": recording.count(|event| matches!(event, Event::Zero { .. })),
            "marks": recording.count(|event| matches!(event, Event::Mark(_))),
            "different_blocks": recording.contents.count(),
        },
        "cuts": results.cuts,
        "distinct": results.distinct,
        "cuts_losing": results.cuts_losing,
        "lost_blocks_max": results.lost_max,
        "failed": results.failed,
        "outcomes": outcomes,
        "without_cut": results.without_cut.as_ref().map(verdict_json),
        "failure": results.first.as_ref().map(|failed| failed_json(recording, results, failed)),
    })
}

fn verdict_json(verdict: &Verdict) -> Value {
    json!({ "why": verdict.finding.to_string(), "output": last_lines(&verdict.output).join("\n") })
}

fn failed_json(recording: &Recording, results: &Results, failed: &Failed) -> Value {
    let Failed {
        round,
        cut,
        verdict,
        smallest,
    } = failed;

    let Verdict { pending, lost, .. } = verdict;

    json!({
        "round": round,
        "why": verdict.finding.to_string(),
        "output": last_lines(&verdict.output).join("\n"),
        "code": results.code(cut),
        "instant": cut.instant,
        "last_mark": recording.marks_before(cut.instant).last(),
        "blocks_unflushed": pending,
        "blocks_lost": lost,
        "smallest": smallest.as_ref().map(|smallest| json!({
            "code": results.code(&smallest.cut),
            "finished": smallest.finished,
            "cuts_tried": smallest.tried,
            "lost": smallest.lost.iter().map(|lost| json!({ "block": lost.block, "versions": lost.versions })).collect::<Vec<_>>(),
            "output": last_lines(&smallest.verdict.output).join("\n"),
        })),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_of_a_lost_block_begin_where_they_differ() {
        let [mut kept, mut newest] = [[b'a'; 4096]; 2];
        (kept[100], newest[100]) = (b'1', b'2');
        let line = difference(8192, &kept, &newest);
        assert_eq!(
            line,
            r#"byte 8292: "1aaaaaaaaaaaaaaa".. instead of "2aaaaaaaaaaaaaaa".."#
        );

        // At the end of the block, and before zeroes.
        let [mut kept, newest] = [[b'a'; 4096]; 2];
        kept[4095] = 0;
        let line = difference(0, &kept, &newest);
        assert_eq!(line, r#"byte 4095: zeroes instead of "a""#);
        assert_eq!(
            difference(0, &newest, &newest),
            "byte 0: an older write of the same bytes"
        );
    }

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
