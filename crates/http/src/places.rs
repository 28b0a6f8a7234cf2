//! Limits of connections, by the kind of caller shown so far.
//!
//! ```text
//! stranger  no complete request yet, or one without a required token
//! public    a request for health or the page, which are open to all
//! operator  a request with the token, or none is required
//! ```
//! A connection begins as a stranger, and is promoted once its request has arrived. Invariants:
//! there are at most `max` connections; each kind has its own places, so that strangers in any
//! number take none from the others. The oldest stranger, or public connection, ends for the next
//! one; operators are never displaced. A complete request of a displaced stranger is still
//! answered. Absent: sockets' time-outs, and the answers.

use std::collections::BTreeMap;
use std::net::{Shutdown, TcpStream};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Interval at which a wait for a place checks whether the server ends.
const LOOK: Duration = Duration::from_millis(100);

/// Kind of a connection's caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// No valid request yet.
    Stranger,
    /// Requests something open to all.
    Public,
    /// May request everything.
    Operator,
}

struct Place {
    caller: Caller,
    /// Handle to shut it down.
    stream: TcpStream,
}

/// All connections, by number: the first is the oldest.
pub(crate) struct Places {
    max: usize,
    taken: Mutex<BTreeMap<u64, Place>>,
    changed: Condvar,
}

impl Places {
    pub(crate) fn new(max: usize) -> Self {
        let (taken, changed) = (Mutex::default(), Condvar::new());
        Self {
            max,
            taken,
            changed,
        }
    }

    fn taken(&self) -> MutexGuard<'_, BTreeMap<u64, Place>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Maximum of a kind: a quarter of all for strangers, as many for public ones, the rest for
    /// operators.
    fn max_of(&self, caller: Caller) -> usize {
        let quarter = (self.max / 4).max(1);
        match caller {
            Caller::Stranger | Caller::Public => quarter,
            Caller::Operator => self.max.saturating_sub(2 * quarter).max(1),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.taken().len()
    }

    /// Gives a connection a place among the strangers, displacing the oldest if necessary; `false`
    /// if the server ends before there is one.
    pub(crate) fn admit(&self, number: u64, stream: TcpStream, ends: impl Fn() -> bool) -> bool {
        let mut taken = self.taken();
        // A place becomes free when the thread of its connection ends; until then no other
        // connection is admitted.
        while count(&taken, Caller::Stranger) >= self.max_of(Caller::Stranger) {
            // Only the receiving side is closed: a request received completely is answered.
            displace(&taken, Caller::Stranger, Shutdown::Read);
            taken = self.wait(taken);
            if ends() {
                return false;
            }
        }
        let caller = Caller::Stranger;
        taken.insert(number, Place { caller, stream });
        true
    }

    /// Sets the kind of a connection; `false` if there is no place for it.
    pub(crate) fn promote(&self, number: u64, caller: Caller, ends: impl Fn() -> bool) -> bool {
        let mut taken = self.taken();
        while caller != Caller::Stranger && count(&taken, caller) >= self.max_of(caller) {
            if caller == Caller::Operator {
                return false;
            }
            displace(&taken, caller, Shutdown::Both);
            taken = self.wait(taken);
            if ends() {
                return false;
            }
        }
        if let Some(place) = taken.get_mut(&number) {
            place.caller = caller;
        }
        self.changed.notify_all();
        true
    }

    /// Removes a connection that has ended.
    pub(crate) fn remove(&self, number: u64) {
        self.taken().remove(&number);
        self.changed.notify_all();
    }

    /// Waits for all connections to end, and shuts down the remaining ones after a time limit.
    pub(crate) fn end_all(&self, within: Duration) {
        let (taken, _) = self
            .changed
            .wait_timeout_while(self.taken(), within, |taken| !taken.is_empty())
            .unwrap_or_else(PoisonError::into_inner);
        for place in taken.values() {
            let _ = place.stream.shutdown(Shutdown::Both);
        }
    }

    fn wait<'a>(
        &self,
        taken: MutexGuard<'a, BTreeMap<u64, Place>>,
    ) -> MutexGuard<'a, BTreeMap<u64, Place>> {
        let waited = self.changed.wait_timeout(taken, LOOK);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

fn count(taken: &BTreeMap<u64, Place>, caller: Caller) -> usize {
    let of_kind = taken.values().filter(|place| place.caller == caller);
    of_kind.count()
}

/// Shuts down the oldest connection of a kind. Its thread wakes, and returns the place.
fn displace(taken: &BTreeMap<u64, Place>, caller: Caller, how: Shutdown) {
    let mut of_kind = taken.values().filter(|place| place.caller == caller);
    if let Some(oldest) = of_kind.next() {
        let _ = oldest.stream.shutdown(how);
    }
}
