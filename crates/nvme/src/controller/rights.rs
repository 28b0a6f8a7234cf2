//! What a host may do: the namespaces it sees, those it may change, and what each command needs.
//!
//! ```text
//! need                  a host that may not                                  is answered
//! read   a namespace    does not see it                                      Invalid Namespace or Format
//! write  a namespace    only reads it                                        Namespace is Write Protected
//! read or write all     has less, and asks for what namespaces share         Operation Denied
//! ```
//! A namespace that a host does not see is to it as one that is not there. Every I/O command is
//! checked twice, when it is parsed and when it is executed: rights may be taken away while its data
//! are on their way. Invariants: a controller on a network has no rights until it is given some; a
//! host with all rights pays one load a check; what a command needs is an exhaustive match.
//! Absent: who has which rights (`auth::keys`, `tcp::target::port`).

use super::association::Association;
use super::namespaces::Namespace;
use super::request::IoRequest;
use crate::spec::identify::NSATTR_WRITE_PROTECTED;
use crate::spec::log::lid;
use crate::spec::status::Status;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

/// What a host may do with a namespace; each includes those before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// It does not see it.
    None,
    /// To read, compare, verify and flush.
    ReadOnly,
    /// To send every command there is.
    ReadWrite,
}

impl Access {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "ro" => Some(Self::ReadOnly),
            "rw" => Some(Self::ReadWrite),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::ReadOnly => "ro",
            Self::ReadWrite => "rw",
        }
    }
}

/// What a host may do with all namespaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rights {
    /// What is allowed for namespaces that are named.
    listed: BTreeMap<u32, Access>,
    /// With all others, those that are made later too.
    others: Access,
}

const SYNTAX: &str = "namespaces: a list like 1:rw,2:ro, or all:ro and what differs";
/// The largest number of a namespace; beyond it are those that mean all.
const NSID_MAX: u32 = 0xffff_fffd;

impl Rights {
    /// The right to do everything everywhere.
    pub const ALL: Self = Self::same(Access::ReadWrite);
    /// The right to do nothing anywhere.
    pub const NONE: Self = Self::same(Access::None);

    const fn same(others: Access) -> Self {
        Self {
            listed: BTreeMap::new(),
            others,
        }
    }

    /// Rights from their text: `1:rw,2:ro`, `all:ro,3:rw`.
    ///
    /// # Errors
    /// What it should look like.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut rights = Self::NONE;
        let mut has_others = false;
        for part in text.split(',') {
            let (namespace, access) = part.split_once(':').ok_or(SYNTAX)?;
            let access = Access::parse(access).ok_or(SYNTAX)?;

            // Each part once: of two that contradict each other one would win unseen.
            let is_second = if namespace == "all" {
                rights.others = access;
                std::mem::replace(&mut has_others, true)
            } else {
                rights.listed.insert(nsid(namespace)?, access).is_some()
            };
            if is_second {
                return Err(format!("namespaces: `{namespace}` is there twice"));
            }
        }
        Ok(rights)
    }

    /// What may be done with a namespace.
    pub fn access(&self, nsid: u32) -> Access {
        self.listed.get(&nsid).copied().unwrap_or(self.others)
    }

    /// Whether nothing is withheld in any namespace.
    pub fn is_all(&self) -> bool {
        self.least() == Access::ReadWrite
    }

    /// The numbers of namespaces that are listed, whether they exist or not.
    pub fn listed(&self) -> impl Iterator<Item = u32> {
        self.listed.keys().copied()
    }

    /// What may be done with every namespace.
    fn least(&self) -> Access {
        let listed = self.listed.values().copied().min();
        listed.map_or(self.others, |listed| listed.min(self.others))
    }

    /// What both of them allow.
    pub fn and(&self, other: &Self) -> Self {
        self.with(other, Access::min)
    }

    /// What one of them or the other allows.
    pub fn or(&self, other: &Self) -> Self {
        self.with(other, Access::max)
    }

    fn with(&self, other: &Self, of: fn(Access, Access) -> Access) -> Self {
        // A namespace that one side lists may differ from the others there, so the result lists
        // both sides' numbers.
        let numbers = self.listed.keys().chain(other.listed.keys());
        Self {
            listed: numbers
                .map(|nsid| (*nsid, of(self.access(*nsid), other.access(*nsid))))
                .collect(),
            others: of(self.others, other.others),
        }
    }

    fn check(&self, nsid: u32, need: Need) -> Result<(), Status> {
        let own = self.access(nsid);
        match need {
            Need::Nothing => Ok(()),
            // First of all: a namespace that the host does not see is answered like one that is not
            // there, whatever was asked for.
            _ if own == Access::None => Err(Status::INVALID_NAMESPACE),
            Need::Write | Need::WriteAll if own < Access::ReadWrite => Err(Status::WRITE_PROTECTED),
            Need::Read | Need::Write => Ok(()),
            Need::ReadAll | Need::WriteAll => self.check_all(need),
        }
    }

    /// Of what no single namespace has.
    fn check_all(&self, need: Need) -> Result<(), Status> {
        let needed = match need {
            Need::Nothing => Access::None,
            Need::Read | Need::ReadAll => Access::ReadOnly,
            Need::Write | Need::WriteAll => Access::ReadWrite,
        };
        if self.least() >= needed {
            Ok(())
        } else {
            Err(Status::OPERATION_DENIED)
        }
    }
}

