//! Bit errors: the time that reads take by what their correction needed.

use super::host::spec;
use super::units::{LARGE, nand, op};
use crate::config::{Errors, Latencies};
use crate::nand::{Nand, NandSpec, ReadErrors};
use crate::step::{DataPath, Step};
use remap_ssd_media::{After, Op, OpKind, Purpose, ReadOutcome, WordLine};

const READ: u64 = 50_000;
const RETRY: u64 = 70_000;

/// One die with two retries and soft decoding.
fn flash(word_line: WordLine, decode_ns: u64) -> Nand {
    let spec = NandSpec {
        command_ns: [0; 3],
        transfer_ns: 0,
        ..spec(READ - 20, 400_000, 0)
    };
    let errors = Errors {
        rate: 1e-3,
        retry_rates: vec![2e-2, 4e-2],
        retry_ns: RETRY,
        soft_rate: 8e-2,
        soft_ns: 500_000,
        decode_ns,
        ..Errors::default()
    };
    nand(1, word_line, spec, Latencies::default()).with_errors(&errors)
}

/// Submits a read of pages that follow each other, with these outcomes.
fn submit(nand: &mut Nand, request: u32, first: u32, outcomes: &[ReadOutcome]) {
    nand.open(request);
    for (page, outcome) in (first..).zip(outcomes) {
        let op = Op {
            outcome: *outcome,
            ..op(OpKind::Read, Purpose::Host, page, After::NOTHING)
        };
        let step = Step::new(DataPath::ToHost, false);
        nand.step(Some(request), 0, step, false, &[op]);
    }
    nand.close(request);
}

#[test]
fn a_read_takes_the_time_of_its_correction() {
    for (outcome, extra) in [
        (ReadOutcome::Retries(0), 0),
        (ReadOutcome::Retries(1), RETRY),
        (ReadOutcome::Retries(2), 2 * RETRY),
        (ReadOutcome::Soft, 2 * RETRY + 500_000),
        (ReadOutcome::Failed, 2 * RETRY + 500_000),
    ] {
        let mut nand = flash(WordLine::SINGLE, 0);
        submit(&mut nand, 0, 7, &[outcome]);
        assert_eq!(nand.next_end().unwrap().at, READ + extra, "{outcome:?}");
        let expected = ReadErrors {
            by_retries: (0..3)
                .map(|retries| u64::from(outcome == ReadOutcome::Retries(retries)))
                .collect(),
            soft: u64::from(outcome == ReadOutcome::Soft),
            uncorrectable: u64::from(outcome == ReadOutcome::Failed),
            lost: 0,
        };
        assert_eq!(nand.read_errors(), Some(&expected));
        assert_eq!(expected.retries_per_read(), (extra / RETRY).min(2) as f64);
    }

    let none = Errors::default();
    let nand = nand(1, WordLine::SINGLE, spec(READ, 0, 0), Latencies::default());
    assert!(nand.with_errors(&none).read_errors().is_none());
}

// Decoding delays the reader, not the die: the second read begins while the first is decoded.
#[test]
fn decoding_takes_its_time_beside_the_die() {
    let decode_ns = 20_000;
    let mut nand = flash(WordLine::SINGLE, decode_ns);
    for (request, page) in [(0, 1), (1, 2)] {
        submit(&mut nand, request, page, &[ReadOutcome::Retries(0)]);
    }
    let ends = [(); 2].map(|()| nand.next_end().unwrap().at);
    assert_eq!(ends, [READ + decode_ns, 2 * READ + decode_ns]);
}

// All parts of a flash page are read again at once, as often as the worst of them needs.
#[test]
fn parts_share_retries() {
    let mut nand = flash(LARGE, 0);
    let outcomes = [1, 0, 2, 1].map(ReadOutcome::Retries);
    submit(&mut nand, 0, 0, &outcomes);
    assert_eq!(nand.next_end().unwrap().at, READ + 2 * RETRY);
    assert_eq!(nand.read_errors().unwrap().by_retries, [1, 2, 1]);
}
