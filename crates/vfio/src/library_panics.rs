//! The vfio-user library panics on malformed messages. We catch the panic and log it; without this
//! module its own message would also go to standard error, as often as a peer likes.
//!
//! Invariant: only panics of the library are silenced. Our own code that the library calls runs
//! under `ours`, and its panics are printed as usual. Absent: catching them.

use std::cell::Cell;
use std::panic::{set_hook, take_hook};
use std::sync::Once;

thread_local! {
    /// True while this thread is in library code, not in ours.
    static IN_LIBRARY: Cell<bool> = const { Cell::new(false) };
}

/// Runs library code; its panics are not printed.
pub(crate) fn library<R>(work: impl FnOnce() -> R) -> R {
    static HOOK: Once = Once::new();

    // Only once: the hook is per process, the flag per thread.
    HOOK.call_once(|| {
        let usual = take_hook();
        set_hook(Box::new(move |about| {
            if !IN_LIBRARY.get() {
                usual(about);
            }
        }));
    });
    IN_LIBRARY.set(true);

    // A panic leaves the flag set, for `was_library`.
    let result = work();
    IN_LIBRARY.set(false);
    result
}

/// Runs our own code, called by the library.
pub(crate) fn ours<R>(work: impl FnOnce() -> R) -> R {
    IN_LIBRARY.set(false);
    let result = work();
    IN_LIBRARY.set(true);
    result
}

/// After catching a panic: returns true if it came from the library.
pub(crate) fn was_library() -> bool {
    IN_LIBRARY.replace(false)
}