fn nsid(text: &str) -> Result<u32, String> {
    let number = text
        .parse()
        .ok()
        .filter(|number| (1..=NSID_MAX).contains(number));
    // Only the digits: no sign, which `parse` takes.
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    number.filter(|_| is_plain).ok_or_else(|| SYNTAX.into())
}

/// As `Rights::parse` reads it, and `none` for nothing at all.
impl fmt::Display for Rights {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A namespace with the rights of all others needs no mention.
        let differing = self
            .listed
            .iter()
            .filter(|(_, access)| **access != self.others);
        let mut parts: Vec<String> = differing
            .map(|(nsid, access)| format!("{nsid}:{}", access.name()))
            .collect();

        // The others come first, because the list says where they do not apply.
        if self.others != Access::None {
            parts.insert(0, format!("all:{}", self.others.name()));
        }
        if parts.is_empty() {
            parts.push("none".into());
        }
        to.write_str(&parts.join(","))
    }
}

/// The right that a command needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// No namespace's data or state.
    Nothing,
    /// To see what its namespace holds.
    Read,
    /// To change what its namespace holds.
    Write,
    /// To see what all namespaces share.
    ReadAll,
    /// To change its namespace, and what all share.
    WriteAll,
}

impl Need {
    /// Of an I/O command, but for the sources of a Copy (`Subsystem::copy_parts`).
    pub fn of(request: &IoRequest) -> Self {
        match request {
            // It may name no namespace, and changes none.
            IoRequest::Flush => Self::Nothing,
            IoRequest::Read { .. } | IoRequest::Compare { .. } | IoRequest::Verify { .. } => {
                Self::Read
            }
            // The other attributes are hints, and change nothing.
            IoRequest::DatasetManagement { deallocate, .. } if !deallocate => Self::Read,
            IoRequest::Write { .. }
            | IoRequest::WriteThrough { .. }
            | IoRequest::WriteZeroes { .. }
            | IoRequest::DatasetManagement { .. }
            | IoRequest::Copy { .. }
            | IoRequest::Remap { .. } => Self::Write,
            // There is one map of files for the whole device.
            IoRequest::FsMap { .. } => Self::ReadAll,
            IoRequest::FsWrite { .. } | IoRequest::FsReset => Self::WriteAll,
        }
    }

    /// Of a log page. Whatever is not known to be harmless is for hosts that see everything.
    pub fn of_log(lid: u8) -> Self {
        match lid {
            lid::SUPPORTED
            | lid::ERROR
            | lid::SMART
            | lid::FIRMWARE
            | lid::CHANGED_NAMESPACES
            | lid::EFFECTS
            | lid::FEATURES
            | lid::MANAGEMENT
            // What the host itself has registered.
            | lid::ANA
            | lid::RESERVATION
            | lid::REGISTRANTS
            | lid::DISCOVERY => Self::Nothing,
            // STATISTICS among them: whether a write was found to be a duplicate says what others
            // have written.
            _ => Self::ReadAll,
        }
    }
}

/// The rights of a host whose controller is there; they may change at any time.
#[derive(Debug)]
pub struct HostRights {
    /// Whether the host has not all rights.
    is_limited: AtomicBool,
    rights: RwLock<Rights>,
    denied: AtomicU64,
    /// The same count for all hosts together.
    denied_in_all: Option<Arc<AtomicU64>>,
    /// Its name, on which it depends what is attached to it; `None` for whoever is on this machine.
    host: Option<String>,
}

