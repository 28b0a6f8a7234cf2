//! One recorded run, cut many times.
//!
//! Invariants: the same recording and seed give the same cuts; a cut does not affect the next one.
//! A verdict requires a check that ran, or a file system that did not mount; anything else is an
//! error. Absent: the run itself (`run`), and the presentation of results.

use crate::array::Array;
use crate::atomic::{AtomicUnit, Piece};
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

const OWN_UNIT: &str =
    "a device below the cache has atomic writes of its own: leave out --atomic-writes";

/// Result of the check after a cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The check found no fault.
    Passed,
    /// The check failed, ending like this.
    Check(Ending),
    /// The file system cannot be mounted.
    Mount,
    /// The check left processes that use the file system.
    InUse,
    /// After its recovery the device returned invalid data: no program is at fault.
    Device,
}

/// Result of a cut.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// Result of the check.
    pub finding: Finding,
    /// Last output of the check, or of the mount.
    pub output: String,
    /// Number of blocks with versions that could be lost.
    pub pending: usize,
    /// Number of blocks that lost writes.
    pub lost: usize,
}

impl Verdict {
    /// Returns true if the check passed.
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

/// Location of the disk after a cut.
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

    /// The file from which a check reads the marks before the cut.
    fn marks_seen(&self) -> PathBuf {
        match self {
            Self::Files(stage) => stage.marks_seen(),
            Self::Target(target) => target.marks(),
        }
    }

    /// Takes the failure of a disk request, if any: the machine's fault.
    fn take_failure(&self) -> Option<TortureError> {
        match self {
            Self::Files(stage) => stage.take_failure(),
            // Its device is in memory.
            Self::Target(_) => None,
        }
    }
}

/// Result of a check.
struct Checked {
    finding: Finding,
    output: String,
    /// The file system is still in use: the place must not be reused.
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

/// The disk after a cut.
enum Left {
    Blocks(Vec<ContentId>),
    /// As recovered by the firmware below the cache.
    Device(Box<FirmwareDisk>),
}

/// A recording, and the place to check its cuts.
pub struct Campaign<'a> {
    recording: &'a Recording,
    fs: Option<FileSystem>,
    check: String,
    limit: Duration,
    place: Place,
    /// The unit of its atomic writes; none: a block.
    atomic: Option<AtomicUnit<'a>>,
    /// The device that loses power; none: the disk is only a cache.
    player: Option<Player<'a>>,
    /// Instants right after a flush or a mark.
    points: Vec<usize>,
    /// The recording, replayed to the start of the workload.
    start: Replay<'a>,
    /// Hashes of disks and marks tried so far.
    tried: BTreeSet<[u8; 32]>,
    stop: &'a AtomicBool,
}

/// A minimal set of losses with which a failing cut still fails.
#[derive(Clone, Debug)]
pub struct Smallest {
    /// The minimized cut.
    pub cut: Cut,
    /// The blocks that lose versions.
    pub lost: Vec<Lost>,
    /// With an atomic write unit, the number of lost writes; of a longer write, and of zeroes, each
    /// block counts.
    pub writes: Option<usize>,
    /// No element can be left out.
    pub finished: bool,
    /// Number of cuts tried to find it.
    pub tried: u64,
    /// Result of the check after this cut.
    pub verdict: Verdict,
}

impl<'a> Campaign<'a> {
    /// A campaign over this recording. `check` may differ from the recorded one.
    ///
    /// # Errors
    /// A requirement is missing.
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

        // Durability is promised there: a flush has completed, or the workload has set a mark.
        let points = recording.instants().filter(|instant| {
            match instant.checked_sub(1).map(|at| &recording.events[at]) {
                Some(Event::Done(request)) => recording.events[*request as usize] == Event::Flush,
                Some(Event::Mark(_)) => true,
                _ => false,
            }
        });
        let points = points.collect();

        // The writes of mkfs and mount are the same for all cuts, so they are replayed once.
        let start = Replay::new(recording).until(recording.instants().start);
        let place = Place::new(recording)?;
        let check = check.into();

