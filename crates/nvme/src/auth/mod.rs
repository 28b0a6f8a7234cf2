//! DH-HMAC-CHAP, and all keys, those of TLS too: a host proves that it knows its secret, and the
//! controller its own (Base 2.0 §8.13).
//!
//! ```text
//! secret     DHHC-1:..., as nvme-cli makes them
//! psk        NVMeTLSkey-1:..., likewise, and what TLS is given of them
//! keys       a file of hosts and their secrets, reloaded while hosts are connected
//! hash       SHA-256, 384, 512, and HMAC
//! group      Diffie-Hellman, RFC 7919
//! response   what is hashed into a response
//! message    payloads to messages and back
//! turns      whose Diffie-Hellman value is calculated next
//! controller one queue's exchange, on the target's side: payloads in, payloads out
//! host       the same on the host's side
//!
//! host                         controller
//! Negotiate  (hashes, groups) ->
//!            <- Challenge  (hash, group, C1, DH value)
//! Reply  (response, C2, DH value) ->
//!            <- Success1  (response to C2) or Failure1
//! Success2 or Failure2 ->                     only if the host challenged
//! ```
//! Absent: commands and sockets (`tcp`); secure channels made by an exchange.

mod controller;
mod group;
mod hash;
mod host;
mod keys;
mod message;
mod primes;
mod psk;
mod response;
mod secret;
mod turns;

pub use controller::{Exchange, Failed, MESSAGE_BYTES_MAX};
pub use group::Group;
pub use hash::Hash;
pub use host::{Credentials, HostError, HostExchange, Step};
pub use keys::{HostEntry, HostKeys, Keyring, Keys, KeysError, Named, NoPsk, Proof};
pub use message::{FromHost, Offer, parse};
pub use psk::{Claim, Derivation, IDENTITY_BYTES_MAX, Psk, TlsKey, TlsKeyError};
pub use secret::{Secret, SecretError};
pub use turns::Asker;

/// Fills a buffer from the system's generator.
fn fill_random(bytes: &mut [u8]) {
    getrandom::fill(bytes).expect("the system has random bytes");
}
