//! Rebuilds the fingerprint store after an unclean shutdown, while hosts are served.
//!
//! Pages are read and hashed outside the device lock, one slice at a time; listing the pages of a
//! slice and entering their digests take the lock for some tens of microseconds each. The thread
//! runs at full speed while hosts are idle and pauses while they are not. Invariant: only the hit
//! rate of deduplication depends on it. Absent: which pages to read (the device knows).

use crate::error::ServiceError;
use remap_ssd_device::{Device, Fingerprints, Relearner, SavedFingerprints};
use remap_ssd_nvme::controller::Subsystem;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Pause between two slices of 1 MiB while hosts are busy: about 100 MiB/s.
const PAUSE: Duration = Duration::from_millis(10);

/// The thread that rebuilds the store; ends when dropped.
pub(crate) struct Relearn {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Relearn {
    /// Starts it, if the device is in a folder and deduplicates.
    ///
    /// # Errors
    /// The system's reason.
    pub(crate) fn start_if_needed(
        dir: Option<&Path>,
        subsystem: &Arc<Subsystem>,
    ) -> Result<Option<Self>, ServiceError> {
        let Some(dir) = dir.filter(|_| subsystem.device().ftl().deduplicates()) else {
            return Ok(None);
        };
        let relearner = Relearner::new(dir, &subsystem.device());
        let relearner = relearner.map_err(|error| ServiceError::about(dir.display(), error))?;
        Self::start(relearner, Arc::downgrade(subsystem)).map(Some)
    }

    fn start(mut relearner: Relearner, again: Weak<Subsystem>) -> Result<Self, ServiceError> {
        let (stop, stopped) = channel::<()>();
        let began = Instant::now();

        let run = move || {
            let (mut pause, mut last) = (Duration::ZERO, None);
            // The end of the service interrupts the pause.
            while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                // Held for one slice only, so that the service can take its subsystem apart.
                match again
                    .upgrade()
                    .map(|subsystem| slice(&mut relearner, &subsystem))
                {
                    Some(Ok(Some(activity))) => {
                        // No host activity during the last slice: continue without a pause.
                        let is_idle = last.replace(activity) == Some(activity);
                        pause = if is_idle { Duration::ZERO } else { PAUSE };
                    }
                    Some(Ok(None)) if relearner.entered() > 0 => {
                        let (pages, seconds) = (relearner.entered(), began.elapsed().as_secs_f64());
                        return tracing::info!(
                            pages,
                            seconds,
                            "fingerprints of all pages are known again"
                        );
                    }
                    Some(Err(error)) => {
                        return tracing::warn!(%error, "fingerprints are not read from pages any more");
                    }
                    Some(Ok(None)) | None => return,
                }
            }
        };

        let thread = std::thread::Builder::new()
            .name("relearn".into())
            .spawn(run)
            .map_err(ServiceError::failed)?;
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

/// Reads one slice. Returns a measure of host activity so far, or `None` when no page is left to
/// read.
fn slice(relearner: &mut Relearner, subsystem: &Subsystem) -> std::io::Result<Option<(u64, u64)>> {
    if subsystem.is_broken() {
        return Ok(None);
    }

    // Listed and entered under the lock, read and hashed without it.
    let Some(pages) = relearner.list(&subsystem.device()) else {
        return Ok(None);
    };
    if !pages.is_empty() {
        let digests = relearner.read(&pages)?;
        relearner.enter(&mut subsystem.device(), digests);
    }
    let health = subsystem.health();
    Ok(Some((health.sectors_read, health.sectors_written)))
}

impl Drop for Relearn {
    fn drop(&mut self) {
        drop(self.stop.take());
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Logs the state of the fingerprints from the last shutdown.
pub(crate) fn tell_recalled(device: &Device) {
    match device.fingerprints() {
        Fingerprints::NotSaved => {}
        Fingerprints::Recalled(pages) => {
            tracing::info!(pages, "fingerprints are known from the last shutdown")
        }
        Fingerprints::Ignored(reason) => {
            tracing::info!(%reason, "fingerprints are read from the pages again")
        }
    }
}

/// Logs the result of saving them at this shutdown.
pub(crate) fn tell_saved(saved: &SavedFingerprints) {
    match saved {
        SavedFingerprints::None => {}
        SavedFingerprints::Saved(pages) => tracing::info!(pages, "fingerprints saved"),
        SavedFingerprints::Failed(error) => {
            tracing::warn!(%error, "fingerprints not saved: pages will be read again")
        }
    }
}
