//! A controller on a bus: registers instead of properties, queues in the host's memory instead of
//! connections.
//!
//! Registers are the fabrics properties, at the same offsets. Absent: queues and doorbells (in the
//! transport), and registers used only there.

use super::association::Association;
use super::host::{AssociationState, HostController};
use super::portals::{Portal, Transport};
use super::rights::HostRights;
use super::standing::CommandsUnderWay;
use super::subsystem::Subsystem;
use crate::spec::command::Sqe;
use crate::spec::fabrics::{Cc, Csts};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Mutex};

impl Association {
    /// A new controller for the host on its bus.
    pub fn on_bus(subsystem: &Arc<Subsystem>) -> Arc<Self> {
        let state = AssociationState::new(
            subsystem.volatile_cache(),
            &subsystem.reservations,
            Transport::Bus,
            0,
            0,
        );
        let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        let controller = HostController {
            cntlid: subsystem
                .controllers
                .take_id()
                .expect("fewer functions than numbers"),
            discovery: false,
            transport: Transport::Bus,
            address,
            portal: Arc::new(Portal::new(address)),
            hostnqn: String::new(),
            hostid: [0; 16],
            holds_or_stops: AtomicU32::new(0),
            write_through: AtomicBool::new(false),
            // A function of the bus has no host name.
            rights: HostRights::all(""),
            state: Mutex::new(state),
            epoch: Arc::default(),
            commands: CommandsUnderWay::default(),
        };
        Self::of(subsystem, controller)
    }

    /// The configuration written last.
    pub fn configuration(&self) -> Cc {
        self.state().cc
    }

    /// The current value of the register Controller Status.
    pub fn status(&self) -> Csts {
        self.state().csts
    }

    /// Capabilities, or another register that networks have too; 0 if there is none at that offset.
    pub fn register(&self, offset: u32) -> u64 {
        let get = |wide: u32| {
            self.property_get(&Sqe {
                cdw10: wide,
                cdw11: offset,
                ..Sqe::default()
            })
        };
        // Only `property_get` knows the size of a register: it refuses the other one.
        get(1).or_else(|_| get(0)).unwrap_or(0)
    }

    /// Writes the configuration; an invalid one sets the fatal status.
    pub fn configure(&self, cc: u32) {
        let sqe = Sqe {
            cdw11: crate::spec::fabrics::property::CC,
            cdw12: cc,
            ..Sqe::default()
        };
        // An invalid configuration shows in the status.
        let _ = self.property_set(&sqe);
        // Only a reset ends a fatal status, and this is one.
        if !Cc::from_bits(cc).en() {
            self.state().csts.set_cfs(false);
        }
    }

    /// The host's memory is unreachable, or its queues are invalid: only a reset helps.
    pub fn set_fatal(&self) {
        self.state().csts.set_cfs(true);
    }

    /// The host has created an I/O queue: the number of queues is fixed from now on.
    pub fn queue_made(&self) {
        self.state().queues_made = true;
    }

    /// Maximum I/O queues of the host.
    pub fn io_queues(&self) -> u16 {
        self.state().features.queues().min(super::IO_QUEUES_MAX)
    }
}
