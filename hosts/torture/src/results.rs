//! Results of a campaign: cuts counted by outcome, and the first failure, minimized.
//!
//! Invariant: a failure always has its seed, its replay code and the recording's file. Absent: one
//! cut and its verdict (`campaign`).

use crate::campaign::{Campaign, Smallest, Verdict};
use crate::code::Code;
use crate::cut::{Choice, Cut};
use crate::error::TortureError;
use crate::file::save;
use crate::firmware::Firmware;
use crate::record::{Event, Recording};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Lines of output that are shown.
const LINES: usize = 12;

/// Counts of outcomes, by the last line of the check; each with its first cut.
type Outcomes = BTreeMap<(bool, String), (u64, Cut)>;

/// Results of all cuts.
#[derive(Debug, Default)]
pub struct Results {
    /// Seed of the cuts.
    pub seed: u64,
    /// Duration of the run; of a saved recording, of loading it.
    pub recorded: Duration,
    /// Identifier of the recording, as in replay codes.
    pub id: String,
    /// Bytes of a write that a cut keeps or loses as a whole; none: a block.
    pub atomic: Option<u64>,
    /// The device that loses power, if there is one.
    pub firmware: Option<Firmware>,
    /// Other settings of that device, as options; a replay needs them again.
    pub set: String,
    /// File of the recording, if saved.
    pub file: Option<PathBuf>,
    /// Number of cuts.
    pub cuts: u64,
    /// Number of distinct disks among the cuts.
    pub distinct: u64,
    /// Cuts after which at least one block did not have its newest version.
    pub cuts_losing: u64,
    /// Most blocks that a cut left without their newest version.
    pub lost_max: u64,
    /// Number of failed checks.
    pub failed: u64,
    /// What the checks ended with.
    pub outcomes: Outcomes,
    /// The first failure of a cut.
    pub first: Option<Failed>,
    /// The check failed on the cleanly shut down disk.
    pub without_cut: Option<Verdict>,
}

/// A cut after which the check failed.
#[derive(Debug)]
pub struct Failed {
    /// The round of its cut; none: it was replayed.
    pub round: Option<u64>,
    /// The cut.
    pub cut: Cut,
    /// Its result.
    pub verdict: Verdict,
    /// The same failure with the fewest lost blocks, if they were searched for.
    pub smallest: Option<Smallest>,
}

/// What a campaign is doing.
#[derive(Clone, Copy, Debug)]
pub enum Progress {
    /// This number of cuts is done.
    Cuts(u64),
    /// A check has failed, and the fewest lost blocks that still fail are searched for.
    Shrinking,
}

/// How often a campaign cuts, and when it ends.
#[derive(Clone, Copy, Debug)]
pub struct Rounds {
    /// Maximum number of cuts.
    pub count: u64,
    /// Cut on after a failure.
    pub keep_going: bool,
    /// Time to minimize the first failure; zero: it is not.
    pub shrink: Duration,
}

impl Campaign<'_> {
    /// Cuts as often as requested, or until a check fails. After an error `results` has what was
    /// found before.
    ///
    /// # Errors
    /// There was no verdict.
    pub fn rounds(
        &mut self,
        rounds: &Rounds,
        results: &mut Results,
        tell: &mut dyn FnMut(Progress),
    ) -> Result<(), TortureError> {
        results.distinct = 1;

        // Otherwise every cut would fail, and the first would be blamed.
        let whole = self.whole()?;
        if !whole.passed() {
            results.failed = 1;
            results.without_cut = Some(whole);
            return Ok(());
        }

        tell(Progress::Cuts(0));
        for round in 0..rounds.count {
            // Each round has its own cut, which depends only on seed and round.
            let cut = self.cut(results.seed, round);
            let verdict = self.try_cut(&cut)?;
            tell(Progress::Cuts(round + 1));
            results.add(&cut, &verdict);
            results.distinct = self.distinct() as u64;
            if verdict.passed() {
                continue;
            }

            results.failed += 1;
            // Only the first is minimized: later ones mostly have the same cause.
            if results.first.is_none() {
                let failed = results.first.insert(Failed {
                    round: Some(round),
                    cut,
                    verdict,
                    smallest: None,
                });
                self.minimize(failed, rounds.shrink, tell)?;
            }
            if !rounds.keep_going {
                break;
            }
        }
        Ok(())
    }

    /// Repeats the cut of a code, in the recording that the code names.
    ///
    /// # Errors
    /// The code is of another recording, or there was no verdict.
    pub fn replay(
        &mut self,
        code: &Code,
        shrink: Duration,
        results: &mut Results,
        tell: &mut dyn FnMut(Progress),
    ) -> Result<(), TortureError> {
        // A cut is valid only in its own recording.
        if code.recording != results.id {
            return Err(TortureError::missing(format!(
                "the code is of recording {}, and this is {}: see --from",
                code.recording, results.id
            )));
        }
        if code.cut.instant > self.instant_max() {
            return Err(TortureError::missing(
                "the code names an instant that the recording does not have",
            ));
        }

        let verdict = self.try_cut(&code.cut)?;
        results.distinct = 1;
        results.add(&code.cut, &verdict);
        if verdict.passed() {
            return Ok(());
        }

        results.failed = 1;
        let failed = results.first.insert(Failed {
            round: None,
            cut: code.cut.clone(),
            verdict,
            smallest: None,
        });
        // A code that lists its blocks comes from a minimized failure.
        match &failed.cut.choice {
            Choice::Lost(_) => Ok(()),
            Choice::Drawn(_) => self.minimize(failed, shrink, tell),
        }
    }

    /// Searches for the smallest cut that fails in the same way.
    fn minimize(
        &mut self,
        failed: &mut Failed,
        limit: Duration,
        tell: &mut dyn FnMut(Progress),
    ) -> Result<(), TortureError> {
        if !limit.is_zero() {
            tell(Progress::Shrinking);
            failed.smallest = Some(self.shrink(&failed.cut, failed.verdict.clone(), limit)?);
        }
        Ok(())
    }
}

