//! Command execution of an NVM subsystem: statuses and data out, no I/O, no clock.
//!
//! ```text
//! subsystem   the device and other state that connections share
//! namespaces  their set, location and visibility; creation, deletion, attachment
//! request     decodes and validates a submission queue entry
//! execute     execution of I/O commands
//! io          reads, writes and deallocations of blocks, page by page
//! remap       remaps and copies, in steps
//! file_map    pages of files
//! turn        scheduling of the device: fair turns, and slices of long commands
//! volatile    a volatile write cache between commands and the device, and its content after a power cut
//! durable     group commit for commands that wait for durability
//! data        command data, wherever the transport has it
//! bus         registers of a controller on a bus, which has no connections
//! format      formats all blocks of a namespace
//! gate        access for services that may have to release the device
//! telemetry   counts and latencies of commands, for an operator
//! operate     power cuts, damage and switches, for an operator
//! record      operations on the device, for traces
//! witness     changes of commands, and their completion
//! faults      commands that fail or are late, to test hosts
//! reservations exclusive access of hosts to a namespace
//! portals     the paths to the subsystem, and their ANA states
//! association one host's controller: registers, features, events; admin commands in `admin`
//! connect     reasons to refuse a host a controller
//! rights      rights of hosts, and the rights that each command needs
//! changed     the namespaces that have changed for a host
//! standing    whether a queue may go on: its controller was neither reset nor has it ended
//! ```
//! Invariants: input from a host is checked in `request` or refused there; no input can reach past
//! its namespace or cause a panic here. Absent: sockets, queues in memory, and time, which is an
//! argument.

mod admin;
mod association;
mod bus;
mod changed;
mod connect;
mod data;
mod durable;
mod execute;
mod faults;
pub(crate) mod features;
mod file_map;
mod format;
mod gate;
mod identify;
mod io;
mod logs;
mod namespaces;
pub mod operate;
mod portals;
mod record;
mod remap;
mod request;
mod reservations;
mod rights;
mod standing;
pub mod statistics;
mod subsystem;
pub mod telemetry;
mod turn;
mod volatile;
mod witness;

pub use admin::{AdminOutcome, admin_transfer, fabrics_kind};
pub use association::{Association, JoinedQueue};
pub use connect::ConnectRefusal;
pub use data::{HostData, InMemory};
pub use execute::{FailedBlock, Job, Outcome};
pub use faults::{BlockAccess, FaultInjector};
pub use gate::Gate;
pub use namespaces::{
    Attachment, Clearing, KeptNamespace, KeptNamespaces, NSID_MAX, Namespace, NamespaceSpec,
    NamespaceStore,
};
pub use portals::{AnaState, Portal, Reached};
pub use record::{Fingerprint, RecordedOp, Recorder};
pub use request::{Blocks, CheckedRequest, IoRequest, RemapBlocks, Transfer};
pub use reservations::{
    Actor, AllReservations, HostIdentity, NamespaceReservations, REGISTRANTS_MAX, ReservationStore,
    ReservationType,
};
pub use rights::{Access, HostRights, LOCAL, NOBODY, Rights};
pub use standing::Standing;
pub use subsystem::{Health, Latency, Subsystem, SubsystemError};
pub use turn::{DeviceTurn, SLICE_UNITS, Weight};
pub use volatile::{CACHE_BYTES_MIN, CutReport, LostBlocks};
pub use witness::{NewContent, Ticket, Witness};

/// Largest data transfer of one command: MDTS 8, in units of 4 KiB.
pub const TRANSFER_BYTES_MAX: u32 = 1 << 20;
/// log2 of it, in units of the minimum page size.
pub const MDTS: u8 = 8;
/// Maximum entries of a submission queue.
pub const QUEUE_ENTRIES_MAX: u16 = 1024;
/// I/O queues of one controller.
pub const IO_QUEUES_MAX: u16 = 64;
/// Maximum data in a command capsule.
pub const IN_CAPSULE_BYTES: u32 = 128 << 10;
/// The Copy descriptor format that names the source namespace.
pub(crate) const COPY_FORMAT_NAMESPACES: u8 = 2;
/// Maximum ranges of one Copy command.
pub const COPY_RANGES_MAX: u32 = 256;
/// Maximum bytes of one Copy: 16 MiB. Pages that have too many owners to be remapped, or are
/// unaligned, are each read and programmed; even so the command takes less than 100 ms
/// (`docs/nvme-vendor.md`).
pub const COPY_BYTES_MAX: u64 = 16 << 20;
/// Maximum bytes of one Verify: 16 MiB, which may have to come from a disk.
pub const VERIFY_BYTES_MAX: u64 = 16 << 20;
/// log2 of it, in units of the minimum page size.
pub const VSL: u8 = 12;

const _: () = assert!(VERIFY_BYTES_MAX == 4096 << VSL);

/// Maximum blocks that one Copy command may copy.
pub const fn copy_blocks_max(lba_shift: u8) -> u32 {
    (COPY_BYTES_MAX >> lba_shift) as u32
}

/// Maximum blocks of one range of Copy.
pub const fn copy_range_blocks_max(lba_shift: u8) -> u16 {
    let blocks = copy_blocks_max(lba_shift);
    if blocks < u16::MAX as u32 {
        blocks as u16
    } else {
        u16::MAX
    }
}

/// Limits of one range of Dataset Management and of all its ranges: 4 and 16 GiB, which take less
/// than 100 ms. These limits are advisory: commands beyond them are executed too.
pub const DEALLOCATE_BYTES_MAX: [u64; 2] = [4 << 30, 16 << 30];
