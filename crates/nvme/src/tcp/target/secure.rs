//! Proof by TLS required before a host's Connect is accepted, and authentication required
//! afterwards.
//!
//! Invariants: a host with a TLS key can connect only by TLS, under the name and to the subsystem
//! that the key is for; this is checked at every Connect, against the current keys. Absent:
//! handshakes (`entrance`).

use super::Connection;
use crate::auth::Exchange;
use crate::controller::{Association, ConnectRefusal};
use crate::spec::fabrics::DISCOVERY_NQN;
use crate::tls::{CONNECTION_BYTES, Proven};

impl Connection {
    /// Records the proof of a TLS handshake.
    pub(crate) fn prove(&mut self, proven: Option<Proven>) {
        self.proven = proven;
    }

    /// The proof of a TLS handshake, if there was one.
    pub(crate) fn proven(&self) -> Option<&Proven> {
        self.proven.as_ref()
    }

    /// Memory that TLS takes for this connection.
    pub(super) fn tls_bytes(&self) -> usize {
        self.proven.as_ref().map_or(0, |_| CONNECTION_BYTES)
    }

    /// Checks that a host may connect a queue with or without TLS, as it does.
    pub(super) fn check_key(&self, association: &Association) -> Result<(), ConnectRefusal> {
        let Some(keyring) = &self.port.keyring else {
            return Ok(());
        };

        // Checked at every Connect: the key may have been removed since the handshake.
        let Some(entry) = keyring.find(association.hostnqn()) else {
            return Err(ConnectRefusal::NO_KEY);
        };

        // Without TLS only a host without a TLS key may connect: a name alone proves nothing.
        let Some(proven) = &self.proven else {
            let needs_tls = entry.tls.is_some();
            return if needs_tls {
                Err(ConnectRefusal::NO_TLS)
            } else {
                Ok(())
            };
        };

        // A key is for one subsystem. Discovery counts as a separate one.
        let subnqn = if association.is_discovery() {
            DISCOVERY_NQN
        } else {
            self.port.subsystem.nqn()
        };
        if proven.hostnqn == association.hostnqn() && proven.subnqn == subnqn {
            Ok(())
        } else {
            Err(ConnectRefusal::OTHER_TLS)
        }
    }

    /// The exchange by which a queue's host must authenticate, if it has a secret. Discovery
    /// requires none.
    pub(super) fn exchange_of(&self, association: &Association) -> Option<Exchange> {
        let keyring = self.port.keyring.as_ref()?;
        let entry = keyring.find(association.hostnqn());
        // A host without a line may have lost it just now: require a proof, which it cannot give.
        let needs_none = association.is_discovery() || entry.is_some_and(|one| one.host.is_none());
        let subnqn = self.port.subsystem.nqn();
        (!needs_none).then(|| Exchange::new(keyring.clone(), association.hostnqn(), subnqn))
    }
}
