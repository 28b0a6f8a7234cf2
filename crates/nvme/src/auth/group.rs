//! Diffie-Hellman in the groups of RFC 7919.
//!
//! Invariants: a peer's value is checked before use (2 to p - 2; with safe primes no other value is
//! weak), and a key pair is used once. Exponents are random and of 512 bits: more than twice the
//! strength of the largest group (RFC 7919 appendix A asks for 400). Absent: use of the shared
//! secret.

use super::primes;
use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use crypto_bigint::{BoxedUint, Odd, Resize};
use std::sync::LazyLock;
use zeroize::Zeroizing;

/// Size of a private exponent.
const EXPONENT_BYTES: usize = 64;

/// A group of RFC 7919 for Diffie-Hellman, weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// No group: challenge and response only.
    Null = 0,
    /// 2048 bits, the weakest.
    Ffdhe2048 = 1,
    /// 3072 bits.
    Ffdhe3072 = 2,
    /// 4096 bits.
    Ffdhe4096 = 3,
    /// 6144 bits.
    Ffdhe6144 = 4,
    /// 8192 bits, the strongest.
    Ffdhe8192 = 5,
}

/// The moduli, prepared for arithmetic.
static MODULI: [LazyLock<BoxedMontyParams>; 5] = [
    LazyLock::new(|| modulus(primes::FFDHE2048)),
    LazyLock::new(|| modulus(primes::FFDHE3072)),
    LazyLock::new(|| modulus(primes::FFDHE4096)),
    LazyLock::new(|| modulus(primes::FFDHE6144)),
    LazyLock::new(|| modulus(primes::FFDHE8192)),
];

fn modulus(hex: &str) -> BoxedMontyParams {
    let prime = BoxedUint::from_be_hex(hex, hex.len() as u32 * 4);
    let prime = Option::<BoxedUint>::from(prime).expect("hexadecimal digits");
    let odd = Option::<Odd<BoxedUint>>::from(Odd::new(prime)).expect("a prime");
    BoxedMontyParams::new_vartime(odd)
}

impl Group {
    /// All groups, from the weakest to the strongest.
    pub const ALL: [Self; 6] = [
        Self::Null,
        Self::Ffdhe2048,
        Self::Ffdhe3072,
        Self::Ffdhe4096,
        Self::Ffdhe6144,
        Self::Ffdhe8192,
    ];
    /// Size of a value in the largest group.
    pub(crate) const BYTES_MAX: usize = 1024;

    /// The group with this identifier.
    pub(crate) fn of_id(id: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|group| group.id() == id)
    }

    /// Its identifier in messages of DH-HMAC-CHAP.
    pub(crate) fn id(self) -> u8 {
        self as u8
    }

    /// Its name on command lines and in logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Ffdhe2048 => "ffdhe2048",
            Self::Ffdhe3072 => "ffdhe3072",
            Self::Ffdhe4096 => "ffdhe4096",
            Self::Ffdhe6144 => "ffdhe6144",
            Self::Ffdhe8192 => "ffdhe8192",
        }
    }

    /// Size of its values; 0 without a group.
    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::Null => 0,
            Self::Ffdhe2048 => 256,
            Self::Ffdhe3072 => 384,
            Self::Ffdhe4096 => 512,
            Self::Ffdhe6144 => 768,
            Self::Ffdhe8192 => 1024,
        }
    }

    fn modulus(self) -> Option<&'static BoxedMontyParams> {
        MODULI
            .get(usize::from(self.id()).checked_sub(1)?)
            .map(|one| &**one)
    }

    fn power(self, params: &BoxedMontyParams, base: BoxedUint, exponent: &[u8]) -> Vec<u8> {
        let bits = exponent.len() as u32 * 8;
        let exponent = BoxedUint::from_be_slice(exponent, bits).expect("as long as it is");
        // In time that depends only on the length of the exponent.
        let power = BoxedMontyForm::new(base, params).pow_bounded_exp(&exponent, bits);
        let bytes = power.retrieve().to_be_bytes();
        assert_eq!(
            bytes.len(),
            self.bytes(),
            "values keep their leading zeroes"
        );
        bytes.into()
    }
}

/// Our half of an exchange: used once.
pub(super) struct KeyPair {
    group: Group,
    exponent: Zeroizing<Vec<u8>>,
    /// The public value sent to the peer; empty without a group.
    pub value: Vec<u8>,
}

impl KeyPair {
    /// Creates a pair with a random exponent.
    pub(super) fn new(group: Group) -> Self {
        let mut exponent = Zeroizing::new(vec![0; EXPONENT_BYTES]);
        super::fill_random(&mut exponent);
        Self::of_exponent(group, exponent)
    }

    pub(super) fn of_exponent(group: Group, exponent: Zeroizing<Vec<u8>>) -> Self {
        let value = group.modulus().map(|params| {
            // 2 is the generator of all groups (RFC 7919).
            let two = BoxedUint::from(2u8).resize(params.bits_precision());
            group.power(params, two, &exponent)
        });
        Self {
            group,
            exponent,
            value: value.unwrap_or_default(),
        }
    }

