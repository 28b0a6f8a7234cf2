//! Power cuts and recoveries: forks of the main line, and their judgement by the oracle.
//!
//! Invariants: a fork recovers from the media alone; its recovery is checked completely, tables,
//! contents and files, before any other command; a refusal to recover is a failure unless it is
//! documented for a planted fault. Absent: the effect of a cut on an operation (`cut`), and
//! commands (`Campaign::step`).

use super::Campaign;
use crate::content::LOST;
use crate::cut::Cutter;
use crate::damage::{self, DamageDoubts};
use crate::dut::{DeviceUnderTest, Failure, keep_apart};
use crate::files::{self, FileModel};
use crate::history::DeviceEvent;
use crate::oracle::Oracle;
use crate::promise::UnflushedWrites;
use crate::script::CommandGenerator;
use crate::steps::StepTrace;
use rand::RngExt;
use remap_ssd_device::IndirectionUnits;
use remap_ssd_ftl::Ftl;
use remap_ssd_media::{Faults, Image, Media, Outcome};

/// State of a device and its host that survives a power cut.
pub(super) struct CutSurvivor {
    pub image: Image,
    pub faults: Faults,
    pub oracle: Oracle,
    pub doubts: DamageDoubts,
    pub files: FileModel,
    pub generator: CommandGenerator,
    pub faults_left: u32,
    pub trace: Option<StepTrace>,
}

impl CutSurvivor {
    /// The surviving state of a device whose media are now this image.
    fn of(dut: DeviceUnderTest, image: Image) -> Self {
        Self {
            image,
            faults: dut.ftl.media().faults().clone(),
            oracle: dut.oracle,
            doubts: dut.doubts,
            files: dut.files,
            generator: dut.generator,
            faults_left: dut.faults_left,
            trace: dut.trace,
        }
    }
}

