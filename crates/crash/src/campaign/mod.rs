//! One script: a device is filled, worked on, cut, recovered, judged, and worked on again.
//!
//! The main line runs once; every few commands power is cut in several ways, each on a fork that
//! shares the surviving media. A fork recovers (and may be cut again while it does), is judged,
//! goes on working, and is cut again, for a few generations. Now and then a fork becomes the main
//! line, so that damage adds up. Invariants: everything follows from the setup and the seed; the
//! first failure ends the script. Absent: threads, time, and the choice of scripts (`run`).

use crate::cut::Cutter;
use crate::damage::{self, Doubts};
use crate::dut::{DeviceUnderTest, Failure};
use crate::files::{self, FileModel};
use crate::history::{Event, History};
use crate::marks::Marks;
use crate::oracle::{Content, LOST, Oracle};
use crate::quiet;
use crate::script::{Generator, ScriptCommand};
use crate::setup::Setup;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use remap_ssd_ftl::Ftl;
use remap_ssd_media::{Faults, Image, Media, Outcome, Ppn};

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

/// What is left of a device and its host when power is gone.
struct Survivor {
    image: Image,
    faults: Faults,
    oracle: Oracle,
    doubts: Doubts,
    files: FileModel,
    generator: Generator,
    faults_left: u32,
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
    depth: Depth,
}

