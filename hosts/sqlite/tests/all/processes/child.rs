//! A child of `fork`.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Time limit for a child, enforced by a signal.
const SECONDS_MAX: u32 = 300;

/// A child that has not been waited for yet.
pub struct ForkedChild(libc::pid_t);

impl ForkedChild {
    /// Forks this process. The child runs `work`, and ends without running any of the parent's
    /// code.
    pub fn start(work: impl FnOnce()) -> Self {
        // SAFETY: the child uses nothing that another thread may have locked: threads of the test's
        // runtime are waiting. It ends by `_exit`.
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

    /// Waits for its end, which must be successful.
    pub fn wait(self) {
        let mut status = 0;
        // SAFETY: a child of this process, and a place for the result.
        let waited = unsafe { libc::waitpid(self.0, &mut status, 0) };
        assert_eq!((waited, status), (self.0, 0), "a child failed");
    }
}
