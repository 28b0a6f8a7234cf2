//! One recorded run, cut many times.
//!
//! Invariants: the same recording and seed give the same cuts; a cut leaves nothing for the next
//! one. A verdict is of a check that ran, or of a file system that did not mount; all else is an
//! error. Absent: the run itself (`run`), and how results are shown.

use crate::array::Array;
use crate::child::{Ending, Environment, Task, disk_environment};
use crate::contents::ContentId;
use crate::cut::{Choice, Cut, DiskState, Lost, Replay};
use crate::error::TortureError;
use crate::firmware::{Firmware, FirmwareDisk, Played, Player};
use crate::image::Image;
use crate::record::{About, Event, Recording};
use crate::shrink::shrink;
use crate::stage::{FileSystem, MountedFs, Stage, Unmounted};
use crate::target::{Target, device_with};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use remap_ssd_device::Setting;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

/// What the check found after a cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The check found nothing wrong.
    Passed,
    /// The check failed, and how it ended.
    Check(Ending),
    /// The file system cannot be mounted.
    Mount,
    /// The check left processes that use the file system.
    InUse,
    /// The device returned what it must not after its recovery: no program is to blame.
    Device,
}

/// What came of a cut.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// What the check said of the disk that the cut left.
    pub finding: Finding,
    /// The check's last words, or the mount's.
    pub output: String,
    /// Blocks that could lose something.
    pub pending: usize,
    /// Number of blocks that lost writes.
    pub lost: usize,
}

impl Verdict {
    /// Whether the check found nothing wrong.
    pub fn passed(&self) -> bool {
        self.finding == Finding::Passed
    }
}

impl Finding {
    fn of(ending: Ending) -> Self {
        if ending == Ending::Well {
            Self::Passed
        } else {
            Self::Check(ending)
        }
    }
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Passed => f.write_str("passed"),
            Self::Check(ending) => write!(f, "the check {ending}"),
            Self::Mount => f.write_str("the file system did not mount"),
            Self::Device => f.write_str("the device's firmware is wrong"),
            Self::InUse => f.write_str("the check left processes that use the file system"),
        }
    }
}

/// Where the disk is that a cut has left.
enum Place {
    Files(Stage),
    Target(Target),
}

impl Place {
    fn new(recording: &Recording) -> Result<Self, TortureError> {
        if recording.about.nvme_tcp {
            Target::new(recording.shape).map(Self::Target)
        } else {
            Stage::new(recording.shape).map(Self::Files)
        }
    }

    /// The file in which a check reads the marks before the cut.
    fn marks_seen(&self) -> PathBuf {
        match self {
            Self::Files(stage) => stage.marks_seen(),
            Self::Target(target) => target.marks(),
        }
    }

    /// Why a request of the disk has failed, if one has: the machine's fault.
    fn take_failure(&self) -> Option<TortureError> {
        match self {
            Self::Files(stage) => stage.take_failure(),
            // Its device is in memory.
            Self::Target(_) => None,
        }
    }
}

/// What a check has found.
struct Checked {
    finding: Finding,
    output: String,
    /// The file system is still used: the place must not be used again.
    in_use: bool,
}

impl Checked {
    fn new(finding: Finding, output: String) -> Self {
        Self {
            finding,
            output,
            in_use: false,
        }
    }

    fn of((ending, output): (Ending, String)) -> Self {
        Self::new(Finding::of(ending), output)
    }
}

/// The disk that a cut has left.
enum Left {
    Blocks(Vec<ContentId>),
    /// As the firmware below the cache has recovered it.
    Device(Box<FirmwareDisk>),
}

/// A recording and where its cuts are checked.
pub struct Campaign<'a> {
    recording: &'a Recording,
    fs: Option<FileSystem>,
    check: String,
    limit: Duration,
    place: Place,
    /// The device that loses its power; none: the disk is a cache and nothing else.
    player: Option<Player<'a>>,
    /// Instants right behind a flush or a mark.
    points: Vec<usize>,
    /// The record, played to the start of the workload.
    start: Replay<'a>,
    /// Disks and marks that were tried.
    tried: BTreeSet<[u8; 32]>,
    stop: &'a AtomicBool,
}

/// The least that a failing cut may lose so that it still fails.
#[derive(Clone, Debug)]
pub struct Smallest {
    /// The cut that was found.
    pub cut: Cut,
    /// The blocks that lose something.
    pub lost: Vec<Lost>,
    /// Nothing can be left out any more.
    pub finished: bool,
    /// Number of cuts that were tried.
    pub tried: u64,
    /// What the check said of it.
    pub verdict: Verdict,
}

