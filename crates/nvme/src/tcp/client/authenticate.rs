//! Authentication of a queue that was just connected.
//!
//! Invariant: with a controller's secret no queue of the subsystem is used before the controller
//! has proven itself. Absent: what is sent (`auth`); discovery, which nobody authenticates.

use super::error::ClientError;
use super::{Call, Options, Queue, entry};
use crate::auth::{HostExchange, MESSAGE_BYTES_MAX, Step};
use crate::spec::auth::{ConnectResult, SecurityCdw10};
use crate::spec::fabrics::{DISCOVERY_NQN, kind as fabrics};
use crate::spec::opcode::admin;

/// Room for the controller's messages, as Linux has it.
const ROOM: usize = 4096;
const _: () = assert!(ROOM >= MESSAGE_BYTES_MAX);

impl Queue {
    /// Authenticates if the result of Connect asks for it.
    pub(super) fn authenticate_if_asked(
        &mut self,
        said: ConnectResult,
        options: &Options,
        subnqn: &str,
    ) -> Result<(), ClientError> {
        let credentials = options.credentials.as_deref();
        // Whoever leaves authentication out proves nothing. With a controller's secret that is not
        // enough.
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
                    // The target need not wait for us any longer. It may have closed the connection
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
    /// The connection, or the target does not want it.
    pub fn send_message(&mut self, message: &[u8]) -> Result<(), ClientError> {
        let mut sqe = entry(admin::FABRICS, fabrics::AUTH_SEND.into());
        sqe.cdw10 = SecurityCdw10::DH_HMAC_CHAP.into_bits();
        sqe.cdw11 = message.len() as u32;
        let call = Call {
            sqe,
            send: message,
            receive: 0,
        };
        self.call("authentication send", &call).map(drop)
    }

    /// Fetches the controller's next message, by an Authentication Receive command.
    ///
    /// # Errors
    /// The connection, or the target has nothing to say.
    pub fn receive_message(&mut self) -> Result<Vec<u8>, ClientError> {
        let mut sqe = entry(admin::FABRICS, fabrics::AUTH_RECEIVE.into());
        sqe.cdw10 = SecurityCdw10::DH_HMAC_CHAP.into_bits();
        sqe.cdw11 = ROOM as u32;
        let call = Call {
            sqe,
            send: &[],
            receive: ROOM,
        };
        Ok(self.call("authentication receive", &call)?.data)
    }
}
