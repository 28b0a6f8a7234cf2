//! Computation of responses (Base 2.0 §8.13.5.4).
//!
//! ```text
//! host:        HMAC(host's key, C | S | T | SC | "HostHost" | host NQN | 0 | subsystem NQN)
//! controller:  HMAC(controller's key, C | S | T | SC | "Controller" | subsystem NQN | 0 | host NQN)
//! ```
//! C is the challenge, or with a group HMAC(H(shared secret), challenge). Absent: comparison.

use super::hash::Hash;
use super::secret::Secret;
use zeroize::Zeroizing;

/// The responding side; each has its own label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Host,
    Controller,
}

/// All inputs of a response.
#[derive(Clone, Copy)]
pub(super) struct Response<'a> {
    pub side: Side,
    pub hash: Hash,
    pub secret: &'a Secret,
    pub challenge: &'a [u8],
    /// The shared Diffie-Hellman secret; empty without a group.
    pub shared: &'a [u8],
    pub sequence: u32,
    pub(crate) t_id: u16,
    pub hostnqn: &'a str,
    pub subnqn: &'a str,
}

impl Response<'_> {
    /// Computes the response, which requires the secret.
    pub(super) fn make(&self) -> Zeroizing<Vec<u8>> {
        self.with_parts(|key, parts| self.hash.mac(key, parts))
    }

    /// Returns true if `said` is the response; in constant time.
    pub(super) fn is(&self, said: &[u8]) -> bool {
        self.with_parts(|key, parts| self.hash.is_mac(key, parts, said))
    }

    fn with_parts<R>(&self, work: impl FnOnce(&[u8], &[&[u8]]) -> R) -> R {
        // With a group the challenge is bound to the shared secret: an eavesdropper cannot try
        // secrets offline.
        let challenge = if self.shared.is_empty() {
            Zeroizing::new(self.challenge.to_vec())
        } else {
            let key = self.hash.digest(self.shared);
            self.hash.mac(&key, &[self.challenge])
        };

        // Label and order of names differ by side, so that a response is not valid for the other
        // side.
        let (label, own, other): (&[u8], _, _) = match self.side {
            Side::Host => (b"HostHost", self.hostnqn, self.subnqn),
            Side::Controller => (b"Controller", self.subnqn, self.hostnqn),
        };
        let (sequence, t_id) = (self.sequence.to_le_bytes(), self.t_id.to_le_bytes());

        // No secure channel: SC is 0.
        let parts = [
            &challenge[..],
            &sequence,
            &t_id,
            &[0],
            label,
            own.as_bytes(),
            &[0],
            other.as_bytes(),
        ];
        work(&self.secret.key_of(own), &parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of the host and of the controller: first 8 bytes, without and with a bound hash and a shared key.
    #[rustfmt::skip]
    const KNOWN: [(Hash, bool, bool, &str, &str); 12] = [
        (Hash::Sha256, false, false, "23f05102982c26cc", "6b521fed48ffc680"),
        (Hash::Sha256, false, true, "4fc446ec8c76a103", "fbe2c7a5f90d705d"),
        (Hash::Sha256, true, false, "eb658cc4aa195ad1", "767ac18b33b1772d"),
        (Hash::Sha256, true, true, "0f5eeae998bf636f", "5644f6831a8d54c0"),
        (Hash::Sha384, false, false, "1018ac10a1facc59", "8a6630ca956f2500"),
        (Hash::Sha384, false, true, "0981b9a5350bc34a", "049b52876b73813a"),
        (Hash::Sha384, true, false, "cd8d5a36ebd8849f", "07c2f162dc6aacdc"),
        (Hash::Sha384, true, true, "e38a9517ee522261", "e9804f0c62e17961"),
        (Hash::Sha512, false, false, "08c37b4b68f21f5d", "e221519fdd9a9522"),
        (Hash::Sha512, false, true, "a6a5638ea6dc53e2", "2559da26fe23c280"),
        (Hash::Sha512, true, false, "9233dc0eb8464854", "881f9b3617ddafd3"),
        (Hash::Sha512, true, true, "4c3d6302b7e5884b", "a3013996dc3b5254"),
    ];

    /// Calculated with Python's `hmac`: secret bytes 0, 1, ... of the host and 100, 101, ... of the
    /// controller.
    #[test]
    fn responses_are_those_that_others_calculate() {
        for (hash, bound, shared, host, controller) in KNOWN {
            let binding = bound.then_some(hash);
            let secret = |first: u8| {
                let bytes: Vec<u8> = (first..first + hash.bytes() as u8).collect();
                Secret::new(binding, &bytes).expect("its length is right")
            };
            for (side, secret, known) in [
                (Side::Host, secret(0), host),
                (Side::Controller, secret(100), controller),
            ] {
                let response = Response {
                    side,
                    hash,
                    secret: &secret,
                    challenge: &vec![0x11; hash.bytes()],
                    shared: &[7; 256][..if shared { 256 } else { 0 }],
                    sequence: 0x0102_0304,
                    t_id: 0x0a0b,
                    hostnqn: "nqn.2014-08.org.nvmexpress:uuid:1",
                    subnqn: "nqn.2026-11.test:remap-ssd",
                };
                let made = response.make();
                let begins: String = made[..8].iter().map(|byte| format!("{byte:02x}")).collect();
                assert_eq!(
                    begins, known,
                    "{hash:?} {side:?}, bound {bound}, shared {shared}"
                );
                assert!(response.is(&made));

                let mut changed = made.clone();
                changed[hash.bytes() - 1] ^= 1;
                assert!(!response.is(&changed) && !response.is(&made[1..]) && !response.is(&[]));
            }
        }
    }
}
