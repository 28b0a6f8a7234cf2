//! One recorded run, cut many times.
//!
//! Invariants: the same recording and seed give the same cuts; a cut leaves nothing for the next
//! one. A verdict is of a check that ran, or of a file system that did not mount; all else is an
//! error. Absent: how results are shown.

use crate::array::{Array, Shape};
use crate::child::{Ending, Environment, Task};
use crate::contents::ContentId;
use crate::cut::{Choice, Cut, Lost, Replay, State};
use crate::error::TortureError;
use crate::faults::{Fault, Faulty};
use crate::firmware::{Firmware, FirmwareDisk, Played, Player};
use crate::image::Image;
use crate::marks::MarkPipe;
use crate::record::{About, Event, Recorder, Recording};
use crate::shrink::shrink;
use crate::stage::{FileSystem, MountedFs, Stage};
use crate::target::{Observer, Target, device_with, empty_device};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use remap_ssd_device::Setting;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

/// How often the marks of a workload over NVMe/TCP are looked for, between its commands.
const MARKS_INTERVAL: Duration = Duration::from_millis(20);

/// A run that is to be recorded.
#[derive(Clone, Debug)]
pub struct RecordingSpec {
    /// Block size and number of blocks of the disk.
    pub shape: Shape,
    /// The file system; none: the workload uses the disk's file.
    pub fs: Option<FileSystem>,
    /// The disk is behind NVMe/TCP, and not behind a file; without file system and faults.
    pub nvme_tcp: bool,
    /// Shell command of the workload.
    pub workload: String,
    /// When it is ended; none: it ends by itself.
    pub limit: Option<Duration>,
    /// How often, on average, the file system is made to write back what it holds; never without.
    pub writeback: Option<Duration>,
    /// For the moments of writing back, and for the faults.
    pub seed: u64,
    /// What the disk does to the workload besides. With any, the workload may fail.
    pub faults: Vec<Fault>,
}

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

/// The variables that commands have where the disk is a file.
fn environment(dir: &Path, file: &Path, marks: &Path) -> Environment {
    let variables = [("DIR", dir), ("FILE", file), ("MARKS", marks)];
    variables.map(|(name, path)| (name, path.into())).into()
}

/// Records a run of a workload.
///
/// # Errors
/// Something is missing, or the workload fails.
pub fn record(
    run: &RecordingSpec,
    check: &str,
    stop: &AtomicBool,
) -> Result<Recording, TortureError> {
    if run.nvme_tcp {
        return record_over_tcp(run, check, stop);
    }

    let stage = Stage::new(run.shape)?;
    let recorder = Arc::new(Recorder::new(run.shape)?);
    let faulty = Arc::new(Faulty::new(recorder.clone(), &run.faults, run.seed));
    stage.put(faulty.clone());
    let sink = recorder.clone();
    stage.marks_to(Some(Box::new(move |lines| sink.mark(lines))));

    // The failure of ours is looked at first: what the workload reports may only follow from it.
    let result = perform(run, &stage, &recorder, &faulty, stop);
    // A request that we could not serve is the reason of what came after it, and its record proves
    // nothing.
    if let Some(failure) = stage.take_failure() {
        return Err(failure);
    }
    result?;
    Ok(recorder.finish(about(run, check)))
}

fn about(run: &RecordingSpec, check: &str) -> About {
    About {
        fs: run.fs.as_ref().map(|fs| fs.name.clone()),
        mount_options: run
            .fs
            .as_ref()
            .map(|fs| fs.mount_options.clone())
            .filter(|options| !options.is_empty()),
        workload: run.workload.clone(),
        check: check.to_owned(),
        nvme_tcp: run.nvme_tcp,
        faults: run.faults.iter().map(Fault::to_string).collect(),
    }
}

