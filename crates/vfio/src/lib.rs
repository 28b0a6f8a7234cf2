//! The device as a PCI Express function: an NVMe controller in a virtual machine, for the operating
//! system's own driver.
//!
//! ```text
//! memory      the guest's memory: what is mapped, and nothing beyond it
//! prp         where in it a command's data are
//! pci         configuration space
//! queues      submission and completion queues in guest memory
//! function    registers, doorbells, interrupts
//! worker      the thread that fetches and completes commands
//! commands    one command, from its entry to its completion
//! completions completions that are not due yet
//! socket      vfio-user: the virtual machine monitor's requests
//! library_panics  panics of the vfio-user library
//! ```
//! Invariants: whatever a guest writes to registers, queues or lists, nothing here panics and no
//! byte outside its memory is read or written; what is read from its memory is copied before it is
//! looked at, since it may change meanwhile. Absent: what commands do (`nvme`'s controller).

mod commands;
mod completions;
mod function;
mod library_panics;
mod memory;
mod pci;
mod prp;
mod queues;
mod socket;
mod worker;

pub use socket::{Service, ServiceError};
