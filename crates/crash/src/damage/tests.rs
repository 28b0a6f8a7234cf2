//! Doubts after damage: which LPNs may be media errors, and which commands make them certain again.

use crate::content::Content;
use crate::damage::DamageDoubts;
use crate::kit::{deallocate, relocate, remap, write};
use remap_ssd_media::Lpn;

/// LPNs of these devices, and the content of the damaged page.
const LPNS: u32 = 4;
const HELD: Content = 99;

/// A device with a damaged page: every LPN is in doubt.
fn damaged() -> DamageDoubts {
    let mut doubts = DamageDoubts::new(LPNS);
    doubts.damaged(Some(HELD), false);
    doubts
}

fn in_doubt(doubts: &DamageDoubts) -> Vec<u32> {
    let lpns = 0..LPNS;
    lpns.filter(|lpn| doubts.may_be_lost(Lpn(*lpn))).collect()
}

#[test]
fn damage_leaves_every_page_in_doubt_until_a_later_write_of_it_is_acknowledged() {
    assert_eq!(in_doubt(&DamageDoubts::new(LPNS)), [0; 0]);
    let mut doubts = damaged();
    assert_eq!(in_doubt(&doubts), [0, 1, 2, 3]);

    doubts.submit(1, &write(2, 7));
    assert_eq!(in_doubt(&doubts), [0, 1, 2, 3], "not yet acknowledged");
    doubts.acknowledge(1);
    assert_eq!(in_doubt(&doubts), [0, 1, 3]);

    // A deallocated page reads zeroes, and a relocation writes its target and unmaps its source.
    doubts.submit(2, &deallocate(0, 2));
    doubts.acknowledge(2);
    assert_eq!(in_doubt(&doubts), [3]);
    doubts.submit(3, &relocate(3, 2, 1));
    doubts.acknowledge(3);
    assert_eq!(in_doubt(&doubts), [0; 0]);
}

#[test]
fn a_command_that_was_under_way_at_the_damage_leaves_the_doubt() {
    let mut doubts = DamageDoubts::new(LPNS);
    doubts.submit(1, &write(2, 7));
    doubts.damaged(None, false);
    doubts.acknowledge(1);
    assert_eq!(in_doubt(&doubts), [0, 1, 2, 3]);
}

#[test]
fn a_write_of_the_damaged_content_and_a_remap_of_a_page_in_doubt_leave_doubt() {
    let mut doubts = damaged();
    for lpn in 0..LPNS {
        doubts.submit(lpn, &write(lpn, 7));
        doubts.acknowledge(lpn);
    }
    assert_eq!(in_doubt(&doubts), [0; 0]);

    // Its page may be shared with the damaged one, and a remap inherits that.
    doubts.submit(10, &write(1, HELD));
    doubts.acknowledge(10);
    doubts.submit(11, &remap(3, 1, 1));
    doubts.acknowledge(11);
    assert_eq!(in_doubt(&doubts), [1, 3]);
}

/// Commands 1 and 2 are on one LPN, and acknowledged in either order. Command 2 takes effect last:
/// the LPN is certain if command 2 makes it so, whatever command 1 does.
#[test]
fn of_two_commands_on_a_page_the_later_one_decides() {
    let (sound, unsound) = (write(2, 7), write(2, HELD));
    for (first, second, doubted) in [
        (sound, sound, false),
        (sound, unsound, true),
        (unsound, sound, false),
        (unsound, unsound, true),
    ] {
        for order in [[1, 2], [2, 1]] {
            let mut doubts = damaged();
            doubts.submit(1, &first);
            doubts.submit(2, &second);
            order.into_iter().for_each(|id| doubts.acknowledge(id));
            let at = format!("{first}, then {second}, acknowledged as {order:?}");
            assert_eq!(doubts.may_be_lost(Lpn(2)), doubted, "{at}");
        }
    }
}

#[test]
fn a_page_is_in_doubt_while_a_later_command_on_it_is_under_way() {
    let mut doubts = damaged();
    doubts.submit(1, &write(2, 7));
    doubts.submit(2, &write(2, 8));
    doubts.acknowledge(1);
    assert_eq!(in_doubt(&doubts), [0, 1, 2, 3]);

    // One that is under way elsewhere, or older, does not matter.
    doubts.submit(3, &write(1, 9));
    doubts.submit(4, &write(3, 9));
    doubts.acknowledge(4);
    assert_eq!(in_doubt(&doubts), [0, 1, 2]);
    doubts.submit(5, &write(2, 10));
    doubts.acknowledge(5);
    assert_eq!(in_doubt(&doubts), [0, 1], "command 2 is older");
}

/// A damaged word may have held the entry that an acknowledgement stands for.
#[test]
fn with_a_damaged_word_nothing_is_certain_before_the_next_recovery() {
    let mut doubts = DamageDoubts::new(LPNS);
    doubts.damaged(None, true);
    doubts.submit(1, &write(2, 7));
    doubts.acknowledge(1);
    assert_eq!(in_doubt(&doubts), [0, 1, 2, 3]);

    doubts.adopt();
    doubts.submit(2, &write(2, 7));
    doubts.acknowledge(2);
    assert_eq!(in_doubt(&doubts), [0, 1, 3]);
}
