//! Ctrl-C and SIGTERM for commands that measure: the first asks to stop, the second ends at once.
//!
//! Invariant: an interrupted command says so in one sentence and ends by its signal, so that a
//! shell sees 130 or 143 and a script around it stops too. Absent: what has finished by then, which
//! the command shows first.

use crate::failure::Failure;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// What the shell adds to a signal's number.
pub const SIGNALLED: i32 = 128;

/// What those signals asked for.
#[derive(Clone, Debug)]
pub struct Interrupt {
    asked: Arc<AtomicBool>,
    signal: Arc<AtomicUsize>,
}

impl Interrupt {
    /// Listens from now on, until the process ends.
    ///
    /// # Errors
    /// The system's reason.
    pub fn listen() -> Result<Self, Failure> {
        let new = Self {
            asked: Arc::default(),
            signal: Arc::default(),
        };
        let register = |signal: i32| -> io::Result<()> {
            let code = SIGNALLED + signal;
            let (asked, by) = (Arc::clone(&new.asked), Arc::clone(&new.signal));

            // In this order: the first signal does not find what it sets itself.
            signal_hook::flag::register_usize(signal, by, signal as usize)?;
            signal_hook::flag::register_conditional_shutdown(signal, code, Arc::clone(&asked))?;
            signal_hook::flag::register(signal, asked)?;
            Ok(())
        };

        [SIGINT, SIGTERM]
            .into_iter()
            .try_for_each(register)
            .map_err(Failure::failed)?;

        // One that came before all was registered.
        if new.signal.load(Ordering::Relaxed) != 0 {
            new.asked.store(true, Ordering::Relaxed);
        }
        Ok(new)
    }

    /// For those who ask, or hand it to a library, whether to go on.
    pub fn flag(&self) -> &Arc<AtomicBool> {
        &self.asked
    }

    /// Whether a signal has come.
    pub fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// How the command ends, with what became of it in one sentence.
    pub fn failure(&self, said: impl Into<String>) -> Failure {
        Failure::Interrupted {
            signal: self.signal.load(Ordering::Relaxed) as i32,
            said: said.into(),
        }
    }

    /// How it ends if nothing has finished.
    pub fn before_the_first(&self) -> Failure {
        self.failure(NOTHING)
    }
}

/// Said where nothing has finished.
pub const NOTHING: &str = "interrupted before the first result";
