//! Parsing and serialization of messages.
//!
//! Invariants: nothing is read beyond a payload, and every length in it is checked against its
//! expected value; a parsed message borrows from its payload. Absent: the order of messages
//! (`controller`, `host`).

use super::group::Group;
use super::hash::Hash;
use crate::spec::auth::{
    Challenge, Descriptor, Failure, Head, IDENTIFIERS_MAX, Negotiate, PROTOCOL_DH_HMAC_CHAP,
    REASON_FAILED, Reply, Success1, Success2, explanation, kind, message,
};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The offer of a host: bits by identifier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    hashes: u8,
    groups: u8,
}

impl Offer {
    /// The weakest hash offered that is at least this.
    pub(crate) fn hash(self, least: Hash) -> Option<Hash> {
        Hash::ALL
            .into_iter()
            .find(|hash| *hash >= least && self.hashes >> hash.id() & 1 == 1)
    }
    /// The weakest group offered that is at least this.
    pub(crate) fn group(self, least: Group) -> Option<Group> {
        Group::ALL
            .into_iter()
            .find(|group| *group >= least && self.groups >> group.id() & 1 == 1)
    }
}

/// A message from a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FromHost<'a> {
    /// The host's first message: its capabilities.
    Negotiate {
        /// Number of the transaction, which each message repeats.
        t_id: u16,
        /// True if it wants no secure channel.
        plain: bool,
        /// Its hashes and groups; `None` if it does not support DH-HMAC-CHAP.
        offer: Option<Offer>,
    },
    /// The host's answer to the challenge.
    Reply {
        /// Number of the transaction, which each message repeats.
        t_id: u16,
        /// The response to the challenge, as long as the hash.
        response: &'a [u8],
        /// Its challenge and sequence number, if it challenges.
        challenge: Option<(&'a [u8], u32)>,
        /// Its DH value; empty without a group.
        value: &'a [u8],
    },
    /// The host accepts the controller's own response.
    Success2 {
        /// Number of the transaction, which each message repeats.
        t_id: u16,
    },
    /// The host rejects the controller's response, and gives up.
    Failure2 {
        /// Number of the transaction, which each message repeats.
        t_id: u16,
        /// Why it gives up (`spec::auth::explanation`).
        explanation: u8,
    },
}

impl FromHost<'_> {
    /// Number of the transaction that the message belongs to.
    pub(crate) fn t_id(&self) -> u16 {
        match *self {
            Self::Negotiate { t_id, .. }
            | Self::Reply { t_id, .. }
            | Self::Success2 { t_id }
            | Self::Failure2 { t_id, .. } => t_id,
        }
    }
}

/// A record at the beginning, and the bytes after it.
fn record<T: FromBytes + KnownLayout + Immutable>(payload: &[u8]) -> Result<(T, &[u8]), u8> {
    T::read_from_prefix(payload).map_err(|_| explanation::PAYLOAD)
}

/// Splits off `len` bytes. If there are fewer, returns the explanation to send.
fn take<'a>(rest: &mut &'a [u8], len: usize) -> Result<&'a [u8], u8> {
    let (taken, after) = rest.split_at_checked(len).ok_or(explanation::PAYLOAD)?;
    *rest = after;
    Ok(taken)
}

/// Parses a message from a host.
///
/// # Errors
/// The explanation of a failure (`spec::auth::explanation`).
pub fn parse(payload: &[u8]) -> Result<FromHost<'_>, u8> {
    let (head, _) = record::<Head>(payload)?;
    let t_id = head.t_id;

    match (head.kind, head.message) {
        (kind::COMMON, message::NEGOTIATE) => negotiate(payload),
        (kind::DH_HMAC_CHAP, message::REPLY) => reply(payload),
        (kind::DH_HMAC_CHAP, message::SUCCESS2) => {
            // Its record must be complete; it has no other content.
            record::<Success2>(payload)?;
            Ok(FromHost::Success2 { t_id })
        }
        (kind::COMMON, message::FAILURE2) => {
            let (failure, _) = record::<Failure>(payload)?;
            Ok(FromHost::Failure2 {
                t_id,
                explanation: failure.explanation,
            })
        }
        _ => Err(explanation::MESSAGE),
    }
}

