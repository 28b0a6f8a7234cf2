//! Commands after their host has shut its controller down: none is executed before a reset (Base 2.0
//! §3.6.2, and CSTS.SHST in §3.1.3.6).

use crate::kit::raw::{enabled, property_get, property_set, transport};
use crate::kit::specified::{cns, property};
use crate::kit::{self, allowed, device};
use crate::sent_away::line::{Line, capsule};
use crate::sent_away::{GUEST, HOSTS, OWNER, PAGE, read, write};
use remap_ssd_nvme::spec::fabrics::{Cc, Csts};
use remap_ssd_nvme::spec::opcode::{admin, io};
use remap_ssd_nvme::spec::pdu::kind;
use remap_ssd_nvme::spec::status::Status;
use remap_ssd_nvme::tcp::client::entry;
use remap_ssd_nvme::tcp::target::Port;
use std::sync::Arc;

/// CC of an enabled controller whose host announces a normal shutdown.
pub fn shut_down() -> u32 {
    Cc::from_bits(enabled()).with_shn(1).into_bits()
}

fn port() -> Arc<Port> {
    let device = device(16 << 20, false);
    let subsystem = Arc::new(kit::subsystem(device, &[]));
    Arc::new(Port::new(subsystem, allowed(&HOSTS)))
}

fn set_cc(admin: &mut Line, cc: u32) {
    let done = admin.calls(&property_set(property::CC, cc), &[]);
    assert_eq!(done.status(), Status::SUCCESS);
}

fn csts(admin: &mut Line) -> Csts {
    let done = admin.calls(&property_get(property::CSTS, false), &[]);
    assert_eq!(done.status(), Status::SUCCESS);
    Csts::from_bits(done.result as u32)
}

/// Writes a page of this byte to block 8.
fn writes(queue: &mut Line, byte: u8) -> Status {
    queue.calls(&write(8, 1, false), &[byte; PAGE]).status()
}

/// The first byte of block 8.
fn byte(queue: &mut Line) -> u8 {
    let sqe = transport(read(8, 1), PAGE as u32);
    let answers = queue.says(&capsule(&sqe, &[])).expect("it goes on");
    let data = answers
        .iter()
        .find(|one| one.common.kind == kind::C2H_DATA)
        .expect("data");
    data.data[0]
}

#[test]
fn a_controller_that_is_shut_down_executes_nothing_until_it_is_reset() {
    let port = port();
    let (mut admin, cntlid) = Line::admin(&port, GUEST);
    let mut queue = Line::io(&port, GUEST, cntlid);
    let (_owner, owner_cntlid) = Line::admin(&port, OWNER);
    let mut owner = Line::io(&port, OWNER, owner_cntlid);
    assert_eq!(writes(&mut queue, 1), Status::SUCCESS);

    // Registers answer on, also after the announcement was taken back without a reset.
    let identify = |admin: &mut Line| {
        let mut sqe = transport(entry(admin::IDENTIFY, 0), 4096);
        sqe.cdw10 = cns::CONTROLLER.into();
        admin.calls(&sqe, &[]).status()
    };
    for cc in [shut_down(), enabled()] {
        set_cc(&mut admin, cc);
        assert_eq!((csts(&mut admin).shst(), csts(&mut admin).rdy()), (2, true));
        assert_eq!(writes(&mut queue, 2), Status::SEQUENCE);
        let read = transport(read(8, 1), PAGE as u32);
        assert_eq!(queue.calls(&read, &[]).status(), Status::SEQUENCE);
        let flush = transport(entry(io::FLUSH, 1), 0);
        assert_eq!(queue.calls(&flush, &[]).status(), Status::SEQUENCE);
        assert_eq!(identify(&mut admin), Status::SEQUENCE);
        assert_eq!(byte(&mut owner), 1, "other hosts go on");
    }

    // A reset, and the host begins anew.
    set_cc(&mut admin, 0);
    assert_eq!(csts(&mut admin).shst(), 0);
    set_cc(&mut admin, enabled());
    assert_eq!(csts(&mut admin).shst(), 0);
    let mut queue = Line::io(&port, GUEST, cntlid);
    assert_eq!(writes(&mut queue, 3), Status::SUCCESS);
    assert_eq!(byte(&mut owner), 3);
}

#[test]
fn a_host_that_shuts_its_controller_down_and_connects_again_goes_on() {
    let port = port();
    let (mut admin, cntlid) = Line::admin(&port, GUEST);
    let mut queue = Line::io(&port, GUEST, cntlid);
    assert_eq!(writes(&mut queue, 1), Status::SUCCESS);
    set_cc(&mut admin, shut_down());

    // Another controller of the same host is another one, while the first is still there or not.
    let (_second, cntlid) = Line::admin(&port, GUEST);
    let mut second = Line::io(&port, GUEST, cntlid);
    assert_eq!(writes(&mut second, 2), Status::SUCCESS);
    drop((queue, admin));
    assert_eq!(byte(&mut second), 2);
}
