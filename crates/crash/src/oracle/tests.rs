//! Tests of the reference model.

use crate::content::{Content, LOST};
use crate::kit::{deallocate, relocate, remap, write};
use crate::oracle::{AtomicVerdict, Oracle};
use crate::script::ScriptCommand;
use remap_ssd_ftl::{Lpn, Remap};

const LPNS: u32 = 8;

fn atomic(command: ScriptCommand) -> ScriptCommand {
    match command {
        ScriptCommand::Remap(remap) => ScriptCommand::Remap(Remap {
            atomic: true,
            ..remap
        }),
        other => other,
    }
}

/// A device whose LPNs read 1, 2, 3 and so on, all acknowledged.
fn numbered() -> Oracle {
    let mut oracle = Oracle::new(LPNS);
    for lpn in 0..LPNS {
        let id = oracle.submit(&write(lpn, Content::from(lpn) + 1));
        oracle.acknowledge(id);
    }
    oracle
}

/// The reads of `numbered`, with some contents changed.
fn reads(changes: &[(u32, Content)]) -> Vec<Content> {
    let mut read: Vec<Content> = (1..=Content::from(LPNS)).collect();
    for (lpn, content) in changes {
        read[*lpn as usize] = *content;
    }
    read
}

fn allowed(oracle: &Oracle, changes: &[(u32, Content)]) -> bool {
    oracle.judge(&reads(changes)).is_ok()
}

#[test]
fn a_write_under_way_happened_or_did_not_and_nothing_else_is_read() {
    let mut oracle = numbered();
    oracle.submit(&write(3, 90));
    assert!(allowed(&oracle, &[]));
    assert!(allowed(&oracle, &[(3, 90)]));
    assert!(!allowed(&oracle, &[(3, 0)]));
    assert!(!allowed(&oracle, &[(2, 90)]));
    assert_eq!(oracle.live()[3], 90);
}

#[test]
fn an_acknowledged_write_forbids_what_was_before_it() {
    let mut oracle = numbered();
    let older = oracle.submit(&write(3, 90));
    let newer = oracle.submit(&write(3, 91));
    oracle.acknowledge(newer);
    assert!(allowed(&oracle, &[(3, 91)]));
    assert!(
        !allowed(&oracle, &[(3, 90)]),
        "older and never acknowledged"
    );
    assert!(!allowed(&oracle, &[]), "overwritten");
    oracle.acknowledge(older);
    assert!(
        allowed(&oracle, &[(3, 91)]),
        "an acknowledgement that comes late changes nothing"
    );
    assert!(!allowed(&oracle, &[(3, 90)]));
}

#[test]
fn a_later_write_under_way_may_be_read_beside_an_acknowledged_one() {
    let mut oracle = numbered();
    let first = oracle.submit(&write(3, 90));
    oracle.submit(&write(3, 91));
    oracle.submit(&write(3, 92));
    oracle.acknowledge(first);
    for content in [90, 91, 92] {
        assert!(allowed(&oracle, &[(3, content)]));
    }
    assert!(!allowed(&oracle, &[]));
}

#[test]
fn each_page_of_a_deallocation_is_on_its_own() {
    let mut oracle = numbered();
    let id = oracle.submit(&deallocate(2, 3));
    assert!(allowed(&oracle, &[(2, 0), (4, 0)]));
    oracle.acknowledge(id);
    assert!(!allowed(&oracle, &[(2, 0), (4, 0)]));
    assert!(allowed(&oracle, &[(2, 0), (3, 0), (4, 0)]));
}

#[test]
fn a_remap_reads_all_its_sources_first() {
    let mut right = numbered();
    right.submit(&remap(1, 0, 4));
    assert_eq!(right.live()[..6], [1, 1, 2, 3, 4, 6]);
    let mut left = numbered();
    left.submit(&remap(0, 1, 4));
    assert_eq!(left.live()[..6], [2, 3, 4, 5, 5, 6]);
}

