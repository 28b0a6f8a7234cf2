//! A function whose host has shut its controller down (CC.SHN): it fetches no command before a reset
//! (Base 2.0 §3.6.1, and CSTS.SHST in §3.1.3.6).

use crate::driver::*;
use remap_ssd_nvme::spec::command::Sqe;
use remap_ssd_nvme::spec::fabrics::Cc;
use remap_ssd_nvme::spec::identify::cns;
use remap_ssd_nvme::spec::opcode::{admin, io};
use remap_ssd_nvme::spec::status::Status;

const CC: u64 = 0x14;
const CSTS: u64 = 0x1c;
/// CC of an enabled controller.
const ENABLED: u32 = 0x0046_0001;
/// CSTS.RDY, and CSTS.SHST of a shutdown that is complete.
const READY: u32 = 1;
const SHUT_DOWN: u32 = 2 << 2;
/// How often the function is looked at: its thread runs between two of them, sooner or later, so
/// that it would execute commands in some round.
const ROUNDS: u8 = 40;

/// Writes a page of this byte to block 8.
fn write(guest: &Guest, byte: u8) -> Sqe {
    guest.put(DATA, &[byte; 4096]);
    command(io::WRITE, [8, 0, 0], [DATA, 0])
}

fn identify() -> Sqe {
    let cdw10 = u32::from(cns::CONTROLLER);
    command(admin::IDENTIFY, [cdw10, 0, 0], [DATA + 0x2000, 0])
}

/// The first byte of block 8.
fn byte(guest: &mut Guest) -> u8 {
    let read = command(io::READ, [8, 0, 0], [DATA + 0x1000, 0]);
    assert_eq!(guest.io(read), Status::SUCCESS);
    guest.get(DATA + 0x1000, 1)[0]
}

#[test]
fn a_function_that_is_shut_down_fetches_nothing_until_it_is_reset() {
    let rig = Rig::new();
    let mut guest = rig.guest();
    let announced = Cc::from_bits(ENABLED).with_shn(1).into_bits();
    for round in 1..=ROUNDS {
        assert_eq!(guest.enable(), READY);
        guest.create_queues();
        let sqe = write(&guest, round);
        assert_eq!(guest.io(sqe), Status::SUCCESS);
        let before = rig.subsystem.health();

        // Commands of both kinds of queue stay where they are, also after the announcement was taken
        // back without a reset.
        guest.write(CC, announced);
        assert_eq!(guest.read(CSTS), READY | SHUT_DOWN);
        let sqe = write(&guest, 0xff);
        guest.submit(1, sqe);
        guest.submit(0, identify());
        for cc in [announced, ENABLED] {
            guest.write(CC, cc);
            assert_eq!(guest.read(CSTS), READY | SHUT_DOWN, "round {round}");
        }
        std::thread::yield_now();
        assert!(guest.peek(0).is_none(), "round {round}: an admin command");
        assert!(guest.peek(1).is_none(), "round {round}: an I/O command");

        // A reset forgets them, and the host begins anew.
        guest.write(CC, 0);
        assert_eq!(guest.read(CSTS), 0);
        let after = rig.subsystem.health();
        assert_eq!(after.sectors_written, before.sectors_written);
        assert_eq!(guest.enable(), READY);
        guest.create_queues();
        assert_eq!(byte(&mut guest), round);
        guest.write(CC, 0);
    }
    drop(guest);
    rig.stop();
}
