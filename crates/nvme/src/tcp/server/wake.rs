//! Wakes a thread that waits for its socket, by a byte on a socket of its own.
//!
//! Most connections never wait for anything but their host: the pair is made when it is first needed.
//! Invariant: a call after `open` has returned is seen. Absent: what there is to wake for.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The end that other threads have.
#[derive(Default)]
pub(super) struct Waker(Mutex<Option<UnixStream>>);

impl Waker {
    fn stream(&self) -> MutexGuard<'_, Option<UnixStream>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the thread. Before `open` there is nothing to wake.
    pub fn wake(&self) {
        if let Some(stream) = &mut *self.stream() {
            // If it is full the thread wakes in any case.
            let _ = stream.write(&[0]);
        }
    }

    /// The end that is waited for.
    ///
    /// # Errors
    /// The process has no file descriptors left.
    pub fn open(&self) -> io::Result<UnixStream> {
        let (input, output) = UnixStream::pair()?;
        input.set_nonblocking(true)?;
        output.set_nonblocking(true)?;
        *self.stream() = Some(output);
        Ok(input)
    }
}

/// Takes what has woken the thread, so that it can sleep again.
pub(super) fn take(input: &mut UnixStream) {
    let mut bytes = [0; 64];
    while input
        .read(&mut bytes)
        .is_ok_and(|taken| taken == bytes.len())
    {}
}