fn negotiate(payload: &[u8]) -> Result<FromHost<'_>, u8> {
    let (said, mut rest) = record::<Negotiate>(payload)?;
    // A host that offers nothing has not negotiated.
    if said.descriptors == 0 {
        return Err(explanation::PAYLOAD);
    }

    let mut offer: Option<Offer> = None;
    for _ in 0..said.descriptors {
        let (one, after) = record::<Descriptor>(rest)?;
        rest = after;

        // Skip other protocols; a host may offer several.
        if one.protocol != PROTOCOL_DH_HMAC_CHAP {
            continue;
        }
        let known = one.hashes.get(..usize::from(one.hashes_len));
        let hashes = known.ok_or(explanation::PAYLOAD)?;
        let known = one.groups.get(..usize::from(one.groups_len));
        let groups = known.ok_or(explanation::PAYLOAD)?;

        // Skip unknown hashes and groups: a newer host may offer them beside known ones.
        let all = offer.get_or_insert_default();
        for hash in hashes.iter().filter_map(|id| Hash::of_id(*id)) {
            all.hashes |= 1 << hash.id();
        }
        for group in groups.iter().filter_map(|id| Group::of_id(*id)) {
            all.groups |= 1 << group.id();
        }
    }
    Ok(FromHost::Negotiate {
        t_id: said.head.t_id,
        plain: said.secure_channel == 0,
        offer,
    })
}

fn reply(payload: &[u8]) -> Result<FromHost<'_>, u8> {
    let (said, mut rest) = record::<Reply>(payload)?;
    let hash_len = usize::from(said.hash_len);

    // Check first: the lengths come from a stranger.
    if hash_len > Hash::LEN_MAX || usize::from(said.dh_len) > Group::BYTES_MAX {
        return Err(explanation::PAYLOAD);
    }

    // The challenge field is present even if the host does not challenge.
    let response = take(&mut rest, hash_len)?;
    let challenge = take(&mut rest, hash_len)?;
    let value = take(&mut rest, said.dh_len.into())?;
    let challenge = match said.challenges {
        0 => None,
        1 => Some((challenge, said.sequence)),
        _ => return Err(explanation::PAYLOAD),
    };

    Ok(FromHost::Reply {
        t_id: said.head.t_id,
        response,
        challenge,
        value,
    })
}

/// Serializes a record, followed by bytes.
fn put<T: IntoBytes + Immutable>(record: &T, parts: &[&[u8]]) -> Vec<u8> {
    let mut payload = record.as_bytes().to_vec();
    parts
        .iter()
        .for_each(|part| payload.extend_from_slice(part));
    payload
}

/// Challenge, by a controller with this hash and group.
pub(super) fn put_challenge(
    t_id: u16,
    (hash, group): (Hash, Group),
    sequence: u32,
    challenge: &[u8],
    value: &[u8],
) -> Vec<u8> {
    let record = Challenge {
        head: Head::new(kind::DH_HMAC_CHAP, message::CHALLENGE, t_id),
        hash_len: challenge.len() as u8,
        reserved: 0,
        hash: hash.id(),
        group: group.id(),
        dh_len: value.len() as u16,
        sequence,
    };
    put(&record, &[challenge, value])
}

/// Success1, with the response to the host's challenge if there was one.
pub(super) fn put_success1(t_id: u16, hash: Hash, response: Option<&[u8]>) -> Vec<u8> {
    let record = Success1 {
        head: Head::new(kind::DH_HMAC_CHAP, message::SUCCESS1, t_id),
        hash_len: hash.bytes() as u8,
        reserved: 0,
        responds: response.is_some().into(),
        reserved_2: [0; 7],
    };
    put(&record, &[response.unwrap_or_default()])
}

/// Failure1 (`from_host` false) or Failure2.
pub(super) fn put_failure(t_id: u16, from_host: bool, explanation: u8) -> Vec<u8> {
    let which = if from_host {
        message::FAILURE2
    } else {
        message::FAILURE1
    };
    let record = Failure {
        head: Head::new(kind::COMMON, which, t_id),
        reason: REASON_FAILED,
        explanation,
    };
    put(&record, &[])
}

