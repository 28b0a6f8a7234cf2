//! Commands executed in slices have the same effect as if executed at once.

use crate::kit::{self, Rig};
use proptest::prelude::*;
use remap_ssd_nvme::controller::{COPY_BYTES_MAX, NamespaceSpec};
use remap_ssd_nvme::tcp::client::Client;

const PAGE: usize = 4096;
const PAGES: usize = 4 << 10;

/// Content of the device: a number in each page, 0 for zeroes.
fn numbered(pages: &[u16]) -> Vec<u8> {
    pages
        .iter()
        .flat_map(|number| number.to_le_bytes().repeat(PAGE / 2))
        .collect()
}

/// A device with numbered pages, except for some that are not mapped.
fn filled(rig: &Rig, unit: u64) -> (Client, Vec<u16>) {
    let mut client = rig.client();
    let mut model: Vec<u16> = (1..=PAGES as u16).collect();
    for (first, pages) in (0u64..).step_by(256).zip(model.chunks(256)) {
        client
            .write(first * unit, &numbered(pages))
            .expect("served");
    }
    for hole in (0..PAGES as u64).step_by(97) {
        client.trim(hole * unit, 3 * unit).expect("served");
        model[hole as usize..(hole as usize + 3).min(PAGES)].fill(0);
    }
    (client, model)
}

fn remapped(model: &[u16], from: usize, to: usize, len: usize, relocate: bool) -> Vec<u16> {
    let mut after = model.to_vec();
    if relocate {
        after[from..from + len].fill(0);
    }
    after[to..to + len].copy_from_slice(&model[from..from + len]);
    after
}

/// Copies longer than one command, split by the client: to a range apart from the source, and to
/// one that overlaps it in either direction.
#[test]
fn a_copy_of_several_commands_reads_as_if_all_sources_were_read_first() {
    const COMMAND_PAGES: usize = (COPY_BYTES_MAX / PAGE as u64) as usize;
    const LEN: usize = 2 * COMMAND_PAGES + 100;
    let pages = 2 * LEN + 1;

    for (from, to) in [(0, LEN + 1), (LEN, 0), (0, 300), (300, 0)] {
        let rig = Rig::with(kit::device((pages * PAGE) as u64, false), &[]);
        let mut client = rig.client();
        let mut model: Vec<u16> = (1..=pages as u16).collect();
        for (first, pages) in (0..).step_by(256).zip(model.chunks(256)) {
            client.write(first, &numbered(pages)).expect("served");
        }

        client
            .copy(from as u64, to as u64, LEN as u64)
            .expect("served");

        model.copy_within(from..from + LEN, to);
        for (first, pages) in (0..).step_by(256).zip(model.chunks(256)) {
            let read = client.read(first, pages.len() as u64).expect("served");
            assert!(
                read == numbered(pages),
                "{from} to {to}: page {first} and on"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    // Ranges that overlap in either direction, by less and by more than one slice remaps.
    #[test]
    fn a_long_remap_reads_as_if_all_sources_were_read_first(
        from in 0usize..1500, shift in -700isize..700, len in 1usize..1500, relocate: bool
    ) {
        let to = from.saturating_add_signed(shift);
        let rig = Rig::with(kit::device((PAGES * PAGE) as u64, false), &[]);
        let (mut client, model) = filled(&rig, 1);
        client.remap(from as u64, to as u64, len as u32, relocate, false).expect("served");
        let expected = remapped(&model, from, to, len, relocate && from != to);
        prop_assert!(client.read(0, PAGES as u64).expect("served") == numbered(&expected));
    }

    #[test]
    fn a_long_range_that_is_zeroed_or_moved_in_blocks_of_512_bytes_has_its_ends_where_they_are(
        first in 0usize..6000, len in 1usize..20_000, crooked in 1usize..8
    ) {
        let spec = NamespaceSpec { pages: PAGES as u32, lba_shift: 9 };
        let rig = Rig::with(kit::device((PAGES * PAGE) as u64, false), &[spec]);
        let (mut client, model) = filled(&rig, 8);
        let mut bytes = numbered(&model);

        client.copy(first as u64, (first + 4096 + crooked) as u64, 3000).expect("served");
        bytes.copy_within(first * 512..(first + 3000) * 512, (first + 4096 + crooked) * 512);
        for (at, len) in [(first, len), (first + len, 1)] {
            let mut sqe = client.rw(remap_ssd_nvme::spec::opcode::io::WRITE_ZEROES, at as u64, (len - 1) as u16);
            sqe.nsid = 1;
            let call = remap_ssd_nvme::tcp::client::Call::new(sqe);
            client.queue(|queue| queue.call("zero", &call)).expect("served");
            bytes[at * 512..(at + len) * 512].fill(0);
        }
        prop_assert!(client.read(0, (PAGES * 8) as u64).expect("served") == bytes);
    }
}
