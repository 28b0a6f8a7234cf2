//! Exclusive use of a namespace by one holder, by a reservation of type Exclusive Access (Base 2.0
//! §8.19).
//!
//! A *holder* is an identifier of 16 bytes, which is the host identifier of all its connections;
//! its key is derived from it. Steps of `hold`:
//!
//! 1. read the current holder from log page C1h; a connected holder is left alone
//! 2. register
//! 3. acquire, or preempt a holder that has ended
//! 4. persist through power loss
//! 5. set feature C0h: from now on our commands end with the reservation
//!
//! Steps 1 and 3 are two commands, and a holder that was gone may reconnect between them: since it
//! sets the feature of step 5 when it reconnects, it gets Reservation Conflict for every command
//! after 3, even if we have released the namespace by then. So preemption is correct without any
//! timing assumption. If two preempt one holder, the second one names a key that no registrant has
//! any more, gets Reservation Conflict, and starts again at 1, where the first one is connected.
//! Killed after 2: a registrant without reservation excludes no host, and the next holder removes
//! it. Killed after 3: a holder that is not connected. The server is killed after 3, before 4: the
//! reservation is gone, and step 5 of every connection fails.
//!
//! Invariants: a holder registers once, in `hold`; a reconnection only checks. Keys of other
//! software are never preempted. Absent: the choice of holders (by host software).

use super::{Call, Client, ClientError, Options, Queue, broken, entry};
use crate::spec::command::Sqe;
use crate::spec::log::lid;
use crate::spec::opcode::{admin as opcode, io};
use crate::spec::reservation::{
    Keys, RegisterCdw10, RegistrantEntry, RegistrantsHead, ReservationCdw10, acquire, cptpl,
    register,
};
use crate::spec::status::Status;
use remap_ssd_device::{HoldError, HolderId};
use zerocopy::{FromBytes, IntoBytes};

/// Prefix of our keys: reservations of other software must not be preempted.
const KEY_MAGIC: [u8; 2] = *b"RM";
/// Exclusive Access: no other host reads or writes, registered or not.
const EXCLUSIVE_ACCESS: u8 = 2;
/// Size of the page of registrants: room for the maximum of a server.
const PAGE_BYTES: usize = 32 + 32 * 256;
/// Maximum attempts when other hosts are faster.
const ATTEMPTS: usize = 8;
/// The vendor feature that ends commands with the reservation.
const HOLDS_OR_STOPS: u32 = 0xc0;

/// State of a client's exclusive hold on its namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exclusive {
    /// It has not asked to hold the namespace.
    No,
    Held,
    /// It held the namespace, and never will again.
    Lost,
}

impl Exclusive {
    /// Notes the loss of the hold if an error shows it.
    pub(super) fn note(&mut self, error: ClientError) -> ClientError {
        let is_conflict = matches!(
            error,
            ClientError::Status { status, .. } if status.number() == Status::RESERVATION_CONFLICT.number()
        );
        if *self == Self::No || !is_conflict {
            return error;
        }
        *self = Self::Lost;
        ClientError::HoldLost
    }
}

/// Content of the page of registrants.
struct Registrants {
    rtype: u8,
    persists: bool,
    all: Vec<RegistrantEntry>,
}

impl Registrants {
    fn parse(page: &[u8]) -> Result<Self, ClientError> {
        let wrong = || broken("a page of registrants");
        let (head, rest) = RegistrantsHead::read_from_prefix(page).map_err(|_| wrong())?;
        if head.magic != RegistrantsHead::MAGIC {
            return Err(wrong());
        }
        let entries = rest.as_chunks::<{ size_of::<RegistrantEntry>() }>().0;
        let entries = entries.get(..head.count as usize).ok_or_else(wrong)?;
        let entry = |bytes: &[u8; 32]| RegistrantEntry::read_from_bytes(bytes).map_err(|_| wrong());
        Ok(Self {
            rtype: head.rtype,
            persists: head.ptpls & 1 == 1,
            all: entries.iter().map(entry).collect::<Result<_, _>>()?,
        })
    }

    fn holder(&self) -> Option<&RegistrantEntry> {
        self.all.iter().find(|one| one.rcsts & 1 == 1)
    }
}

fn key_of(holder: HolderId) -> u64 {
    let mut key = [0; 8];
    key[..2].copy_from_slice(&KEY_MAGIC);
    key[2..].copy_from_slice(&holder[..6]);
    u64::from_le_bytes(key)
}

fn is_our_key(key: u64) -> bool {
    key.to_le_bytes()[..2] == KEY_MAGIC
}

/// Makes commands end with the reservation; fails if it is not held now.
pub(super) fn must_hold(admin: &mut Queue, nsid: u32) -> Result<(), ClientError> {
    let sqe = Sqe {
        cdw10: HOLDS_OR_STOPS,
        cdw11: 1,
        ..entry(opcode::SET_FEATURES, nsid)
    };
    let call = Call::new(sqe);
    admin.call("hold", &call).map(drop)
}