/// Those of whoever is on this machine.
pub static LOCAL: HostRights = HostRights::new(Rights::ALL, false);
/// Those of a queue that is not connected.
pub static NOBODY: HostRights = HostRights::new(Rights::NONE, true);

impl HostRights {
    const fn new(rights: Rights, is_limited: bool) -> Self {
        Self {
            is_limited: AtomicBool::new(is_limited),
            rights: RwLock::new(rights),
            denied: AtomicU64::new(0),
            denied_in_all: None,
            host: None,
        }
    }

    /// The rights of a host from which nothing is withheld.
    pub(super) fn all(host: &str) -> Self {
        Self {
            host: Some(host.to_owned()),
            ..Self::new(Rights::ALL, false)
        }
    }

    /// None yet. What is denied is counted there as well.
    pub(super) fn none(host: &str, denied_in_all: &Arc<AtomicU64>) -> Self {
        Self {
            host: Some(host.to_owned()),
            denied_in_all: Some(denied_in_all.clone()),
            ..Self::new(Rights::NONE, true)
        }
    }

    /// Name of the host; `None` for whoever is on this machine.
    #[inline]
    pub(super) fn host(&self) -> Option<&str> {
        self.host.as_deref()
    }

    fn locked(&self) -> RwLockReadGuard<'_, Rights> {
        self.rights.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The rights as they are now: they may change in service.
    pub fn get(&self) -> Rights {
        self.locked().clone()
    }

    /// How many commands were denied so far.
    pub fn denied(&self) -> u64 {
        self.denied.load(Ordering::Relaxed)
    }

    fn set(&self, rights: Rights) {
        let mut locked = self.rights.write().unwrap_or_else(PoisonError::into_inner);
        // Under the lock: whoever sees that the host is limited waits here for what it may.
        self.is_limited.store(!rights.is_all(), Ordering::Release);
        *locked = rights;
    }

    /// Whether an I/O command may be executed, as far as its own namespace goes.
    ///
    /// # Errors
    /// The status to answer.
    #[inline]
    pub(super) fn check_request(&self, nsid: u32, request: &IoRequest) -> Result<(), Status> {
        if self.is_limited.load(Ordering::Acquire) {
            self.check_limited(nsid, Need::of(request))
        } else {
            Ok(())
        }
    }

    /// Whether a namespace may be used for this.
    ///
    /// # Errors
    /// The status to answer.
    #[inline]
    pub(super) fn check(&self, nsid: u32, need: Need) -> Result<(), Status> {
        if self.is_limited.load(Ordering::Acquire) {
            self.check_limited(nsid, need)
        } else {
            Ok(())
        }
    }

    #[cold]
    fn check_limited(&self, nsid: u32, need: Need) -> Result<(), Status> {
        self.counted(self.locked().check(nsid, need))
    }

    /// Whether what all namespaces share may be seen or changed.
    ///
    /// # Errors
    /// The status to answer.
    pub(super) fn check_all(&self, need: Need) -> Result<(), Status> {
        self.counted(self.locked().check_all(need))
    }

    fn counted(&self, checked: Result<(), Status>) -> Result<(), Status> {
        // Counted where they are made, so that an operator sees a host that tries.
        if checked.is_err() {
            self.denied.fetch_add(1, Ordering::Relaxed);
            if let Some(all) = &self.denied_in_all {
                all.fetch_add(1, Ordering::Relaxed);
            }
        }
        checked
    }

    /// What may be done with a namespace.
    pub(super) fn access(&self, nsid: u32) -> Access {
        if self.is_limited.load(Ordering::Acquire) {
            self.locked().access(nsid)
        } else {
            Access::ReadWrite
        }
    }
}

impl Association {
    /// What its host may do.
    pub fn rights(&self) -> &HostRights {
        &self.rights
    }

    /// Gives its host other rights, from the next command on: those under way are checked again
    /// before they are executed. A host that wants to hear of changed namespaces does.
    pub fn grant(&self, rights: Rights) {
        // Only namespaces whose access differs have changed for this host.
        let before = self.rights.get();
        let all = self.subsystem.all_attached(&self.rights).into_iter();
        let changed = all
            .map(|namespace| namespace.nsid)
            .filter(|nsid| before.access(*nsid) != rights.access(*nsid))
            .collect();

        // 1. the rights  2. the event: a host that reads at once finds what is new.
        self.rights.set(rights);
        self.note_changed(changed);
    }

