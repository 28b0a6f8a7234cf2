//! Runs many scripts: on all cores, until a time limit, a number of cuts, or too many failures.
//!
//! Scripts are numbered; number and seed determine setup and script. Threads run them in any order,
//! but results are processed in order, so that a run bounded by cuts reports the same on any
//! machine. Invariant: a cut counts once, however often it left the same media. Absent: the steps
//! of a script.

use crate::campaign::{Campaign, ScriptEnd};
use crate::code::ReplayCode;
use crate::marks::Marks;
use crate::setup::{Adjust, Setup, mapping_of};
use crate::steps;
use remap_ssd_ftl::{ConfigError, GcPolicy, Granularity, Guard, SchemeKind};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// Devices, scripts and bounds of a campaign.
///
/// ```
/// use remap_ssd_crash::{Adjust, CampaignOptions, ReplayCode, replay, replay_traced, run};
/// use remap_ssd_ftl::{Granularity, Guard, SchemeKind};
/// let mut options = CampaignOptions::new(SchemeKind::RemapSsd, 1);
/// options.cuts = Some(100);
/// options.check_mapping()?;
/// assert!(!options.setups()?.is_empty());
/// assert!(CampaignOptions::schemes(Granularity::Page, None).contains(&options.scheme));
/// let report = run(&options, &mut |progress| println!("{} cuts", progress.cuts));
/// assert!(report.cuts >= 100 && report.violations == 0);
///
/// // Entries of remaps that do not wait for the pages that they name: data is lost, and found lost.
/// options.mutant = Some(Guard::EntryAfterPage);
/// (options.cuts, options.seconds, options.failures) = (None, Some(60.0), 1);
/// let failed = &run(&options, &mut |_| {}).failures[0];
/// let code: ReplayCode = failed.code.parse()?;
/// assert_eq!(replay(&code).violations, 1);
/// assert_eq!(replay_traced(&code, &Adjust::default(), None)?.violations, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct CampaignOptions {
    /// Remapping scheme of the firmware.
    pub scheme: SchemeKind,
    /// Granularity of its mapping table.
    pub mapping: Granularity,
    /// Policy of garbage collection; `None`: each setup's own.
    pub policy: Option<GcPolicy>,
    /// Only this setup; `None`: all of them.
    pub setup: Option<u32>,
    /// Seed; every script follows from it.
    pub seed: u64,
    /// Stop after this number of seconds.
    pub seconds: Option<f64>,
    /// Stop after this number of distinct cuts.
    pub cuts: Option<u64>,
    /// Threads; 0 is one per core.
    pub threads: u32,
    /// A guard to switch off.
    pub mutant: Option<Guard>,
    /// Use the setups with failing media instead of the others.
    pub media_faults: bool,
    /// Stop after this number of failures.
    pub failures: u32,
    /// Overrides of the setups' firmware and flash parameters. Setups that cannot work with them
    /// are left out.
    pub adjust: Adjust,
    /// Set from another thread, ends the campaign: scripts that have begun are finished.
    pub stop: Arc<AtomicBool>,
    /// Takes the firmware's steps, script by script. Setups with what the proof's checker does not judge are left out.
    pub steps: Option<StepSink>,
}

/// Takes the text of a script's steps.
#[derive(Clone)]
pub struct StepSink(pub Arc<dyn Fn(&str) + Send + Sync>);

impl fmt::Debug for StepSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StepSink")
    }
}

impl CampaignOptions {
    /// One thread, bounded only by failures.
    pub fn new(scheme: SchemeKind, seed: u64) -> Self {
        Self {
            scheme,
            mapping: Granularity::Page,
            policy: None,
            setup: None,
            seed,
            seconds: None,
            cuts: None,
            threads: 1,
            mutant: None,
            media_faults: false,
            failures: 10,
            adjust: Adjust::default(),
            stop: Arc::default(),
            steps: None,
        }
    }

    fn mapping(&self) -> Granularity {
        mapping_of(self.mapping, self.mutant)
    }

