//! A guest that keeps to nothing: registers, queues and lists of any content.

use super::driver::*;
use proptest::prelude::*;
use remap_ssd_nvme::spec::command::Sqe;
use remap_ssd_nvme::spec::opcode::{admin, io};
use remap_ssd_nvme::spec::status::Status;
use std::os::fd::AsRawFd;

/// What a guest may do that has lost its mind.
#[derive(Clone, Debug)]
enum Whim {
    /// A register, as likely as not one that there is.
    Register {
        offset: u64,
        value: u32,
    },
    /// Something in its memory, at one of the places that the device reads.
    Memory {
        place: usize,
        at: u64,
        value: u64,
    },
    /// A command that resembles one.
    Command {
        qid: usize,
        opcode: u8,
        dwords: [u32; 3],
        prps: [u64; 2],
        nsid: u32,
    },
    /// A part of memory comes or goes.
    Unmap,
    Map,
}

fn address() -> impl Strategy<Value = u64> {
    let page = (0..BYTES / 4096).prop_map(|page| BASE + page * 4096);
    let end = (0..16u64).prop_map(|at| BASE + BYTES - 8 * at);
    prop_oneof![4 => page, 1 => end, 1 => BASE..BASE + 0x10_0000, 1 => any::<u64>(), 1 => Just(0)]
}

fn whim() -> impl Strategy<Value = Whim> {
    let registers = prop::sample::select(vec![
        0u64, 0x14, 0x1c, 0x24, 0x28, 0x2c, 0x30, 0x34, 0x1000, 0x1004, 0x1008, 0x100c,
    ]);
    let offset = prop_oneof![4 => registers, 1 => 0..0x5000u64];
    let value = prop_oneof![
        Just(0x0046_0001u32),
        Just(0),
        0..40u32,
        any::<u32>(),
        Just(0x000f_000f)
    ];
    let opcode = prop_oneof![
        prop::sample::select(vec![
            0u8, 1, 2, 4, 5, 6, 8, 9, 0x0a, 0x0c, 0x18, 0x19, 0x90, 0x91, 0x92, 0x94
        ]),
        any::<u8>()
    ];
    let dword = prop_oneof![0..4u32, 0..70_000u32, any::<u32>(), Just(0x000f_0001)];
    prop_oneof![
        3 => (offset, value).prop_map(|(offset, value)| Whim::Register { offset, value }),
        2 => (0..4usize, 0..512u64, prop_oneof![address(), any::<u64>()])
            .prop_map(|(place, at, value)| Whim::Memory { place, at, value }),
        9 => (0..2usize, opcode, prop::array::uniform3(dword), prop::array::uniform2(address()), prop_oneof![Just(1u32), any::<u32>()])
            .prop_map(|(qid, opcode, dwords, prps, nsid)| Whim::Command { qid, opcode, dwords, prps, nsid }),
        1 => Just(Whim::Unmap),
        2 => Just(Whim::Map),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_guest_ends_the_service(whims in prop::collection::vec(whim(), 1..150)) {
        let rig = Rig::new();
        let mut guest = rig.guest();
        guest.enable();
        guest.create_queues();
        let manages = [admin::NAMESPACE_MANAGEMENT, admin::NAMESPACE_ATTACHMENT];
        let mut may_lose_namespace = false;
        for whim in whims {
            match whim {
                Whim::Register { offset, value } => guest.write(offset, value),
                Whim::Memory { place, at, value } => {
                    let place = [ADMIN_SQ, IO_SQ, BASE + 0x8000, DATA][place];
                    guest.put(place + at * 8, &value.to_le_bytes());
                }
                Whim::Command { qid, opcode, dwords, prps, nsid } => {
                    may_lose_namespace |= manages.contains(&opcode);
                    let sqe = Sqe { nsid, ..command(opcode, dwords, prps) };
                    guest.submit(qid, sqe);
                    let head = guest.queues[qid].tail;
                    guest.write(0x1004 + qid as u64 * 8, head.into());
                }
                Whim::Unmap => guest.client.dma_unmap(BASE, BYTES).expect("answered"),
                // Refused if it is there.
                Whim::Map => guest.client.dma_map(0, BASE, BYTES, guest.memory.as_raw_fd()).expect("sent"),
            }
        }
        drop(guest);
        // The next guest finds a device that works, and everything in order. Its namespace may be gone: guests may delete it.
        let mut guest = rig.guest();
        prop_assert_eq!(guest.enable(), 1);
        guest.create_queues();
        let flushed = guest.io(command(io::FLUSH, [0; 3], [0; 2]));
        let gone = may_lose_namespace && flushed.code() == Status::INVALID_NAMESPACE.code();
        prop_assert!(flushed == Status::SUCCESS || gone, "{flushed:?}");
        drop(guest);
        prop_assert_eq!(rig.subsystem.device().ftl().check(), Ok(()));
        rig.stop();
    }
}