impl Client {
    /// Reconnects as this holder, unless connected as such.
    fn become_holder(&mut self, holder: HolderId) {
        self.exclusive = Exclusive::No;
        // Its identifier would not be new any more.
        self.options.holder = None;
        if self.options.hostid != holder {
            self.options.be_holder(holder);
            self.queues = None;
        }
    }

    fn registrants(&mut self) -> Result<Registrants, HoldError<ClientError>> {
        let dwords_z = (PAGE_BYTES / 4 - 1) as u32;
        let sqe = Sqe {
            cdw10: u32::from(lid::REGISTRANTS) | dwords_z << 16,
            cdw11: dwords_z >> 16,
            ..entry(opcode::GET_LOG_PAGE, self.options.nsid)
        };
        let call = Call::receiving(sqe, PAGE_BYTES);

        let answer = self.with(true, |admin, _| admin.call("registrants", &call));
        match answer {
            Ok(answer) => Registrants::parse(&answer.data).map_err(HoldError::Disk),
            Err(ClientError::Status { status, .. })
                if status.number() == Status::INVALID_LOG_PAGE.number() =>
            {
                Err(HoldError::Unsupported(
                    "the server is older than this program: it cannot keep the device for one \
                     group of processes; run a newer `remap-ssd serve`"
                        .into(),
                ))
            }
            Err(error) => Err(HoldError::Disk(error)),
        }
    }

    /// Sends a reservation command with its keys; returns its status.
    fn reservation(&mut self, opcode: u8, cdw10: u32, keys: Keys) -> Result<Status, ClientError> {
        let sqe = Sqe {
            cdw10,
            ..entry(opcode, self.options.nsid)
        };
        let call = Call::sending(sqe, keys.as_bytes());
        let answers = self.with(true, |_, io| io.calls(std::slice::from_ref(&call)))?;
        answers
            .first()
            .map(|answer| answer.status)
            .ok_or(broken("no answer"))
    }

    fn register(&mut self, cptpl: u8, key: u64) -> Result<Status, ClientError> {
        let cdw10 = RegisterCdw10::new()
            .with_action(register::REGISTER)
            .with_cptpl(cptpl);
        let keys = Keys {
            current: 0,
            other: key,
        };
        self.reservation(io::RESERVATION_REGISTER, cdw10.into_bits(), keys)
    }

    fn acquire(&mut self, key: u64, preempted: Option<u64>) -> Result<Status, ClientError> {
        let action = preempted.map_or(acquire::ACQUIRE, |_| acquire::PREEMPT);
        let cdw10 = ReservationCdw10::new()
            .with_action(action)
            .with_rtype(EXCLUSIVE_ACCESS);
        let keys = Keys {
            current: key,
            other: preempted.unwrap_or(0),
        };
        self.reservation(io::RESERVATION_ACQUIRE, cdw10.into_bits(), keys)
    }

    fn unregister(&mut self, cptpl: u8, key: u64) -> Result<Status, ClientError> {
        let cdw10 = RegisterCdw10::new()
            .with_action(register::UNREGISTER)
            .with_cptpl(cptpl);
        let keys = Keys {
            current: key,
            other: 0,
        };
        self.reservation(io::RESERVATION_REGISTER, cdw10.into_bits(), keys)
    }

    /// Steps 1 to 5 of the module comment.
    pub(super) fn hold_namespace(
        &mut self,
        holder: HolderId,
        ended: &[HolderId],
    ) -> Result<Option<HolderId>, HoldError<ClientError>> {
        self.become_holder(holder);
        let key = key_of(holder);
        let mut registered = false;

        for _ in 0..ATTEMPTS {
            let state = self.registrants()?;
            let before = state.holder().filter(|one| one.hostid != holder).copied();
            if let Some(before) = before
                && let Err(held) = may_preempt(&before, &state, ended)
            {
                if registered {
                    self.unregister(cptpl::KEEP, key).map_err(HoldError::Disk)?;
                }
                return Err(HoldError::Held(held));
            }

            if !registered {
                let status = self.register(cptpl::KEEP, key).map_err(HoldError::Disk)?;
                refused("register", status)?;
                registered = true;
            }

            // Reservation Conflict: another process was faster. Step 1 finds it.
            let preempted = before.map(|before| before.rkey);
            let status = self.acquire(key, preempted).map_err(HoldError::Disk)?;
            if status.number() == Status::RESERVATION_CONFLICT.number() {
                continue;
            }

            refused("reserve", status)?;
            self.settle(key, holder, &state)?;
            let before = before.map(|before| before.hostid);
            return Ok(before.filter(|before| ended.contains(before)));
        }

        self.unregister(cptpl::KEEP, key).map_err(HoldError::Disk)?;
        Err(HoldError::Held(
            "other processes open and close the device at the same time: try again".into(),
        ))
    }

