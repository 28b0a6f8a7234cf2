//! One script: a device is filled, written, cut, recovered, judged, and written again.
//!
//! The main line runs once; every few commands power is cut in several ways, each on a fork that
//! shares the surviving media. A fork recovers (possibly with further cuts), is judged, continues,
//! and is cut again, for a few generations. Now and then a fork becomes the main line, so that
//! damage accumulates. Invariants: setup and seed determine everything; the first failure ends the
//! script. Absent: threads, time, the choice of scripts (`run`), cuts and recoveries (`power`), and
//! faults (`plant`).

mod plant;
mod power;

use crate::content::Content;
use crate::dut::{DeviceUnderTest, Failure};
use crate::history::History;
use crate::marks::Marks;
use crate::quiet;
use crate::script::ScriptCommand;
use crate::setup::Setup;
use crate::steps::{self, StepText};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use remap_ssd_media::{Faults, Image};

/// Result of a script.
#[derive(Default)]
pub(crate) struct ScriptEnd {
    /// Digests of the media left by each cut, not necessarily distinct.
    pub digests: Vec<u64>,
    /// Successful recoveries, including those that were cut again.
    pub recoveries: u64,
    /// Counts of rare events.
    pub marks: Marks,
    /// The failure that ended it, explained.
    pub failure: Option<String>,
    /// The media left by the last cut: recovering from it reproduces the failure, if a recovery
    /// failed.
    pub image: Option<Image>,
    /// Media faults on it.
    pub faults: Faults,
    /// The firmware's steps, if they were wanted.
    pub steps: Option<String>,
}

/// A script that is run, cut and recovered.
pub(crate) struct Campaign<'a> {
    setup: &'a Setup,
    random: Xoshiro256PlusPlus,
    seed: u64,
    history: History,
    end: ScriptEnd,
    read: Vec<Content>,
    /// Maximum commands in flight.
    depth: InFlightLimits,
    /// The firmware's steps, if they are wanted.
    steps: Option<StepText>,
}

/// Limits on commands and operations in flight.
struct InFlightLimits {
    /// Maximum unacknowledged commands.
    commands: usize,
    /// Operations at which the main line completes them all.
    operations: usize,
    /// Mean number of commands after which it does so in any case.
    ends: u32,
    /// True if some are acknowledged before the limit is reached.
    early: bool,
}

/// One command in this number is a flush on a device with a volatile write buffer, besides those of the mix.
const FLUSH_ONE_IN: u32 = 12;

impl<'a> Campaign<'a> {
    /// Script `seed` on the setup's device.
    pub(crate) fn new(setup: &'a Setup, seed: u64) -> Self {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let depth = if setup.deep {
            InFlightLimits {
                commands: random.random_range(40..=300),
                operations: 5000,
                ends: 300,
                early: false,
            }
        } else {
            InFlightLimits {
                commands: random.random_range(1..=8),
                operations: 400,
                ends: 40,
                early: true,
            }
        };

