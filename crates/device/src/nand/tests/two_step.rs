//! Word lines that are programmed in two steps.

use super::host::spec;
use super::units::{LARGE, nand, op, submit};
use crate::config::Latencies;
use crate::nand::{CellTimes, DieState, Nand, NandSpec};
use crate::step::{DataPath, Step};
use remap_ssd_media::{After, ClearId, OpKind, Purpose, WordLine};

const READ: u64 = 50_000;
const COARSE: u64 = 300_000;
const FINE: u64 = 500_000;
const ERASE: u64 = 3_500_000;
/// Pages of 4 KiB of a word line.
const LINE: u32 = 16;
const LINES: u32 = 48;

/// A die of QLC without channels or a link.
fn qlc(buffer_units: u32) -> Nand {
    dies_of_qlc(1, buffer_units)
}

fn dies_of_qlc(dies: u32, buffer_units: u32) -> Nand {
    let flash = NandSpec {
        command_ns: [0; 3],
        transfer_ns: 0,
        buffer_units,
        program: CellTimes::new(&[COARSE, FINE]).unwrap(),
        two_step: true,
        ..spec(READ - 20, 0, 0)
    };
    let cells = WordLine {
        bits: 4,
        one_shot: true,
        ..LARGE
    };
    nand(dies, cells, flash, Latencies::default())
}

/// Writes whole word lines, one request each, and returns the ends of these requests.
fn write(nand: &mut Nand, lines: std::ops::Range<u32>) -> Vec<u64> {
    let mut ends = vec![0; lines.len()];
    for line in lines.clone() {
        let pages = line * LINE..(line + 1) * LINE;
        submit(
            nand,
            line - lines.start,
            nand.now(),
            OpKind::Program,
            pages,
            0,
        );
    }
    while let Some(end) = nand.next_end() {
        ends[end.request as usize] = end.at;
    }
    ends
}

fn read(nand: &mut Nand, at: u64, page: u32) -> u64 {
    submit(nand, 0, at, OpKind::Read, page..page + 1, 0);
    nand.next_end().unwrap().at - at
}

// Coarse 0, coarse 1, fine 0, coarse 2, fine 1; the fine step of the last one waits for the next word line.
#[test]
fn the_fine_step_follows_the_next_coarse_one_and_pages_are_read_from_the_buffer_until_then() {
    let mut nand = qlc(8);
    assert_eq!(write(&mut nand, 0..3), [0; 3]);
    let fine_0 = 2 * COARSE + FINE;
    assert_eq!(read(&mut nand, fine_0 - 1, 0), 0, "from the buffer");
    // The die has begun the third coarse step, and then reads first.
    assert_eq!(read(&mut nand, fine_0, 0), COARSE + READ);
    assert_eq!(nand.settle(), fine_0 + COARSE + READ + FINE);

    let now = 5_000_000;
    assert_eq!(
        read(&mut nand, now, LINE),
        READ,
        "the second one is on flash"
    );
    assert_eq!(
        read(&mut nand, now + READ, 2 * LINE),
        0,
        "the third one is not"
    );
    nand.advance(now + READ);
    write(&mut nand, 3..4);
    assert_eq!(nand.settle(), now + READ + COARSE + FINE);
    assert_eq!(read(&mut nand, 9_000_000, 2 * LINE), READ);
}

// No coarse step follows the last word line of a block.
#[test]
fn a_full_block_is_on_flash_as_a_whole() {
    let mut nand = qlc(64);
    write(&mut nand, 0..LINES);
    let all = u64::from(LINES) * (COARSE + FINE);
    assert_eq!(nand.settle(), all);
    assert_eq!(read(&mut nand, all, LINES * LINE - 1), READ);
}

#[test]
fn a_word_line_keeps_its_room_until_its_fine_step() {
    let fine_0 = 2 * COARSE + FINE;
    let fine_1 = fine_0 + COARSE + FINE;
    assert_eq!(write(&mut qlc(3), 0..4), [0, 0, 0, fine_0]);
    assert_eq!(write(&mut qlc(2), 0..4), [0, 0, fine_0, fine_1]);
    // The next word line finds no room, but nothing else could go on.
    assert_eq!(write(&mut qlc(1), 0..4), [0, COARSE, fine_0, fine_1]);
}

// A block that is erased before it is full: the fine step that has waited is done first.
#[test]
fn an_erase_waits_for_no_further_word_line() {
    let mut nand = qlc(2);
    write(&mut nand, 0..1);
    assert_eq!(nand.settle(), COARSE);
    let mut erase = op(OpKind::Erase, Purpose::Gc, 0, After::ALL);
    erase.clear_id = ClearId(1);
    let now = 1_000_000;
    nand.step(None, now, Step::new(DataPath::Own, false), false, &[erase]);
    assert_eq!(write(&mut nand, 0..2), [now, now + FINE]);
    assert_eq!(nand.settle(), now + FINE + ERASE + 2 * COARSE + FINE);
}

// The second block of the superblock is not erased, as if a program of it had failed.
#[test]
fn an_erase_frees_the_room_of_all_blocks_of_its_superblock() {
    let mut nand = dies_of_qlc(2, 2);
    for die in 0..2 {
        let pages = die * LINE..(die + 1) * LINE;
        submit(&mut nand, die, 0, OpKind::Program, pages, die as u16);
    }
    while nand.next_end().is_some() {}
    assert_eq!(nand.settle(), COARSE);

    let mut erase = op(OpKind::Erase, Purpose::Gc, 0, After::ALL);
    erase.clear_id = ClearId(1);
    let now = 1_000_000;
    nand.step(None, now, Step::new(DataPath::Own, false), false, &[erase]);
    assert_eq!(nand.settle(), now + FINE + ERASE);
    let programming = nand.utilisation().die_ns[DieState::Program as usize];
    assert_eq!(programming, 2 * (COARSE + FINE));

    // Word lines of the next superblock, on the second die.
    let now = nand.now();
    for line in [1, 3] {
        let first = 2 * LINES * LINE + line * LINE;
        let pages = first..first + LINE;
        submit(&mut nand, line, now, OpKind::Program, pages, 1);
        assert_eq!(nand.next_end().unwrap().at, now);
    }
}