        Ok(Self {
            recording,
            fs,
            check,
            limit,
            place,
            atomic: None,
            player: None,
            points,
            start,
            tried: BTreeSet::new(),
            stop,
        })
    }

    /// Adds a device with this firmware and these settings below the cache; it loses power too, and
    /// recovers.
    ///
    /// # Errors
    /// There is no such device.
    pub fn on_device(
        mut self,
        firmware: Firmware,
        settings: &[Setting],
    ) -> Result<Self, TortureError> {
        if self.atomic.is_some() {
            return Err(TortureError::missing(OWN_UNIT));
        }
        let start = self.start.clone();
        self.player = Some(Player::new(self.recording, firmware, settings, start)?);
        Ok(self)
    }

    /// Keeps or loses each write of at most `bytes` as a whole, counted from its start.
    ///
    /// # Errors
    /// This is not a number of whole blocks, or there is a device below, which has its own unit.
    pub fn with_atomic_writes(mut self, bytes: u64) -> Result<Self, TortureError> {
        if self.player.is_some() {
            return Err(TortureError::missing(OWN_UNIT));
        }
        self.atomic = AtomicUnit::new(self.recording, bytes)?;
        Ok(self)
    }

    /// The cut of a round: at any instant in even rounds, right after a flush or a mark in odd
    /// ones. Many draws are equivalent where little can be lost. So a few times a cut is drawn
    /// again if its disk was tried before or, in even rounds, if it loses nothing.
    pub fn cut(&mut self, seed: u64, round: u64) -> Cut {
        const DRAWS: u32 = 16;
        // Each round has its own random numbers, so that it does not depend on earlier rounds.
        let mut random =
            Xoshiro256PlusPlus::seed_from_u64(seed ^ round.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut cut = self.draw(&mut random, round);
        for _ in 1..DRAWS {
            let (outcome, loses) = self.outcome(&cut);
            // Odd rounds test promises, even if nothing is lost.
            if (loses || round % 2 == 1) && self.tried.insert(outcome) {
                break;
            }
            cut = self.draw(&mut random, round);
        }
        // The last draw is accepted: a short recording has few different disks.
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

    /// Hash of everything a check could see of a cut; also returns true if a block loses a version.
    fn outcome(&self, cut: &Cut) -> ([u8; 32], bool) {
        // Visible to a check: the disk, and the marks up to the cut.
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

    /// Number of distinct disks drawn.
    pub(crate) fn distinct(&self) -> usize {
        self.tried.len()
    }

    /// The last instant: after the end of the recording.
    pub(crate) fn instant_max(&self) -> usize {
        self.recording.events.len()
    }

    /// The disk's possible states at a cut, and the losses of this cut.
    pub(crate) fn state(&self, cut: &Cut) -> (DiskState, Vec<Lost>) {
        // A replay cannot go back: instants before the workload are replayed from the beginning.
        let replay = if cut.instant < self.start.played() {
            Replay::new(self.recording)
        } else {
            self.start.clone()
        };
        let state = replay.until(cut.instant).into_state();
        let lost = match (&self.atomic, &cut.choice) {
            (Some(unit), Choice::Drawn(number)) => unit.draw(&state, *number),
            (_, choice) => state.lost(choice),
        };
        (state, lost)
    }

    /// Checks the disk after the run and a clean shutdown: a failure here needs no power cut.
    ///
    /// # Errors
    /// There was no verdict.
    pub fn whole(&mut self) -> Result<Verdict, TortureError> {
        let instant = self.recording.events.len();
        self.try_cut(&Cut {
            instant,
            choice: Choice::Lost(Vec::new()),
        })
    }

    /// Cuts power, restores the disk, and checks it.
    ///
    /// # Errors
    /// There was no verdict.
    pub fn try_cut(&mut self, cut: &Cut) -> Result<Verdict, TortureError> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(TortureError::Interrupted);
        }
        let result = self.restore_and_check(cut);
        // A disk request that we failed to serve explains any result of the check.
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

        // With firmware the disk is the recovered device.
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

        // The marks list the workload's promises up to the cut.
        std::fs::write(self.place.marks_seen(), marks)?;

        let Checked {
            finding,
            output,
            in_use,
        } = match &self.place {
            Place::Files(stage) => self.mount_and_check(stage, left)?,
            Place::Target(target) => self.serve_and_check(target, left)?,
        };

        // Processes that still use the file system must not write to the next disk.
        if in_use {
            self.place = Place::new(self.recording)?;
        }
        Ok(verdict(finding, output))
    }

    /// Checks a disk exposed as a file, or the file system on it.
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

        // A verdict requires that the file system was released.
        let left = mounted.unmount();
        let (ending, output) = checked?;
        let finding = match (left, ending) {
            // The timeout explains why processes remain.
            (Unmounted::InUse, Ending::Late) => Finding::Check(Ending::Late),
            (Unmounted::InUse, _) => Finding::InUse,
            // Another mount namespace is not the check's fault.
            (Unmounted::Free | Unmounted::Elsewhere, ending) => Finding::of(ending),
        };
        Ok(Checked {
            in_use: left != Unmounted::Free,
            ..Checked::new(finding, output)
        })
    }

    /// Checks a disk served over NVMe/TCP.
    fn serve_and_check(&self, target: &Target, left: Left) -> Result<Checked, TortureError> {
        let Recording {
            shape, contents, ..
        } = self.recording;
        let device = match left {
            Left::Blocks(blocks) => device_with(*shape, contents, &blocks)?,
            Left::Device(disk) => disk.into_device(),
        };

        // A leftover process is disconnected from the disk.
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

    /// Minimizes the losses of a failing cut. The smaller cut must fail in the same way: a failing
    /// check is not a failing mount.
    ///
    /// # Errors
    /// There was no verdict.
    pub fn shrink(
        &mut self,
        cut: &Cut,
        first: Verdict,
        limit: Duration,
    ) -> Result<Smallest, TortureError> {
        let (state, lost) = self.state(cut);
        let until = Instant::now() + limit;
        let whole = Smallest {
            cut: cut.clone(),
            lost: lost.clone(),
            writes: None,
            finished: false,
            tried: 0,
            verdict: first,
        };

        // Losses in the firmware are not listed: the cut may not fail without them.
        let listed = at(cut, &lost);
        if self.player.is_some() && self.try_cut(&listed)?.finding != whole.verdict.finding {
            return Ok(Smallest { tried: 1, ..whole });
        }

        // What can be lost on its own: a block, or with an atomic write unit a write.
        let Some(unit) = self.atomic else {
            let (smallest, _) = self.fewest(whole, &lost, <[Lost]>::to_vec, until)?;
            return Ok(smallest);
        };
        let pieces: Vec<Piece> = unit.pieces(&state, &lost).into_iter().collect();
        let blocks = |pieces: &[Piece]| unit.without(&state, &pieces.iter().copied().collect());
        let (smallest, pieces) = self.fewest(whole, &pieces, blocks, until)?;
        let writes = Some(pieces);
        Ok(Smallest { writes, ..smallest })
    }

    /// Searches for the fewest elements with which a cut still fails; `blocks` returns the blocks
    /// that lose something with them. The second result is the number of elements.
    fn fewest<T: Clone>(
        &mut self,
        whole: Smallest,
        elements: &[T],
        blocks: impl Fn(&[T]) -> Vec<Lost>,
        until: Instant,
    ) -> Result<(Smallest, usize), TortureError> {
        let finding = whole.verdict.finding.clone();
        let (mut tried, mut verdict) = (0, whole.verdict);

        // Each attempt costs as much as a cut, so time is limited.
        let (least, finished) = shrink(elements, |elements| {
            if Instant::now() > until {
                return Ok(None);
            }

            tried += 1;
            let result = self.try_cut(&at(&whole.cut, &blocks(elements)))?;

            // Failing in another way is another fault.
            let failed = result.finding == finding;
            if failed {
                verdict = result;
            }
            Ok::<_, TortureError>(Some(failed))
        })?;

        let lost = blocks(&least);
        let smallest = Smallest {
            cut: at(&whole.cut, &lost),
            lost,
            writes: None,
            finished,
            tried,
            verdict,
        };
        Ok((smallest, least.len()))
    }
}

/// A cut at the same instant that loses only these.
fn at(cut: &Cut, lost: &[Lost]) -> Cut {
    Cut {
        instant: cut.instant,
        choice: Choice::Lost(lost.to_vec()),
    }
}
