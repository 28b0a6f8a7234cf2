//! Hosts that are sent away: a reset, a drop, a right that is taken back, a power cut, a namespace
//! that is detached. Once that is acknowledged no command of theirs has an effect, wherever it
//! waited meanwhile (Base 2.0 §3.7.2 for resets).

#[path = "../kit/mod.rs"]
mod kit;

mod busy;
mod line;
mod turns;
mod waiting;

use remap_ssd_nvme::spec::command::{RwCdw12, Sqe};
use remap_ssd_nvme::spec::management::sel;
use remap_ssd_nvme::spec::opcode::{admin, io};
use remap_ssd_nvme::tcp::client::entry;

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
    let sqe = Sqe {
        cdw10: sel::DETACH.into(),
        ..entry(admin::NAMESPACE_ATTACHMENT, 1)
    };
    let mut list: Vec<u8> = [1, cntlid].into_iter().flat_map(u16::to_le_bytes).collect();
    list.resize(4096, 0);
    (sqe, list)
}
