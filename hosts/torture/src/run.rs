//! A run of a workload, recorded.
//!
//! Invariants: a workload that fails leaves no recording, unless its disk was to fail; what prepared
//! the disk is in the record, and no part of its cuts. Absent: cuts (`campaign`).

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

/// How often the marks of a workload over NVMe/TCP are looked for, between its commands.
const MARKS_INTERVAL: Duration = Duration::from_millis(20);

/// A run that is to be recorded.
#[derive(Clone, Debug)]
pub struct RecordingSpec {
    /// Block size and number of blocks of the disk.
    pub shape: DiskGeometry,
    /// The file system; none: the workload uses the disk's file.
    pub fs: Option<FileSystem>,
    /// The disk is behind NVMe/TCP, and not behind a file; without file system.
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
    let faults = Arc::new(FaultModel::new(run.shape, &run.faults, run.seed));
    stage.put(Arc::new(Faulty::new(recorder.clone(), faults.clone())));
    let sink = recorder.clone();
    stage.marks_to(Some(Box::new(move |lines| sink.mark(lines))));

    // The failure of ours is looked at first: what the workload reports may only follow from it.
    let result = perform(run, &stage, &recorder, &faults, stop);
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
    // Marks of the workload come before its end, also those that it wrote last.
    observer.take_marks();
    recorder.note(Event::End)?;
    faults.arm(false);

    // A process that is left has no disk any more.
    drop(serving);
    if let Some(failure) = observer.take_failure() {
        return Err(failure);
    }
    must_end_well(run, result?, faults.has_failed())?;
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
    faults: &FaultModel,
    stop: &AtomicBool,
) -> Result<(), TortureError> {
    let Some(fs) = &run.fs else {
        // Without a file system the workload has the disk itself.
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

    // A process that is left would write during the cuts.
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

/// Runs the workload between the start and the end of the record.
fn work(
    run: &RecordingSpec,
    stage: &Stage,
    recorder: &Recorder,
    faults: &FaultModel,
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
    faults.arm(true);

    let over = AtomicBool::new(false);
    let (file, marks) = (stage.file(), stage.marks());
    let environment = disk_environment(dir, &file, &marks);
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
    // The file system is unmounted without faults.
    faults.arm(false);

    must_end_well(run, result?, faults.has_failed())
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
        // Short naps, so that the workload's end is not waited for.
        std::thread::sleep(Duration::from_millis(5).min(interval));
    }
}
