//! Who has a place: connections, by what they have shown so far.
//!
//! ```text
//! stranger  it has sent no whole request, or one without a token that it needs
//! public    it asked for health or the page, which are for everybody
//! operator  it has shown the token, or none is needed
//! ```
//! A connection begins as a stranger, and is promoted once its request is there. Invariants: there are
//! at most `max` connections; each kind has places of its own, so that no number of strangers takes
//! one from the others. The oldest stranger, or public connection, ends for the next one; operators
//! never do. What a displaced stranger has sent already is still answered. Absent: sockets' time-outs,
//! and what is answered.

use std::collections::BTreeMap;
use std::net::{Shutdown, TcpStream};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often a wait for a place looks whether the server ends.
const LOOK: Duration = Duration::from_millis(100);

/// What a connection has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// Nothing that counts.
    Stranger,
    /// It asks for what everybody may have.
    Public,
    /// It may have everything.
    Operator,
}

struct Place {
    caller: Caller,
    /// To shut it down with.
    stream: TcpStream,
}

/// All connections, by their number: the first is the oldest.
pub(crate) struct Places {
    max: usize,
    taken: Mutex<BTreeMap<u64, Place>>,
    changed: Condvar,
}

impl Places {
    pub fn new(max: usize) -> Self {
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

    /// Places of a kind: a quarter of all for strangers, as many for everybody, the rest for
    /// operators.
    fn max_of(&self, caller: Caller) -> usize {
        let quarter = (self.max / 4).max(1);
        match caller {
            Caller::Stranger | Caller::Public => quarter,
            Caller::Operator => self.max.saturating_sub(2 * quarter).max(1),
        }
    }

    pub fn len(&self) -> usize {
        self.taken().len()
    }

    /// Gives a connection a place among the strangers, the oldest one's if there is no other;
    /// `false` if the server ends before there is one.
    pub fn admit(&self, number: u64, stream: TcpStream, ends: impl Fn() -> bool) -> bool {
        let mut taken = self.taken();
        // A place is free once the thread of its connection has ended; meanwhile no other connection is
        // let in.
        while count(&taken, Caller::Stranger) >= self.max_of(Caller::Stranger) {
            // Only the way in is closed: a request that has come whole is answered.
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

    /// A connection has shown what it is; `false` if there is no place for it.
    pub fn promote(&self, number: u64, caller: Caller, ends: impl Fn() -> bool) -> bool {
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

    /// A connection has ended.
    pub fn remove(&self, number: u64) {
        self.taken().remove(&number);
        self.changed.notify_all();
    }

    /// Waits for all connections to end, and shuts down those that have not within a time.
    pub fn end_all(&self, within: Duration) {
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

/// Shuts the oldest connection of a kind down. Its thread wakes, and gives the place back.
fn displace(taken: &BTreeMap<u64, Place>, caller: Caller, how: Shutdown) {
    let mut of_kind = taken.values().filter(|place| place.caller == caller);
    if let Some(oldest) = of_kind.next() {
        let _ = oldest.stream.shutdown(how);
    }
}
