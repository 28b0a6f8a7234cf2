//! Copies, moves and gathering of ranges: power cuts at every point, and refusals.

use crate::kit::MemNamespaces;
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use remap_ssd_share::copy::{self, Empty, Piece};
use remap_ssd_share::{NamespacePage, Namespaces, ShareError};
use remap_ssd_testkit::{Content, MemDisk, kept, subsets};
use std::collections::HashMap;

const SIZES: [u64; 2] = [60, 40];

fn quiet(_: u64, _: u64) {}

fn at(nsid: u32, page: u64) -> NamespacePage {
    NamespacePage { nsid, page }
}

/// A device with 20 written pages, and its contents.
fn device() -> (MemNamespaces, HashMap<u64, Content>) {
    let mut device = MemNamespaces::new(&SIZES);
    (0..20).for_each(|page| device.put(1, page, 100 + page));
    device.flush().expect("it works");
    let base = kept(
        &HashMap::new(),
        &std::mem::take(&mut device.disk.medium().log),
        |_| true,
    );
    (device, base)
}

fn wanted() -> Vec<u64> {
    (100..120).collect()
}

#[test]
fn a_cut_in_a_move_loses_no_page_and_the_move_is_finished_with_resume() {
    let random = &mut Xoshiro256PlusPlus::seed_from_u64(1);
    for target in [at(1, 30), at(2, 5)] {
        let (mut device, base) = device();
        copy::relocate(&mut device, at(1, 0), target, 20, Empty::Refuse, &mut quiet)
            .expect("possible");
        assert_eq!(
            device.numbers(target.nsid, target.page..target.page + 20),
            wanted()
        );
        assert_eq!(device.numbers(1, 0..20), vec![0; 20]);

        let log = std::mem::take(&mut device.disk.medium().log);
        for operations in 0..=log.len() {
            for subset in subsets(&log[..operations], random) {
                let pages = kept(&base, &log[..operations], |index| subset[index]);
                let mut device =
                    MemNamespaces::over(MemDisk::holding(SIZES.iter().sum(), pages), &SIZES);
                let sources = device.numbers(1, 0..20);
                let targets = device.numbers(target.nsid, target.page..target.page + 20);
                for ((source, target), wanted) in sources.into_iter().zip(targets).zip(wanted()) {
                    assert!(
                        source == wanted || target == wanted,
                        "lost after {operations} operations, {subset:?}"
                    );
                }
                copy::relocate(&mut device, at(1, 0), target, 20, Empty::Leave, &mut quiet)
                    .expect("possible");
                assert_eq!(
                    device.numbers(target.nsid, target.page..target.page + 20),
                    wanted()
                );
                assert_eq!(device.numbers(1, 0..20), vec![0; 20]);
            }
        }
    }
}

#[test]
fn a_move_that_was_interrupted_is_not_run_again_by_mistake() {
    let (mut device, _) = device();
    copy::relocate(
        &mut device,
        at(1, 0),
        at(2, 0),
        20,
        Empty::Refuse,
        &mut quiet,
    )
    .expect("possible");
    let again = copy::relocate(
        &mut device,
        at(1, 0),
        at(2, 0),
        20,
        Empty::Refuse,
        &mut quiet,
    );
    let error = again.expect_err("the sources are empty").to_string();
    assert!(
        error.contains("page 0 is empty") && error.contains("--resume"),
        "{error}"
    );
    assert_eq!(device.numbers(2, 0..20), wanted(), "nothing was done");
    copy::relocate(&mut device, at(1, 0), at(2, 0), 20, Empty::Take, &mut quiet)
        .expect("it was asked for");
    assert_eq!(device.numbers(2, 0..20), vec![0; 20]);
}

// Sources 10 to 19 are empty, and all targets are not. `--force`, followed by `--resume` after any
// cut, leaves the sources' contents at the targets.
#[test]
fn a_cut_in_a_move_of_empty_pages_is_finished_with_resume_and_leaves_nothing_old_at_their_targets()
{
    let random = &mut Xoshiro256PlusPlus::seed_from_u64(2);
    let prepared = || {
        let (mut device, mut base) = device();
        device.trim(at(1, 10), 10).expect("it works");
        (0..20).for_each(|page| device.put(2, page, 900 + page));
        device.flush().expect("it works");
        let log = std::mem::take(&mut device.disk.medium().log);
        base = kept(&base, &log, |_| true);
        (device, base)
    };
    let wanted: Vec<u64> = (100..110).chain([0; 10]).collect();

    let (mut device, base) = prepared();
    copy::relocate(&mut device, at(1, 0), at(2, 0), 20, Empty::Take, &mut quiet).expect("possible");
    assert_eq!(device.numbers(2, 0..20), wanted);

    let log = std::mem::take(&mut device.disk.medium().log);
    for operations in 0..=log.len() {
        for subset in subsets(&log[..operations], random) {
            let pages = kept(&base, &log[..operations], |index| subset[index]);
            let mut device =
                MemNamespaces::over(MemDisk::holding(SIZES.iter().sum(), pages), &SIZES);
            copy::relocate(
                &mut device,
                at(1, 0),
                at(2, 0),
                20,
                Empty::Leave,
                &mut quiet,
            )
            .expect("possible");
            let left = device.numbers(2, 0..20);
            assert_eq!(left, wanted, "after {operations}, {subset:?}");
            assert_eq!(device.numbers(1, 0..20), vec![0; 20]);
        }
    }
}

