//! Ends runs from elsewhere: `remap_ssd.stop()`, and Ctrl-C in a program whose runs are in threads.
//!
//! Python raises `KeyboardInterrupt` in its main thread alone. A pool of threads then waits for its
//! runs, so the runs must notice the signal. A second handler of SIGINT therefore counts signals, and
//! then calls the interpreter's. Invariant: SIGINT that is ignored or has its default action keeps it, and so does
//! a handler that needs more than the signal's number. Absent: what a stopped run raises in the main
//! thread, which is the interpreter's choice.

use crate::errors::Stopped;
use pyo3::prelude::*;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of requests so far to end all runs.
static STOPS: AtomicU64 = AtomicU64::new(0);

/// Ends all runs of this process that are under way, in whatever thread: each raises `Stopped`. Runs
/// that begin later are not affected; neither are sweeps, whose runs are processes.
///
/// >>> with concurrent.futures.ThreadPoolExecutor() as pool:
/// ...     future = pool.submit(remap_ssd.run, "none", scale="1/2")
/// ...     remap_ssd.stop()
/// >>> future.exception()
/// Stopped('stopped')
#[pyfunction]
pub(crate) fn stop() {
    STOPS.fetch_add(1, Ordering::SeqCst);
}

/// What ends a run that began when this was made.
#[derive(Clone, Copy)]
pub(crate) struct StopSign(u64);

impl StopSign {
    pub(crate) fn new() -> Self {
        #[cfg(unix)]
        interrupt::listen();
        Self(STOPS.load(Ordering::SeqCst))
    }

    /// # Errors
    /// What a signal's handler has raised, or `Stopped`.
    pub(crate) fn check(self, py: Python<'_>) -> PyResult<()> {
        py.check_signals()?;
        if STOPS.load(Ordering::SeqCst) == self.0 {
            Ok(())
        } else {
            Err(Stopped::new_err("stopped"))
        }
    }
}

#[cfg(unix)]
mod interrupt {
    use super::{Ordering, STOPS};
    use libc::{SA_SIGINFO, SIG_DFL, SIG_IGN, SIGINT, c_int, sigaction};
    use std::mem::{MaybeUninit, transmute};
    use std::ptr::null_mut;
    use std::sync::Mutex;
    use std::sync::PoisonError;
    use std::sync::atomic::AtomicUsize;

    /// Address of the handler that is called by ours; never of none.
    static NEXT: AtomicUsize = AtomicUsize::new(SIG_DFL);

    /// Puts our handler in front of the present one, unless it is there. Programs may set another at
    /// any time (Jupyter does for every cell), so each run calls this.
    pub(super) fn listen() {
        static ONE: Mutex<()> = Mutex::new(());
        let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);

        let ours = on_interrupt as extern "C" fn(c_int) as usize;
        let mut present = MaybeUninit::<sigaction>::uninit();
        // SAFETY: it only writes the present action to the place given.
        let present = unsafe {
            if sigaction(SIGINT, std::ptr::null(), present.as_mut_ptr()) != 0 {
                return;
            }
            present.assume_init()
        };
        let is_plain = present.sa_flags & SA_SIGINFO == 0;
        if !is_plain || [SIG_DFL, SIG_IGN, ours].contains(&present.sa_sigaction) {
            return;
        }

        NEXT.store(present.sa_sigaction, Ordering::SeqCst);
        let action = sigaction {
            sa_sigaction: ours,
            ..present
        };
        // SAFETY: our handler touches atomics and calls the one that was there, with the same flags
        // and mask.
        unsafe { sigaction(SIGINT, &action, null_mut()) };
    }

    extern "C" fn on_interrupt(signal: c_int) {
        STOPS.fetch_add(1, Ordering::SeqCst);
        let next = NEXT.load(Ordering::SeqCst);
        // SAFETY: `listen` has stored the address of a handler that takes the signal's number before
        // it installed this one.
        let next = unsafe { transmute::<usize, extern "C" fn(c_int)>(next) };
        next(signal);
    }
}
