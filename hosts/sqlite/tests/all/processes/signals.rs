//! A process that gets a signal every 200 microseconds.

use crate::kit::engine::{Db, start_with_vfs};
use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

static HANDLED: AtomicU64 = AtomicU64::new(0);

extern "C" fn handle(_: c_int) {
    HANDLED.fetch_add(1, Ordering::Relaxed);
}

/// Signals for the thread that started them, until dropped.
struct Signals {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Signals {
    fn start(flags: c_int) -> Self {
        // SAFETY: the handler changes an atomic and nothing else; the structure is zeroed, with a
        // handler of the type that goes without SA_SIGINFO.
        let installed = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handle as extern "C" fn(c_int) as usize;
            action.sa_flags = flags;
            libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut())
        };
        assert_eq!(installed, 0, "{}", std::io::Error::last_os_error());

        // SAFETY: always possible.
        let target = unsafe { libc::pthread_self() };
        let ends = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&ends);
        let thread = std::thread::spawn(move || {
            while !until.load(Ordering::Relaxed) {
                // SAFETY: the thread outlives this one, which it joins.
                unsafe { libc::pthread_kill(target, libc::SIGUSR1) };
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        Self {
            ends,
            thread: Some(thread),
        }
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("it only sends signals");
        }
    }
}

/// With handlers that restart system calls, and without.
pub fn openings_and_transactions(uri: &str) {
    start_with_vfs();
    for flags in [0, libc::SA_RESTART] {
        for mode in ["wal", "delete"] {
            let before = HANDLED.load(Ordering::Relaxed);
            let _signals = Signals::start(flags);
            for round in 0..60 {
                let db = Db::open(uri).unwrap_or_else(|failure| panic!("{round}: {failure}"));
                db.run(&format!("PRAGMA journal_mode={mode}"))
                    .and_then(|()| db.run("CREATE TABLE IF NOT EXISTS t(v)"))
                    .unwrap_or_else(|failure| panic!("{mode}, opening {round}: {failure}"));
            }

            let db = Db::open(uri).expect("the device is served");
            for round in 0..300 {
                db.run("INSERT INTO t VALUES(randomblob(9000))")
                    .unwrap_or_else(|failure| panic!("{mode}, transaction {round}: {failure}"));
            }
            assert_ne!(HANDLED.load(Ordering::Relaxed), before, "signals came");
        }
    }
}