impl<'a> Campaign<'a> {
    /// Cuts of this recording. `check` may be another one than it was made for.
    ///
    /// # Errors
    /// Something is missing.
    pub fn new(
        recording: &'a Recording,
        check: &str,
        limit: Duration,
        stop: &'a AtomicBool,
    ) -> Result<Self, TortureError> {
        let About {
            fs, mount_options, ..
        } = &recording.about;

        let fs = fs.as_ref().map(|name| FileSystem {
            name: name.clone(),
            mount_options: mount_options.clone().unwrap_or_default(),
            ..FileSystem::default()
        });

        // Promises are made there: a flush has ended, or the workload has set a mark.
        let points = recording.instants().filter(|instant| {
            match instant.checked_sub(1).map(|at| &recording.events[at]) {
                Some(Event::Done(request)) => recording.events[*request as usize] == Event::Flush,
                Some(Event::Mark(_)) => true,
                _ => false,
            }
        });
        let points = points.collect();

        // What mkfs and mount have written is the same for all cuts, so it is played once.
        let start = Replay::new(recording).until(recording.instants().start);
        let place = Place::new(recording)?;
        let check = check.into();

        Ok(Self {
            recording,
            fs,
            check,
            limit,
            place,
            player: None,
            points,
            start,
            tried: BTreeSet::new(),
            stop,
        })
    }

    /// Has a device with this firmware below the cache, which loses its power as well and recovers.
    ///
    /// # Errors
    /// There is no such device.
    pub fn on(self, firmware: Firmware) -> Result<Self, TortureError> {
        self.on_device(firmware, &[])
    }

    /// The same, with a device that has these values.
    ///
    /// # Errors
    /// There is no such device.
    pub fn on_device(
        mut self,
        firmware: Firmware,
        settings: &[Setting],
    ) -> Result<Self, TortureError> {
        let start = self.start.clone();
        self.player = Some(Player::new(self.recording, firmware, settings, start)?);
        Ok(self)
    }