#[test]
fn a_remap_onto_itself_changes_nothing() {
    let mut oracle = numbered();
    oracle.submit(&relocate(2, 2, 3));
    assert!(allowed(&oracle, &[]));
    assert_eq!(oracle.live(), reads(&[]));
}

#[test]
fn a_remap_of_an_unmapped_source_unmaps_the_target() {
    let mut oracle = numbered();
    let trim = oracle.submit(&deallocate(5, 1));
    let remap = oracle.submit(&remap(1, 5, 1));
    oracle.acknowledge(trim);
    oracle.acknowledge(remap);
    assert!(allowed(&oracle, &[(5, 0), (1, 0)]));
    assert!(!allowed(&oracle, &[(5, 0)]));
}

#[test]
fn an_overlapping_relocation_deallocates_only_the_sources_outside_its_target() {
    let mut oracle = numbered();
    let id = oracle.submit(&relocate(1, 0, 3));
    oracle.acknowledge(id);
    assert!(allowed(&oracle, &[(0, 0), (1, 1), (2, 2), (3, 3)]));
}

#[test]
fn a_relocation_under_way_never_loses_the_page() {
    let mut oracle = numbered();
    oracle.submit(&relocate(6, 1, 1));
    assert!(allowed(&oracle, &[]));
    assert!(
        allowed(&oracle, &[(6, 2)]),
        "copied, the source not yet deallocated"
    );
    assert!(allowed(&oracle, &[(6, 2), (1, 0)]));
    assert!(
        !allowed(&oracle, &[(1, 0)]),
        "gone at its source and not at its target"
    );
}

#[test]
fn a_relocated_page_may_be_gone_at_both_ends_if_its_target_was_overwritten() {
    let mut oracle = numbered();
    oracle.submit(&relocate(6, 1, 1));
    let over = oracle.submit(&write(6, 90));
    assert!(allowed(&oracle, &[(1, 0), (6, 90)]));
    assert!(!allowed(&oracle, &[(1, 0)]));
    oracle.acknowledge(over);
    assert!(allowed(&oracle, &[(1, 0), (6, 90)]));
}

#[test]
fn a_source_that_was_being_deallocated_anyway_needs_no_target() {
    let mut oracle = numbered();
    oracle.submit(&deallocate(1, 1));
    oracle.submit(&relocate(6, 1, 1));
    assert!(allowed(&oracle, &[(1, 0)]));
}

#[test]
fn a_chain_of_relocations_keeps_the_page_somewhere() {
    let mut oracle = numbered();
    oracle.submit(&relocate(6, 1, 1));
    oracle.submit(&relocate(7, 6, 1));
    assert!(allowed(&oracle, &[(1, 0), (6, 2)]));
    assert!(allowed(&oracle, &[(1, 0), (6, 0), (7, 2)]));
    assert!(
        !allowed(&oracle, &[(1, 0), (6, 0)]),
        "moved on from LPN 6 and never arrived at LPN 7"
    );
    assert!(!allowed(&oracle, &[(1, 0)]));
}

#[test]
fn an_atomic_remap_happened_on_all_its_pages_or_on_none() {
    let mut oracle = numbered();
    oracle.submit(&atomic(relocate(4, 0, 2)));
    assert_eq!(
        oracle.judge(&reads(&[])),
        Ok(AtomicVerdict {
            committed: 0,
            aborted: 1
        })
    );

    let whole = reads(&[(4, 1), (5, 2), (0, 0), (1, 0)]);
    assert_eq!(
        oracle.judge(&whole),
        Ok(AtomicVerdict {
            committed: 1,
            aborted: 0
        })
    );
    assert!(!allowed(&oracle, &[(4, 1)]));
    assert!(!allowed(&oracle, &[(4, 1), (5, 2), (0, 0)]));
}

