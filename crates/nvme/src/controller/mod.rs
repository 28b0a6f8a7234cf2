//! What an NVM subsystem does with commands: statuses and data out, no I/O, no clock.
//!
//! ```text
//! subsystem   the device, its namespaces, everything that connections share
//! request     a submission queue entry, checked once, as what it asks for
//! io          I/O commands on the device
//! data        their data, wherever the transport has them
//! bus         what a controller on a bus has instead of connections
//! gate        the way in for services that may have to let go of the device
//! record      what the device was asked, for traces
//! association one host's controller: registers, features, events; admin commands in `admin`
//! connect     why a host is refused one
//! ```
//! Invariants: what a host sends is checked in `request` or refused there; nothing it sends can reach past its
//! namespace or make anything here panic. Absent: sockets, queues in memory, and time, which is an argument.

mod admin;
mod association;
mod bus;
mod connect;
mod data;
mod features;
mod gate;
mod identify;
mod io;
mod logs;
mod record;
mod request;
pub mod statistics;
mod subsystem;

pub use admin::{AdminOutcome, admin_transfer, fabrics_kind};
pub use association::{Association, Joined};
pub use connect::ConnectRefusal;
pub use data::{HostData, InMemory};
pub use gate::Gate;
pub use io::{Job, Outcome};
pub use record::{Deed, Fingerprint, Recorder};
pub use request::{Blocks, IoRequest, Transfer};
pub use subsystem::{Health, Latency, Namespace, NamespaceSpec, Subsystem, SubsystemError};

/// Largest data transfer of one command: MDTS 8, in units of 4 KiB.
pub const TRANSFER_BYTES_MAX: u32 = 1 << 20;
/// log2 of it in units of the smallest page.
pub const MDTS: u8 = 8;
/// Submission queue entries.
pub const QUEUE_ENTRIES_MAX: u16 = 1024;
/// I/O queues of one controller.
pub const IO_QUEUES_MAX: u16 = 64;
/// Data that may come in a command capsule.
pub const IN_CAPSULE_BYTES: u32 = 128 << 10;
/// The format of Copy's descriptors that names the source's namespace.
pub(crate) const COPY_FORMAT_NAMESPACES: u8 = 2;
/// Ranges of one Copy.
pub const COPY_RANGES_MAX: u32 = 256;
/// Blocks of one range of Copy.
pub const COPY_RANGE_BLOCKS_MAX: u16 = u16::MAX;
/// Blocks of one Copy: 2 GiB of 512-byte blocks, 16 GiB of 4 KiB ones.
pub const COPY_BLOCKS_MAX: u32 = 1 << 22;