    /// The cut of a round: of even rounds at any instant, of odd ones right behind a flush or a
    /// mark. Where nothing can be lost, many cuts are one: one that leaves a disk that was tried
    /// before is drawn again, a few times, and in even rounds one that loses nothing.
    pub fn cut(&mut self, seed: u64, round: u64) -> Cut {
        const DRAWS: u32 = 16;
        // Each round has its own numbers: one can be drawn without those before it.
        let mut random =
            Xoshiro256PlusPlus::seed_from_u64(seed ^ round.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut cut = self.draw(&mut random, round);
        for _ in 1..DRAWS {
            let (outcome, loses) = self.outcome(&cut);
            // In odd rounds promises are tested, whether something is lost or not.
            if (loses || round % 2 == 1) && self.tried.insert(outcome) {
                break;
            }
            cut = self.draw(&mut random, round);
        }
        // The last draw is taken as it is: a short record has few different disks.
        let (outcome, _) = self.outcome(&cut);
        self.tried.insert(outcome);
        cut
    }

    fn draw(&self, random: &mut Xoshiro256PlusPlus, round: u64) -> Cut {
        let instant = match self.points.len() {
            points if points > 0 && round % 2 == 1 => self.points[random.random_range(0..points)],
            _ => random.random_range(self.recording.instants()),
        };
        Cut {
            instant,
            choice: Choice::Drawn(random.random()),
        }
    }

    /// What a check could see of a cut, as a hash; and does some block lose something?
    fn outcome(&self, cut: &Cut) -> ([u8; 32], bool) {
        // What a check can see: the disk, and the marks up to the cut.
        let (state, lost) = self.state(cut);
        let mut hash = blake3::Hasher::new();
        hash.update(state.after(&lost).as_bytes());
        hash.update(
            &self
                .recording
                .marks_before(cut.instant)
                .count()
                .to_le_bytes(),
        );
        (hash.finalize().into(), !lost.is_empty())
    }

    /// How many different disks were drawn.
    pub fn distinct(&self) -> usize {
        self.tried.len()
    }

    /// The last instant: behind the whole record.
    pub fn instant_max(&self) -> usize {
        self.recording.events.len()
    }

    /// What a cut can lose, and what it loses.
    pub fn state(&self, cut: &Cut) -> (DiskState, Vec<Lost>) {
        // A replay does not go back: instants before the workload are played from the beginning.
        let replay = if cut.instant < self.start.played() {
            Replay::new(self.recording)
        } else {
            self.start.clone()
        };
        let state = replay.until(cut.instant).into_state();
        let lost = state.lost(&cut.choice);
        (state, lost)
    }

    /// Checks the disk as it is after the run and an orderly end: what fails then fails without any
    /// power cut.
    ///
    /// # Errors
    /// Nothing could be found out.
    pub fn whole(&mut self) -> Result<Verdict, TortureError> {
        let instant = self.recording.events.len();
        self.try_cut(&Cut {
            instant,
            choice: Choice::Lost(Vec::new()),
        })
    }

    /// Cuts, brings the disk back, and checks it.
    ///
    /// # Errors
    /// Nothing could be found out.
    pub fn try_cut(&mut self, cut: &Cut) -> Result<Verdict, TortureError> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(TortureError::Interrupted);
        }
        let result = self.restore_and_check(cut);
        // A request that we could not serve explains whatever the check said.
        match self.place.take_failure() {
            Some(failure) => Err(failure),
            None => result,
        }
    }

    fn restore_and_check(&mut self, cut: &Cut) -> Result<Verdict, TortureError> {
        let (state, lost) = self.state(cut);
        let verdict = |finding, output| Verdict {
            finding,
            output,
            pending: state.pending.len(),
            lost: lost.len(),
        };

        // With firmware the disk is what the device has after recovery.
        let left = match &self.player {
            None => Left::Blocks(state.after(&lost)),
            Some(player) => match player.play(cut, &lost)? {
                Played {
                    wrong: Some(reason),
                    ..
                } => return Ok(verdict(Finding::Device, reason)),
                Played { array, .. } => Left::Device(Box::new(array)),
            },
        };
        let marks: String = self
            .recording
            .marks_before(cut.instant)
            .flat_map(|mark| [mark, "\n"])
            .collect();

        // A check reads there what the workload had promised by then.
        std::fs::write(self.place.marks_seen(), marks)?;

        let Checked {
            finding,
            output,
            in_use,
        } = match &self.place {
            Place::Files(stage) => self.mount_and_check(stage, left)?,
            Place::Target(target) => self.serve_and_check(target, left)?,
        };

        // Whoever still uses the file system must not write to the next disk.
        if in_use {
            self.place = Place::new(self.recording)?;
        }
        Ok(verdict(finding, output))
    }

    /// Checks a disk behind a file, or the file system on it.
    fn mount_and_check(&self, stage: &Stage, left: Left) -> Result<Checked, TortureError> {
        let Recording {
            shape, contents, ..
        } = self.recording;
        let array: Arc<dyn Array> = match left {
            Left::Blocks(blocks) => Arc::new(Image::new(*shape, contents.clone(), blocks)),
            Left::Device(device) => Arc::from(device as Box<dyn Array>),
        };
        stage.put(array);
        let (file, marks) = (stage.file(), stage.marks_seen());

        let Some(fs) = &self.fs else {
            let dir = file.with_file_name("");
            return self
                .run_check(disk_environment(&dir, &file, &marks))
                .map(Checked::of);
        };
        let mounted: MountedFs = match stage.mount(fs)? {
            Ok(mounted) => mounted,
            Err(words) => return Ok(Checked::new(Finding::Mount, words)),
        };
        let checked = self.run_check(disk_environment(mounted.folder(), &file, &marks));

        // The verdict is of a file system that was given back in order.
        let left = mounted.unmount();
        let (ending, output) = checked?;
        let finding = match (left, ending) {
            // That it did not end explains why something is left.
            (Unmounted::InUse, Ending::Late) => Finding::Check(Ending::Late),
            (Unmounted::InUse, _) => Finding::InUse,
            // Another mount namespace is not the check's.
            (Unmounted::Free | Unmounted::Elsewhere, ending) => Finding::of(ending),
        };
        Ok(Checked {
            in_use: left != Unmounted::Free,
            ..Checked::new(finding, output)
        })
    }

    /// Checks a disk behind NVMe/TCP.
    fn serve_and_check(&self, target: &Target, left: Left) -> Result<Checked, TortureError> {
        let Recording {
            shape, contents, ..
        } = self.recording;
        let device = match left {
            Left::Blocks(blocks) => device_with(*shape, contents, &blocks)?,
            Left::Device(disk) => disk.into_device(),
        };

        // A process that is left behind has no disk any more.
        let serving = target.serve(device)?;
        let checked = self.run_check(target.environment());
        drop(serving);
        checked.map(Checked::of)
    }

    fn run_check(&self, environment: Environment) -> Result<(Ending, String), TortureError> {
        Task {
            command: &self.check,
            environment,
            limit: Some(self.limit),
        }
        .run(self.stop)
    }

    /// Looks for the least that the cut may lose so that it still fails, in the same way: a check
    /// that fails is no file system that does not mount.
    ///
    /// # Errors
    /// Nothing could be found out.
    pub fn shrink(
        &mut self,
        cut: &Cut,
        first: Verdict,
        limit: Duration,
    ) -> Result<Smallest, TortureError> {
        let (_, lost) = self.state(cut);
        let (began, finding) = (Instant::now(), first.finding.clone());
        let (mut tried, mut verdict) = (0, first);

        let at = |lost: &[Lost]| Cut {
            instant: cut.instant,
            choice: Choice::Lost(lost.to_vec()),
        };

        // What the firmware loses besides is not listed: the cut may not fail without it.
        if self.player.is_some() && self.try_cut(&at(&lost))?.finding != finding {
            return Ok(Smallest {
                cut: cut.clone(),
                lost,
                finished: false,
                tried: 1,
                verdict,
            });
        }

        // Each try has the whole cost of a cut, so there is a limit of time.
        let (lost, finished) = shrink(&lost, |lost| {
            if began.elapsed() > limit {
                return Ok(None);
            }

            tried += 1;
            let result = self.try_cut(&at(lost))?;

            // Failing in another way is another fault.
            let failed = result.finding == finding;
            if failed {
                verdict = result;
            }
            Ok::<_, TortureError>(Some(failed))
        })?;

        Ok(Smallest {
            cut: at(&lost),
            lost,
            finished,
            tried,
            verdict,
        })
    }
}