    /// The schemes of a campaign that names none: one that shows the absence of the guard, or the
    /// durable ones that work with the mapping.
    pub fn schemes(mapping: Granularity, mutant: Option<Guard>) -> Vec<SchemeKind> {
        if let Some(guard) = mutant {
            return vec![SchemeKind::that_shows(guard)];
        }
        let works = |scheme: &SchemeKind| {
            scheme.is_durable() && (mapping == Granularity::Page || scheme.needs_pages().is_none())
        };
        SchemeKind::ALL.into_iter().filter(works).collect()
    }

    /// Checks that its scheme and its policy work with its mapping, wherever that comes from: an
    /// option, a guard or a replay code.
    ///
    /// # Errors
    /// One of them requires page mapping.
    pub fn check_mapping(&self) -> Result<(), ConfigError> {
        if self.mapping() == Granularity::Page {
            return Ok(());
        }
        let scheme = self.scheme;
        if let Some(why) = scheme.needs_pages() {
            return Err(ConfigError(format!(
                "scheme {scheme} {why} and works with --mapping page only"
            )));
        }
        match self.policy.filter(|policy| policy.zones() > 1) {
            Some(policy) => Err(ConfigError(format!(
                "--gc {policy} sorts pages into zones and works with --mapping page only"
            ))),
            None => Ok(()),
        }
    }

    /// The setups of a campaign, in order.
    ///
    /// # Errors
    /// Why the firmware cannot work on any of them, because of the adjustment.
    pub fn setups(&self) -> Result<Vec<u32>, ConfigError> {
        // A setup that never needs the guard cannot show its absence.
        let useful = |at: &u32| {
            self.mutant
                .is_none_or(|guard| Setup::new(self.scheme, None, *at, None).exercises(guard))
        };

        let mut setups: Vec<u32> = match self.setup {
            Some(setup) => vec![setup],
            None if self.mutant.is_some() => {
                let simple: Vec<u32> = (0..Setup::COUNT).filter(useful).collect();
                if simple.is_empty() {
                    Setup::of_media(false).filter(useful).collect()
                } else {
                    simple
                }
            }
            None => Setup::of_media(self.media_faults).collect(),
        };

        // A value that some devices cannot have is no error, as long as one can.
        if !self.adjust.is_none() {
            let mut refused = None;
            setups.retain(|at| {
                let (mapping, adjust) = (self.mapping(), &self.adjust);
                Setup::adjusted(mapping, self.scheme, self.policy, *at, self.mutant, adjust)
                    .map_err(|why| refused = Some(why))
                    .is_ok()
            });

            if let Some(why) = refused.filter(|_| setups.is_empty()) {
                return Err(why);
            }
        }
        if self.steps.is_some() {
            self.keep_traced(&mut setups)?;
        }
        Ok(setups)
    }
}

impl CampaignOptions {
    /// Keeps the setups whose steps the proof's checker judges.
    fn keep_traced(&self, setups: &mut Vec<u32>) -> Result<(), ConfigError> {
        let mut refused: Vec<Vec<&str>> = Vec::new();
        setups.retain(|at| {
            let (mapping, adjust) = (self.mapping(), &self.adjust);
            Setup::adjusted(mapping, self.scheme, self.policy, *at, self.mutant, adjust).is_ok_and(
                |setup| {
                    refused.push(steps::not_judged(&setup));
                    refused.last().is_some_and(Vec::is_empty)
                },
            )
        });
        if !setups.is_empty() {
            return Ok(());
        }
        // The reason is what all devices have; one of them may have more.
        let first = refused.first().cloned().unwrap_or_default();
        let common = |what: &&&str| refused.iter().all(|parts| parts.contains(what));
        let what = first.iter().find(common).or(first.first());
        Err(ConfigError(format!(
            "steps cannot be traced: the proof's checker does not judge {} yet",
            what.unwrap_or(&"such devices")
        )))
    }
}

/// Progress of a campaign.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CampaignProgress {
    /// Cuts so far with distinct media contents.
    pub cuts: u64,
    /// Scripts completed, in order.
    pub scripts: u64,
    /// Recoveries so far that succeeded.
    pub recoveries: u64,
    /// Scripts that failed so far.
    pub violations: u64,
    /// Wall-clock time since the start, in seconds.
    pub seconds: f64,
}

/// A script that failed, with the code that reproduces it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedScript {
    /// Code that runs it again.
    pub code: String,
    /// The violation, and the events before it.
    pub text: String,
}

