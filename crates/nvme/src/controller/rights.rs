//! Rights of hosts: the namespaces that each sees and may change, and the rights that commands
//! need.
//!
//! ```text
//! need                  a host without the right                             gets
//! read   a namespace    does not see it                                      Invalid Namespace or Format
//! write  a namespace    may only read it                                     Namespace is Write Protected
//! read or write all     has less, for a command on state shared by all       Operation Denied
//! ```
//! To a host, a namespace that it does not see does not exist. Every I/O command is checked twice,
//! when it is parsed and when it is executed: rights may be revoked while its data are in transit.
//! Invariants: a network controller has no rights until they are granted; a host with all rights
//! pays one load per check; the mapping of commands to rights is an exhaustive match. Absent: which
//! host has which rights (`auth::keys`, `tcp::target::port`).

use super::request::IoRequest;
use crate::spec::log::lid;
use crate::spec::status::Status;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

/// Access to a namespace; each level includes those before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// The host does not see it.
    None,
    /// Read, compare, verify and flush.
    ReadOnly,
    /// All commands.
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

/// A host's access to all namespaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rights {
    /// Access to namespaces listed by number.
    listed: BTreeMap<u32, Access>,
    /// Access to all others, including those created later.
    others: Access,
}

const SYNTAX: &str = "namespaces: a list like 1:rw,2:ro, or all:ro and what differs";
/// Largest namespace number; the values above stand for all namespaces.
const NSID_MAX: u32 = 0xffff_fffd;

impl Rights {
    /// Full access to every namespace.
    pub const ALL: Self = Self::same(Access::ReadWrite);
    /// No access to any namespace.
    pub const NONE: Self = Self::same(Access::None);

    const fn same(others: Access) -> Self {
        Self {
            listed: BTreeMap::new(),
            others,
        }
    }

    /// Parses rights such as `1:rw,2:ro` or `all:ro,3:rw`.
    ///
    /// # Errors
    /// A description of the syntax.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut rights = Self::NONE;
        let mut has_others = false;
        for part in text.split(',') {
            let (namespace, access) = part.split_once(':').ok_or(SYNTAX)?;
            let access = Access::parse(access).ok_or(SYNTAX)?;

            // Each part once: of two that contradict each other, one would win silently.
            let is_second = if namespace == "all" {
                rights.others = access;
                std::mem::replace(&mut has_others, true)
            } else {
                rights
                    .listed
                    .insert(nsid(namespace).ok_or(SYNTAX)?, access)
                    .is_some()
            };
            if is_second {
                return Err(format!("namespaces: `{namespace}` is there twice"));
            }
        }
        Ok(rights)
    }

    /// Access to a namespace: its own entry, or that of all others.
    pub fn access(&self, nsid: u32) -> Access {
        self.listed.get(&nsid).copied().unwrap_or(self.others)
    }

    /// Returns true if every namespace is fully accessible.
    pub fn is_all(&self) -> bool {
        self.least() == Access::ReadWrite
    }

    /// Numbers of the namespaces listed, whether they exist or not.
    pub fn listed(&self) -> impl Iterator<Item = u32> {
        self.listed.keys().copied()
    }

    /// The access that holds for every namespace.
    fn least(&self) -> Access {
        let listed = self.listed.values().copied().min();
        listed.map_or(self.others, |listed| listed.min(self.others))
    }

    /// The rights that both allow.
    pub fn and(&self, other: &Self) -> Self {
        self.with(other, Access::min)
    }

    /// The rights that either allows.
    pub fn or(&self, other: &Self) -> Self {
        self.with(other, Access::max)
    }

    fn with(&self, other: &Self, of: fn(Access, Access) -> Access) -> Self {
        // A namespace listed by one side may differ from the other side's default, so the result
        // lists the numbers of both.
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
            // First of all: for any command, an invisible namespace is answered like one that does
            // not exist.
            _ if own == Access::None => Err(Status::INVALID_NAMESPACE),
            Need::Write | Need::WriteAll if own < Access::ReadWrite => Err(Status::WRITE_PROTECTED),
            Need::Read | Need::Write => Ok(()),
            Need::ReadAll | Need::WriteAll => self.check_all(need),
        }
    }

    /// Checks a command on state that belongs to no single namespace.
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

fn nsid(text: &str) -> Option<u32> {
    let number = text
        .parse()
        .ok()
        .filter(|number| (1..=NSID_MAX).contains(number));
    // Digits only: `parse` also accepts a sign.
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    number.filter(|_| is_plain)
}

