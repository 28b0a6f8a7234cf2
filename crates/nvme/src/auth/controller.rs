//! One queue's exchange on the target's side: payloads of Authentication Send in, those of
//! Authentication Receive out.
//!
//! Invariants:
//! - a queue is authenticated only if the host's response to *this* exchange's random challenge is
//!   correct and, if the host challenged us, it has accepted our response;
//! - a challenge is answered once: after any answer it is discarded;
//! - until it is authenticated a queue has one exchange. Later the host may authenticate again
//!   (Linux does when its secret is changed); a failure then ends the queue too;
//! - hash and group are no weaker than the host's line requires, whichever the host offers.
//!
//! Absent: commands, deadlines (`tcp`). A man in the middle may still downgrade a negotiation to
//! that line: the responses do not cover the offer.

use super::group::{Group, KeyPair};
use super::hash::Hash;
use super::keys::{HostEntry, Keyring, Proof};
use super::message::{self, FromHost};
use super::response::{Response, Side};
use super::secret::Secret;
use super::turns::Asker;
use crate::spec::auth::explanation;
use std::sync::Arc;

/// Maximum payload: a Reply with the longest hash and the largest group, and Negotiate with several
/// protocols.
pub const MESSAGE_BYTES_MAX: usize = 2048;

/// Why a queue will not be authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed {
    /// The explanation sent to the host (`spec::auth::explanation`).
    pub explanation: u8,
    /// The reason in words, for the log; the host gets less.
    pub why: &'static str,
}

const fn failed(explanation: u8, why: &'static str) -> Failed {
    Failed { explanation, why }
}

impl Failed {
    const PAYLOAD: Self = failed(explanation::PAYLOAD, "its message is malformed");
    const ORDER: Self = failed(explanation::MESSAGE, "its message is out of place");
    const TRANSACTION: Self = failed(
        explanation::PAYLOAD,
        "its message belongs to another transaction",
    );
    const PROTOCOL: Self = failed(explanation::NOT_USABLE, "it does not offer DH-HMAC-CHAP");
    const CHANNEL: Self = failed(
        explanation::SECURE_CHANNEL,
        "it wants a secure channel made by authentication",
    );
    const HASH: Self = failed(
        explanation::HASH,
        "it offers no hash that is strong enough for it",
    );
    const GROUP: Self = failed(
        explanation::GROUP,
        "it offers no group that is strong enough for it",
    );
    const VALUE: Self = failed(explanation::PAYLOAD, "its Diffie-Hellman value is invalid");
    const REFLECTED: Self = failed(explanation::FAILED, "it sent our own challenge back");
    const RESPONSE: Self = failed(explanation::FAILED, "its secret is wrong");
    const NO_SECRET: Self = failed(
        explanation::FAILED,
        "it asks for our proof, and its line has no secret of the controller's",
    );
    const NO_KEY: Self = failed(explanation::FAILED, "it has no key any more");
    const NOT_ACCEPTED: Self = failed(explanation::FAILED, "it did not accept our proof");
    const GAVE_UP: Self = failed(explanation::FAILED, "it gave up");
    const ENDED: Self = failed(
        explanation::FAILED,
        "it ended while it waited for a calculation",
    );
}

/// A challenge that is not answered yet.
struct Open {
    t_id: u16,
    secret: Secret,
    entry: Arc<HostEntry>,
    hash: Hash,
    group: Group,
    sequence: u32,
    challenge: Vec<u8>,
    pair: KeyPair,
}

/// The next message, from either side.
enum State {
    /// Negotiate, the host's first message.
    Negotiate,
    /// Our challenge, which the host receives next.
    Challenge(Box<Open>),
    Reply(Box<Open>),
    /// Success1, followed by the proof established by the exchange.
    Success1 {
        payload: Vec<u8>,
        proof: Proof,
    },
    Success2 {
        t_id: u16,
        proof: Proof,
    },
    Failure1(u16),
    /// None: the exchange has ended, successfully or not.
    Over,
}

/// The exchange of one queue.
pub struct Exchange {
    keyring: Arc<Keyring>,
    hostnqn: String,
    subnqn: String,
    state: State,
    calculations: u32,
    proof: Option<Proof>,
    failed: Option<Failed>,
}

