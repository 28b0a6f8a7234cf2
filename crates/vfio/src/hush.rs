//! The vfio-user library panics where a message makes no sense. That is caught, and said in our log; its own words for it
//! would go to standard error each time, as often as a peer likes.
//!
//! Invariant: only panics of the library are kept quiet. Our own code, which the library calls, is under `ours`: what it
//! panics with is said as everywhere. Absent: catching them.

use std::cell::Cell;
use std::panic::{set_hook, take_hook};
use std::sync::Once;

thread_local! {
    /// Is the library at work on this thread, and not we?
    static IN_LIBRARY: Cell<bool> = const { Cell::new(false) };
}

/// Does something in the library; nothing is written if it panics.
pub fn library<R>(work: impl FnOnce() -> R) -> R {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = take_hook();
        set_hook(Box::new(move |about| {
            if !IN_LIBRARY.get() {
                usual(about);
            }
        }));
    });
    IN_LIBRARY.set(true);
    let result = work();
    IN_LIBRARY.set(false);
    result
}

/// Does something of ours that the library has called.
pub fn ours<R>(work: impl FnOnce() -> R) -> R {
    IN_LIBRARY.set(false);
    let result = work();
    IN_LIBRARY.set(true);
    result
}

/// After a panic was caught: was it the library's?
pub fn was_library() -> bool {
    IN_LIBRARY.replace(false)
}