#[test]
fn a_later_write_hides_one_page_of_an_atomic_remap() {
    let mut oracle = numbered();
    oracle.submit(&atomic(remap(4, 0, 2)));
    let over = oracle.submit(&write(4, 90));
    assert!(allowed(&oracle, &[(4, 90)]), "it did not happen");
    assert!(allowed(&oracle, &[(4, 90), (5, 2)]), "it happened");
    assert!(
        allowed(&oracle, &[(4, 1), (5, 2)]),
        "it happened and the write did not"
    );
    assert!(!allowed(&oracle, &[(4, 1)]));
    assert!(!allowed(&oracle, &[(5, 2)]));
    oracle.acknowledge(over);
    assert!(allowed(&oracle, &[(4, 90), (5, 2)]));
    assert!(
        !allowed(&oracle, &[(4, 1), (5, 2)]),
        "the write is acknowledged"
    );
}

#[test]
fn two_atomic_remaps_end_each_in_its_own_way() {
    let mut oracle = numbered();
    oracle.submit(&atomic(remap(4, 0, 2)));
    oracle.submit(&atomic(remap(5, 2, 2)));
    assert!(allowed(&oracle, &[(4, 1), (5, 2)]));
    assert!(allowed(&oracle, &[(5, 3), (6, 4)]), "only the second");
    assert!(allowed(&oracle, &[(4, 1), (5, 3), (6, 4)]), "both");
    assert!(!allowed(&oracle, &[(4, 1), (6, 4)]));
    assert!(!allowed(&oracle, &[(5, 2), (6, 4)]));
}

#[test]
fn equal_contents_explain_a_read_in_more_than_one_way() {
    let mut oracle = numbered();
    oracle.submit(&write(0, 2));
    oracle.submit(&atomic(remap(1, 0, 2)));
    assert!(
        allowed(&oracle, &[]),
        "LPN 1 reads 2 either way; LPN 2 says that the remap did not happen"
    );
    assert!(allowed(&oracle, &[(2, 2)]), "it happened");
}

#[test]
fn what_was_read_after_a_recovery_is_the_truth() {
    let mut oracle = numbered();
    oracle.submit(&write(3, 90));
    oracle.submit(&write(4, 91));
    oracle.adopt(&reads(&[(3, 90)]));
    assert!(allowed(&oracle, &[(3, 90)]));
    assert!(
        !allowed(&oracle, &[]),
        "it cannot be lost after it was seen"
    );
    assert!(
        !allowed(&oracle, &[(3, 90), (4, 91)]),
        "it cannot come back after it was seen missing"
    );
}

#[test]
fn a_failure_says_what_was_read_and_what_was_allowed() {
    let mut oracle = numbered();
    let id = oracle.submit(&write(3, 90));
    oracle.acknowledge(id);
    oracle.submit(&deallocate(3, 1));
    let text = oracle
        .judge(&reads(&[]))
        .expect_err("an overwritten page came back")
        .to_string();
    assert_eq!(
        text,
        "LPN 3 reads content 4; allowed: content 90 (#9, acknowledged or seen), zeroes (#10, under way)"
    );
}

#[test]
fn a_write_of_many_pages_repeats_known_contents_and_numbers_the_others() {
    let many = |source| ScriptCommand::WriteMany {
        lpn: Lpn(4),
        len: 3,
        source,
        fresh: 90,
    };
    let mut oracle = numbered();
    let id = oracle.submit(&many(None));
    oracle.acknowledge(id);
    assert!(allowed(&oracle, &[(4, 90), (5, 91), (6, 92)]));
    assert!(!allowed(&oracle, &[(4, 90), (5, 90), (6, 90)]));
    assert!(!allowed(&oracle, &[(4, 0), (5, 0), (6, 0)]));

    // LPN 2 is unmapped, and what LPN 3 holds was lost: neither can be repeated.
    let mut oracle = numbered();
    let trim = oracle.submit(&deallocate(2, 1));
    oracle.acknowledge(trim);
    oracle.adopt(&reads(&[(2, 0), (3, LOST)]));
    let id = oracle.submit(&many(Some(Lpn(1))));
    oracle.acknowledge(id);
    assert_eq!(oracle.live()[4..7], [2, 91, 92]);
}
