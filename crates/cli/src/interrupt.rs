//! Ctrl-C and SIGTERM for commands that measure: the first requests a stop, the second ends the
//! process at once.
//!
//! Invariant: an interrupted command prints one sentence and ends by its signal, so that a shell
//! sees 130 or 143 and a script around it stops too. Absent: finished results, which the command
//! prints first.

use crate::failure::Failure;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Offset of signal numbers in a shell's exit codes.
pub(crate) const SIGNALLED: i32 = 128;

/// Interruption by these signals.
#[derive(Clone, Debug)]
pub(crate) struct Interrupt {
    asked: Arc<AtomicBool>,
    signal: Arc<AtomicUsize>,
}

impl Interrupt {
    /// Handles the signals until the process ends.
    ///
    /// # Errors
    /// The system's reason.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let new = Self {
            asked: Arc::default(),
            signal: Arc::default(),
        };
        let register = |signal: i32| -> io::Result<()> {
            let code = SIGNALLED + signal;
            let (asked, by) = (Arc::clone(&new.asked), Arc::clone(&new.signal));

            // In this order: the first signal must not find the flag that it sets.
            signal_hook::flag::register_usize(signal, by, signal as usize)?;
            signal_hook::flag::register_conditional_shutdown(signal, code, Arc::clone(&asked))?;
            signal_hook::flag::register(signal, asked)?;
            Ok(())
        };

        [SIGINT, SIGTERM]
            .into_iter()
            .try_for_each(register)
            .map_err(Failure::failed)?;

        // A signal that arrived before all handlers were registered.
        if new.signal.load(Ordering::Relaxed) != 0 {
            new.asked.store(true, Ordering::Relaxed);
        }
        Ok(new)
    }

    /// The flag, for polling or for passing to a library.
    pub(crate) fn flag(&self) -> &Arc<AtomicBool> {
        &self.asked
    }

    /// Returns true if a signal has arrived.
    pub(crate) fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// The failure of the command, with its state in one sentence.
    pub(crate) fn failure(&self, said: impl Into<String>) -> Failure {
        Failure::Interrupted {
            signal: self.signal.load(Ordering::Relaxed) as i32,
            said: said.into(),
        }
    }

    /// The failure if no result is finished.
    pub(crate) fn before_the_first(&self) -> Failure {
        self.failure(NOTHING)
    }
}

/// The message if no result is finished.
pub(crate) const NOTHING: &str = "interrupted before the first result";