    /// The secret shared with the peer that sent `theirs`, as long as the prime; `None` if that
    /// value is invalid. Empty without a group.
    pub(super) fn shared(&self, theirs: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        // The length is that of the prime: values keep their leading zeroes.
        if theirs.len() != self.group.bytes() {
            return None;
        }
        let Some(params) = self.group.modulus() else {
            return Some(Zeroizing::default());
        };

        let bits = params.bits_precision();
        let theirs = BoxedUint::from_be_slice(theirs, bits).ok()?;
        let one = BoxedUint::one_with_precision(bits);
        let greatest = params.modulus().as_ref().wrapping_sub(&one);

        // 0, 1 and p - 1 would give a secret that anyone can guess.
        if theirs <= one || theirs >= greatest {
            return None;
        }
        Some(Zeroizing::new(self.group.power(
            params,
            theirs,
            &self.exponent,
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7919 appendix A: p = 2^b - 2^(b-64) + (floor(2^(b-130) e) + X) 2^64 - 1.
    #[test]
    fn the_primes_are_those_of_the_formula() {
        let groups = [
            (2048u32, 560_316u64, primes::FFDHE2048),
            (3072, 2_625_351, primes::FFDHE3072),
            (4096, 5_736_041, primes::FFDHE4096),
            (6144, 15_705_020, primes::FFDHE6144),
            (8192, 10_965_728, primes::FFDHE8192),
        ];
        for (bits, x, hex) in groups {
            let wide = bits + 128;
            let at = |shift: u32| BoxedUint::one_with_precision(wide).shl(shift);

            // e as the sum of 1/n!, with 64 bits to spare.
            let mut term = at(bits - 130 + 64);
            let mut e = BoxedUint::zero_with_precision(wide);
            for n in 1u64.. {
                if bool::from(term.is_zero()) {
                    break;
                }
                e = e.wrapping_add(&term);
                let divisor = BoxedUint::from(n).resize(wide);
                let divisor = Option::from(crypto_bigint::NonZero::new(divisor)).expect("not 0");
                term = term.wrapping_div(&divisor);
            }

            let middle = e
                .shr(64)
                .wrapping_add(BoxedUint::from(x).resize(wide))
                .shl(64);
            let prime = at(bits).wrapping_sub(at(bits - 64)).wrapping_add(&middle);
            let prime = prime.wrapping_sub(BoxedUint::one_with_precision(wide));
            let known = Option::<BoxedUint>::from(BoxedUint::from_be_hex(hex, bits));
            assert_eq!(known.expect("digits").resize(wide), prime, "{bits} bits");
        }
    }

    /// Values and shared secrets of two fixed exponents, calculated with Python's `pow`; the first
    /// bytes of their SHA-256.
    #[test]
    fn values_and_secrets_are_those_that_others_calculate() {
        let known = [
            (Group::Ffdhe2048, "1908b0773912e53f", "16afa060bf7bb1f4"),
            (Group::Ffdhe3072, "e9f81f609bb558fd", "9456b8da396868ea"),
            (Group::Ffdhe4096, "a53688d3a4d42b2c", "bacc0738f6a43302"),
            (Group::Ffdhe6144, "21ff5bd61a7d69b1", "96b3e23c9a968833"),
            (Group::Ffdhe8192, "b2f1e92b44e0a45e", "1be5193e3888d0af"),
        ];
        let digest = |bytes: &[u8]| {
            let digest = crate::auth::Hash::Sha256.digest(bytes);
            digest[..8]
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect::<String>()
        };
        for (group, value, secret) in known {
            let one = KeyPair::of_exponent(group, Zeroizing::new((1..=64).collect()));
            let other = KeyPair::of_exponent(group, Zeroizing::new((101..=164).collect()));

            assert_eq!(digest(&one.value), value, "{group:?}");
            assert_eq!(
                digest(&one.shared(&other.value).expect("in order")),
                secret,
                "{group:?}"
            );
        }
    }

    #[test]
    fn both_ends_share_a_secret_as_long_as_the_prime() {
        for group in Group::ALL {
            let (ours, theirs) = (KeyPair::new(group), KeyPair::new(group));
            assert_eq!(ours.value.len(), group.bytes());
            let shared = ours.shared(&theirs.value).expect("a value in order");
            assert_eq!(Some(&shared), theirs.shared(&ours.value).as_ref());
            assert_eq!(shared.len(), group.bytes());
        }
    }

    #[test]
    fn values_that_would_give_the_secret_away_are_refused() {
        let group = Group::Ffdhe2048;
        let pair = KeyPair::new(group);
        let params = group.modulus().expect("it has one");
        let prime = params.modulus().as_ref().to_be_bytes();

        let small = |value: u8| {
            let mut bytes = vec![0; group.bytes()];
            bytes[group.bytes() - 1] = value;
            bytes
        };

        let below = |by: u8| {
            let mut bytes = prime.to_vec();
            bytes[group.bytes() - 1] -= by;
            bytes
        };

        for weak in [
            small(0),
            small(1),
            below(1),
            below(0),
            vec![0xff; 256],
            vec![2; 255],
            vec![],
        ] {
            assert!(pair.shared(&weak).is_none(), "{weak:x?}");
        }

        assert!(pair.shared(&small(2)).is_some() && pair.shared(&below(2)).is_some());
    }
}
