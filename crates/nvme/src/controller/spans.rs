//! One command from its arrival to its answer, for whoever traces commands.
//!
//! ```text
//! arrival ── data of the host ── turn at the device ── device ── durable ── answer
//!                                └ turn_ns ┘           └ device_ns ┘ └ durable_ns ┘
//! ```
//! A transport asks the tracer whether a command is sampled when it arrives, carries the draft of
//! its span along, and hands it over with the answer. Invariants: without a tracer a command costs
//! one branch; a tracer must not wait, since some spans are handed over in a turn at the device.
//! Absent: clocks (a tracer brings its own), who is sampled, and what becomes of spans (`remap-ssd-otel`).

use super::request::Transfer;
use super::subsystem::Subsystem;
use crate::spec::command::{RemapCdw12, RwCdw12, Sqe};
use crate::spec::join;
use crate::spec::opcode::{admin, io};
use crate::spec::status::Status;
use std::net::SocketAddr;

/// Samples commands, and takes their spans. Calls come from all connections at once.
pub trait Tracer: Send + Sync {
    /// The time, of a clock that begins with the tracer.
    fn now_ns(&self) -> u64;
    /// Whether the next command is sampled.
    fn is_sampled(&self) -> bool;
    /// A sampled command has its answer. Must not wait.
    fn take(&self, span: &CommandSpan<'_>);
    /// What became of spans so far.
    fn counts(&self) -> SpanCounts;
}

/// What became of the spans of sampled commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpanCounts {
    /// A collector has taken them.
    pub exported: u64,
    /// There was no room for them: the collector is slower than the hosts.
    pub dropped_full: u64,
    /// The collector could not be reached, or refused them.
    pub dropped_failed: u64,
}

/// A command that has its answer. Times are of the tracer's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandSpan<'a> {
    /// Name of the host, as it put it.
    pub hostnqn: &'a str,
    /// Number of the connection, which logs have too.
    pub connection: u64,
    /// The address that the host connects from.
    pub peer: SocketAddr,
    /// Number of the controller that was asked.
    pub cntlid: u16,
    /// The queue that it came by; 0 is the admin queue.
    pub qid: u16,
    /// The command's number in its queue.
    pub cid: u16,
    /// What was asked for: `command_name` has a name for it.
    pub opcode: u8,
    /// Its namespace, whether that exists or not.
    pub nsid: u32,
    /// The first block that it names, if it names one.
    pub slba: Option<u64>,
    /// How many blocks it names, if it says so itself rather than in its data.
    pub blocks: Option<u32>,
    /// Bytes between host and device, if it was executed.
    pub bytes: u32,
    /// The status that its host was told.
    pub status: Status,
    /// When the transport had all of its entry.
    pub began_ns: u64,
    /// When its answer was there, or will be due if latency is emulated.
    pub ended_ns: u64,
    /// It waited so long for others that had the device.
    pub turn_ns: u64,
    /// The device worked on it for so long.
    pub device_ns: u64,
    /// It waited so long until it was durable.
    pub durable_ns: u64,
}

/// Name of an I/O command.
pub fn command_name(opcode: u8) -> &'static str {
    match opcode {
        io::FLUSH => "Flush",
        io::WRITE => "Write",
        io::READ => "Read",
        io::COMPARE => "Compare",
        io::WRITE_ZEROES => "Write Zeroes",
        io::DATASET_MANAGEMENT => "Dataset Management",
        io::VERIFY => "Verify",
        io::RESERVATION_REGISTER => "Reservation Register",
        io::RESERVATION_REPORT => "Reservation Report",
        io::RESERVATION_ACQUIRE => "Reservation Acquire",
        io::RESERVATION_RELEASE => "Reservation Release",
        io::COPY => "Copy",
        io::REMAP => "Remap",
        io::FS_WRITE => "FsWrite",
        io::FS_MAP => "FsMap",
        io::FS_RESET => "FsReset",
        _ => "Unknown",
    }
}

