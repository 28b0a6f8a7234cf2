//! What a host must have proven by TLS before its Connect is accepted, and what it must prove by
//! authentication then.
//!
//! Invariants: a host that has a TLS key connects by TLS, under the name that the key is for, to
//! the subsystem that the key is for, and no other way; this is looked up at every Connect, by the
//! keys of that moment. Absent: handshakes (`entrance`).

use super::Connection;
use crate::auth::Exchange;
use crate::controller::{Association, ConnectRefusal};
use crate::spec::fabrics::DISCOVERY_NQN;
use crate::tls::{CONNECTION_BYTES, Proven};

impl Connection {
    /// Records what a TLS handshake has proven.
    pub fn prove(&mut self, proven: Option<Proven>) {
        self.proven = proven;
    }

    /// What a TLS handshake has proven, if there was one.
    pub fn proven(&self) -> Option<&Proven> {
        self.proven.as_ref()
    }

    /// Memory that TLS takes for this connection.
    pub(super) fn tls_bytes(&self) -> usize {
        self.proven.as_ref().map_or(0, |_| CONNECTION_BYTES)
    }

    /// Whether a host may connect a queue the way it does.
    pub(super) fn check_key(&self, association: &Association) -> Result<(), ConnectRefusal> {
        let Some(keyring) = &self.port.keyring else {
            return Ok(());
        };

        // Looked up at every Connect: the key may have been taken away since the handshake.
        let Some(entry) = keyring.find(association.hostnqn()) else {
            return Err(ConnectRefusal::NO_KEY);
        };

        // Without TLS only a host that has no TLS key may connect: a name alone is easily said.
        let Some(proven) = &self.proven else {
            let needs_tls = entry.tls.is_some();
            return if needs_tls {
                Err(ConnectRefusal::NO_TLS)
            } else {
                Ok(())
            };
        };

        // A key is for one subsystem. Discovery counts as one of its own.
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

    /// The exchange by which a queue's host must authenticate, if it has a secret. Discovery asks
    /// for none.
    pub(super) fn exchange_of(&self, association: &Association) -> Option<Exchange> {
        let keyring = self.port.keyring.as_ref()?;
        let entry = keyring.find(association.hostnqn());
        // A host without a line may have lost it just now: it has to prove what it cannot.
        let needs_none = association.is_discovery() || entry.is_some_and(|one| one.host.is_none());
        let subnqn = self.port.subsystem.nqn();
        (!needs_none).then(|| Exchange::new(keyring.clone(), association.hostnqn(), subnqn))
    }
}