    /// After acquiring: makes the reservation persist, makes our commands end with it, and removes
    /// registrants that ended before they acquired it.
    fn settle(
        &mut self,
        key: u64,
        holder: HolderId,
        before: &Registrants,
    ) -> Result<(), HoldError<ClientError>> {
        // If this fails, the reservation ends with the server, and so does our hold: no data are in
        // danger.
        if !before.persists {
            self.register(cptpl::SET, key).map_err(HoldError::Disk)?;
        }

        let left_over = before.all.iter().filter(|one| {
            one.hostid != holder && one.controllers == 0 && is_our_key(one.rkey) && one.rcsts == 0
        });
        for one in left_over {
            self.acquire(key, Some(one.rkey)).map_err(HoldError::Disk)?;
        }

        self.join_namespace()
    }

    fn join_namespace(&mut self) -> Result<(), HoldError<ClientError>> {
        let nsid = self.options.nsid;
        match self.with(true, |admin, _| must_hold(admin, nsid)) {
            Ok(()) => {
                self.exclusive = Exclusive::Held;
                Ok(())
            }
            Err(ClientError::Status { status, .. })
                if status.number() == Status::RESERVATION_CONFLICT.number() =>
            {
                Err(HoldError::Held(ClientError::HoldLost.to_string()))
            }
            Err(error) => Err(HoldError::Disk(error)),
        }
    }

    pub(super) fn join_holder(&mut self, holder: HolderId) -> Result<(), HoldError<ClientError>> {
        self.become_holder(holder);
        self.join_namespace()
    }

    /// Releases the reservation and removes the registration.
    pub(super) fn let_go_namespace(&mut self) -> Result<(), ClientError> {
        if self.exclusive != Exclusive::Held {
            return Ok(());
        }

        let key = key_of(self.options.hostid);
        // We switched persistence on. Other registrants may rely on it.
        let alone = match self.registrants() {
            Ok(state) => state.all.iter().all(|one| one.rkey == key),
            Err(HoldError::Disk(error)) => return Err(error),
            Err(_) => false,
        };

        let cptpl = if alone { cptpl::CLEAR } else { cptpl::KEEP };
        let status = self.unregister(cptpl, key)?;

        // From here on it is an ordinary host, on a connection that the device knows as such.
        self.exclusive = Exclusive::No;
        self.queues = None;
        let as_before = Options::default();
        self.options.hostid = as_before.hostid;
        self.options.keep_alive_ms = as_before.keep_alive_ms;

        // A registration removed by another host is already gone.
        if status.is_success() || status.number() == Status::RESERVATION_CONFLICT.number() {
            return Ok(());
        }
        Err(ClientError::Status {
            what: "release",
            status,
        })
    }

    /// If the connection broke unnoticed, reconnects, which checks the hold.
    pub(super) fn hold_again(&mut self) -> Result<(), ClientError> {
        match self.exclusive {
            Exclusive::No => return Ok(()),
            Exclusive::Lost => return Err(ClientError::HoldLost),
            Exclusive::Held => {}
        }
        let is_there = self.queues.as_mut().is_some_and(|(_, io)| {
            // The server ends all queues of an association together.
            !io.has_ended()
        });
        if !is_there {
            self.queues = None;
            return self.keep_alive();
        }
        Ok(())
    }

    /// Releases the namespace on drop, for programs that hold it by one client.
    #[must_use]
    pub fn letting_go_at_end(mut self) -> Self {
        self.lets_go = true;
        self
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // No reconnection for this: the next holder sees that we are gone.
        if self.lets_go && self.queues.is_some() {
            let _ = self.let_go_namespace();
        }
    }
}

/// A holder's identifier in hexadecimal.
fn hex(id: &HolderId) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Checks that the holder may be preempted; the error says why not.
fn may_preempt(
    before: &RegistrantEntry,
    state: &Registrants,
    ended: &[HolderId],
) -> Result<(), String> {
    if !is_our_key(before.rkey) {
        return Err(format!(
            "another program has reserved the namespace (type {}, host identifier {}): it must \
             release it, or an operator does by `remap-ssd ctl release`",
            state.rtype,
            hex(&before.hostid)
        ));
    }

    if before.controllers == 0 || ended.contains(&before.hostid) {
        return Ok(());
    }

    Err(format!(
        "it is in use by other processes, of another machine, container or user, or with another \
         /tmp (holder {}, {} connected)",
        hex(&before.hostid),
        if before.controllers == 1 {
            "1 process".into()
        } else {
            format!("{} processes", { before.controllers })
        }
    ))
}

/// Converts a refusal of the device to an error.
fn refused(what: &'static str, status: Status) -> Result<(), HoldError<ClientError>> {
    if status.is_success() {
        return Ok(());
    }

    let unsupported = [
        Status::INVALID_OPCODE,
        Status::OPERATION_DENIED,
        Status::WRITE_PROTECTED,
    ];
    let error = ClientError::Status { what, status };

    if unsupported
        .iter()
        .any(|one| one.number() == status.number())
    {
        return Err(HoldError::Unsupported(format!(
            "the server does not let this host keep the namespace for itself ({error}): it needs \
             the right to write, and a server that has reservations"
        )));
    }
    Err(HoldError::Disk(error))
}
