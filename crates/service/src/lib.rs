//! A device in service: images in folders, and a server for unmodified programs, inside your
//! process.
//!
//! ```no_run
//! use remap_ssd_service::{Service, Spec};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let service = Service::open(Spec {
//!     listen: vec!["127.0.0.1:0".parse()?],
//!     ..Spec::memory(64 << 20)
//! })?;
//! println!("nvme connect-all -t tcp, at {:?}", service.addresses());
//!
//! let stop = service.handle();
//! std::thread::spawn(move || {
//!     std::thread::sleep(std::time::Duration::from_secs(60));
//!     stop.stop();
//! });
//! service.serve()?;
//! # Ok(())
//! # }
//! ```
//!
//! ```text
//! spec        what to serve, and how; plain data
//! service     opens a device with its transports, serves it, closes it
//! fronts      the transports: NVMe/TCP, FUSE, vfio-user, HTTP
//! access      listening addresses, keys and the list of hosts; their reload
//! shape       size, scheme, namespaces and name of a new device
//! image       devices in folders: create, check, repair, rename
//! nqn         names of subsystems
//! kept        the files of an image besides flash; share: a namespace in them
//! namespaces  namespaces as hosts change them
//! served      a served device as operators see it, and their verbs
//! played      a simulated device in virtual time, for the same page
//! table       superblocks and counters, read in short stretches
//! backup      a copy of an image while it is served
//! writeback, relearn   threads beside the service
//! recording   the commands of hosts, as a trace
//! supervisor  systemd: sockets and notifications
//! ```
//!
//! Invariant: the crate reports only by `tracing` events and errors. Absent: arguments, printing,
//! signals and exit codes (the program `remap-ssd`), except for [`Handle::cut_power`], which ends
//! the process; commands (`remap-ssd-nvme`); HTTP (`remap-ssd-http`).

#![warn(unreachable_pub)]

mod access;
mod address;
mod backup;
mod error;
mod fronts;
pub mod image;
mod kept;
mod log;
mod namespaces;
mod nqn;
mod played;
mod process;
mod recording;
mod relearn;
mod served;
mod service;
mod shape;
mod share;
mod spec;
mod supervisor;
mod table;
mod writeback;

pub use address::ListenAt;
pub use error::ServiceError;
pub use fronts::Handle;
pub use kept::ServiceFile;
pub use log::LogLevel;
pub use played::{Played, PlayedOptions};
pub use served::Served;
pub use service::Service;
pub use shape::Shape;
pub use share::{Begun, Place, Share};
pub use spec::{Backing, Spec};
pub use writeback::Writeback;

// Types of the fields of `Spec` and `Shape`.
pub use remap_ssd_device::Setting;
pub use remap_ssd_ftl::SchemeKind;
pub use remap_ssd_nvme::controller::Latency;
pub use remap_ssd_nvme::tcp::target::Advertised;
