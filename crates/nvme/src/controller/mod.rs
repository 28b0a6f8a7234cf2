//! Command execution of an NVM subsystem: statuses and data out, no I/O, no clock.
//!
//! ```text
//! data        command data, wherever the transport has it
//! record      operations on the device, for traces
//! observer    changes of commands, and their completion
//! faults      commands that fail or are late, to test hosts
//! connect     reasons to refuse a host a controller
//! blocks      logical blocks, and the pages of the device that hold them
//! request     decodes and validates a submission queue entry
//! rights      rights of hosts, and the rights that each command needs
//! issuer      the issuer of a command, and its result
//! standing    whether a queue may go on: its controller was neither reset nor has it ended
//! volatile    a volatile write cache between commands and the device, and its content after a power cut
//! turnstile   fair turns at the device
//! durable     group commit for commands that wait for durability
//! turn        the shared device, and slices of long commands
//! namespaces  their set, location and visibility; creation, deletion, attachment
//! reservations exclusive access of hosts to a namespace
//! portals     the paths to the subsystem, and their ANA states
//! features    settings of a host
//! changed     the namespaces that have changed for a host
//! host        one host's controller: registers, features, events
//! controllers all of them, by their IDs
//! counters    counters for SMART
//! telemetry   counts and latencies of commands, for an operator
//! subsystem   the device and other parts that connections share
//!
//! io          reads, writes and deallocations of blocks, page by page
//! announce    accesses for the injector of faults, changes for the observer
//! remap       remaps and copies, in steps
//! copy        the ranges of Copy commands
//! file_map    pages of files
//! execute     execution of I/O commands
//! operate     power cuts, damage and switches, for an operator
//!
//! association a host's controller and the subsystem; admin commands in `admin`
//! ana         asymmetric access as a host sees it
//! format      formats all blocks of a namespace
//! bus         registers of a controller on a bus, which has no connections
//! gate        access for services that may have to release the device
//! ```
//! A module uses those above it, not those below, except for parts of folders that are commands
//! (`namespaces::change`, `volatile::access`, `reservations::commands`, `features` and `holding`);
//! the types of `reservations::rules` use nothing.
//!
//! Invariants: input from a host is checked in `request` or refused there; no input can reach past
//! its namespace or cause a panic here. Absent: sockets, queues in memory, and time, which is an
//! argument.

mod admin;
mod ana;
mod announce;
mod association;
mod blocks;
mod bus;
mod changed;
mod connect;
mod controllers;
mod copy;
mod counters;
mod data;
mod durable;
mod error;
mod execute;
mod faults;
pub(crate) mod features;
mod file_map;
mod format;
mod gate;
mod host;
mod identify;
mod io;
mod issuer;
mod logs;
mod namespaces;
mod observer;
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
mod turnstile;
mod volatile;

pub(crate) use admin::fabrics_kind;
pub use admin::{AdminOutcome, admin_transfer};
pub use association::Association;
pub use blocks::{Blocks, NSID_MAX, Namespace, NamespaceSpec};
pub use connect::ConnectRefusal;
pub use counters::Health;
pub use data::{HostData, InMemory};
pub use error::SubsystemError;
pub use faults::{BlockAccess, FaultInjector};
pub use gate::Gate;
pub use host::{HostController, JoinedQueue};
pub use issuer::{Actor, FailedBlock, Issuer, Outcome};
pub use namespaces::{Attachment, Clearing, KeptNamespace, KeptNamespaces, NamespaceStore};
pub use observer::{NewContent, Observer, Ticket};
pub use portals::{AnaState, Portal, Reached};
pub use record::{Fingerprint, RecordedOp, Recorder};
pub use request::{IoCommand, IoRequest, RemapBlocks, Transfer};
pub use reservations::{
    AllReservations, HostIdentity, NamespaceReservations, REGISTRANTS_MAX, ReservationStore,
    ReservationType,
};
pub use rights::{Access, HostRights, Rights};
pub use standing::Standing;
pub use subsystem::{Latency, Subsystem};
pub use turn::DeviceTurn;
pub use turnstile::Weight;
pub use volatile::{CACHE_BYTES_MIN, CutReport, LossDraw, LostBlocks};

/// Largest data transfer of one command: MDTS 8, in units of 4 KiB.
pub const TRANSFER_BYTES_MAX: u32 = 1 << 20;
/// log2 of it, in units of the minimum page size.
pub(crate) const MDTS: u8 = 8;
/// Maximum entries of a submission queue.
pub const QUEUE_ENTRIES_MAX: u16 = 1024;
/// I/O queues of one controller.
pub const IO_QUEUES_MAX: u16 = 64;
/// Maximum data in a command capsule.
pub(crate) const IN_CAPSULE_BYTES: u32 = 128 << 10;
/// The Copy descriptor format that names the source namespace.
pub(crate) const COPY_FORMAT_NAMESPACES: u8 = 2;
/// Maximum ranges of one Copy command.
pub(crate) const COPY_RANGES_MAX: u32 = 256;
/// Maximum bytes of one Copy: 16 MiB. Pages that have too many owners to be remapped, or are
/// unaligned, are each read and programmed; even so the command takes less than 100 ms
/// (`docs/nvme-vendor.md`).
pub const COPY_BYTES_MAX: u64 = 16 << 20;
/// Maximum bytes of one Verify: 16 MiB, which may have to come from a disk.
pub const VERIFY_BYTES_MAX: u64 = 16 << 20;
/// log2 of it, in units of the minimum page size.
pub(crate) const VSL: u8 = 12;

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
pub(crate) const DEALLOCATE_BYTES_MAX: [u64; 2] = [4 << 30, 16 << 30];
