//! Mutations of bytes, from a seed: bits, bytes, words, lengths, stretches copied or cut.
//!
//! Invariant: the same seed and the same bytes give the same mutant.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Values at which arithmetic turns over.
const CORNERS: [u64; 12] = [
    0,
    1,
    2,
    0xff,
    0xffff,
    0x7fff_ffff,
    0xffff_ffff,
    1 << 41,
    (1 << 42) - 1,
    (1 << 62) + 1,
    0x7fff_ffff_ffff_ffff,
    u64::MAX,
];

/// One mutant of `bytes`, with `other` to take pieces from.
pub fn mutant(seed: u64, bytes: &[u8], other: &[u8]) -> Vec<u8> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut out = bytes.to_vec();

    for _ in 0..1 << random.random_range(0..5) {
        if out.is_empty() {
            out.push(random.random());
        }

        let at = random.random_range(0..out.len());

        match random.random_range(0..10) {
            0..2 => out[at] ^= 1 << random.random_range(0..8),
            2 => out[at] = random.random(),
            3..5 => put(
                &mut out,
                at,
                CORNERS[random.random_range(0..CORNERS.len())],
                1 << random.random_range(0..4),
            ),
            5 => {
                let word: u64 = random.random();
                put(&mut out, at, word, 1 << random.random_range(0..4));
            }
            6 => {
                let value = u64::from(out[at])
                    .wrapping_add(random.random_range(0..9))
                    .wrapping_sub(4);
                put(&mut out, at, value, 1);
            }
            // A stretch of its own, somewhere else.
            7 => {
                let len = random.random_range(1..=64.min(out.len()));
                let (from, to) = (
                    random.random_range(0..=out.len() - len),
                    random.random_range(0..=out.len() - len),
                );
                out.copy_within(from..from + len, to);
            }
            8 if !other.is_empty() => {
                let len = random.random_range(1..=64.min(out.len()).min(other.len()));
                let (from, to) = (
                    random.random_range(0..=other.len() - len),
                    random.random_range(0..=out.len() - len),
                );
                out[to..to + len].copy_from_slice(&other[from..from + len]);
            }
            _ => match random.random_range(0..8) {
                0 => out.truncate(at),
                1 => drop(out.drain(at..(at + random.random_range(1..32)).min(out.len()))),
                2 => out.insert(at, random.random()),
                _ => out[at] = !out[at],
            },
        }
    }

    out
}

fn put(out: &mut [u8], at: usize, value: u64, len: usize) {
    for (byte, new) in out[at..].iter_mut().zip(&value.to_le_bytes()[..len]) {
        *byte = *new;
    }
}