/// What may be under way.
struct Depth {
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
            Depth {
                commands: random.random_range(40..=300),
                operations: 5000,
                ends: 300,
                early: false,
            }
        } else {
            Depth {
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

    /// A device that is worn out still holds everything, and still does after its power has been
    /// cut.
    fn end_of_life(&mut self, dut: DeviceUnderTest) -> Result<(), Failure> {
        dut.check_tables()?;
        self.end.marks.worn_out += 1;
        let image = self.cut(&dut.ftl);
        self.end.marks.collect(&dut.ftl);
        let faults = dut.ftl.media().faults().clone();
        let DeviceUnderTest {
            oracle,
            doubts,
            files,
            generator,
            faults_left,
            ..
        } = dut;

        match self.power_on(Survivor {
            image,
            faults,
            oracle,
            doubts,
            files,
            generator,
            faults_left,
        }) {
            Ok(dut) => self.end.marks.collect(&dut.ftl),
            // Damage may forbid recovery, worn out or not.
            Err(failure) if failure.is_refusal => {}
            Err(failure) => return Err(failure),
        }

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
        self.history.push(Event::CaughtUp);
    }

    /// One command, and some acknowledgements.
    fn step(&mut self, dut: &mut DeviceUnderTest) -> Result<(), Failure> {
        self.plant(dut);

        // Some must be refused and change nothing: the checks that follow compare everything.
        if self.chance(100) {
            let refused = dut.generator.refused();
            dut.submit_refused(refused)?;
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

    /// Damage that appears between commands, on a device at rest: commands under way might still be
    /// undone.
    fn damage(&mut self, dut: &mut DeviceUnderTest) {
        if !self.setup.media_faults || !self.chance(30) {
            return;
        }

        self.catch_up(dut);
        let media = dut.ftl.media();
        let page = damage::page(media, &self.setup.config, &mut self.random);
        let word = self
            .random
            .random_ratio(1, 4)
            .then(|| damage::word(media, &mut self.random))
            .flatten();

        // Writes may be mapped to a damaged page of the same content, so the oracle must know what
        // it held.
        let held = page
            .filter(|_| self.setup.config.dedup)
            .and_then(|page| damage::held(media, page));
        dut.ftl
            .media_mut()
            .plant(|faults| self.add_damage(faults, page, word));
        dut.doubts.damaged(held, word.is_some());
    }

    /// Damage that appears during a cut.
    fn damage_left(&mut self, survivor: &mut Survivor) {
        if !self.setup.media_faults || !self.chance(2) {
            return;
        }

        let mut media = Media::from_image(&survivor.image);
        // With the faults that are there, so that no second record of one superblock is chosen.
        media.plant(|faults| *faults = survivor.faults.clone());
        let page = damage::page(&media, &self.setup.config, &mut self.random);
        let word = self
            .random
            .random_ratio(1, 2)
            .then(|| damage::word(&media, &mut self.random))
            .flatten();
        let held = page
            .filter(|_| self.setup.config.dedup)
            .and_then(|page| damage::held(&media, page));
        self.add_damage(&mut survivor.faults, page, word);
        survivor.doubts.damaged(held, word.is_some());
    }

    fn add_damage(&mut self, faults: &mut Faults, page: Option<Ppn>, word: Option<(usize, u64)>) {
        // A page and a life record drawn together could belong to one superblock.
        let is_apart = |page: &Ppn| {
            word.is_none_or(|(word, _)| word as u32 / 3 != self.setup.geometry.superblock(*page).0)
        };
        if let Some(page) = page.filter(is_apart) {
            self.end.marks.pages_damaged += 1;
            self.history.push(Event::PageDamaged(page.0));
            faults.read.insert(page);
        }
        if let Some((word, bits)) = word {
            self.end.marks.words_damaged += 1;
            self.history.push(Event::WordDamaged(word as u32));
            // One uncorrectable word at a time: most records have one second copy.
            faults.flips.retain(|_, bits| bits.count_ones() == 1);
            faults.flips.insert(word, bits);
        }
    }

    fn plant(&mut self, dut: &mut DeviceUnderTest) {
        self.damage(dut);

        let geometry = self.setup.geometry;

        // A device can lose only some blocks before it is at its end.
        if dut.faults_left > 0 && self.chance(30) {
            dut.faults_left -= 1;
            self.end.marks.faults_planted += 1;
            let block = remap_ssd_media::BlockId(self.random.random_range(0..geometry.blocks()));
            let row = self.random.random_range(0..geometry.pages_per_block());
            let erase = self.random.random_ratio(1, 3);
            self.history
                .push(Event::Planted(block.0, (!erase).then_some(row)));
            dut.ftl.media_mut().plant(|faults| {
                if erase {
                    faults.erase.insert(block);
                } else {
                    faults.program.insert(block, row);
                }
            });
        }

        let words = dut.ftl.media().nvram_words() as u32;
        // Single flips come more often than faults: ECC corrects them, so nothing may be seen of
        // them.
        if words > 0 && self.chance(50) {
            let word = self.random.random_range(0..words) as usize;
            let bit = self.random.random_range(0..64);
            dut.ftl.media_mut().plant(|faults| {
                faults.flips.insert(word, 1 << bit);
            });
        }
    }

    /// Several cuts of one instant; returns the line to go on with.
    fn cut_here(&mut self, mut dut: DeviceUnderTest) -> Result<DeviceUnderTest, Failure> {
        let mut seen = Vec::new();
        for _ in 0..self.random.random_range(1..=3) {
            let mark = self.history.mark();
            let image = self.cut(&dut.ftl);
            let digest = self.end.digests.last().copied();
            // The same media came out. Recovering it again would show nothing new.
            if seen.contains(&digest) {
                self.history.rewind(mark);
                continue;
            }
            seen.push(digest);

            let fork = match self.fork(&dut, image) {
                Ok(fork) => fork,
                Err(failure) if failure.is_refusal => {
                    // That fork is lost. The damage is removed from the main line, or none of its
                    // later cuts could recover.
                    self.end.marks.refusals += 1;
                    self.history.rewind(mark);
                    dut.ftl.media_mut().plant(|faults| {
                        faults.read.clear();
                        faults.flips.clear();
                    });
                    continue;
                }
                Err(failure) => return Err(failure),
            };

            // Rarely: what a cut leaves adds up on the main line, aborted numbers and holes among
            // it.
            if self.chance(30) {
                self.end.marks.forks_adopted += 1;
                self.end.marks.collect(&dut.ftl);
                dut = fork;
                break;
            }
            self.end.marks.collect(&fork.ftl);
            self.history.rewind(mark);
        }
        Ok(dut)
    }

    /// Cuts the power of a device.
    fn cut(&mut self, ftl: &Ftl) -> Image {
        let pending = ftl.media().pending();
        let mut cutter = Cutter::new(self.random.random(), pending);
        let (mut whole, mut torn) = (0, 0);
        let image = ftl.media().cut_by(|kind| {
            let outcome = cutter.outcome(kind);
            whole += u32::from(outcome == Outcome::Whole);
            torn += u32::from(matches!(outcome, Outcome::Torn(_)));
            outcome
        });

        self.end.marks.partial_cuts += u64::from((whole as usize) < pending);
        self.end.digests.push(image.digest());
        self.history.push(Event::Cut {
            pending: pending as u32,
            whole,
            torn,
        });

        image
    }

    /// Recovers what a cut left and goes on from there, for a few more cuts.
    fn fork(&mut self, dut: &DeviceUnderTest, image: Image) -> Result<DeviceUnderTest, Failure> {
        // A branch, so that what the fork does leaves the main line's commands as they are.
        let generator = dut.generator.branch(self.random.random());
        let mut fork = self.power_on(Survivor {
            image,
            faults: dut.ftl.media().faults().clone(),
            oracle: dut.oracle.clone(),
            doubts: dut.doubts.clone(),
            files: dut.files.clone(),
            generator,
            faults_left: dut.faults_left,
        })?;

        for _ in 0..self.random.random_range(0..3) {
            // Mostly a little work, now and then enough for what recovery found to be collected.
            let longest = if self.chance(12) { 300 } else { 20 };
            for _ in 0..self.random.random_range(0..longest) {
                self.step(&mut fork)?;
                if fork.read_only {
                    self.end.marks.worn_out += 1;
                    break;
                }
            }

            if self.chance(4) && !fork.read_only {
                fork.verify_live(&mut self.read)?;
            }

            // Without acknowledging anything: the next recovery meets this one's work under way.
            let image = self.cut(&fork.ftl);
            self.end.marks.collect(&fork.ftl);
            let faults = fork.ftl.media().faults().clone();
            let DeviceUnderTest {
                oracle,
                doubts,
                files,
                generator,
                faults_left,
                ..
            } = fork;
            fork = self.power_on(Survivor {
                image,
                faults,
                oracle,
                doubts,
                files,
                generator,
                faults_left,
            })?;
        }
        Ok(fork)
    }

    /// Recovers, perhaps with cuts on the way, looks at everything, and lets the oracle judge.
    fn power_on(&mut self, mut survivor: Survivor) -> Result<DeviceUnderTest, Failure> {
        self.damage_left(&mut survivor);
        let Survivor {
            mut image,
            mut faults,
            oracle,
            doubts,
            files,
            generator,
            faults_left,
        } = survivor;

        // Recovery must survive cuts of its own, several in a row among them.
        let mut cuts_left = if self.chance(4) {
            self.random.random_range(1..=3)
        } else {
            0
        };

        let mut ftl = self.recover(&image, faults.clone())?;
        while cuts_left > 0 && ftl.media().pending() > 0 {
            cuts_left -= 1;
            self.end.marks.recovery_cuts += 1;
            let cut = self.cut(&ftl);
            // What was cured only by stores that this cut takes away is damaged again.
            faults = damage::left(&image, &faults, &cut, ftl.media().faults());
            image = cut;
            ftl = self.recover(&image, faults.clone())?;
        }

        // The host is served once recovery's own operations have ended: what it sees then is there
        // to stay.
        ftl.media_mut().settle_all();
        let in_flight = Vec::new();
        let mut dut = DeviceUnderTest {
            ftl,
            oracle,
            doubts,
            files,
            generator,
            in_flight,
            faults_left,
            read_only: false,
        };

        dut.check_tables()?;
        dut.observe(&mut self.read)?;

        // The data first: a file's list is judged by what its pages hold.
        let verdict = dut
            .oracle
            .judge(&self.read)
            .map_err(|misread| Failure::of_lpn(format!("after a cut, {misread}"), misread.lpn))?;
        let listed = files::observe(&mut dut.ftl).map_err(Failure::new)?;
        let of_files = dut
            .files
            .judge(&listed, &dut.oracle, &self.read)
            .map_err(|text| Failure::new(format!("after a cut, {text}")))?;
        self.end.marks.file_pages_kept += of_files.kept;
        self.end.marks.file_pages_dropped += of_files.dropped;
        self.end.marks.file_resets_kept += of_files.resets_kept;
        self.end.marks.file_resets_dropped += of_files.resets_dropped;
        dut.files.adopt(&listed);
        self.end.marks.atomic_committed += verdict.committed;
        self.end.marks.atomic_aborted += verdict.aborted;

        self.history.push(Event::Seen);
        self.end.marks.lost_pages_read +=
            self.read.iter().filter(|read| **read == LOST).count() as u64;
        // Whatever a command under way has become, it stays that way: a later cut must not change
        // it.
        dut.oracle.adopt(&self.read);
        dut.doubts.adopt();
        Ok(dut)
    }

    fn recover(&mut self, image: &Image, faults: Faults) -> Result<Ftl, Failure> {
        self.history.push(Event::Recovering);
        // Kept before the attempt, so that a panic leaves the image that shows it.
        self.end.image = Some(image.clone());
        self.end.faults = faults.clone();
        let mut media = Media::from_image(image);
        media.plant(|planted| *planted = faults.clone());
        media.attach_rail();
        let (mut ftl, _) =
            Ftl::recover(media, self.setup.config.clone()).map_err(|error| Failure {
                is_refusal: self.setup.media_faults && damage::is_documented(&error, &faults),
                ..Failure::new(format!("recovery fails: {error}"))
            })?;
        self.end.recoveries += 1;
        ftl.media_mut().ops.clear();
        Ok(ftl)
    }
}
