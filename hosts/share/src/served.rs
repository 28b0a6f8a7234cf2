//! A device behind the network: standard Copy, within a namespace and across them (descriptor format 2).
//!
//! Invariant: one connection for each namespace that is used. Absent: keeping other hosts away; whoever needs that looks at
//! the device's counts before and after.

use crate::namespaces::{Counts, Namespaces, Place, ShareError};
use remap_ssd_device::Disk;
use remap_ssd_media::geometry::PAGE_BYTES;
use remap_ssd_nvme::tcp::client::{Client, ClientError, Options};
use std::collections::BTreeMap;

/// The namespaces of a served device.
pub struct ServedNamespaces {
    address: String,
    options: Options,
    clients: BTreeMap<u32, Client>,
    count: u32,
}

impl ServedNamespaces {
    /// Connects, to all namespaces of which the device says that they are there.
    ///
    /// # Errors
    /// It cannot be reached, or refuses.
    pub fn connect(address: &str, options: Options) -> Result<Self, ClientError> {
        let first = Client::connect(address, Options { nsid: 1, ..options.clone() })?;
        let count = first.controller().nn;
        let options = Options { subnqn: Some(first.subnqn().to_owned()), copy_across: count > 1, ..options };
        let mut clients = BTreeMap::new();
        for nsid in 1..=count.min(128) {
            let client = Client::connect(address, Options { nsid, ..options.clone() })?;
            if client.namespace().nsze > 0 {
                clients.insert(nsid, client);
            }
        }
        Ok(Self { address: address.to_owned(), options, clients, count })
    }

    fn client(&mut self, nsid: u32) -> Result<&mut Client, ShareError> {
        let count = self.count;
        let none = || ShareError::Refused(format!("there is no namespace {nsid}, only {count}"));
        self.clients.get_mut(&nsid).ok_or_else(none)
    }

    /// Where it is, and how we have connected.
    pub fn address(&self) -> (&str, &Options) {
        (&self.address, &self.options)
    }
}

impl Namespaces for ServedNamespaces {
    fn count(&self) -> u32 {
        self.count
    }

    fn pages(&self, nsid: u32) -> u64 {
        self.clients.get(&nsid).map_or(0, Disk::pages)
    }

    fn read(&mut self, at: Place, into: &mut [u8]) -> Result<(), ShareError> {
        Disk::read(self.client(at.nsid)?, at.page, into).map_err(ShareError::device)
    }

    fn write(&mut self, at: Place, page: &[u8; PAGE_BYTES]) -> Result<(), ShareError> {
        Disk::write(self.client(at.nsid)?, at.page, page).map_err(ShareError::device)
    }

    fn trim(&mut self, at: Place, pages: u64) -> Result<(), ShareError> {
        Disk::trim(self.client(at.nsid)?, at.page, pages).map_err(ShareError::device)
    }

    fn flush(&mut self) -> Result<(), ShareError> {
        for client in self.clients.values_mut() {
            Disk::flush(client).map_err(ShareError::device)?;
        }
        Ok(())
    }

    fn share(&mut self, from: Place, to: Place, pages: u64) -> Result<(), ShareError> {
        let shift = self.client(from.nsid)?.lba_shift();
        let target = self.client(to.nsid)?;
        if !target.can_copy(from.nsid != to.nsid) {
            let which = if from.nsid == to.nsid { "" } else { " from one namespace to another" };
            return Err(ShareError::Refused(format!("the device has no Copy command{which}")));
        }
        if shift != target.lba_shift() {
            return Err(ShareError::Refused(format!(
                "namespaces {} and {} have blocks of different sizes, and Copy does not go from one to the other",
                from.nsid, to.nsid
            )));
        }
        let blocks = |pages: u64| pages * (PAGE_BYTES as u64 >> shift);
        let source = (from.nsid != to.nsid).then_some(from.nsid);
        target.copy_from(source, blocks(from.page), blocks(to.page), blocks(pages)).map_err(ShareError::device)
    }

    fn counts(&mut self) -> Result<Counts, ShareError> {
        let values = self.clients.values_mut().next().map(Client::statistics);
        let values = values.ok_or_else(|| ShareError::Refused("the device has no namespaces".into()))?;
        let values = values.map_err(ShareError::device)?;
        Ok(Counts::of_statistics(&values))
    }
}