/// Negotiate, by a host that offers these hashes and groups.
pub(super) fn put_negotiate(t_id: u16, hashes: &[Hash], groups: &[Group]) -> Vec<u8> {
    let mut descriptor = Descriptor {
        protocol: PROTOCOL_DH_HMAC_CHAP,
        reserved: 0,
        hashes_len: hashes.len() as u8,
        groups_len: groups.len() as u8,
        hashes: [0; IDENTIFIERS_MAX],
        groups: [0; IDENTIFIERS_MAX],
    };
    let slots = descriptor.hashes.iter_mut().zip(hashes);
    slots.for_each(|(slot, hash)| *slot = hash.id());
    let slots = descriptor.groups.iter_mut().zip(groups);
    slots.for_each(|(slot, group)| *slot = group.id());

    let record = Negotiate {
        head: Head::new(kind::COMMON, message::NEGOTIATE, t_id),
        secure_channel: 0,
        descriptors: 1,
    };
    put(&record, &[descriptor.as_bytes()])
}

/// Reply, with the host's own challenge if it has one.
pub(super) fn put_reply(
    t_id: u16,
    response: &[u8],
    challenge: Option<(&[u8], u32)>,
    value: &[u8],
) -> Vec<u8> {
    let nothing = [0; Hash::LEN_MAX];
    // The challenge field is always present, zeroes if there is no challenge.
    let (own, sequence) = challenge.unwrap_or((&nothing[..response.len()], 0));

    let record = Reply {
        head: Head::new(kind::DH_HMAC_CHAP, message::REPLY, t_id),
        hash_len: response.len() as u8,
        reserved: 0,
        challenges: challenge.is_some().into(),
        reserved_2: 0,
        dh_len: value.len() as u16,
        sequence,
    };

    put(&record, &[response, own, value])
}

/// The message by which the host accepts the controller.
pub(super) fn put_success2(t_id: u16) -> Vec<u8> {
    let record = Success2 {
        head: Head::new(kind::DH_HMAC_CHAP, message::SUCCESS2, t_id),
        reserved: [0; 10],
    };
    put(&record, &[])
}

/// A message from a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FromController<'a> {
    Challenge {
        t_id: u16,
        hash: Hash,
        group: Group,
        sequence: u32,
        challenge: &'a [u8],
        value: &'a [u8],
    },
    Success1 {
        t_id: u16,
        response: Option<&'a [u8]>,
    },
    Failure1 {
        explanation: u8,
    },
}

/// Parses a message from a controller; `None` if it is invalid.
pub(super) fn parse_answer(payload: &[u8]) -> Option<FromController<'_>> {
    let (head, _) = record::<Head>(payload).ok()?;
    let t_id = head.t_id;

    match (head.kind, head.message) {
        (kind::DH_HMAC_CHAP, message::CHALLENGE) => {
            let (said, mut rest) = record::<Challenge>(payload).ok()?;
            let (hash, group) = (Hash::of_id(said.hash)?, Group::of_id(said.group)?);

            // Hash and group determine these lengths; with others it is invalid.
            let fits = usize::from(said.hash_len) == hash.bytes()
                && usize::from(said.dh_len) == group.bytes();
            let challenge = take(&mut rest, hash.bytes()).ok()?;
            let value = take(&mut rest, group.bytes()).ok()?;
            fits.then_some(FromController::Challenge {
                t_id,
                hash,
                group,
                sequence: said.sequence,
                challenge,
                value,
            })
        }
        (kind::DH_HMAC_CHAP, message::SUCCESS1) => {
            let (said, mut rest) = record::<Success1>(payload).ok()?;
            let response = match said.responds {
                0 => None,
                _ => Some(take(&mut rest, said.hash_len.into()).ok()?),
            };
            Some(FromController::Success1 { t_id, response })
        }
        (kind::COMMON, message::FAILURE1) => {
            let (failure, _) = record::<Failure>(payload).ok()?;
            Some(FromController::Failure1 {
                explanation: failure.explanation,
            })
        }
        _ => None,
    }
}
