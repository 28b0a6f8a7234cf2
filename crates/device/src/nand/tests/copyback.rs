//! Copies inside a die, which do not cross the channel.

use super::units::{nand, op, submit, unprotected};
use crate::config::Latencies;
use crate::nand::{Nand, NandSpec};
use crate::step::{DataPath, Step};
use remap_ssd_media::{After, ClearId, Op, OpKind, Purpose, WordLine};

/// Pages of a block: dies are dealt to in turn, so each page of a die's block is `dies` after the last.
const BLOCK: u32 = 16 * 48;
const READ: u64 = 40_020;
const PROGRAM: u64 = 400_000;
const DATA: u64 = 12_288;
const COPYBACK: u64 = 290 + 361 + READ + PROGRAM;
const COPY: u64 = 290 + READ + DATA + 361 + DATA + PROGRAM;

/// Dies on one channel, with pages of 4 KiB.
fn flash(dies: u32, copybacks: u8) -> Nand {
    let flash = NandSpec {
        copybacks,
        protected: true,
        ..unprotected(40_000, PROGRAM)
    };
    nand(dies, WordLine::SINGLE, flash, Latencies::default())
}

/// Collection copies a page, from and to these dies; returns how long that takes.
fn copy(nand: &mut Nand, from: (u32, u16), to: (u32, u16)) -> u64 {
    let now = nand.settle();
    let on = |kind, (page, die)| Op {
        die,
        ..op(kind, Purpose::Gc, page, After::NOTHING)
    };
    let ops = [on(OpKind::Read, from), on(OpKind::Program, to)];
    nand.step(None, now, Step::new(DataPath::Own, false), false, &ops);
    nand.settle() - now
}

#[test]
fn a_copy_within_a_die_does_not_cross_the_channel() {
    let mut one = flash(1, 0);
    assert_eq!(copy(&mut one, (BLOCK, 0), (0, 0)), COPY);
    assert_eq!(one.utilisation().copybacks, None);

    let mut two = flash(2, 9);
    assert_eq!(copy(&mut two, (2 * BLOCK, 0), (0, 0)), COPYBACK);
    assert_eq!(
        copy(&mut two, (2 * BLOCK + 1, 1), (2, 0)),
        COPY,
        "another die"
    );
    let used = two.utilisation();
    assert_eq!(used.copybacks, Some(1));
    assert_eq!(used.channel_ns, 290 + 361 + 290 + 361 + 2 * DATA);
}

// The same for the copies of a row, of which the second one is from another die.
#[test]
fn copies_of_a_row_that_stay_on_their_dies_are_copybacks() {
    let mut nand = flash(2, 9);
    let mut row = op(OpKind::CopyRow, Purpose::Gc, 0, After::NOTHING);
    // Pages 0 and 3 of a superblock, on dies 0 and 1, become pages 0 and 1.
    (row.amount, row.sources) = (2 * BLOCK, 0b1001);
    nand.step(None, 0, Step::new(DataPath::Own, false), false, &[row]);
    // Both commands cross one after the other, and the arrays work side by side.
    assert_eq!(nand.settle(), 290 + 361 + COPYBACK);
    assert_eq!(nand.utilisation().copybacks, Some(2));

    // Pages 2 and 4 are on the first die, and the second one becomes page 3, on the second die.
    (row.page.0, row.amount, row.sources) = (2, 2 * BLOCK + 2, 0b101);
    let now = nand.now();
    nand.step(None, now, Step::new(DataPath::Own, false), false, &[row]);
    nand.settle();
    assert_eq!(nand.utilisation().copybacks, Some(3));
}

#[test]
fn after_so_many_copybacks_a_page_goes_through_the_controller() {
    let mut nand = flash(1, 2);
    let blocks = [5, 6, 7, 8, 9].map(|block| block * BLOCK);
    let mut times = Vec::new();
    for pair in blocks.windows(2) {
        times.push(copy(&mut nand, (pair[0], 0), (pair[1], 0)));
    }
    // The one that was corrected may be copied twice again.
    assert_eq!(times, [COPYBACK, COPYBACK, COPY, COPYBACK]);

    // A younger page in a block with such pages counts like them, until the block is erased.
    assert_eq!(copy(&mut nand, (blocks[2] + 1, 0), (0, 0)), COPY);
    let mut erase = op(OpKind::Erase, Purpose::Gc, blocks[2], After::NOTHING);
    erase.clear_id = ClearId(1);
    let now = nand.now();
    nand.step(None, now, Step::new(DataPath::Own, false), false, &[erase]);
    assert_eq!(copy(&mut nand, (blocks[2] + 1, 0), (1, 0)), COPYBACK);
}

// The host reads the source until the copy is there.
#[test]
fn a_page_is_read_where_it_was_while_it_is_copied_back() {
    let mut nand = flash(1, 1);
    let on = |kind, page| op(kind, Purpose::Gc, page, After::NOTHING);
    let ops = [on(OpKind::Read, BLOCK), on(OpKind::Program, 0)];
    nand.step(None, 0, Step::new(DataPath::Own, false), false, &ops);
    submit(&mut nand, 0, 10, OpKind::Read, 0..1, 0);
    // The die is busy, and may not be suspended.
    let end = COPYBACK + 290 + READ + DATA;
    assert_eq!(nand.next_end().unwrap().at, end);
    submit(&mut nand, 0, end, OpKind::Read, 0..1, 0);
    assert_eq!(nand.next_end().unwrap().at, end + 290 + READ + DATA);
}

// Collection copies the copy, which is not in the controller, to another die.
#[test]
fn a_copy_of_a_copyback_is_read_once_that_has_ended() {
    let mut nand = flash(2, 1);
    let on = |kind, page, die| Op {
        die,
        ..op(kind, Purpose::Gc, page, After::NOTHING)
    };
    let ops = [
        on(OpKind::Read, 2 * BLOCK, 0),
        on(OpKind::Program, 0, 0),
        on(OpKind::Read, 0, 0),
        on(OpKind::Program, 2 * BLOCK + 1, 1),
    ];
    nand.step(None, 0, Step::new(DataPath::Own, false), false, &ops);
    // Until it has been read, the host has to wait for it as well.
    submit(
        &mut nand,
        0,
        10,
        OpKind::Read,
        2 * BLOCK + 1..2 * BLOCK + 2,
        1,
    );
    assert_eq!(nand.next_end().unwrap().at, COPYBACK + 290 + READ + DATA);
    assert_eq!(nand.settle(), COPYBACK + COPY);
}
