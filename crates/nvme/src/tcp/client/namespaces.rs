//! The namespaces of a device that this host sees.

use super::{Client, ClientError, Options, Queue, discover};
use crate::spec::identify::cns;
use std::io;
use std::net::ToSocketAddrs;

/// The namespaces that a host sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenNamespaces {
    /// Name (NQN) of the subsystem.
    pub subnqn: String,
    /// Their numbers, in ascending order.
    pub numbers: Vec<u32>,
}

impl SeenNamespaces {
    /// Asks the subsystem at an address. Ignores the namespace in the options.
    ///
    /// # Errors
    /// The target is not listening, is no such target, or refuses this host.
    pub fn ask(address: impl ToSocketAddrs, options: &Options) -> Result<Self, ClientError> {
        let address = address.to_socket_addrs()?.next();
        let address = address.ok_or_else(|| io::Error::other("the name has no address"))?;
        let subnqn = match &options.subnqn {
            Some(subnqn) => subnqn.clone(),
            None => discover(address, options)?,
        };

        let mut admin = Queue::open_for(address, options, &subnqn)?;
        admin.connect(0, 32, 0xffff, options, &subnqn)?;
        admin.enable()?;
        Ok(Self {
            numbers: active(&mut admin)?,
            subnqn,
        })
    }
}

impl Client {
    /// Numbers of the namespaces that this host sees, in ascending order.
    ///
    /// # Errors
    /// The connection failed.
    pub fn namespaces(&mut self) -> Result<Vec<u32>, ClientError> {
        self.admin(active)
    }
}

fn active(admin: &mut Queue) -> Result<Vec<u32>, ClientError> {
    let list = admin.identify(cns::ACTIVE_NAMESPACES, 0)?;
    let numbers = list.as_chunks::<4>().0.iter();
    // Zeroes follow the last one.
    let numbers = numbers.map(|bytes| u32::from_le_bytes(*bytes));
    Ok(numbers.take_while(|nsid| *nsid > 0).collect())
}