/// Results of a campaign, in machine-readable form.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CampaignReport {
    /// Name of the scheme, as in options.
    pub scheme: String,
    /// Cuts with distinct media contents.
    pub cuts: u64,
    /// Number of scripts that failed.
    pub violations: u64,
    /// Recoveries that succeeded, over all scripts.
    pub recoveries: u64,
    /// Scripts counted here: all up to the last one needed.
    pub scripts: u64,
    /// Seed of the campaign.
    pub seed: u64,
    /// The failures, first ones first.
    pub failures: Vec<FailedScript>,
    /// Counts of rare events.
    pub marks: Marks,
}

/// The scripts of a campaign, by number.
struct CampaignScripts {
    scheme: SchemeKind,
    mapping: Granularity,
    policy: Option<GcPolicy>,
    seed: u64,
    mutant: Option<Guard>,
    setups: Vec<u32>,
    adjust: Adjust,
    with_steps: bool,
}

impl CampaignScripts {
    fn new(options: &CampaignOptions) -> Self {
        let setups = options
            .setups()
            .unwrap_or_else(|why| panic!("the firmware cannot work on any setup: {why}"));
        let mapping = options.mapping();
        let CampaignOptions {
            scheme,
            policy,
            seed,
            mutant,
            ..
        } = *options;

        Self {
            scheme,
            mapping,
            policy,
            seed,
            mutant,
            setups,
            adjust: options.adjust.clone(),
            with_steps: options.steps.is_some(),
        }
    }

    fn code(&self, number: u64) -> ReplayCode {
        // One round of a 64-bit finalizer: neighbouring numbers get unrelated seeds.
        let mut seed = self
            .seed
            .wrapping_add(number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        seed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        seed = (seed ^ (seed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);

        // Round-robin over the setups.
        let setup = self.setups[(number % self.setups.len() as u64) as usize];
        ReplayCode {
            scheme: self.scheme,
            mapping: self.mapping,
            policy: self.policy,
            setup,
            seed: (seed ^ (seed >> 31)) as u32,
            mutant: self.mutant,
        }
    }
}

fn run_script(code: &ReplayCode, adjust: &Adjust, with_steps: bool) -> ScriptEnd {
    let setup = Setup::adjusted(
        code.mapping,
        code.scheme,
        code.policy,
        code.setup,
        code.mutant,
        adjust,
    )
    .unwrap_or_else(|why| panic!("{code} cannot run: {why}"));
    Campaign::new(&setup, u64::from(code.seed))
        .with_steps(with_steps)
        .run()
}

/// Runs a campaign; `progress` is called about four times a second.
pub fn run(
    options: &CampaignOptions,
    progress: &mut dyn FnMut(&CampaignProgress),
) -> CampaignReport {
    let start = Instant::now();
    let deadline = options
        .seconds
        .map(|seconds| start + Duration::from_secs_f64(seconds));
    let threads = match options.threads {
        0 => std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32),
        threads => threads,
    };

    let (next, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let (sender, receiver) = mpsc::channel();
    let scripts = CampaignScripts::new(options);
    let mut tally = CampaignTally::new(options);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let (sender, next, stop, scripts) = (sender.clone(), &next, &stop, &scripts);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed)
                    && !options.stop.load(Ordering::Relaxed)
                    && deadline.is_none_or(|deadline| Instant::now() < deadline)
                {
                    // One number per script, in turn: with the seed it determines everything,
                    // independent of the thread.
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let code = scripts.code(number);
                    if sender
                        .send((
                            number,
                            code,
                            run_script(&code, &scripts.adjust, scripts.with_steps),
                        ))
                        .is_err()
                    {
                        break;
                    }
                }
            });
        }

        // The threads have clones; the loop below ends when the last of them ends.
        drop(sender);
        let mut waiting = BTreeMap::new();
        let mut last_report = start;
        for (number, code, end) in receiver {
            waiting.insert(number, (code, end));
            // Strictly by number, so that a bound on cuts ends every run at the same script.
            while let Some((code, end)) = waiting.remove(&tally.report.scripts)
                && !tally.done()
            {
                tally.add(&code, end);
            }
            if tally.done() {
                stop.store(true, Ordering::Relaxed);
            }
            if last_report.elapsed() > Duration::from_millis(250) {
                last_report = Instant::now();
                progress(&tally.progress(start));
            }
        }
    });

    progress(&tally.progress(start));
    tally.report
}

