//! Decoding and status of Register, Acquire, Release and Report.
//!
//! Invariant: an invalid command, or one with invalid data, changes nothing. Absent: the effect of
//! commands (`rules`).

use super::rules::{HostIdentity, NamespaceReservations, ReservationType};
use crate::controller::TRANSFER_BYTES_MAX;
use crate::controller::admin::AdminOutcome;
use crate::controller::association::Association;
use crate::controller::blocks::Namespace;
use crate::controller::portals::Transport;
use crate::controller::request::Transfer;
use crate::controller::rights::Need;
use crate::controller::standing::Standing;
use crate::spec::command::Sqe;
use crate::spec::identify::blank;
use crate::spec::opcode::io;
use crate::spec::reservation::{
    Keys, RegisterCdw10, ReportEntry, ReportHead, ReservationCdw10, acquire, cptpl, register,
    release,
};
use crate::spec::status::Status;
use zerocopy::IntoBytes;

/// Fabrics controllers are created when their hosts connect, so none has a fixed number.
const CNTLID_DYNAMIC: u16 = 0xffff;

/// Returns true for reservation commands of an I/O queue. They are rare, and need no turn at the
/// device until they change something.
#[inline]
fn is_reservation(sqe: &Sqe) -> bool {
    matches!(
        sqe.head().opcode(),
        io::RESERVATION_REGISTER
            | io::RESERVATION_REPORT
            | io::RESERVATION_ACQUIRE
            | io::RESERVATION_RELEASE
    )
}

/// Size of the report that a command requests.
fn report_bytes(sqe: &Sqe) -> Result<u32, Status> {
    let bytes = (u64::from(sqe.cdw10) + 1) * 4;
    let bytes = u32::try_from(bytes).ok();
    bytes
        .filter(|bytes| *bytes <= TRANSFER_BYTES_MAX)
        .ok_or(Status::INVALID_FIELD)
}

impl Association {
    /// Data transfer of a reservation command; `None` for other commands.
    ///
    /// # Errors
    /// The status to answer.
    #[inline]
    pub(crate) fn reservation_transfer(&self, sqe: &Sqe) -> Option<Result<Transfer, Status>> {
        is_reservation(sqe).then(|| self.transfer_of(sqe))
    }

    fn transfer_of(&self, sqe: &Sqe) -> Result<Transfer, Status> {
        self.must_be_accessible()?;
        Ok(match sqe.head().opcode() {
            _ if self.transport != Transport::Fabrics => return Err(Status::INVALID_OPCODE),
            io::RESERVATION_REPORT => Transfer::ToHost(report_bytes(sqe)?),
            // Only the current key.
            io::RESERVATION_RELEASE => Transfer::FromHost(8),
            _ => Transfer::FromHost(size_of::<Keys>() as u32),
        })
    }

    /// Executes a reservation command of a queue. Data for the host is appended to `out`.
    pub fn reservation(
        &self,
        standing: &Standing,
        sqe: &Sqe,
        data: &[u8],
        out: &mut Vec<u8>,
    ) -> AdminOutcome {
        let under_way = self.commands.begin(standing);
        let status = under_way
            .and_then(|_under_way| self.reserve(sqe, data, out))
            .err();
        AdminOutcome::Done(status.unwrap_or(Status::SUCCESS), 0)
    }

    fn reserve(&self, sqe: &Sqe, data: &[u8], out: &mut Vec<u8>) -> Result<(), Status> {
        if sqe.head().fuse() != 0 {
            return Err(Status::INVALID_FIELD);
        }
        let namespace = self.namespace(sqe.nsid).ok_or(Status::INVALID_NAMESPACE)?;

        if sqe.head().opcode() == io::RESERVATION_REPORT {
            // Identifiers have 16 bytes here; only the extended structure has room for them.
            if sqe.cdw11 & 1 == 0 {
                return Err(Status::HOST_ID_FORMAT);
            }
            let all = self.subsystem.reservations_of(sqe.nsid);
            put_report(&all, report_bytes(sqe)? as usize, out);
            return Ok(());
        }

        // A read-only host cannot exclude others.
        self.rights().check(sqe.nsid, Need::Write)?;
        // A host without an identifier cannot register (Base 2.0 §8.19).
        if self.hostid == [0; 16] {
            return Err(Status::INVALID_FIELD);
        }

        // Release has one key, the others have two.
        let mut keys = Keys::default();
        let wanted = match sqe.head().opcode() {
            io::RESERVATION_RELEASE => 8,
            _ => size_of::<Keys>(),
        };
        let data = data.get(..wanted).ok_or(Status::DATA_TRANSFER)?;
        keys.as_mut_bytes()[..wanted].copy_from_slice(data);

        let host = self.host();
        match sqe.head().opcode() {
            io::RESERVATION_REGISTER => self.change_registration(sqe, &namespace, host, keys),
            io::RESERVATION_ACQUIRE => self.acquire(sqe, &namespace, host, keys),
            _ => self.release(sqe, &namespace, host, keys.current),
        }
    }