/// The syntax that `Rights::parse` reads, or `none` for no rights.
impl fmt::Display for Rights {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A namespace with the default access is not listed.
        let differing = self
            .listed
            .iter()
            .filter(|(_, access)| **access != self.others);
        let mut parts: Vec<String> = differing
            .map(|(nsid, access)| format!("{nsid}:{}", access.name()))
            .collect();

        // The default comes first; the list says where it does not apply.
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
    /// Neither data nor state of a namespace.
    Nothing,
    /// Read access to its namespace.
    Read,
    /// Write access to its namespace.
    Write,
    /// Read access to state that all namespaces share.
    ReadAll,
    /// Write access to its namespace, and to state that all share.
    WriteAll,
}

impl Need {
    /// The need of an I/O command, except for the sources of a Copy (`copy`).
    pub(super) fn of(request: &IoRequest) -> Self {
        match request {
            // It may name no namespace, and changes no data.
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
            // The whole device has one map of files.
            IoRequest::FsMap { .. } => Self::ReadAll,
            IoRequest::FsWrite { .. } | IoRequest::FsReset => Self::WriteAll,
        }
    }

    /// The need of a log page. Pages not known to be harmless need read access to all namespaces.
    pub(super) fn of_log(lid: u8) -> Self {
        match lid {
            lid::SUPPORTED
            | lid::ERROR
            | lid::SMART
            | lid::FIRMWARE
            | lid::CHANGED_NAMESPACES
            | lid::EFFECTS
            | lid::FEATURES
            | lid::MANAGEMENT
            | lid::ANA
            | lid::RESERVATION
            // Of a namespace that the host sees: `registrants_page` checks it.
            | lid::REGISTRANTS
            | lid::DISCOVERY => Self::Nothing,
            // STATISTICS among them: whether a write was found to be a duplicate reveals data of
            // other hosts.
            _ => Self::ReadAll,
        }
    }
}

/// The rights of a connected host; they may change at any time.
#[derive(Debug)]
pub struct HostRights {
    /// True if the host does not have all rights.
    is_limited: AtomicBool,
    rights: RwLock<Rights>,
    denied: AtomicU64,
    /// The count of all hosts together.
    denied_in_all: Option<Arc<AtomicU64>>,
    /// Its name, which decides the namespaces attached to it; `None` for local use.
    host: Option<String>,
}

/// The rights of local users, on this machine.
pub(crate) static LOCAL: HostRights = HostRights::new(Rights::ALL, false);

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

    /// The rights of a host with full access.
    pub(super) fn all(host: &str) -> Self {
        Self {
            host: Some(host.to_owned()),
            ..Self::new(Rights::ALL, false)
        }
    }

    /// No rights yet. Denied commands are also counted in `denied_in_all`.
    pub(super) fn none(host: &str, denied_in_all: &Arc<AtomicU64>) -> Self {
        Self {
            host: Some(host.to_owned()),
            denied_in_all: Some(denied_in_all.clone()),
            ..Self::new(Rights::NONE, true)
        }
    }

    /// Name of the host; `None` for local use.
    #[inline]
    pub(super) fn host(&self) -> Option<&str> {
        self.host.as_deref()
    }

    fn locked(&self) -> RwLockReadGuard<'_, Rights> {
        self.rights.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The current rights; they may change in service.
    pub(crate) fn get(&self) -> Rights {
        self.locked().clone()
    }

    /// Number of commands denied so far.
    pub(crate) fn denied(&self) -> u64 {
        self.denied.load(Ordering::Relaxed)
    }

    pub(super) fn set(&self, rights: Rights) {
        let mut locked = self.rights.write().unwrap_or_else(PoisonError::into_inner);
        // Under the lock: a reader that sees the host limited waits here for the new rights.
        self.is_limited.store(!rights.is_all(), Ordering::Release);
        *locked = rights;
    }

    /// Checks the rights that an I/O command needs in its own namespace.
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

    /// Checks a need in a namespace.
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

    /// Checks a need for state that all namespaces share.
    ///
    /// # Errors
    /// The status to answer.
    pub(super) fn check_all(&self, need: Need) -> Result<(), Status> {
        self.counted(self.locked().check_all(need))
    }

    fn counted(&self, checked: Result<(), Status>) -> Result<(), Status> {
        // Every denial is counted, so that an operator sees a host that tries.
        if checked.is_err() {
            self.denied.fetch_add(1, Ordering::Relaxed);
            if let Some(all) = &self.denied_in_all {
                all.fetch_add(1, Ordering::Relaxed);
            }
        }
        checked
    }

    /// Access to a namespace.
    pub(super) fn access(&self, nsid: u32) -> Access {
        if self.is_limited.load(Ordering::Acquire) {
            self.locked().access(nsid)
        } else {
            Access::ReadWrite
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
