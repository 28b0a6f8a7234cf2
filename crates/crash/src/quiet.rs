//! Panics of the firmware as values.
//!
//! A failed assertion in the firmware is a finding like any other: it is caught, with its location,
//! and the campaign continues. The panic hook remains active for other threads. Absent: aborts and
//! endless loops, which cannot be caught here.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
    static MESSAGE: RefCell<String> = const { RefCell::new(String::new()) };
}

static HOOK: Once = Once::new();

/// Runs `work`; a panic becomes its message and location, and prints nothing.
///
/// # Errors
/// The message of the panic.
pub(crate) fn catch<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                // A panic of another thread, or outside a script, is not a finding.
                return before(info);
            }

            let payload = info.payload();
            let text = payload
                .downcast_ref::<&str>()
                .map(|text| (*text).to_owned())
                .or_else(|| payload.downcast_ref::<String>().cloned())
                .unwrap_or_else(|| "without a message".to_owned());
            let place = info
                .location()
                .map(|at| format!(" ({}:{})", at.file(), at.line()))
                .unwrap_or_default();
            MESSAGE.set(format!("{text}{place}"));
        }));
    });

    // Nested calls restore the previous value.
    let outer = QUIET.replace(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    QUIET.set(outer);
    result.map_err(|_| MESSAGE.take())
}
