//! Wakes a thread that waits for its socket, by a byte on a separate socket pair.
//!
//! Most connections only ever wait for their host: the pair is created when it is first needed.
//! Invariant: a wake-up after `open` has returned is not lost. Absent: the reasons for waking.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The end of the pair used by other threads.
#[derive(Default)]
pub(super) struct Waker(Mutex<Option<UnixStream>>);

impl Waker {
    fn stream(&self) -> MutexGuard<'_, Option<UnixStream>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the thread. No effect before `open`.
    pub(super) fn wake(&self) {
        if let Some(stream) = &mut *self.stream() {
            // If it is full the thread wakes in any case.
            let _ = stream.write(&[0]);
        }
    }

    /// Creates the end to wait on.
    ///
    /// # Errors
    /// The process has no file descriptors left.
    pub(super) fn open(&self) -> io::Result<UnixStream> {
        let (input, output) = UnixStream::pair()?;
        input.set_nonblocking(true)?;
        output.set_nonblocking(true)?;
        *self.stream() = Some(output);
        Ok(input)
    }
}

/// Drains the wake-up bytes, so that the thread can sleep again.
pub(super) fn take(input: &mut UnixStream) {
    let mut bytes = [0; 64];
    while input
        .read(&mut bytes)
        .is_ok_and(|taken| taken == bytes.len())
    {}
}
