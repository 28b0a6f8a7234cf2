//! Requested data: R2T out, H2CData in.
//!
//! Invariants: data requested at the same time are bounded; data arrive in order and have the
//! requested length. Absent: use of the data.

use super::cids::Cids;
use crate::controller::{IoCommand, Outcome};
use crate::spec::command::Sqe;
use crate::spec::pdu::{Data, FatalError, Flags, kind, offset};
use crate::tcp::wire::{self, Agreement, Fault, Pdu};
use std::collections::{BTreeMap, VecDeque};

/// Maximum data requested at the same time on one connection.
const GRANTED_BYTES_MAX: u64 = 8 << 20;

/// A command whose data the host must send.
pub(super) struct Incoming {
    pub sqe: Sqe,
    /// `None`: an admin, fabrics or reservation command.
    pub command: Option<IoCommand>,
    /// Bytes requested, and received.
    pub total: u32,
    received: u32,
    /// Time of the request.
    granted: Option<u64>,
    /// True if there is no memory for the data: they are skipped.
    pub refused: bool,
    /// Bytes charged for gathered data.
    pub charged: usize,
    /// Data received but not executed.
    pub gathered: Vec<u8>,
    /// Outcome of the first parts, if some were executed as they arrived.
    pub outcome: Option<Outcome>,
    /// The subsystem's number of commands before the first of them began.
    pub began: u64,
    /// True if data arrived with a wrong digest. Then no more of it is executed.
    pub damaged: bool,
}

impl Incoming {
    /// Bytes whose part of the command has been executed.
    pub(super) fn executed(&self) -> u32 {
        self.received - self.gathered.len() as u32
    }
}

/// Data that have arrived for a transfer.
#[derive(Clone, Copy)]
pub(super) struct Arrived {
    pub tag: u16,
    /// True if they are the last ones.
    pub last: bool,
}

/// All transfers of a connection.
#[derive(Default)]
pub(super) struct Transfers {
    incoming: BTreeMap<u16, Incoming>,
    cids: Cids,
    next_tag: u16,
    granted_bytes: u64,
    /// Transfers waiting to be granted.
    waiting: VecDeque<u16>,
}

impl Transfers {
    pub(super) fn len(&self) -> usize {
        self.incoming.len()
    }

    /// Returns true if this command waits for data.
    pub(super) fn has(&self, cid: u16) -> bool {
        self.cids.contains(cid)
    }

    /// Adds a command whose data will be requested when memory allows. They may already be charged.
    pub(super) fn add(&mut self, sqe: Sqe, command: Option<IoCommand>, total: u32, charged: usize) {
        // Tags are ours: use the next free one, so that late data of an old transfer match none.
        while self.incoming.contains_key(&self.next_tag) {
            self.next_tag = self.next_tag.wrapping_add(1);
        }
        let tag = self.next_tag;
        self.next_tag = tag.wrapping_add(1);

        let (gathered, outcome) = (Vec::new(), None);
        let (received, granted, refused, damaged, began) = (0, None, false, false, 0);
        self.cids.insert(sqe.head().cid());
        let incoming = Incoming {
            sqe,
            command,
            total,
            received,
            granted,
            refused,
            charged,
            gathered,
            outcome,
            began,
            damaged,
        };

        self.incoming.insert(tag, incoming);
        self.waiting.push_back(tag);
    }

    /// Requests the data of waiting commands, as far as the limit allows.
    pub(super) fn grant(&mut self, agreed: Agreement, now: u64, out: &mut Vec<u8>) {
        while let Some(tag) = self.waiting.front().copied()
            && let Some(incoming) = self.incoming.get_mut(&tag)
            // One transfer is always granted, of any length; otherwise it would wait forever.
            && (self.granted_bytes == 0
                || self.granted_bytes + u64::from(incoming.total) <= GRANTED_BYTES_MAX)
        {
            self.waiting.pop_front();
            self.granted_bytes += u64::from(incoming.total);
            incoming.granted = Some(now);
            let data = Data::new(incoming.sqe.head().cid(), tag, 0, incoming.total);
            wire::put(out, kind::R2T, Flags::new(), &data, agreed);
        }
    }

    /// Checks that data are the next of a transfer; they count as received from now on.
    pub(super) fn arrive(&mut self, pdu: &Pdu<'_>) -> Result<Arrived, Fault> {
        let header = wire::data_header(pdu)?;
        // Data that were not requested end the connection.
        let incoming = self
            .incoming
            .get_mut(&header.ttag)
            .filter(|incoming| incoming.granted.is_some());
        let incoming = incoming.ok_or(Fault::field(offset::TTAG))?;
        if header.cid != incoming.sqe.head().cid() {
            return Err(Fault::field(offset::CID));
        }
        let fits = header.offset == incoming.received && header.length as usize == pdu.data.len();
        if !fits
            || pdu.data.is_empty()
            || pdu.data.len() > (incoming.total - incoming.received) as usize
        {
            return Err(FatalError::OutOfRange.into());
        }

        // Counted before they are processed: they have arrived in any case.
        incoming.received += header.length;
        incoming.damaged |= pdu.damaged;
        let last = incoming.received == incoming.total;
        if last != pdu.common.flags.last() {
            return Err(Fault::field(offset::FLAGS));
        }
        // The caller gathers or executes them.
        Ok(Arrived {
            tag: header.ttag,
            last,
        })
    }

    /// Restarts all waits for requested data.
    pub(super) fn begin_anew(&mut self, now: u64) {
        let granted = self.incoming.values_mut();
        for since in granted.filter_map(|incoming| incoming.granted.as_mut()) {
            *since = now;
        }
    }

    /// Time at which the oldest incomplete transfer was granted.
    pub(super) fn oldest_grant(&self) -> Option<u64> {
        self.incoming
            .values()
            .filter_map(|incoming| incoming.granted)
            .min()
    }

    pub(super) fn get(&mut self, tag: u16) -> Option<&mut Incoming> {
        self.incoming.get_mut(&tag)
    }

    /// Removes a complete transfer, and frees its tag.
    pub(super) fn finish(&mut self, tag: u16) -> Option<Incoming> {
        let incoming = self.incoming.remove(&tag)?;
        // Its share may be granted to the next transfer.
        self.cids.remove(incoming.sqe.head().cid());
        self.granted_bytes -= u64::from(incoming.total);
        Some(incoming)
    }
}
