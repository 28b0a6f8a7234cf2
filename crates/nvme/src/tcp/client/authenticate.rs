//! Authentication of a newly connected queue.
//!
//! Invariant: with a controller's secret, no queue of the subsystem is used before the controller
//! has authenticated. Absent: messages (`auth`); discovery, which is never authenticated.

use super::error::ClientError;
use super::{Call, Options, Queue, entry};
use crate::auth::{HostExchange, MESSAGE_BYTES_MAX, Step};
use crate::spec::auth::{ConnectResult, SecurityCdw10};
use crate::spec::fabrics::{DISCOVERY_NQN, kind as fabrics};
use crate::spec::opcode::admin;

/// Size of the receive buffer for messages, as in Linux.
const ROOM: usize = 4096;
const _: () = assert!(ROOM >= MESSAGE_BYTES_MAX);

impl Queue {
    /// Authenticates if the result of Connect requires it.
    pub(super) fn authenticate_if_asked(
        &mut self,
        said: ConnectResult,
        options: &Options,
        subnqn: &str,
    ) -> Result<(), ClientError> {
        let credentials = options.credentials.as_deref();
        // A target that skips authentication proves nothing. With a controller's secret that is
        // refused.
        if !said.authentication() {
            let wants_proof = credentials.is_some_and(|known| known.controller.is_some());
            return if wants_proof && subnqn != DISCOVERY_NQN {
                Err(ClientError::NotAuthenticating)
            } else {
                Ok(())
            };
        }

        let credentials = credentials.ok_or(ClientError::NoSecret)?;
        let mut exchange = HostExchange::new(credentials, &options.hostnqn, subnqn);
        self.send_message(&exchange.negotiate())?;
        loop {
            let answer = self.receive_message()?;
            match exchange.receive(&answer) {
                Ok(Step::Send(message)) => self.send_message(&message)?,
                Ok(Step::Last(message)) => return self.send_message(&message),
                Ok(Step::Done) => return Ok(()),
                Err(error) => {
                    // Tells the target not to wait any longer. It may have closed the connection
                    // already.
                    let _ = self.send_message(&exchange.failure());
                    return Err(error.into());
                }
            }
        }
    }

    /// Sends one message of the exchange, by an Authentication Send command.
    ///
    /// # Errors
    /// The connection failed, or the target refused the message.
    pub(crate) fn send_message(&mut self, message: &[u8]) -> Result<(), ClientError> {
        let mut sqe = entry(admin::FABRICS, fabrics::AUTH_SEND.into());
        sqe.cdw10 = SecurityCdw10::DH_HMAC_CHAP.into_bits();
        sqe.cdw11 = message.len() as u32;
        let call = Call::sending(sqe, message);
        self.call("authentication send", &call).map(drop)
    }

    /// Fetches the controller's next message, by an Authentication Receive command.
    ///
    /// # Errors
    /// The connection failed, or the target has no message.
    pub(crate) fn receive_message(&mut self) -> Result<Vec<u8>, ClientError> {
        let mut sqe = entry(admin::FABRICS, fabrics::AUTH_RECEIVE.into());
        sqe.cdw10 = SecurityCdw10::DH_HMAC_CHAP.into_bits();
        sqe.cdw11 = ROOM as u32;
        let call = Call::receiving(sqe, ROOM);
        Ok(self.call("authentication receive", &call)?.data)
    }
}