    /// A namespace that its host sees.
    #[inline]
    pub(super) fn namespace(&self, nsid: u32) -> Option<Namespace> {
        let found = self.subsystem.attached(nsid, &self.rights)?;
        (self.rights.check(nsid, Need::Read).is_ok()).then_some(found)
    }

    /// Whether its host sees a namespace. Nothing is counted: the host has not asked.
    pub(super) fn sees(&self, nsid: u32) -> bool {
        let is_attached = self.subsystem.attached(nsid, &self.rights).is_some();
        is_attached && self.rights.access(nsid) > Access::None
    }

    /// The namespaces that its host sees.
    pub(super) fn namespaces(&self) -> impl Iterator<Item = Namespace> {
        let all = self.subsystem.all_attached(&self.rights).into_iter();
        all.filter(|namespace| self.rights.access(namespace.nsid) > Access::None)
    }

    /// Attributes of a namespace, for Identify: whether it is write protected for its host.
    pub(super) fn attributes(&self, nsid: u32) -> u8 {
        // A host that may only read sees the namespace write protected, and can mount it so.
        match self.rights.access(nsid) {
            Access::ReadWrite => 0,
            Access::None | Access::ReadOnly => NSATTR_WRITE_PROTECTED,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rights(text: &str) -> Rights {
        Rights::parse(text).expect(text)
    }

    #[test]
    fn rights_read_as_they_are_written() {
        for text in [
            "1:rw,2:ro",
            "all:ro",
            "all:ro,3:rw",
            "all:rw",
            "4294967293:ro",
        ] {
            assert_eq!(rights(text).to_string(), text);
            assert_eq!(rights(&rights(text).to_string()), rights(text));
        }
        assert_eq!(Rights::NONE.to_string(), "none");
        assert!(Rights::ALL.is_all() && rights("all:rw").is_all());
        assert!(!rights("all:rw,2:ro").is_all() && !rights("1:rw").is_all());

        for wrong in [
            "",
            ",",
            "1",
            "1:",
            ":rw",
            "1:rx",
            "0:rw",
            "-1:rw",
            "+1:rw",
            " 1:rw",
            "1:rw,",
            "1:rw,1:ro",
            "all:ro,all:rw",
            "4294967294:rw",
            "4294967295:ro",
            "4294967297:ro",
            "1:RW",
            "1-2:ro",
            "none",
            "1:none",
        ] {
            Rights::parse(wrong).expect_err(wrong);
        }
    }

    #[test]
    fn of_two_lists_a_host_has_what_both_or_either_allow() {
        let (keys, list) = (rights("1:rw,2:ro"), rights("all:ro,3:rw"));
        assert_eq!(keys.and(&list).to_string(), "1:ro,2:ro");
        assert_eq!(keys.or(&list).to_string(), "all:ro,1:rw,3:rw");
        assert_eq!(keys.and(&Rights::ALL), keys);
        assert_eq!(keys.or(&Rights::NONE), keys);
    }

    #[test]
    fn each_need_is_answered_by_its_own_status() {
        let limited = rights("1:rw,2:ro");
        let check = |nsid, need| limited.check(nsid, need).err();
        for nsid in [0, 3, u32::MAX] {
            for need in [Need::Read, Need::Write, Need::ReadAll, Need::WriteAll] {
                assert_eq!(check(nsid, need), Some(Status::INVALID_NAMESPACE));
            }
        }
        assert_eq!((check(1, Need::Read), check(1, Need::Write)), (None, None));
        assert_eq!(check(2, Need::Read), None);
        assert_eq!(check(2, Need::Write), Some(Status::WRITE_PROTECTED));
        assert_eq!(check(2, Need::WriteAll), Some(Status::WRITE_PROTECTED));
        assert_eq!(check(1, Need::ReadAll), Some(Status::OPERATION_DENIED));
        assert_eq!(check(1, Need::WriteAll), Some(Status::OPERATION_DENIED));

        let reader = rights("all:ro,1:rw");
        assert_eq!(reader.check(1, Need::ReadAll), Ok(()));
        assert_eq!(
            reader.check(1, Need::WriteAll),
            Err(Status::OPERATION_DENIED)
        );
    }
}