/// A span until its command is answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpanDraft {
    began_ns: u64,
    /// The transport's clock, which due times have.
    arrived: u64,
    bytes: u32,
    turn_ns: u64,
    device_ns: u64,
    /// When its last part was executed; before that, when it arrived.
    executed_ns: u64,
}

/// Which host a command comes from, and by which queue.
pub(crate) struct SpanOrigin<'a> {
    pub hostnqn: &'a str,
    pub connection: u64,
    pub peer: SocketAddr,
    pub cntlid: u16,
    pub qid: u16,
}

impl SpanDraft {
    /// The draft of a command that has just arrived, if it is an I/O command and sampled.
    #[cold]
    #[inline(never)]
    pub fn begin(tracer: &dyn Tracer, sqe: &Sqe, arrived: u64) -> Option<Box<Self>> {
        let is_wanted = sqe.head().opcode() != admin::FABRICS && tracer.is_sampled();
        is_wanted.then(|| {
            let began_ns = tracer.now_ns();
            Box::new(Self {
                began_ns,
                arrived,
                bytes: 0,
                turn_ns: 0,
                device_ns: 0,
                executed_ns: began_ns,
            })
        })
    }

    /// What is known once the command was checked.
    pub fn checked(&mut self, transfer: Transfer) {
        if let Transfer::FromHost(bytes) | Transfer::ToHost(bytes) = transfer {
            self.bytes = bytes;
        }
    }

    /// The command, or a part of it, was executed between two times, and waited for others so long
    /// meanwhile.
    pub fn executed(&mut self, from_ns: u64, until_ns: u64, turn_ns: u64) {
        let took_ns = until_ns.saturating_sub(from_ns);
        self.turn_ns += turn_ns.min(took_ns);
        self.device_ns += took_ns.saturating_sub(turn_ns);
        self.executed_ns = until_ns;
    }

    /// The command has its answer: its span goes to the tracer. `done_at` is when the answer is
    /// due, in the transport's clock; `durable`: it waited for the disk after it was executed.
    #[cold]
    #[inline(never)]
    pub fn end(
        self,
        subsystem: &Subsystem,
        origin: &SpanOrigin<'_>,
        sqe: &Sqe,
        (status, done_at, durable): (Status, u64, bool),
    ) {
        let Some(tracer) = subsystem.tracer() else {
            return;
        };
        let now = tracer.now_ns();

        // The transport's clock and the tracer's begin at different times: only differences count.
        let due = self.began_ns + done_at.saturating_sub(self.arrived);
        let waited_ns = now.saturating_sub(self.executed_ns);

        let head = sqe.head();
        let (slba, blocks) = named_blocks(sqe);
        tracer.take(&CommandSpan {
            hostnqn: origin.hostnqn,
            connection: origin.connection,
            peer: origin.peer,
            cntlid: origin.cntlid,
            qid: origin.qid,
            cid: head.cid(),
            opcode: head.opcode(),
            nsid: sqe.nsid,
            slba,
            blocks,
            bytes: self.bytes,
            status,
            began_ns: self.began_ns,
            // An answer that is held back is still to leave.
            ended_ns: now.max(due),
            turn_ns: self.turn_ns,
            device_ns: self.device_ns,
            durable_ns: if durable { waited_ns } else { 0 },
        });
    }
}

/// The first block that a command names, and how many; whether they exist or not.
fn named_blocks(sqe: &Sqe) -> (Option<u64>, Option<u32>) {
    let slba = Some(join(sqe.cdw10, sqe.cdw11));
    match sqe.head().opcode() {
        io::READ | io::WRITE | io::COMPARE | io::VERIFY | io::WRITE_ZEROES | io::FS_WRITE => {
            let nlb_z = RwCdw12::from_bits(sqe.cdw12).nlb_z();
            (slba, Some(u32::from(nlb_z) + 1))
        }
        io::REMAP => {
            let nlb_z = RemapCdw12::from_bits(sqe.cdw12).nlb_z();
            (slba, Some(nlb_z.saturating_add(1)))
        }

        // How many a copy names is in its ranges, which are data.
        io::COPY => (slba, None),
        _ => (None, None),
    }
}
