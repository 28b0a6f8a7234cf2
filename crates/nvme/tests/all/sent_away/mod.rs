//! Hosts that are sent away: a reset, a drop, a right that is taken back, a power cut, a namespace
//! that is detached or deleted, a queue that is disconnected, a shutdown. Once that is acknowledged no command of theirs has an effect, wherever it
//! waited meanwhile (Base 2.0 §3.7.2 for resets).

mod busy;
pub mod line;
mod memory;
mod shut_down;
mod turns;
mod waiting;

use crate::kit::raw::transport;
use crate::kit::specified::fabrics;
use remap_ssd_nvme::spec::command::{RwCdw12, Sqe};
use remap_ssd_nvme::spec::management::{NewNamespace, sel};
use remap_ssd_nvme::spec::opcode::{admin, io};
use remap_ssd_nvme::tcp::client::entry;
use zerocopy::{FromZeros, IntoBytes};

const PAGE: usize = 4096;
const OWNER: &str = "nqn.2026-11.test:owner";
const GUEST: &str = "nqn.2026-11.test:guest";
/// Who may do what at first.
const HOSTS: [(&str, &str); 2] = [(OWNER, "all:rw"), (GUEST, "all:rw")];

/// A write of whole pages.
fn write(slba: u32, pages: usize, fua: bool) -> Sqe {
    let cdw12 = RwCdw12::new()
        .with_nlb_z((pages - 1) as u16)
        .with_fua(fua)
        .into_bits();
    Sqe {
        cdw10: slba,
        cdw12,
        ..entry(io::WRITE, 1)
    }
}

fn read(slba: u32, pages: usize) -> Sqe {
    Sqe {
        cdw0: io::READ.into(),
        ..write(slba, pages, false)
    }
}

/// Takes namespace 1 away from the host of a controller, and the list that goes with it.
fn detach(cntlid: u16) -> (Sqe, Vec<u8>) {
    attachment(sel::DETACH, &[cntlid])
}

fn attachment(selected: u8, cntlids: &[u16]) -> (Sqe, Vec<u8>) {
    let sqe = Sqe {
        cdw10: selected.into(),
        ..entry(admin::NAMESPACE_ATTACHMENT, 1)
    };
    let words = std::iter::once(cntlids.len() as u16).chain(cntlids.iter().copied());
    let mut list: Vec<u8> = words.flat_map(u16::to_le_bytes).collect();
    list.resize(4096, 0);
    (sqe, list)
}

/// Deletes namespace 1, makes it again, and attaches it to the hosts of these controllers.
fn make_again(cntlids: &[u16]) -> [(Sqe, Vec<u8>); 3] {
    let manage = |selected: u8, nsid| Sqe {
        cdw10: selected.into(),
        ..entry(admin::NAMESPACE_MANAGEMENT, nsid)
    };
    let mut new = NewNamespace::new_zeroed();
    (new.nsze, new.ncap) = (1024, 1024);
    [
        (transport(manage(sel::DELETE, 1), 0), Vec::new()),
        (manage(sel::CREATE, 0), new.as_bytes().to_vec()),
        attachment(sel::ATTACH, cntlids),
    ]
}

/// Disconnect of the queue that it is sent on.
fn disconnect() -> Sqe {
    transport(entry(admin::FABRICS, u32::from(fabrics::DISCONNECT)), 0)
}
