//! Superblocks in SLC mode: exact times of their programs and reads, and of pages that are folded.

use super::host::{AFTER, BEFORE, link};
use super::units::{LARGE, op, submit, unprotected};
use crate::nand::{CellTimes, Nand, NandSpec, SlcSpec};
use crate::step::{DataPath, Step};
use remap_ssd_media::geometry::Shape;
use remap_ssd_media::{After, Geometry, OpKind, Purpose, SlcArea, WordLine};

/// Flash pages of 16 KiB on two planes, for three bits: a word line has 24 pages of 4 KiB, in SLC mode 8.
const TLC: WordLine = WordLine {
    planes: 2,
    bits: 3,
    ..LARGE
};
/// Pages of a superblock: 32 word lines on one die.
const PAGES: u32 = 32 * 24;
/// Command cycles on two planes and the crossing of a page with its cycles, as in the test of units.
const COMMAND: u64 = 361 + 816;
const PAGE: u64 = 1248 + 12_288;

/// Of 16 superblocks on one die, the first is in SLC mode.
fn nand(spec: NandSpec) -> Nand {
    nand_with(spec, |geometry| SlcArea::new(geometry, 1))
}

fn nand_with(spec: NandSpec, area: impl Fn(&Geometry) -> SlcArea) -> Nand {
    let shape = Shape {
        channels: 1,
        dies: 1,
        superblocks: 16,
        pages_per_block: PAGES,
    };
    let geometry = Geometry::new(shape).and_then(|one| one.with_word_line(TLC));
    let geometry = geometry.expect("valid");
    let slc = SlcSpec {
        area: area(&geometry),
        read_ns: 25_000,
        program_ns: 200_000,
    };
    Nand::new(geometry, NandSpec { slc, ..spec }, link(4096))
}

/// Latencies of writes that follow each other, of `count` units of `unit` pages from `first` on.
fn writes(nand: &mut Nand, first: u32, unit: u32, count: u32) -> Vec<u64> {
    let mut latencies = Vec::new();
    for at in 0..count {
        let now = nand.now();
        let pages = first + at * unit..first + (at + 1) * unit;
        submit(nand, 0, now + BEFORE + 8, OpKind::Program, pages, 0);
        latencies.push(nand.next_end().expect("it ends").at + AFTER - now);
    }
    latencies
}

// Both have to cross the channel; the array then takes 200 us for 8 pages, or 1 ms for 24.
#[test]
fn a_flash_page_in_slc_mode_is_programmed_at_once() {
    let mut nand = nand(unprotected(40_000, 1_000_000));
    let slc = writes(&mut nand, 0, 8, 32);
    assert_eq!(
        slc,
        [57 + 8 * PAGE + COMMAND + 200_000 + 11; 32],
        "a whole block"
    );
    let tlc = writes(&mut nand, PAGES, 24, 2);
    assert_eq!(tlc, [57 + 24 * PAGE + COMMAND + 1_000_000 + 11; 2]);
}

// No program has a fine step, although other superblocks have two of 0.4 and 1.6 ms.
#[test]
fn word_lines_in_slc_mode_have_one_step() {
    let spec = NandSpec {
        program: CellTimes::new(&[400_000, 1_600_000]).expect("in order"),
        two_step: true,
        protected: true,
        ..unprotected(40_000, 0)
    };
    let mut nand = nand(spec);
    submit(&mut nand, 0, 0, OpKind::Program, 0..8, 0);
    assert_eq!(nand.settle(), 8 * PAGE + COMMAND + 200_000);
}

/// The time of a request that reads a page of an idle device.
fn read(page: u32) -> u64 {
    let mut nand = nand(unprotected(40_000, 1_000_000));
    submit(&mut nand, 0, 0, OpKind::Read, page..page + 1, 0);
    nand.next_end().expect("it ends").at
}

/// The time until collection has read four pages of a flash page for copies to a word line that is not full.
fn fold(page: u32) -> u64 {
    let mut nand = nand(unprotected(40_000, 1_000_000));
    let mut copies = op(OpKind::CopyRow, Purpose::Gc, 5 * PAGES, After::NOTHING);
    (copies.amount, copies.sources) = (page, 0b1111);
    nand.step(None, 0, Step::new(DataPath::Own, false), false, &[copies]);
    while nand.next_event(u64::MAX) {}
    nand.now()
}

#[test]
fn pages_in_slc_mode_are_read_and_folded_faster_by_the_difference_of_the_array() {
    let faster = 40_020 - 25_000;
    assert_eq!(read(PAGES + 3) - read(3), faster);
    assert_eq!(fold(PAGES + 8) - fold(8), faster, "one read for four pages");
}

/// The time of a write of pages of one unit, in this mode.
fn write(nand: &mut Nand, pages: std::ops::Range<u32>, is_slc: bool) -> u64 {
    let now = nand.now();
    nand.open(0);
    for page in pages {
        let mut op = op(OpKind::Program, Purpose::Host, page, After::NOTHING);
        op.amount = is_slc.into();
        let step = Step::new(DataPath::FromHost, false);
        nand.step(Some(0), now + BEFORE + 8, step, false, &[op]);
    }
    nand.close(0);
    nand.next_end().expect("it ends").at + AFTER - now
}

// The same superblock in SLC mode, with all bits, and in SLC mode again.
#[test]
fn a_superblock_has_the_mode_of_its_programs() {
    let mut nand = nand_with(unprotected(40_000, 1_000_000), SlcArea::dynamic);
    for _ in 0..2 {
        for line in 0..3 {
            let slc = write(&mut nand, 8 * line..8 * line + 8, true);
            assert_eq!(slc, 57 + 8 * PAGE + COMMAND + 200_000 + 11);
        }
        let now = nand.now();
        submit(&mut nand, 0, now, OpKind::Read, 3..4, 0);
        let in_slc = nand.next_end().expect("it ends").at - now;
        assert_eq!(in_slc, read(3));
        for line in 0..2 {
            let tlc = write(&mut nand, 24 * line..24 * line + 24, false);
            assert_eq!(tlc, 57 + 24 * PAGE + COMMAND + 1_000_000 + 11);
        }
        let now = nand.now();
        submit(&mut nand, 0, now, OpKind::Read, 3..4, 0);
        let in_full = nand.next_end().expect("it ends").at - now;
        assert_eq!(in_full, read(PAGES + 3));
    }
}
