//! A child of `fork`.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// A child that hangs ends after this long, by a signal.
const SECONDS_MAX: u32 = 300;

/// A child that was not waited for yet.
pub struct ForkedChild(libc::pid_t);

impl ForkedChild {
    /// Copies this process. The child works, and ends without running anything else of the parent's.
    pub fn start(work: impl FnOnce()) -> Self {
        // SAFETY: the child uses nothing that another thread may have locked: threads of the test's
        // runtime wait meanwhile. It ends by `_exit`.
        unsafe {
            match libc::fork() {
                -1 => panic!("{}", std::io::Error::last_os_error()),
                0 => {
                    libc::alarm(SECONDS_MAX);
                    let done = catch_unwind(AssertUnwindSafe(work));
                    libc::_exit(done.is_err().into())
                }
                child => Self(child),
            }
        }
    }

    /// Waits for its end, which must be a good one.
    pub fn wait(self) {
        let mut status = 0;
        // SAFETY: a child of ours, and a place for the answer.
        let waited = unsafe { libc::waitpid(self.0, &mut status, 0) };
        assert_eq!((waited, status), (self.0, 0), "a child failed");
    }
}