/// Records a run whose hosts reach the disk by NVMe/TCP.
fn record_over_tcp(
    run: &RecordingSpec,
    check: &str,
    stop: &AtomicBool,
) -> Result<Recording, TortureError> {
    if run.fs.is_some() || !run.faults.is_empty() {
        return Err(TortureError::missing(
            "over NVMe/TCP there are neither file systems nor faults: choose one of them",
        ));
    }

    let mut target = Target::new(run.shape)?;
    let recorder = Arc::new(Recorder::new(run.shape)?);
    let observer = Observer::new(recorder.clone(), MarkPipe::new(&target.marks())?);
    target.serve(empty_device(run.shape)?, Some(Box::new(observer.clone())))?;
    recorder.note(Event::Start)?;

    let over = AtomicBool::new(false);
    let result = std::thread::scope(|scope| {
        // A workload that does nothing but write marks must not wait until the pipe is read.
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                observer.take_marks();
                std::thread::sleep(MARKS_INTERVAL);
            }
        });
        let task = Task {
            command: &run.workload,
            environment: target.environment(),
            limit: run.limit,
        };
        let result = task.run(stop);
        over.store(true, Ordering::Relaxed);
        result
    });
    observer.take_marks();
    recorder.note(Event::End)?;

    // A process that is left has no disk any more.
    target.stop();
    if let Some(failure) = observer.take_failure() {
        return Err(failure);
    }
    must_end_well(run, result?, false)?;
    Ok(recorder.finish(about(run, check)))
}

/// What the end of a workload says of its record.
fn must_end_well(
    run: &RecordingSpec,
    (ending, output): (Ending, String),
    has_failed: bool,
) -> Result<(), TortureError> {
    match ending {
        Ending::Well => Ok(()),
        // On a disk that fails a program may end with an error; what it acknowledged before must be
        // there.
        _ if has_failed => Ok(()),
        Ending::Late if run.limit.is_some() => Ok(()),
        ending => Err(TortureError::Workload {
            ended: ending.to_string(),
            output: output.trim_end().to_owned(),
        }),
    }
}

/// Makes the file system if there is to be one, and runs the workload.
fn perform(
    run: &RecordingSpec,
    stage: &Stage,
    recorder: &Recorder,
    faulty: &Faulty,
    stop: &AtomicBool,
) -> Result<(), TortureError> {
    let Some(fs) = &run.fs else {
        // Without a file system the workload has the disk itself.
        let dir = stage.file().with_file_name("");
        return work(run, stage, recorder, faulty, &dir, stop);
    };
    stage.make(fs)?;
    let mounted = stage.mount(fs)?.map_err(|words| {
        TortureError::Missing(format!(
            "a new {} cannot be mounted ({words}): see --mount-options",
            fs.name
        ))
    })?;
    work(run, stage, recorder, faulty, mounted.folder(), stop)?;

    // A process that is left would write during the cuts.
    if mounted.unmount() {
        Ok(())
    } else {
        Err(TortureError::missing(
            "the workload left processes that use $DIR: let it end them before it ends itself",
        ))
    }
}

/// Runs the workload between the start and the end of the record.
fn work(
    run: &RecordingSpec,
    stage: &Stage,
    recorder: &Recorder,
    faulty: &Faulty,
    dir: &Path,
    stop: &AtomicBool,
) -> Result<(), TortureError> {
    // What mkfs and mount have done is no part of the cuts.
    if run.fs.is_some() {
        sync(dir)?;
    }

    // Durable and noted: cuts begin here.
    recorder.flush()?;
    recorder.note(Event::Start)?;
    faulty.arm(true);

    let over = AtomicBool::new(false);
    let (file, marks) = (stage.file(), stage.marks());
    let environment = environment(dir, &file, &marks);
    let result = std::thread::scope(|scope| {
        // The kernel writes back when it likes. Here it is made to, at times that follow from the
        // seed.
        if let (Some(interval), Some(_)) = (run.writeback, &run.fs) {
            let over = &over;
            scope.spawn(move || write_back(dir, interval, run.seed, over));
        }
        let task = Task {
            command: &run.workload,
            environment,
            limit: run.limit,
        };
        let result = task.run(stop);
        over.store(true, Ordering::Relaxed);
        result
    });
    recorder.note(Event::End)?;
    faulty.arm(false);

    must_end_well(run, result?, faulty.has_failed())
}

