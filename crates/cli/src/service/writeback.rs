//! Pages' contents go to the disk while the device goes on.
//!
//! Before an erase the device waits until all contents are durable. What this thread has had
//! written out by then is not waited for. Invariant: it only makes durable earlier what may become
//! so at any time, and nothing depends on it. Absent: error handling. The system reports a write
//! error to every open handle of the file, so the next sync sees it too.

use crate::failure::Failure;
use remap_ssd_device::Device;
use remap_ssd_nvme::controller::Subsystem;
use std::path::Path;
use std::sync::Weak;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Start writing out after this many flash pages, programmed for hosts or by the device itself: 4
/// MiB.
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
    /// Begins, for a device in a folder.
    ///
    /// # Errors
    /// The system's reason.
    pub fn start(dir: &Path, subsystem: Weak<Subsystem>) -> Result<Self, Failure> {
        let contents =
            Device::contents_file(dir).map_err(|error| Failure::about(dir.display(), error))?;

        let (stop, stopped) = channel::<()>();
        let mut done = 0;

        let mut work = move || {
            // Asked without a turn: this thread must not make hosts wait.
            let Some(written) = subsystem
                .upgrade()
                .map(|subsystem| subsystem.pages_programmed())
            else {
                return IDLE;
            };

            // Few pages can wait: the disk has less to do if they are written together.
            if written < done + PAGES {
                return if written == done { IDLE } else { BUSY };
            }

            done = written;
            // An error shows at the next commit as well, which must not go on.
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
            .map_err(Failure::failed)?;

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
