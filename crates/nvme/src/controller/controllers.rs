//! The controllers of a subsystem, by their IDs.

use super::host::HostController;
use super::turn::SharedDevice;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

/// Controller IDs: 0 is not used, and those from 0xfff0 on are reserved.
const CNTLID_FIRST: u16 = 1;
const CNTLID_END: u16 = 0xfff0;

struct Cntlids {
    next: u16,
    /// IDs in use, with their controllers once those exist.
    taken: BTreeMap<u16, Weak<HostController>>,
}

/// Controller IDs in use, and their controllers.
pub(super) struct Controllers(Mutex<Cntlids>);

impl Default for Controllers {
    fn default() -> Self {
        Self(Mutex::new(Cntlids {
            next: CNTLID_FIRST,
            taken: BTreeMap::new(),
        }))
    }
}

/// Waits for the end of every step that began before these controllers ended, or before their hosts
/// got other rights. The caller must not have the device.
pub(super) fn settle_all<'a>(
    device: &SharedDevice,
    ended: impl Iterator<Item = &'a HostController>,
) {
    let mut ended = ended.peekable();
    if ended.peek().is_some() {
        device.turnstile.pass();
    }
    ended.for_each(|one| one.commands.settle());
}

impl Controllers {
    fn cntlids(&self) -> MutexGuard<'_, Cntlids> {
        self.0.lock().expect("nothing under this lock can fail")
    }

    /// Allocates a controller ID; `None` if all are in use. `release_id` frees it.
    pub(super) fn take_id(&self) -> Option<u16> {
        let mut cntlids = self.cntlids();
        let Cntlids { next, taken } = &mut *cntlids;
        // Round robin, so that an ID is not reused soon after its controller is gone.
        let free = (*next..CNTLID_END)
            .chain(CNTLID_FIRST..*next)
            .find(|cntlid| !taken.contains_key(cntlid))?;
        *next = if free + 1 == CNTLID_END {
            CNTLID_FIRST
        } else {
            free + 1
        };
        taken.insert(free, Weak::new());
        Some(free)
    }

    pub(super) fn release_id(&self, cntlid: u16) {
        self.cntlids().taken.remove(&cntlid);
    }

    /// Notes a new controller, under the ID that it has taken.
    pub(super) fn note(&self, controller: &Arc<HostController>) {
        let mut cntlids = self.cntlids();
        cntlids
            .taken
            .insert(controller.cntlid(), Arc::downgrade(controller));
    }

    /// The controllers of hosts, in the order of their IDs; not discovery controllers.
    pub(super) fn all(&self) -> Vec<Arc<HostController>> {
        let cntlids = self.cntlids();
        let there = cntlids.taken.values().filter_map(Weak::upgrade);
        there.filter(|one| !one.is_discovery()).collect()
    }
}
