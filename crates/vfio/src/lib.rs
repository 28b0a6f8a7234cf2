//! The device as a PCI Express function: an NVMe controller in a virtual machine, for the operating
//! system's own driver.
//!
//! ```text
//! memory      the guest's memory: mapped regions, and no access outside them
//! prp         location of a command's data in it
//! pci         configuration space
//! queues      submission and completion queues in guest memory
//! function    registers, doorbells, interrupts
//! worker      the thread that fetches and completes commands
//! commands    one command, from its entry to its completion
//! completions delayed completions
//! socket      vfio-user: the virtual machine monitor's requests
//! library_panics  panics of the vfio-user library
//! ```
//! Invariants: for any guest input in registers, queues or lists, nothing here panics and no byte
//! outside its memory is read or written; data from its memory are copied before they are used,
//! since they may change concurrently. Absent: execution of commands (`nvme`'s controller).

#![warn(unreachable_pub)]

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

pub use socket::{Bound, Service, ServiceError};
