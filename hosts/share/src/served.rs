//! A served device: standard Copy, within a namespace and across namespaces (descriptor format 2).
//!
//! Invariants: each namespace has its own connection; those without writes are closed when there
//! are many, since a server limits the connections of a host. Absent: excluding other hosts;
//! callers that need that compare the device's counters before and after.

use crate::namespaces::{Counts, NamespacePage, Namespaces, ShareError};
use remap_ssd_device::Disk;
use remap_ssd_media::geometry::PAGE_BYTES;
use remap_ssd_nvme::controller::NSID_MAX;
use remap_ssd_nvme::tcp::client::{Client, ClientError, Options, SeenNamespaces};
use std::collections::BTreeMap;

/// Maximum connections without writes that are kept open.
const CONNECTIONS: usize = 8;

/// The namespaces of a served device.
pub struct ServedNamespaces {
    address: String,
    options: Options,
    /// By namespace: a connection, and true if it was written through.
    clients: BTreeMap<u32, (Client, bool)>,
    /// Pages, in the order of the namespaces' numbers.
    sizes: Vec<u64>,
}

impl ServedNamespaces {
    /// Connects, and reads the sizes of all namespaces.
    ///
    /// # Errors
    /// The server cannot be reached, or refuses.
    pub fn connect(address: &str, options: Options) -> Result<Self, ClientError> {
        let SeenNamespaces { subnqn, numbers } = SeenNamespaces::ask(address, &options)?;

        // Across namespaces only if there are several: the host must enable that at the device.
        let options = Options {
            subnqn: Some(subnqn),
            copy_across: numbers.len() > 1,
            ..options
        };

        let mut served = Self {
            address: address.to_owned(),
            options,
            clients: BTreeMap::new(),
            sizes: Vec::new(),
        };

        // All sizes are read at once; excess connections are closed again. The limit holds for any
        // list that the controller returns.
        for nsid in numbers.into_iter().take_while(|nsid| *nsid <= NSID_MAX) {
            let client = served.open(nsid)?;
            // Numbers ascend; those in between have no pages.
            served.sizes.resize(nsid as usize - 1, 0);
            served.sizes.push(client.pages());
            served.keep(nsid, client);
        }
        Ok(served)
    }

    fn open(&self, nsid: u32) -> Result<Client, ClientError> {
        Client::connect(
            self.address.as_str(),
            Options {
                nsid,
                ..self.options.clone()
            },
        )
    }

    fn keep(&mut self, nsid: u32, client: Client) {
        if self.clients.len() >= CONNECTIONS {
            // A connection without writes has nothing to lose.
            let unwritten = self
                .clients
                .iter()
                .find(|(_, (_, wrote))| !wrote)
                .map(|(nsid, _)| *nsid);
            unwritten.map(|nsid| self.clients.remove(&nsid));
        }
        self.clients.insert(nsid, (client, false));
    }

    fn client(&mut self, nsid: u32) -> Result<&mut Client, ShareError> {
        Ok(&mut self.connected(nsid)?.0)
    }

    fn client_to_write(&mut self, nsid: u32) -> Result<&mut Client, ShareError> {
        let (client, wrote) = self.connected(nsid)?;
        *wrote = true;
        Ok(client)
    }

    fn connected(&mut self, nsid: u32) -> Result<&mut (Client, bool), ShareError> {
        let none = || {
            ShareError::Refused(format!(
                "there is no namespace {nsid}, only {}",
                self.sizes.len()
            ))
        };
        if self.pages(nsid) == 0 {
            return Err(none());
        }
        if !self.clients.contains_key(&nsid) {
            let client = self.open(nsid).map_err(ShareError::device)?;
            self.keep(nsid, client);
        }
        self.clients
            .get_mut(&nsid)
            .ok_or_else(|| ShareError::Refused(format!("there is no namespace {nsid}")))
    }
}

impl Namespaces for ServedNamespaces {
    fn count(&self) -> u32 {
        self.sizes.len() as u32
    }

    fn pages(&self, nsid: u32) -> u64 {
        self.sizes
            .get((nsid as usize).wrapping_sub(1))
            .copied()
            .unwrap_or(0)
    }

    fn read(&mut self, at: NamespacePage, into: &mut [u8]) -> Result<(), ShareError> {
        Disk::read(self.client(at.nsid)?, at.page, into).map_err(ShareError::device)
    }

    fn write(&mut self, at: NamespacePage, page: &[u8; PAGE_BYTES]) -> Result<(), ShareError> {
        Disk::write(self.client_to_write(at.nsid)?, at.page, page).map_err(ShareError::device)
    }

    fn trim(&mut self, at: NamespacePage, pages: u64) -> Result<(), ShareError> {
        Disk::trim(self.client_to_write(at.nsid)?, at.page, pages).map_err(ShareError::device)
    }

    fn flush(&mut self) -> Result<(), ShareError> {
        // A flush covers one namespace; those that were only read have nothing to flush.
        for (client, _) in self.clients.values_mut().filter(|(_, wrote)| *wrote) {
            Disk::flush(client).map_err(ShareError::device)?;
        }
        Ok(())
    }

    fn share(
        &mut self,
        from: NamespacePage,
        to: NamespacePage,
        pages: u64,
    ) -> Result<(), ShareError> {
        let shift = self.client(from.nsid)?.lba_shift();
        let target = self.client_to_write(to.nsid)?;

        // Refused here with a message: the device would only return a status.
        if !target.can_copy(from.nsid != to.nsid) {
            let which = if from.nsid == to.nsid {
                ""
            } else {
                " from one namespace to another"
            };
            return Err(ShareError::Refused(format!(
                "the device has no Copy command{which}"
            )));
        }

        if shift != target.lba_shift() {
            return Err(ShareError::Refused(format!(
                "namespaces {} and {} have blocks of different sizes, and Copy does not go from one to the other",
                from.nsid, to.nsid
            )));
        }

        let blocks = |pages: u64| pages * (PAGE_BYTES as u64 >> shift);
        let source = (from.nsid != to.nsid).then_some(from.nsid);

        target
            .copy_from(source, blocks(from.page), blocks(to.page), blocks(pages))
            .map_err(ShareError::device)
    }

    fn counts(&mut self) -> Result<Counts, ShareError> {
        let client = self.client(1)?;
        let values = client.statistics().map_err(|error| match error {
            ClientError::Status { .. } => ShareError::Refused(
                "the device has no log page C0h, which counts what it shares: only a device of `remap-ssd serve` has it".into(),
            ),
            _ => ShareError::device(error),
        })?;
        Ok(Counts::of_statistics(&values))
    }
}
