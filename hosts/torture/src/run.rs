//! Recording a run of a workload.
//!
//! Invariants: a workload that fails leaves no recording, unless faults were injected; the
//! preparation of the disk is recorded, but not cut. Absent: cuts (`campaign`).

use crate::array::{Array, DiskGeometry};
use crate::child::{Ending, Task, disk_environment};
use crate::error::TortureError;
use crate::faults::{Fault, FaultModel};
use crate::faulty::Faulty;
use crate::marks::MarkPipe;
use crate::record::{About, Event, Recorder, Recording};
use crate::stage::{FileSystem, Stage, Unmounted};
use crate::target::{Observer, Target, empty_device};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Interval for polling the marks of a workload over NVMe/TCP, between its commands.
const MARKS_INTERVAL: Duration = Duration::from_millis(20);

/// Parameters of a run to record.
#[derive(Clone, Debug)]
pub struct RecordingSpec {
    /// Block size and number of blocks of the disk.
    pub shape: DiskGeometry,
    /// The file system; none: the workload uses the raw disk.
    pub fs: Option<FileSystem>,
    /// The disk is served over NVMe/TCP, not as a file; without a file system.
    pub nvme_tcp: bool,
    /// Shell command of the workload.
    pub workload: String,
    /// Time after which it is ended; none: it runs to completion.
    pub limit: Option<Duration>,
    /// Average interval of forced write-back by the file system; none: no forced write-back.
    pub writeback: Option<Duration>,
    /// Seed for the times of write-back and for the faults.
    pub seed: u64,
    /// Faults to inject. With any, the workload may fail.
    pub faults: Vec<Fault>,
}

/// Records a run of a workload.
///
/// # Errors
/// A requirement is missing, or the workload fails.
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
    let faults = Arc::new(FaultModel::new(run.shape, &run.faults, run.seed));
    stage.put(Arc::new(Faulty::new(recorder.clone(), faults.clone())));
    let sink = recorder.clone();
    stage.marks_to(Some(Box::new(move |lines| sink.mark(lines))));

    // Our own failure takes precedence: errors of the workload may follow from it.
    let result = perform(run, &stage, &recorder, &faults, stop);
    // A request that we failed to serve explains later errors, and its recording proves nothing.
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

/// Records a run whose hosts reach the disk over NVMe/TCP.
fn record_over_tcp(
    run: &RecordingSpec,
    check: &str,
    stop: &AtomicBool,
) -> Result<Recording, TortureError> {
    if run.fs.is_some() {
        return Err(TortureError::missing(
            "over NVMe/TCP there are no file systems: choose one of them",
        ));
    }

    let target = Target::new(run.shape)?;
    let recorder = Arc::new(Recorder::new(run.shape)?);
    let observer = Observer::new(recorder.clone(), MarkPipe::new(&target.marks())?);
    let faults = Arc::new(FaultModel::new(run.shape, &run.faults, run.seed));
    let serving = target.serve_workload(empty_device(run.shape)?, &observer, &faults)?;
    recorder.note(Event::Start)?;
    faults.arm(true);

    let over = AtomicBool::new(false);
    let result = std::thread::scope(|scope| {
        // A workload that only writes marks must not block on a full pipe.
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
    // The workload's last marks come before its end.
    observer.take_marks();
    recorder.note(Event::End)?;
    faults.arm(false);

    // A leftover process is disconnected from the disk.
    drop(serving);
    if let Some(failure) = observer.take_failure() {
        return Err(failure);
    }
    must_end_well(run, result?, faults.has_failed())?;
    Ok(recorder.finish(about(run, check)))
}

/// Decides from the workload's end whether its recording is valid.
fn must_end_well(
    run: &RecordingSpec,
    (ending, output): (Ending, String),
    has_failed: bool,
) -> Result<(), TortureError> {
    match ending {
        Ending::Well => Ok(()),
        // On a faulty disk a program may end with an error; data that it acknowledged must survive.
        _ if has_failed => Ok(()),
        Ending::Late if run.limit.is_some() => Ok(()),
        ending => Err(TortureError::Workload {
            ended: ending.to_string(),
            output: output.trim_end().to_owned(),
        }),
    }
}

/// Makes the file system, if requested, and runs the workload.
fn perform(
    run: &RecordingSpec,
    stage: &Stage,
    recorder: &Recorder,
    faults: &FaultModel,
    stop: &AtomicBool,
) -> Result<(), TortureError> {
    let Some(fs) = &run.fs else {
        // Without a file system the workload uses the raw disk.
        let dir = stage.file().with_file_name("");
        return work(run, stage, recorder, faults, &dir, stop);
    };
    stage.make(fs)?;
    let mounted = stage.mount(fs)?.map_err(|words| {
        TortureError::Missing(format!(
            "a new {} cannot be mounted ({words}): see --mount-options",
            fs.name
        ))
    })?;
    work(run, stage, recorder, faults, mounted.folder(), stop)?;

    // A leftover process would write during the cuts.
    match mounted.unmount() {
        Unmounted::Free => Ok(()),
        Unmounted::InUse => Err(TortureError::missing(
            "the workload left processes that use $DIR: let it end them before it ends itself",
        )),
        Unmounted::Elsewhere => Err(TortureError::missing(
            "a process in another mount namespace (a container, `unshare -m`) uses a copy of $DIR: end it",
        )),
    }
}

/// Runs the workload between the start and the end of the recording.
fn work(
    run: &RecordingSpec,
    stage: &Stage,
    recorder: &Recorder,
    faults: &FaultModel,
    dir: &Path,
    stop: &AtomicBool,
) -> Result<(), TortureError> {
    // The writes of mkfs and mount are not subject to cuts.
    if run.fs.is_some() {
        sync(dir)?;
    }

    // Durable and recorded: cuts begin here.
    recorder.flush()?;
    recorder.note(Event::Start)?;
    faults.arm(true);

    let over = AtomicBool::new(false);
    let (file, marks) = (stage.file(), stage.marks());
    let environment = disk_environment(dir, &file, &marks);
    let result = std::thread::scope(|scope| {
        // The kernel decides when to write back. Here it is forced to, at times that depend on the
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
    // The file system is unmounted without faults.
    faults.arm(false);

    must_end_well(run, result?, faults.has_failed())
}

fn sync(dir: &Path) -> Result<(), TortureError> {
    let folder = std::fs::File::open(dir)?;
    Ok(rustix::fs::syncfs(&folder).map_err(std::io::Error::from)?)
}

/// Makes the file system write back from time to time, as the kernel does after 30 seconds.
/// Otherwise data that a program never syncs would not reach the disk during the run, and could not
/// be torn.
fn write_back(dir: &Path, interval: Duration, seed: u64, over: &AtomicBool) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut next = Instant::now() + interval.mul_f64(random.random_range(0.5..1.5));
    while !over.load(Ordering::Relaxed) {
        if Instant::now() >= next {
            // A file system that cannot sync reports that to the workload, too.
            let _ = sync(dir);
            next = Instant::now() + interval.mul_f64(random.random_range(0.5..1.5));
        }
        // Short sleeps, so that the end of the workload is noticed quickly.
        std::thread::sleep(Duration::from_millis(5).min(interval));
    }
}