        let history = History::default();
        Self {
            setup,
            random,
            seed,
            history,
            end: ScriptEnd::default(),
            read: Vec::new(),
            depth,
            steps: None,
        }
    }

    /// Writes down the firmware's steps, unless `wanted` is false.
    pub(crate) fn with_steps(mut self, wanted: bool) -> Self {
        self.steps = wanted.then(StepText::default);
        self
    }

    /// Runs the script to its end or first failure.
    pub(crate) fn run(mut self) -> ScriptEnd {
        // A panic of the firmware is a finding like any other.
        let failure = match quiet::catch(|| self.script()) {
            Ok(Ok(())) => None,
            Ok(Err(failure)) => Some(failure),
            Err(panic) => Some(Failure::new(format!("the firmware panicked: {panic}"))),
        };

        if let Some(failure) = failure {
            let explained = format!(
                "{}\n  {}\n{}",
                failure.text,
                self.device(),
                self.history.explain(failure.lpn)
            );
            self.end.failure = Some(explained);
        } else {
            // Only a failure needs the image that reproduces it.
            self.end.image = None;
        }
        // Also those of a script that failed, up to its failure.
        self.end.steps = self.steps.map(|text| text.take());

        self.end
    }

    /// Description of the device in one line.
    fn device(&self) -> String {
        let (shape, config) = (self.setup.geometry.shape(), &self.setup.config);

        format!(
            "{}: {} dies, {} superblocks, {} pages a block, {} LPNs, {}-byte entries, log of {} bytes in segments of {}, \
             count at most {}, {} deallocation slots{}",
            config.scheme,
            shape.dies,
            shape.superblocks,
            shape.pages_per_block,
            self.setup.lpns(),
            config.entry.words() * 8,
            config.log_bytes,
            config.segment_bytes,
            config.count_max,
            config.dealloc_slots,
            self.setup
                .mutant
                .map(|guard| format!(", without {guard}"))
                .unwrap_or_default(),
        )
    }

    fn chance(&mut self, one_in: u32) -> bool {
        self.random.random_ratio(1, one_in)
    }

    fn script(&mut self) -> Result<(), Failure> {
        let mut dut = DeviceUnderTest::format(self.setup, self.seed, self.steps.as_ref())?;
        self.fill(&mut dut)?;
        if dut.read_only {
            return self.end_of_life(dut);
        }
        for step in 0..self.setup.steps {
            self.step(&mut dut)?;
            if dut.read_only {
                return self.end_of_life(dut);
            }
            // Reading the whole device at each step would take most of the time, and errors
            // persist.
            if step % 16 == 0 {
                dut.verify_live(&mut self.read)?;
            }
            if self.chance(3) {
                dut = self.cut_here(dut)?;
            }
        }

        dut.verify_live(&mut self.read)?;
        self.end.marks.collect(&dut.ftl);
        Ok(())
    }

    /// Writes the whole device or, in some scripts, only a part: LPNs never written take code paths
    /// of their own.
    fn fill(&mut self, dut: &mut DeviceUnderTest) -> Result<(), Failure> {
        let lpns = self.setup.lpns();
        let share = match self.random.random_range(0..8) {
            0 => 0,
            1 => self.random.random_range(0..lpns),
            _ => lpns,
        };

        for at in 0..share {
            let Some(write) = dut.generator.fill() else {
                break;
            };
            dut.submit(write, &mut self.history)?;
            if dut.read_only {
                break;
            }
            // Regularly completes everything, or the rail would hold the whole fill.
            if at % 16 == 15 {
                dut.catch_up(&mut self.history)?;
            }
        }

        dut.catch_up(&mut self.history)
    }

    /// Submits one command, and delivers some acknowledgements.
    fn step(&mut self, dut: &mut DeviceUnderTest) -> Result<(), Failure> {
        self.plant(dut)?;

        // Some commands must be refused and change nothing: the checks that follow compare
        // everything.
        if self.chance(100) {
            let refused = dut.generator.refused();
            dut.submit_refused(refused)?;
        }

        // An operator's action; setups without it draw unchanged scripts.
        if self.setup.apart && self.chance(25) {
            let paused = dut.ftl.is_dedup_paused();
            dut.ftl.pause_dedup(!paused);
        }

        // Hosts flush where a write may be lost; other setups draw unchanged scripts.
        let command = if dut.ftl.config().has_volatile_buffer() && self.chance(FLUSH_ONE_IN) {
            ScriptCommand::Flush
        } else {
            dut.generator.command(dut.oracle.live())
        };
        let command = match command {
            ScriptCommand::Remap(remap) if self.steps.is_some() => {
                ScriptCommand::Remap(steps::traced(remap, dut.ftl.config().scheme))
            }
            command => command,
        };
        self.end.marks.commands += 1;
        match command {
            ScriptCommand::Remap(remap) if remap.relocate => self.end.marks.relocations += 1,
            ScriptCommand::Deallocate { .. } => self.end.marks.trims += 1,
            _ => {}
        }

        dut.submit(command, &mut self.history)?;
        // Acknowledged in any order, as devices do: an acknowledgement must not rely on an earlier
        // one.
        while dut.in_flight.len() > self.depth.commands
            || (!dut.in_flight.is_empty() && self.depth.early && self.chance(3))
        {
            let at = self.random.random_range(0..dut.in_flight.len() as u32);
            dut.acknowledge(at as usize, &mut self.history);
        }

        if self.chance(self.depth.ends) || dut.ftl.media().pending() > self.depth.operations {
            // Durable, acknowledged or not. The second is the view of a slow host: everything may
            // have survived, nothing must.
            if self.chance(2) {
                dut.catch_up(&mut self.history)?;
            } else {
                dut.settle_all(&mut self.history);
            }
        }

        Ok(())
    }
}