/// Results so far, in order of the scripts.
struct CampaignTally<'a> {
    options: &'a CampaignOptions,
    report: CampaignReport,
    seen: HashSet<u64>,
}

impl<'a> CampaignTally<'a> {
    fn new(options: &'a CampaignOptions) -> Self {
        let report = CampaignReport {
            scheme: options.scheme.to_string(),
            cuts: 0,
            violations: 0,
            recoveries: 0,
            scripts: 0,
            seed: options.seed,
            failures: Vec::new(),
            marks: Marks::default(),
        };
        Self {
            options,
            report,
            seen: HashSet::new(),
        }
    }

    fn done(&self) -> bool {
        self.options
            .cuts
            .is_some_and(|cuts| self.report.cuts >= cuts)
            || self.report.violations >= u64::from(self.options.failures)
    }

    fn add(&mut self, code: &ReplayCode, end: ScriptEnd) {
        self.seen.extend(end.digests);
        self.report.cuts = self.seen.len() as u64;
        self.report.scripts += 1;
        self.report.recoveries += end.recoveries;
        self.report.marks.add(&end.marks);
        if let (Some(StepSink(take)), Some(steps)) = (&self.options.steps, &end.steps) {
            take(&format!("script {code}\n{steps}"));
        }
        if let Some(text) = end.failure {
            self.report.violations += 1;
            self.report.failures.push(FailedScript {
                code: code.to_string(),
                text,
            });
        }
    }

    fn progress(&self, start: Instant) -> CampaignProgress {
        CampaignProgress {
            cuts: self.report.cuts,
            scripts: self.report.scripts,
            recoveries: self.report.recoveries,
            violations: self.report.violations,
            seconds: start.elapsed().as_secs_f64(),
        }
    }
}

/// Runs one script again, by its code.
pub fn replay(code: &ReplayCode) -> CampaignReport {
    replay_adjusted(code, &Adjust::default()).expect("every setup works as it is")
}

/// Runs one script again, with its campaign's firmware parameters.
///
/// # Errors
/// Why the firmware cannot work with them on the script's device.
pub fn replay_adjusted(code: &ReplayCode, adjust: &Adjust) -> Result<CampaignReport, ConfigError> {
    replay_traced(code, adjust, None)
}

/// `replay_adjusted`; `steps` takes the firmware's steps.
///
/// # Errors
/// As there, or the proof's checker does not judge the script's device.
pub fn replay_traced(
    code: &ReplayCode,
    adjust: &Adjust,
    steps: Option<StepSink>,
) -> Result<CampaignReport, ConfigError> {
    let options = CampaignOptions {
        mapping: code.mapping,
        policy: code.policy,
        mutant: code.mutant,
        setup: Some(code.setup),
        adjust: adjust.clone(),
        steps,
        ..CampaignOptions::new(code.scheme, u64::from(code.seed))
    };
    options.setups()?;

    let mut tally = CampaignTally::new(&options);
    tally.add(code, run_script(code, adjust, options.steps.is_some()));
    Ok(tally.report)
}

/// Bounds of a campaign.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CampaignBudget {
    /// Maximum number of scripts.
    pub scripts: u64,
    /// Maximum time in seconds.
    pub seconds: f64,
}

/// Searches for a script that fails with `guard` off: the proof that the guard is needed and
/// tested.
pub fn hunt(
    scheme: SchemeKind,
    guard: Guard,
    budget: CampaignBudget,
    seed: u64,
) -> Option<FailedScript> {
    let options = CampaignOptions {
        mutant: Some(guard),
        ..CampaignOptions::new(scheme, seed)
    };

    let scripts = CampaignScripts::new(&options);
    let start = Instant::now();
    for number in 0..budget.scripts {
        if start.elapsed().as_secs_f64() > budget.seconds {
            return None;
        }
        let code = scripts.code(number);
        if let Some(text) = run_script(&code, &scripts.adjust, scripts.with_steps).failure {
            return Some(FailedScript {
                code: code.to_string(),
                text,
            });
        }
    }

    None
}
