//! One script: a device is filled, worked on, cut, recovered, judged, and worked on again.
//!
//! The main line runs once; every few commands power is cut in several ways, each on a fork that
//! shares the surviving media. A fork recovers (and may be cut again while it does), is judged,
//! goes on working, and is cut again, for a few generations. Now and then a fork becomes the main
//! line, so that damage adds up. Invariants: everything follows from the setup and the seed; the
//! first failure ends the script. Absent: threads, time, the choice of scripts (`run`), cuts and
//! recoveries (`power`), and faults (`plant`).

mod plant;
mod power;

use crate::content::Content;
use crate::dut::{DeviceUnderTest, Failure};
use crate::history::{DeviceEvent, History};
use crate::marks::Marks;
use crate::quiet;
use crate::script::ScriptCommand;
use crate::setup::Setup;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use remap_ssd_media::{Faults, Image};

/// What became of a script.
#[derive(Default)]
pub struct ScriptEnd {
    /// Digest of the media that each cut left, some of them equal.
    pub digests: Vec<u64>,
    /// Recoveries that succeeded, those that were cut again among them.
    pub recoveries: u64,
    /// What happened on the way.
    pub marks: Marks,
    /// The failure that ended it, explained.
    pub failure: Option<String>,
    /// The media that the last cut left: recovering from it shows the failure, if a recovery
    /// failed.
    pub image: Option<Image>,
    /// What was damaged on it.
    pub faults: Faults,
}

/// A script that is run, cut and recovered.
pub struct Campaign<'a> {
    setup: &'a Setup,
    random: Xoshiro256PlusPlus,
    seed: u64,
    history: History,
    end: ScriptEnd,
    read: Vec<Content>,
    /// Commands in flight at most.
    depth: InFlightLimits,
}

/// What may be under way.
struct InFlightLimits {
    /// Commands that are not acknowledged.
    commands: usize,
    /// Operations at which the main line lets them all end.
    operations: usize,
    /// Commands after one of which, on average, it does so in any case.
    ends: u32,
    /// Are some acknowledged before there are too many?
    early: bool,
}

impl<'a> Campaign<'a> {
    /// Script `seed` on the setup's device.
    pub fn new(setup: &'a Setup, seed: u64) -> Self {
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
        }
    }

    /// Runs it to its end or to its first failure.
    pub fn run(mut self) -> ScriptEnd {
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
            // Only a failure needs the image that shows it.
            self.end.image = None;
        }

        self.end
    }

    /// The device in one line.
    fn device(&self) -> String {
        let (shape, config) = (self.setup.geometry.shape(), &self.setup.config);

        format!(
            "{}: {} dies, {} superblocks, {} pages a block, {} LPNs, {}-byte entries, log of {} bytes in segments of {}, \
             count at most {}, {} deallocation slots{}",
            config.scheme,
            shape.dies,
            shape.superblocks,
            shape.pages_per_block,
            config.lpns,
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
        let mut dut = DeviceUnderTest::format(self.setup, self.seed)?;
        self.fill(&mut dut)?;
        for step in 0..self.setup.steps {
            self.step(&mut dut)?;
            if dut.read_only {
                return self.end_of_life(dut);
            }
            // Reading all of the device at each step would take most of the time, and what is wrong
            // stays wrong.
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

    /// Writes all of the device or, in some scripts, only a part: what was never written has paths
    /// of its own.
    fn fill(&mut self, dut: &mut DeviceUnderTest) -> Result<(), Failure> {
        let lpns = self.setup.config.lpns;
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
            // Now and then everything ends, or the rail would hold the whole fill.
            if at % 16 == 15 {
                self.catch_up(dut);
            }
        }

        self.catch_up(dut);
        Ok(())
    }

    /// Everything ends and the host learns of it.
    fn catch_up(&mut self, dut: &mut DeviceUnderTest) {
        dut.ftl.media_mut().settle_all();
        for (id, _) in dut.in_flight.drain(..) {
            dut.oracle.acknowledge(id);
            dut.doubts.acknowledge(id);
            dut.files.acknowledge(id);
        }
        self.history.push(DeviceEvent::CaughtUp);
    }

    /// One command, and some acknowledgements.
    fn step(&mut self, dut: &mut DeviceUnderTest) -> Result<(), Failure> {
        self.plant(dut);

        // Some must be refused and change nothing: the checks that follow compare everything.
        if self.chance(100) {
            let refused = dut.generator.refused();
            dut.submit_refused(refused)?;
        }

        // What an operator does; setups without it draw the same scripts as ever.
        if self.setup.apart && self.chance(25) {
            let paused = dut.ftl.is_dedup_paused();
            dut.ftl.pause_dedup(!paused);
        }

        let command = dut.generator.command(dut.oracle.live());
        self.end.marks.commands += 1;
        match command {
            ScriptCommand::Remap { relocate: true, .. } => self.end.marks.relocations += 1,
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
            // Durable, with the host knowing of it or not. The second is what a host that was too
            // slow has: all may be there, nothing must.
            if self.chance(2) {
                self.catch_up(dut)
            } else {
                dut.settle_all(&mut self.history)
            }
        }

        Ok(())
    }
}
