//! One queue's exchange on the host's side.
//!
//! Invariants: the secret is used only in a response to a challenge; if the credentials have a
//! controller's secret, the exchange succeeds only if the controller has proven that it knows it.
//! Absent: commands (`tcp::client`).

use super::group::{Group, KeyPair};
use super::hash::Hash;
use super::message::{self, FromController};
use super::response::{Response, Side};
use super::secret::Secret;
use crate::spec::auth::explanation;
use zeroize::Zeroizing;

/// The secrets that a host needs to authenticate a queue.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// The secret that authenticates the host.
    pub host: Secret,
    /// The controller's secret, if it must authenticate too.
    pub controller: Option<Secret>,
}

/// Why the exchange failed, from the host's side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// The controller refused, with an explanation of one byte.
    #[error("the target refused: {}", describe(*.0))]
    Refused(u8),
    /// Its message is malformed or out of order.
    #[error("the target sent a message of authentication that cannot be")]
    Malformed,
    /// It chose a hash or group that was not offered.
    #[error("the target chose a hash or a group that was not offered")]
    NotOffered,
    /// It did not authenticate.
    #[error("the target does not know the controller's secret")]
    NotProven,
}

/// Meaning of an explanation from the controller.
fn describe(said: u8) -> &'static str {
    match said {
        explanation::FAILED => "the secret is wrong, or it is not known to the target",
        explanation::NOT_USABLE => "it does not authenticate by DH-HMAC-CHAP",
        explanation::SECURE_CHANNEL => "secure channels do not match",
        explanation::HASH => "it wants a stronger hash",
        explanation::GROUP => "it wants a stronger group",
        explanation::PAYLOAD => "it could not use what was sent",
        explanation::MESSAGE => "it expected another message",
        _ => "for a reason that has no name",
    }
}

/// The next step after an answer.
pub enum Step {
    /// Send this, and receive the answer.
    Send(Vec<u8>),
    /// Send this; then the queue is authenticated.
    Last(Vec<u8>),
    /// The exchange is over, and the queue is authenticated.
    Done,
}

/// Our challenge, which the controller must answer.
struct Open {
    hash: Hash,
    sequence: u32,
    challenge: Vec<u8>,
    shared: Zeroizing<Vec<u8>>,
}

/// The exchange of one queue.
pub struct HostExchange<'a> {
    credentials: &'a Credentials,
    hostnqn: &'a str,
    subnqn: &'a str,
    hashes: &'a [Hash],
    groups: &'a [Group],
    t_id: u16,
    has_replied: bool,
    open: Option<Open>,
}

impl<'a> HostExchange<'a> {
    /// Offers all hashes and groups.
    pub fn new(credentials: &'a Credentials, hostnqn: &'a str, subnqn: &'a str) -> Self {
        Self::offering(credentials, hostnqn, subnqn, &Hash::ALL, &Group::ALL)
    }

    /// Like `new`, offering only these hashes and groups.
    pub fn offering(
        credentials: &'a Credentials,
        hostnqn: &'a str,
        subnqn: &'a str,
        hashes: &'a [Hash],
        groups: &'a [Group],
    ) -> Self {
        // A random transaction number: answers to other transactions are not accepted.
        let mut t_id = [0; 2];
        super::fill_random(&mut t_id);

        Self {
            credentials,
            hostnqn,
            subnqn,
            hashes,
            groups,
            t_id: u16::from_le_bytes(t_id),
            has_replied: false,
            open: None,
        }
    }

    /// The first message of the exchange.
    pub fn negotiate(&self) -> Vec<u8> {
        message::put_negotiate(self.t_id, self.hashes, self.groups)
    }

    /// Failure2, which tells the controller that the exchange is over.
    pub(crate) fn failure(&self) -> Vec<u8> {
        message::put_failure(self.t_id, true, explanation::FAILED)
    }

    /// Handles a message of the controller.
    ///
    /// # Errors
    /// The exchange has failed.
    pub fn receive(&mut self, payload: &[u8]) -> Result<Step, HostError> {
        let said = message::parse_answer(payload).ok_or(HostError::Malformed)?;
        match (said, self.has_replied) {
            (FromController::Failure1 { explanation }, _) => Err(HostError::Refused(explanation)),
            (challenge @ FromController::Challenge { .. }, false) => self.reply(challenge),
            (FromController::Success1 { t_id, response }, true) if t_id == self.t_id => {
                self.judge(response)
            }

            // Out of order, or from another transaction.
            _ => Err(HostError::Malformed),
        }
    }

    /// Compares the controller's response with the one computed from its secret. A controller that
    /// does not answer our challenge has not authenticated either.
    fn judge(&self, response: Option<&[u8]>) -> Result<Step, HostError> {
        // Without a controller's secret there was no challenge.
        let (Some(open), Some(secret)) = (&self.open, &self.credentials.controller) else {
            return Ok(Step::Done);
        };
        let expected = Response {
            side: Side::Controller,
            hash: open.hash,
            secret,
            challenge: &open.challenge,
            shared: &open.shared,
            sequence: open.sequence,
            t_id: self.t_id,
            hostnqn: self.hostnqn,
            subnqn: self.subnqn,
        };

        if response.is_some_and(|said| expected.is(said)) {
            Ok(Step::Last(message::put_success2(self.t_id)))
        } else {
            Err(HostError::NotProven)
        }
    }

    fn reply(&mut self, said: FromController<'_>) -> Result<Step, HostError> {
        let FromController::Challenge {
            t_id,
            hash,
            group,
            sequence,
            challenge,
            value,
        } = said
        else {
            return Err(HostError::Malformed);
        };
        if t_id != self.t_id {
            return Err(HostError::Malformed);
        }

        // A controller must not choose anything not offered: it might be weak.
        if !self.hashes.contains(&hash) || !self.groups.contains(&group) {
            return Err(HostError::NotOffered);
        }

        let pair = KeyPair::new(group);
        let shared = pair.shared(value).ok_or(HostError::Malformed)?;
        let ours = Response {
            side: Side::Host,
            hash,
            secret: &self.credentials.host,
            challenge,
            shared: &shared,
            sequence,
            t_id,
            hostnqn: self.hostnqn,
            subnqn: self.subnqn,
        };

        let response = ours.make();
        // Only one challenge is answered; otherwise a target could collect responses.
        self.has_replied = true;
        if self.credentials.controller.is_none() {
            let payload = message::put_reply(t_id, &response, None, &pair.value);
            return Ok(Step::Send(payload));
        }

        // Random, so that no earlier response of the controller is valid.
        let mut challenge = vec![0; hash.bytes()];
        super::fill_random(&mut challenge);
        let mut number = [0; 4];
        super::fill_random(&mut number);
        let open = self.open.insert(Open {
            hash,
            // 0 means no challenge.
            sequence: u32::from_le_bytes(number).max(1),
            challenge,
            shared,
        });
        let own = (&open.challenge[..], open.sequence);
        let payload = message::put_reply(t_id, &response, Some(own), &pair.value);
        Ok(Step::Send(payload))
    }
}