fn sync(dir: &Path) -> Result<(), TortureError> {
    let folder = std::fs::File::open(dir)?;
    Ok(rustix::fs::syncfs(&folder).map_err(std::io::Error::from)?)
}

/// Has the file system write back every now and then, as the kernel does after half a minute: what
/// a program never syncs is not on the disk at all before, and nothing of it could be torn.
fn write_back(dir: &Path, interval: Duration, seed: u64, over: &AtomicBool) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut next = Instant::now() + interval.mul_f64(random.random_range(0.5..1.5));
    while !over.load(Ordering::Relaxed) {
        if Instant::now() >= next {
            // A file system that cannot sync tells the workload, too.
            let _ = sync(dir);
            next = Instant::now() + interval.mul_f64(random.random_range(0.5..1.5));
        }
        std::thread::sleep(Duration::from_millis(5).min(interval));
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
    pub fn state(&self, cut: &Cut) -> (State, Vec<Lost>) {
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

        let (finding, output) = match self.place {
            Place::Files(_) => self.mount_and_check(left)?,
            Place::Target(_) => self.serve_and_check(left)?,
        };
        Ok(verdict(finding, output))
    }

    /// Checks a disk behind a file, or the file system on it.
    fn mount_and_check(&mut self, left: Left) -> Result<(Finding, String), TortureError> {
        let Recording {
            shape, contents, ..
        } = self.recording;
        let Place::Files(stage) = &self.place else {
            unreachable!("the disk is behind a file");
        };
        let array: Arc<dyn Array> = match left {
            Left::Blocks(blocks) => Arc::new(Image::new(*shape, contents.clone(), blocks)),
            Left::Device(device) => Arc::from(device as Box<dyn Array>),
        };
        stage.put(array);
        let (file, marks) = (stage.file(), stage.marks_seen());

        let Some(fs) = &self.fs else {
            let dir = file.with_file_name("");
            let (ending, output) = self.run_check(environment(&dir, &file, &marks))?;
            return Ok((Finding::of(ending), output));
        };
        let mounted: MountedFs = match stage.mount(fs)? {
            Ok(mounted) => mounted,
            Err(words) => return Ok((Finding::Mount, words)),
        };
        let checked = self.run_check(environment(mounted.folder(), &file, &marks));

        // The verdict is of a file system that was given back in order.
        if mounted.unmount() {
            let (ending, output) = checked?;
            return Ok((Finding::of(ending), output));
        }

        // Whoever still uses the file system must not write to the next disk.
        self.place = Place::new(self.recording)?;
        Ok(match checked? {
            // That it did not end explains why something is left.
            (Ending::Late, output) => (Finding::Check(Ending::Late), output),
            (_, output) => (Finding::InUse, output),
        })
    }

    /// Checks a disk behind NVMe/TCP.
    fn serve_and_check(&mut self, left: Left) -> Result<(Finding, String), TortureError> {
        let Recording {
            shape, contents, ..
        } = self.recording;
        let Place::Target(target) = &mut self.place else {
            unreachable!("the disk is behind NVMe/TCP");
        };
        let device = match left {
            Left::Blocks(blocks) => device_with(*shape, contents, &blocks)?,
            Left::Device(disk) => disk.into_device(),
        };
        target.serve(device, None)?;
        let environment = target.environment();
        let checked = self.run_check(environment);

        // A process that is left has no disk any more.
        if let Place::Target(target) = &mut self.place {
            target.stop();
        }
        let (ending, output) = checked?;
        Ok((Finding::of(ending), output))
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