    fn change_registration(
        &self,
        sqe: &Sqe,
        namespace: &Namespace,
        host: HostIdentity<'_>,
        keys: Keys,
    ) -> Result<(), Status> {
        let cdw10 = RegisterCdw10::from_bits(sqe.cdw10);
        let persists = match cdw10.cptpl() {
            cptpl::KEEP => None,
            cptpl::CLEAR => Some(false),
            cptpl::SET => Some(true),
            _ => return Err(Status::INVALID_FIELD),
        };

        // A host that has lost its key may have it ignored.
        let current = (!cdw10.iekey()).then_some(keys.current);

        // Persistence changes only if the action succeeds: an unknown action changes nothing.
        self.subsystem.change_reservations(namespace, |all| {
            let notices = match cdw10.action() {
                register::REGISTER => all.register(host, keys.other),
                register::UNREGISTER => all.unregister(host, current),
                register::REPLACE => all.replace(host, current, keys.other),
                _ => Err(Status::INVALID_FIELD),
            }?;
            all.persists = persists.unwrap_or(all.persists);
            Ok(notices)
        })
    }

    fn acquire(
        &self,
        sqe: &Sqe,
        namespace: &Namespace,
        host: HostIdentity<'_>,
        keys: Keys,
    ) -> Result<(), Status> {
        let cdw10 = ReservationCdw10::from_bits(sqe.cdw10);
        let kind = ReservationType::of(cdw10.rtype()).ok_or(Status::INVALID_FIELD)?;

        // Only Register works without the current key.
        if cdw10.iekey() {
            return Err(Status::INVALID_FIELD);
        }

        self.subsystem
            .change_reservations(namespace, |all| match cdw10.action() {
                acquire::ACQUIRE => all.acquire(host, keys.current, kind),
                // In either case, commands of preempted hosts are aborted at their next pause.
                acquire::PREEMPT | acquire::PREEMPT_AND_ABORT => {
                    all.preempt(host, keys.current, keys.other, kind)
                }
                _ => Err(Status::INVALID_FIELD),
            })
    }

    fn release(
        &self,
        sqe: &Sqe,
        namespace: &Namespace,
        host: HostIdentity<'_>,
        key: u64,
    ) -> Result<(), Status> {
        let cdw10 = ReservationCdw10::from_bits(sqe.cdw10);
        if cdw10.iekey() {
            return Err(Status::INVALID_FIELD);
        }

        self.subsystem
            .change_reservations(namespace, |all| match cdw10.action() {
                release::RELEASE => {
                    // Only Release names a type. Clear removes any type.
                    let kind = ReservationType::of(cdw10.rtype()).ok_or(Status::INVALID_FIELD)?;
                    all.release(host, key, kind)
                }
                release::CLEAR => all.clear(host, key),
                _ => Err(Status::INVALID_FIELD),
            })
    }
}

/// Appends the report, cut or padded with zeroes to `bytes`.
fn put_report(all: &NamespaceReservations, bytes: usize, out: &mut Vec<u8>) {
    let mut head: ReportHead = blank();
    head.generation = all.generation;
    head.rtype = all.reservation.as_ref().map_or(0, |held| held.kind as u8);
    head.regctl = all.registrants.len() as u16;
    head.ptpls = all.persists.into();

    let mut report = head.as_bytes().to_vec();
    for one in &all.registrants {
        let host = one.host.identity();
        let mut entry: ReportEntry = blank();
        entry.cntlid = CNTLID_DYNAMIC;
        entry.rcsts = all.holds(host).into();
        entry.rkey = one.key;
        entry.hostid = one.host.id;
        report.extend_from_slice(entry.as_bytes());
    }

    report.resize(bytes, 0);
    out.append(&mut report);
}