// Nothing was moved yet: the interruption came before the first copy.
#[test]
fn resume_makes_targets_empty_whose_empty_sources_were_not_reached() {
    let (mut device, _) = device();
    (0..40).for_each(|page| device.put(2, page, 900 + page));
    copy::relocate(
        &mut device,
        at(1, 0),
        at(2, 0),
        40,
        Empty::Leave,
        &mut quiet,
    )
    .expect("possible");
    assert_eq!(device.numbers(2, 0..20), wanted());
    assert_eq!(device.numbers(2, 20..40), vec![0; 20]);
}

#[test]
fn a_connection_that_breaks_in_a_move_says_how_far_it_came() {
    let (mut device, _) = device();
    device.breaks_after = Some(0);
    let broken = copy::relocate(
        &mut device,
        at(1, 0),
        at(2, 0),
        20,
        Empty::Refuse,
        &mut quiet,
    );
    let error = broken.expect_err("it broke");
    assert!(
        matches!(
            error,
            ShareError::Moving {
                done: 0,
                pages: 20,
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(device.numbers(1, 0..20), wanted());
}

#[test]
fn a_cut_in_a_copy_leaves_the_source_and_each_target_old_or_new() {
    let random = &mut Xoshiro256PlusPlus::seed_from_u64(2);
    let (mut device, base) = device();
    let shared = copy::copy(&mut device, at(1, 0), at(2, 20), 20, &mut quiet).expect("possible");
    assert_eq!(
        (shared.pages, shared.shared(), shared.copied()),
        (20, 20, 0)
    );
    let log = std::mem::take(&mut device.disk.medium().log);
    for operations in 0..=log.len() {
        for subset in subsets(&log[..operations], random) {
            let pages = kept(&base, &log[..operations], |index| subset[index]);
            let mut device =
                MemNamespaces::over(MemDisk::holding(SIZES.iter().sum(), pages), &SIZES);
            assert_eq!(device.numbers(1, 0..20), wanted());
            let targets = device.numbers(2, 20..40);
            assert!(
                targets
                    .iter()
                    .zip(wanted())
                    .all(|(is, new)| *is == 0 || *is == new)
            );
            assert!(
                operations < log.len() || targets == wanted(),
                "it is durable when it has returned"
            );
        }
    }
}

#[test]
fn pieces_are_gathered_in_the_order_of_the_list_and_stay_as_they_are() {
    let (mut device, _) = device();
    let piece = |first, pages| Piece { first, pages };
    let pieces = [piece(10, 3), piece(0, 2), piece(17, 3)];
    copy::gather(&mut device, 1, &pieces, 40, false, &mut quiet).expect("possible");
    assert_eq!(
        device.numbers(1, 40..48),
        [110, 111, 112, 100, 101, 117, 118, 119]
    );
    assert_eq!(device.numbers(1, 0..20), wanted());

    let mut refused = |pieces: &[Piece], to: u64, words: &str| {
        let error = copy::gather(&mut device, 1, pieces, to, false, &mut quiet)
            .expect_err(words)
            .to_string();
        assert!(error.contains(words) && !error.contains('\n'), "{error}");
    };
    refused(&[], 30, "no pages");
    refused(&[piece(0, 2), piece(1, 2)], 30, "page 1 is listed twice");
    refused(&[piece(0, 2)], 1, "in the way of the target");
    refused(&[piece(0, 2)], 59, "not in namespace 1");
    refused(&[piece(70, 2)], 30, "not in namespace 1");
    refused(&[piece(0, 2)], 39, "something is in page 40");
}

#[test]
fn what_cannot_be_copied_is_one_sentence() {
    let (mut device, _) = device();
    let mut refused = |from: NamespacePage, to: NamespacePage, pages: u64, words: &str| {
        let error = copy::copy(&mut device, from, to, pages, &mut quiet)
            .expect_err(words)
            .to_string();
        assert!(error.contains(words) && !error.contains('\n'), "{error}");
    };
    refused(at(1, 0), at(2, 0), 0, "the length is 0");
    refused(at(1, 0), at(1, 5), 6, "overlap");
    refused(
        at(1, 50),
        at(2, 0),
        11,
        "not in namespace 1, which has 60 pages",
    );
    refused(at(1, 0), at(2, 39), 2, "not in namespace 2");
    refused(at(1, 0), at(3, 0), 2, "there is no namespace 3, only 2");
    refused(at(1, u64::MAX), at(2, 0), 2, "not in namespace 1");
}