impl Results {
    fn add(&mut self, cut: &Cut, verdict: &Verdict) {
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

    /// The replay code of a cut.
    pub fn code(&self, cut: &Cut) -> String {
        Code {
            recording: self.id.clone(),
            cut: cut.clone(),
            atomic: self.atomic,
            firmware: self.firmware,
        }
        .to_string()
    }

    /// Saves the recording of a failure where a replay looks for it.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn keep(&mut self, recording: &Recording) -> Result<(), TortureError> {
        // A failure without a cut needs no replay.
        if self.first.is_some() && self.file.is_none() {
            let path = file_name(&self.id);
            save(recording, &path).map_err(|error| {
                TortureError::Io(io::Error::other(format!(
                    "{}: {error}; choose another place with --record",
                    path.display()
                )))
            })?;
            self.file = Some(path);
        }
        Ok(())
    }

    /// The results as one JSON object.
    pub fn json(&self, recording: &Recording) -> Value {
        let about = &recording.about;
        let atomic = self.atomic.unwrap_or(recording.shape.block_bytes.into());

        let outcomes: Vec<Value> = self.outcomes.iter().map(|((passed, name), (count, cut))| {
            json!({ "passed": passed, "last_line": name, "cuts": count, "first": self.code(cut) })
        }).collect();

        json!({
            "result": if self.failed > 0 { "failed" } else { "passed" },
            "seed": self.seed,
            "atomic_write_bytes": atomic,
            "writes_longer": recording.writes_longer_than(atomic),
            "device": self.firmware.map(|firmware| firmware.to_string()),
            "faults": about.faults,
            "fs": about.fs,
            "nvme_tcp": about.nvme_tcp,
            "workload": about.workload,
            "check": about.check,
            "recording": {
                "id": self.id,
                "file": self.file,
                "seconds": self.recorded.as_secs_f64(),
                "size_bytes": recording.shape.bytes(),
                "block_bytes": recording.shape.block_bytes,
                "writes": recording.count(|event| matches!(event, Event::Write { .. })),
                "flushes": recording.count(|event| *event == Event::Flush),
                "zeroes": recording.count(|event| matches!(event, Event::Zero { .. })),
                "marks": recording.count(|event| matches!(event, Event::Mark(_))),
                "different_blocks": recording.contents.count(),
            },
            "cuts": self.cuts,
            "distinct": self.distinct,
            "cuts_losing": self.cuts_losing,
            "lost_blocks_max": self.lost_max,
            "failed": self.failed,
            "outcomes": outcomes,
            "without_cut": self.without_cut.as_ref().map(verdict_json),
            "failure": self.first.as_ref().map(|failed| failed_json(recording, self, failed)),
        })
    }
}

/// Default file name of a recording.
pub fn file_name(id: &str) -> PathBuf {
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

/// The last lines of a check's output that are shown.
pub fn last_lines(text: &str) -> Vec<&str> {
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    lines[lines.len().saturating_sub(LINES)..].to_vec()
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
            "lost_writes": smallest.writes,
            "lost": smallest.lost.iter().map(|lost| json!({ "block": lost.block, "versions": lost.versions })).collect::<Vec<_>>(),
            "output": last_lines(&smallest.verdict.output).join("\n"),
        })),
    })
}
