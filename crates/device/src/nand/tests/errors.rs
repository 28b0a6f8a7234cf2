//! Bit errors: retries by rate, by wear, by age, by reads, and by page.

use super::host::spec;
use super::units::{LARGE, nand, op, submit};
use crate::config::{Errors, Latencies};
use crate::halves::{DataPath, Step};
use crate::nand::{Nand, NandSpec, ReadErrors};
use remap_ssd_media::{After, OpKind, Purpose, WordLine};

const READ: u64 = 50_000;
const RETRY: u64 = 70_000;
const DAY: u64 = 86_400_000_000_000;

/// One die whose pages need no retry up to 1e-3, one up to 2e-3, two up to 4e-3, and soft decoding up to 8e-3.
fn flash(word_line: WordLine, errors: Errors) -> Nand {
    let spec = NandSpec {
        command_ns: [0; 3],
        transfer_ns: 0,
        ..spec(READ - 20, 400_000, 0)
    };
    let errors = Errors {
        codeword_bits: 8000,
        correctable_bits: 8,
        retry_rates: vec![2e-3, 4e-3],
        retry_ns: RETRY,
        soft_rate: 8e-3,
        soft_ns: 500_000,
        ..errors
    };
    nand(1, word_line, spec, Latencies::default()).with_errors(&errors, 1000)
}

/// How long a read takes that is alone.
fn read(nand: &mut Nand, page: u32) -> u64 {
    let now = nand.settle();
    submit(nand, 0, now, OpKind::Read, page..page + 1, 0);
    nand.next_end().unwrap().at - now
}

fn of_rate(rate: f64) -> Errors {
    Errors {
        rate,
        ..Errors::default()
    }
}

#[test]
fn a_read_takes_the_retries_that_its_rate_needs() {
    for (rate, extra) in [
        (1e-3, 0),
        (1.1e-3, RETRY),
        (2e-3, RETRY),
        (3e-3, 2 * RETRY),
        (5e-3, 2 * RETRY + 500_000),
        (9e-3, 2 * RETRY + 500_000),
    ] {
        let mut nand = flash(WordLine::SINGLE, of_rate(rate));
        assert_eq!(read(&mut nand, 7), READ + extra, "{rate}");
    }
    assert!(
        flash(WordLine::SINGLE, of_rate(0.0))
            .read_errors()
            .is_none()
    );

    let mut nand = flash(WordLine::SINGLE, of_rate(9e-3));
    read(&mut nand, 7);
    let expected = ReadErrors {
        by_retries: vec![0; 3],
        soft: 0,
        uncorrectable: 1,
    };
    assert_eq!(nand.read_errors(), Some(&expected));
    assert_eq!(expected.retries_per_read(), 2.0);
}

// Decoding delays the reader, not the die: the second read begins while the first is decoded.
#[test]
fn decoding_takes_its_time_beside_the_die() {
    let decode_ns = 20_000;
    let mut nand = flash(
        WordLine::SINGLE,
        Errors {
            decode_ns,
            ..of_rate(1e-4)
        },
    );
    for (request, page) in [(0, 1), (1, 2)] {
        submit(&mut nand, request, 0, OpKind::Read, page..page + 1, 0);
    }
    let ends = [(); 2].map(|()| nand.next_end().unwrap().at);
    assert_eq!(ends, [READ + decode_ns, 2 * READ + decode_ns]);
}

// All parts of a flash page are read again at once.
#[test]
fn parts_share_a_retry() {
    let mut nand = flash(LARGE, of_rate(1.5e-3));
    submit(&mut nand, 0, 0, OpKind::Read, 0..4, 0);
    assert_eq!(nand.next_end().unwrap().at, READ + RETRY);
    assert_eq!(nand.read_errors().unwrap().by_retries, [0, 4, 0]);
}

#[test]
fn wear_age_and_reads_raise_the_rate() {
    // 1e-3 at half of the endurance, and 9 erases more raise it.
    let mut nand = flash(
        WordLine::SINGLE,
        Errors {
            wear: 4.0,
            erase_cycles: 500,
            ..of_rate(0.5e-3)
        },
    );
    assert_eq!(read(&mut nand, 7), READ);
    let now = nand.settle();
    let erase = op(OpKind::Erase, Purpose::Gc, 0, After::NOTHING);
    nand.step(None, now, Step::new(DataPath::Own, false), false, &[erase]);
    assert_eq!(read(&mut nand, 7), READ + RETRY);
    assert_eq!(read(&mut nand, 800), READ, "another block");

    // Twice the rate after ten days. What is programmed now is young.
    let errors = Errors {
        retention: 0.1,
        age_days: 9.0,
        ..of_rate(0.51e-3)
    };
    let mut nand = flash(WordLine::SINGLE, errors);
    assert_eq!(read(&mut nand, 7), READ);
    nand.advance(DAY);
    assert_eq!(read(&mut nand, 7), READ + RETRY);
    let now = nand.settle();
    submit(&mut nand, 0, now, OpKind::Program, 800..801, 0);
    assert_eq!(nand.settle(), now + 400_000);
    nand.next_end();
    assert_eq!(read(&mut nand, 800), READ);
    nand.advance(11 * DAY);
    assert_eq!(read(&mut nand, 800), READ + RETRY);

    // The hundredth read of a block is above the limit.
    let errors = Errors {
        disturb: 1e-6,
        ..of_rate(0.9005e-3)
    };
    let mut nand = flash(WordLine::SINGLE, errors);
    let reads: Vec<u64> = (0..100).map(|page| read(&mut nand, page)).collect();
    assert_eq!(reads[..99], [READ; 99]);
    assert_eq!(reads[99], READ + RETRY);
}

// Log-normal: of the pages 15.9 % are above one deviation, and 50 % above the middle.
#[test]
fn pages_differ_and_each_stays_as_it_is() {
    let shares = |rate, seed| {
        let errors = Errors {
            spread: 0.5,
            seed,
            ..of_rate(rate)
        };
        let mut nand = flash(WordLine::SINGLE, errors);
        let once: Vec<u64> = (0..8000).map(|page| read(&mut nand, page)).collect();
        let again: Vec<u64> = (0..8000).map(|page| read(&mut nand, page)).collect();
        assert!(once == again);
        (
            once.iter().filter(|time| **time > READ).count() as f64 / 8000.0,
            once,
        )
    };
    let (half, pages) = shares(1e-3, 1);
    assert!((half - 0.5).abs() < 0.02, "{half}");
    let (sixth, _) = shares(1e-3 * (-0.5_f64).exp(), 1);
    assert!((sixth - 0.159).abs() < 0.015, "{sixth}");
    assert!(pages != shares(1e-3, 2).1);
}