impl Exchange {
    /// An exchange for a newly connected queue of this host.
    pub fn new(keyring: Arc<Keyring>, hostnqn: &str, subnqn: &str) -> Self {
        Self {
            keyring,
            hostnqn: hostnqn.into(),
            subnqn: subnqn.into(),
            state: State::Negotiate,
            calculations: 0,
            proof: None,
            failed: None,
        }
    }

    /// The proof by the host, once it has authenticated.
    pub fn proof(&self) -> Option<Proof> {
        self.proof
    }

    /// The reason of failure, if it has failed.
    pub fn failed(&self) -> Option<Failed> {
        self.failed
    }

    /// Number of calculations that it has waited for.
    pub fn calculations(&self) -> u32 {
        self.calculations
    }

    /// Returns true if the queue must end: the exchange failed, and no failure message remains to
    /// be sent.
    pub fn is_over(&self) -> bool {
        matches!(self.state, State::Over)
    }

    /// Handles a payload from the host. It may wait for its turn to calculate.
    pub fn receive(&mut self, payload: &[u8], asker: &Asker<'_>) {
        let parsed = message::parse(payload);
        let t_id = parsed.as_ref().map_or(0, FromHost::t_id);

        // Over unless set below: no return path leaves an old challenge open.
        let before = std::mem::replace(&mut self.state, State::Over);

        // After a failure no message of the host is accepted.
        if self.failed.is_some() {
            return;
        }
        let next = parsed
            .map_err(|explanation| match explanation {
                explanation::MESSAGE => Failed::ORDER,
                _ => Failed::PAYLOAD,
            })
            .and_then(|said| self.next(before, said, asker));
        self.state = match next {
            Ok(state) => state,
            // The host is gone: there is no one to send an explanation to.
            Err(Failed::ENDED) => {
                self.failed = Some(Failed::ENDED);
                State::Over
            }
            Err(failed) => {
                self.failed = Some(failed);
                State::Failure1(t_id)
            }
        };
    }

    fn next(
        &mut self,
        before: State,
        said: FromHost<'_>,
        asker: &Asker<'_>,
    ) -> Result<State, Failed> {
        match (before, said) {
            (State::Negotiate, FromHost::Negotiate { t_id, plain, offer }) => {
                // Secure channels by an exchange are not supported: use TLS.
                if !plain {
                    return Err(Failed::CHANNEL);
                }
                let offer = offer.ok_or(Failed::PROTOCOL)?;

                // The current keys: a host whose key was removed starts no exchange.
                let entry = self.keyring.find(&self.hostnqn).ok_or(Failed::NO_KEY)?;
                let secret = entry.host.clone().ok_or(Failed::NO_KEY)?;
                let hash = offer.hash(entry.hash).ok_or(Failed::HASH)?;
                let group = offer.group(entry.group).ok_or(Failed::GROUP)?;

                // A new challenge and key pair for every exchange: a recorded response proves
                // nothing.
                let mut challenge = vec![0; hash.bytes()];
                super::fill_random(&mut challenge);
                let pair = self.in_turn(group, asker, || KeyPair::new(group))?;
                Ok(State::Challenge(Box::new(Open {
                    t_id,
                    secret,
                    entry,
                    hash,
                    group,
                    sequence: self.keyring.next_sequence(),
                    challenge,
                    pair,
                })))
            }

            (State::Reply(open), reply @ FromHost::Reply { .. }) => self.judge(*open, reply, asker),

            (State::Success2 { t_id, proof }, FromHost::Success2 { t_id: theirs }) => {
                // The host has accepted our response to its challenge, in this very transaction.
                if t_id != theirs {
                    return Err(Failed::TRANSACTION);
                }
                self.proof = Some(proof);
                Ok(State::Negotiate)
            }

            // No message to the host, which has ended the exchange.
            (before, FromHost::Failure2 { .. }) => {
                let proved = matches!(before, State::Success2 { .. });
                self.failed = Some(if proved {
                    Failed::NOT_ACCEPTED
                } else {
                    Failed::GAVE_UP
                });
                Ok(State::Over)
            }
            _ => Err(Failed::ORDER),
        }
    }