impl Campaign<'_> {
    /// Cuts the power several times at one instant; returns the line to continue with.
    pub(super) fn cut_here(
        &mut self,
        mut dut: DeviceUnderTest,
    ) -> Result<DeviceUnderTest, Failure> {
        let mut seen = Vec::new();
        for _ in 0..self.random.random_range(1..=3) {
            let mark = self.history.mark();
            if let Some(trace) = &mut dut.trace {
                trace.take(&mut dut.ftl, &[]);
                trace.fork();
            }
            let mut trace = dut.trace.clone();
            let image = self.cut(&mut dut.ftl, &mut trace);
            let digest = self.end.digests.last().copied();
            // The same media contents: recovering them again would show nothing new.
            if seen.contains(&digest) {
                self.history.rewind(mark);
                if let Some(trace) = &dut.trace {
                    trace.back();
                }
                continue;
            }
            seen.push(digest);

            let fork = match self.fork(&dut, image, trace) {
                Ok(fork) => fork,
                Err(failure) if failure.is_refusal => {
                    // That fork is lost. The damage is removed from the main line; otherwise none
                    // of its later cuts could recover.
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

            // Rarely: effects of cuts accumulate on the main line, aborted numbers and holes among
            // them.
            if self.chance(30) {
                self.end.marks.forks_adopted += 1;
                self.end.marks.collect(&dut.ftl);
                if let Some(trace) = &dut.trace {
                    trace.stay();
                }
                dut = fork;
                break;
            }
            self.end.marks.collect(&fork.ftl);
            self.history.rewind(mark);
            if let Some(trace) = &dut.trace {
                trace.back();
            }
        }
        Ok(dut)
    }

    /// Cuts the power of a device.
    fn cut(&mut self, ftl: &mut Ftl, trace: &mut Option<StepTrace>) -> Image {
        if let Some(trace) = trace {
            trace.take(ftl, &[]);
        }
        let pending = ftl.media().pending();
        let mut cutter = Cutter::new(self.random.random(), pending);
        let (mut whole, mut torn) = (0, 0);
        let mut outcomes = Vec::new();
        let choose = |kind| {
            let outcome = cutter.outcome(kind);
            whole += u32::from(outcome == Outcome::Whole);
            torn += u32::from(matches!(outcome, Outcome::Torn(_)));
            outcome
        };
        let image = match trace {
            None => ftl.media().cut_by(choose),
            Some(_) => {
                let note = |token, outcome| outcomes.push((token, outcome));
                ftl.media().cut_noted(choose, note)
            }
        };
        if let Some(trace) = trace {
            let words = (0..image.nvram_words()).map(|word| image.word(word));
            trace.cut(&outcomes, words.collect());
        }

        self.end.marks.partial_cuts += u64::from((whole as usize) < pending);
        self.end.digests.push(image.digest());
        self.history.push(DeviceEvent::Cut {
            pending: pending as u32,
            whole,
            torn,
        });

        image
    }

    /// Recovers the media left by a cut and continues from there, for a few more cuts.
    fn fork(
        &mut self,
        dut: &DeviceUnderTest,
        image: Image,
        trace: Option<StepTrace>,
    ) -> Result<DeviceUnderTest, Failure> {
        // A branch: the fork's commands do not change the main line's.
        let generator = dut.generator.branch(self.random.random());
        let mut fork = self.power_on(CutSurvivor {
            image,
            faults: dut.ftl.media().faults().clone(),
            oracle: dut.oracle.clone(),
            doubts: dut.doubts.clone(),
            files: dut.files.clone(),
            generator,
            faults_left: dut.faults_left,
            trace,
        })?;

        for _ in 0..self.random.random_range(0..3) {
            // Mostly few steps, sometimes enough for recovered data to be garbage-collected.
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

            // Without acknowledgements: the next recovery meets this one's operations in flight.
            let image = self.cut(&mut fork.ftl, &mut fork.trace);
            self.end.marks.collect(&fork.ftl);
            fork = self.power_on(CutSurvivor::of(fork, image))?;
        }
        Ok(fork)
    }

    /// Recovers, possibly with cuts on the way, then reads everything and lets the oracle judge.
    fn power_on(&mut self, mut survivor: CutSurvivor) -> Result<DeviceUnderTest, Failure> {
        self.damage_left(&mut survivor);
        let CutSurvivor {
            image,
            faults,
            oracle,
            doubts,
            files,
            generator,
            faults_left,
            mut trace,
        } = survivor;

        let mut ftl = self.recover_through_cuts(image, faults, &mut trace)?;
        // The host is served once recovery's own operations have completed: everything it then
        // reads is durable.
        ftl.media_mut().settle_all();
        let in_flight = Vec::new();
        let mut dut = DeviceUnderTest {
            units: IndirectionUnits::of(&ftl),
            ftl,
            oracle,
            doubts,
            files,
            generator,
            in_flight,
            unflushed: UnflushedWrites::default(),
            faults_left,
            read_only: false,
            cut_in_move: false,
            trace,
        };
        // Only sharing left by this cut is excused in later checks.
        dut.cut_in_move = dut.check_apart().is_err();

        dut.check_tables()?;
        dut.observe(&mut self.read)?;

        // Data first: a file's list is judged by the contents of its pages.
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

        self.history.push(DeviceEvent::Seen);
        self.end.marks.lost_pages_read +=
            self.read.iter().filter(|read| **read == LOST).count() as u64;
        // The outcome of a command in flight is final: a later cut must not change it.
        dut.oracle.adopt(&self.read);
        dut.doubts.adopt();
        Ok(dut)
    }

    /// Recovery, which must survive power cuts too, also several in a row.
    fn recover_through_cuts(
        &mut self,
        mut image: Image,
        mut faults: Faults,
        trace: &mut Option<StepTrace>,
    ) -> Result<Ftl, Failure> {
        let mut cuts_left = if self.chance(4) {
            self.random.random_range(1..=3)
        } else {
            0
        };

        let mut ftl = self.recover(&image, faults.clone(), trace)?;
        while cuts_left > 0 && ftl.media().pending() > 0 {
            cuts_left -= 1;
            self.end.marks.recovery_cuts += 1;
            let cut = self.cut(&mut ftl, trace);
            // Damage repaired only by stores that this cut undoes is present again.
            faults = damage::left(&image, &faults, &cut, ftl.media().faults());
            image = cut;
            ftl = self.recover(&image, faults.clone(), trace)?;
        }
        Ok(ftl)
    }

    fn recover(
        &mut self,
        image: &Image,
        faults: Faults,
        trace: &mut Option<StepTrace>,
    ) -> Result<Ftl, Failure> {
        self.history.push(DeviceEvent::Recovering);
        // Stored before the attempt, so that a panic leaves the image that reproduces it.
        self.end.image = Some(image.clone());
        self.end.faults = faults.clone();
        let mut media = Media::from_image(image);
        media.plant(|planted| *planted = faults.clone());
        media.attach_rail();
        if trace.is_some() {
            media.watch_rail();
        }
        let (mut ftl, _) =
            Ftl::recover(media, self.setup.config.clone()).map_err(|error| Failure {
                is_refusal: self.setup.media_faults && damage::is_documented(&error, &faults),
                ..Failure::new(format!("recovery fails: {error}"))
            })?;
        self.end.recoveries += 1;
        if let Some(trace) = trace {
            trace.recovered(&mut ftl);
        }
        ftl.media_mut().ops.clear();
        keep_apart(&mut ftl, self.setup);
        Ok(ftl)
    }

    /// Checks that a worn-out device still holds all data, before and after a power cut.
    pub(super) fn end_of_life(&mut self, mut dut: DeviceUnderTest) -> Result<(), Failure> {
        dut.check_tables()?;
        self.end.marks.worn_out += 1;
        let image = self.cut(&mut dut.ftl, &mut dut.trace);
        self.end.marks.collect(&dut.ftl);

        match self.power_on(CutSurvivor::of(dut, image)) {
            Ok(dut) => self.end.marks.collect(&dut.ftl),
            // Damage may prevent recovery, worn out or not.
            Err(failure) if failure.is_refusal => {}
            Err(failure) => return Err(failure),
        }

        Ok(())
    }
}
