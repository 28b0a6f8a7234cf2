//! Writes page contents to the disk in the background.
//!
//! Before an erase the device waits until all contents are durable. Data that this thread has
//! written out by then need no wait. Invariant: it only makes data durable earlier than required,
//! and nothing depends on it. Absent: error handling. The system reports a write error to every
//! open handle of the file, so the next sync sees it too.

use crate::error::ServiceError;
use remap_ssd_device::Device;
use remap_ssd_nvme::controller::Subsystem;
use std::path::Path;
use std::sync::Weak;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Start writing out after this many flash pages, programmed for hosts or internally: 4 MiB.
const PAGES: u64 = 1 << 10;
/// Polling intervals, while pages are programmed and while they are not.
const BUSY: Duration = Duration::from_millis(4);
const IDLE: Duration = Duration::from_millis(50);

/// The thread that writes back; ends when dropped.
pub struct Writeback {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Writeback {
    /// Starts it, for a device in a folder.
    ///
    /// # Errors
    /// The system's reason.
    pub fn start(dir: &Path, subsystem: Weak<Subsystem>) -> Result<Self, ServiceError> {
        let contents = Device::contents_file(dir)
            .map_err(|error| ServiceError::about(dir.display(), error))?;

        let (stop, stopped) = channel::<()>();
        let mut done = 0;

        let mut work = move || {
            // Read without the device's lock: this thread must not make hosts wait.
            let Some(written) = subsystem
                .upgrade()
                .map(|subsystem| subsystem.pages_programmed())
            else {
                return IDLE;
            };

            // Few pages can wait: writing them together is cheaper.
            if written < done + PAGES {
                return if written == done { IDLE } else { BUSY };
            }

            done = written;
            // The next commit sees the error as well, and fails.
            let _ = contents.sync_data();
            BUSY
        };

        let run = move || {
            let mut wait = IDLE;
            while stopped.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
                wait = work();
            }
        };

        let thread = std::thread::Builder::new()
            .name("writeback".into())
            .spawn(run)
            .map_err(ServiceError::failed)?;

        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for Writeback {
    fn drop(&mut self) {
        drop(self.stop.take());
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
