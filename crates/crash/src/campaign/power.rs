//! Power cuts and recoveries: forks of the main line, and what the oracle says of them.
//!
//! Invariants: a fork recovers from the medium alone; its recovery is checked whole, the tables,
//! the contents and the files, before anything else is submitted; a refusal to recover counts as a
//! failure unless a planted fault is documented to cause it. Absent: what a cut leaves of an
//! operation (`cut`), and commands (`Campaign::step`).

use super::Campaign;
use crate::content::LOST;
use crate::cut::Cutter;
use crate::damage::{self, DamageDoubts};
use crate::dut::{DeviceUnderTest, Failure, keep_apart};
use crate::files::{self, FileModel};
use crate::history::DeviceEvent;
use crate::oracle::Oracle;
use crate::script::CommandGenerator;
use rand::RngExt;
use remap_ssd_ftl::Ftl;
use remap_ssd_media::{Faults, Image, Media, Outcome};

/// What is left of a device and its host when power is gone.
pub(super) struct CutSurvivor {
    pub image: Image,
    pub faults: Faults,
    pub oracle: Oracle,
    pub doubts: DamageDoubts,
    pub files: FileModel,
    pub generator: CommandGenerator,
    pub faults_left: u32,
}

impl CutSurvivor {
    /// What is left of a device whose media are this image now.
    fn of(dut: DeviceUnderTest, image: Image) -> Self {
        Self {
            image,
            faults: dut.ftl.media().faults().clone(),
            oracle: dut.oracle,
            doubts: dut.doubts,
            files: dut.files,
            generator: dut.generator,
            faults_left: dut.faults_left,
        }
    }
}

impl Campaign<'_> {
    /// Several cuts of one instant; returns the line to go on with.
    pub(super) fn cut_here(
        &mut self,
        mut dut: DeviceUnderTest,
    ) -> Result<DeviceUnderTest, Failure> {
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
        self.history.push(DeviceEvent::Cut {
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
        let mut fork = self.power_on(CutSurvivor {
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
            fork = self.power_on(CutSurvivor::of(fork, image))?;
        }
        Ok(fork)
    }

    /// Recovers, perhaps with cuts on the way, looks at everything, and lets the oracle judge.
    fn power_on(&mut self, mut survivor: CutSurvivor) -> Result<DeviceUnderTest, Failure> {
        self.damage_left(&mut survivor);
        let CutSurvivor {
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
            cut_in_move: false,
        };
        // Later it must not share more.
        dut.cut_in_move = dut.check_apart().is_err();

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

        self.history.push(DeviceEvent::Seen);
        self.end.marks.lost_pages_read +=
            self.read.iter().filter(|read| **read == LOST).count() as u64;
        // Whatever a command under way has become, it stays that way: a later cut must not change
        // it.
        dut.oracle.adopt(&self.read);
        dut.doubts.adopt();
        Ok(dut)
    }

    fn recover(&mut self, image: &Image, faults: Faults) -> Result<Ftl, Failure> {
        self.history.push(DeviceEvent::Recovering);
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
        keep_apart(&mut ftl, self.setup);
        Ok(ftl)
    }

    /// A device that is worn out still holds everything, and still does after its power has been
    /// cut.
    pub(super) fn end_of_life(&mut self, dut: DeviceUnderTest) -> Result<(), Failure> {
        dut.check_tables()?;
        self.end.marks.worn_out += 1;
        let image = self.cut(&dut.ftl);
        self.end.marks.collect(&dut.ftl);

        match self.power_on(CutSurvivor::of(dut, image)) {
            Ok(dut) => self.end.marks.collect(&dut.ftl),
            // Damage may forbid recovery, worn out or not.
            Err(failure) if failure.is_refusal => {}
            Err(failure) => return Err(failure),
        }

        Ok(())
    }
}