    fn in_turn<R>(
        &mut self,
        group: Group,
        asker: &Asker<'_>,
        work: impl FnOnce() -> R,
    ) -> Result<R, Failed> {
        self.calculations += u32::from(group != Group::Null);
        let result = self.keyring.in_turn(group, asker, work);
        result.ok_or(Failed::ENDED)
    }

    /// Compares a reply with the one computed from the secret.
    fn judge(
        &mut self,
        open: Open,
        reply: FromHost<'_>,
        asker: &Asker<'_>,
    ) -> Result<State, Failed> {
        let FromHost::Reply {
            t_id,
            response,
            challenge,
            value,
        } = reply
        else {
            return Err(Failed::ORDER);
        };

        // Cheap checks come before the calculation with the host's value.
        if t_id != open.t_id {
            return Err(Failed::TRANSACTION);
        }
        if response.len() != open.hash.bytes() {
            return Err(Failed::PAYLOAD);
        }

        let shared = self.in_turn(open.group, asker, || open.pair.shared(value))?;
        let shared = shared.ok_or(Failed::VALUE)?;
        let expected = Response {
            side: Side::Host,
            hash: open.hash,
            secret: &open.secret,
            challenge: &open.challenge,
            shared: &shared,
            sequence: open.sequence,
            t_id,
            hostnqn: &self.hostnqn,
            subnqn: &self.subnqn,
        };
        if !expected.is(response) {
            return Err(Failed::RESPONSE);
        }

        // The response is correct. Next is the host's own challenge, if there is one.
        let proof = Proof {
            hash: open.hash,
            group: open.group,
            both_ways: challenge.is_some(),
        };
        let Some((theirs, sequence)) = challenge else {
            let payload = message::put_success1(t_id, open.hash, None);
            return Ok(State::Success1 { payload, proof });
        };

        // A host that reflects our challenge would have us compute its own response.
        if theirs == open.challenge {
            return Err(Failed::REFLECTED);
        }
        let secret = open.entry.controller.as_ref().ok_or(Failed::NO_SECRET)?;
        let ours = Response {
            side: Side::Controller,
            secret,
            challenge: theirs,
            sequence,
            ..expected
        };
        let payload = message::put_success1(t_id, open.hash, Some(&ours.make()));
        Ok(State::Success1 { payload, proof })
    }

    /// The payload that the host requests; `None` if there is none, or it does not fit into `room`
    /// bytes.
    pub fn send(&mut self, room: usize) -> Option<Vec<u8>> {
        // As in `receive`: a state not replaced below means the end.
        let (payload, next) = match std::mem::replace(&mut self.state, State::Over) {
            State::Challenge(open) => {
                let suite = (open.hash, open.group);
                let payload = message::put_challenge(
                    open.t_id,
                    suite,
                    open.sequence,
                    &open.challenge,
                    &open.pair.value,
                );
                (payload, State::Reply(open))
            }
            State::Success1 { payload, proof } if proof.both_ways => {
                // The transaction number is at the same place in every message.
                let t_id = u16::from_le_bytes([payload[4], payload[5]]);
                (payload, State::Success2 { t_id, proof })
            }
            State::Success1 { payload, proof } => {
                // Sending it completes the proof: this host wants no proof of ours, so it sends
                // nothing more.
                self.proof = Some(proof);
                (payload, State::Negotiate)
            }
            State::Failure1(t_id) => {
                let explanation = self
                    .failed
                    .map_or(explanation::FAILED, |one| one.explanation);
                (message::put_failure(t_id, false, explanation), State::Over)
            }
            // The host requests a message when it is its turn to send one.
            State::Negotiate | State::Reply(_) | State::Success2 { .. } | State::Over => {
                self.failed.get_or_insert(Failed::ORDER);
                return None;
            }
        };

        // A host that leaves too little room has to start over, so the exchange ends.
        if payload.len() > room {
            self.failed.get_or_insert(failed(
                explanation::PAYLOAD,
                "it left too little room for our message",
            ));
            return None;
        }

        self.state = next;
        Some(payload)
    }
}
