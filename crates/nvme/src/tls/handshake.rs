//! Handshakes of both sides, step by step: the caller decides how long to wait.
//!
//! Invariants: a server's handshake succeeds only with a key that its keyring has for the identity
//! named by the host, and then yields the host and the subsystem of the key; a client's succeeds
//! only with the given key. A stranger makes a server derive keys for at most `IDENTITIES_MAX`
//! identities. Absent: sockets (`stream`), deadlines (`tcp`).

use super::ffi::{self, FindPsk, OfferPsk};
use super::outcome::{Proven, SHA256_SUITE, SHA384_SUITE, TlsError, suite};
use crate::auth::{Keyring, NoPsk, Psk};
use openssl::error::ErrorStack;
use openssl::ex_data::Index;
use openssl::ssl::{
    Ssl, SslContext, SslContextBuilder, SslMethod, SslMode, SslOptions, SslSessionCacheMode,
    SslVersion,
};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Maximum identities looked up in one handshake; Linux sends one.
const IDENTITIES_MAX: usize = 8;

impl From<ErrorStack> for TlsError {
    fn from(stack: ErrorStack) -> Self {
        Self::Setup(stack.to_string())
    }
}

/// Settings common to both sides.
fn context(method: SslMethod) -> Result<SslContextBuilder, ErrorStack> {
    let mut context = SslContext::builder(method)?;
    // No other version, no resumption: every handshake proves the key again.
    context.set_min_proto_version(Some(SslVersion::TLS1_3))?;
    context.set_max_proto_version(Some(SslVersion::TLS1_3))?;
    context.set_session_cache_mode(SslSessionCacheMode::OFF);
    context.set_options(SslOptions::NO_TICKET | SslOptions::NO_RENEGOTIATION);

    // A write may be partial and continue from another address: callers' buffers may move.
    context.set_mode(SslMode::ENABLE_PARTIAL_WRITE | SslMode::ACCEPT_MOVING_WRITE_BUFFER);
    Ok(context)
}

/// Context of a server's handshakes.
pub struct ServerContext {
    context: SslContext,
}

/// Finds the keys of one handshake, and records the search.
pub(super) struct Finder {
    keyring: Arc<Keyring>,
    subsystems: Vec<String>,
    seen: Mutex<KeySearch>,
}

#[derive(Default)]
struct KeySearch {
    identities: usize,
    /// The key found last: OpenSSL stops searching when one fits.
    found: Option<Proven>,
    /// Why another one was not found.
    missed: Option<NoPsk>,
}

impl Finder {
    fn seen(&self) -> std::sync::MutexGuard<'_, KeySearch> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FindPsk for Finder {
    fn index() -> Index<Ssl, Self> {
        static INDEX: OnceLock<Index<Ssl, Finder>> = OnceLock::new();
        *INDEX.get_or_init(|| Ssl::new_ex_index().expect("OpenSSL has room for an index"))
    }

    fn find(&self, identity: &[u8]) -> Option<Psk> {
        let mut seen = self.seen();
        // Each lookup derives keys, and a stranger decides how many there are.
        seen.identities += 1;
        if seen.identities > IDENTITIES_MAX {
            return None;
        }

        let subsystems: Vec<&str> = self.subsystems.iter().map(String::as_str).collect();
        match self.keyring.find_psk(identity, &subsystems) {
            Ok(named) => {
                seen.found = Some(Proven {
                    hostnqn: named.hostnqn,
                    subnqn: named.subnqn,
                    hash: named.psk.hash,
                });
                Some(named.psk)
            }
            Err(missed) => {
                seen.missed = Some(missed);
                None
            }
        }
    }
}

impl ServerContext {
    /// A context for handshakes with keys of any keyring.
    ///
    /// # Errors
    /// OpenSSL's reason.
    pub fn new() -> Result<Self, TlsError> {
        let mut context = context(SslMethod::tls_server())?;
        context.set_ciphersuites(&format!("{SHA256_SUITE}:{SHA384_SUITE}"))?;
        // The Linux host ends connections on which a ticket arrives.
        context.set_num_tickets(0)?;
        ffi::find_psks::<Finder>(&mut context);
        Ok(Self {
            context: context.build(),
        })
    }

    /// State of one connection's handshake, for these subsystems.
    pub(super) fn ssl(
        &self,
        keyring: Arc<Keyring>,
        subsystems: Vec<String>,
    ) -> Result<Ssl, TlsError> {
        let mut ssl = Ssl::new(&self.context)?;
        ssl.set_accept_state();
        ssl.set_ex_data(
            Finder::index(),
            Finder {
                keyring,
                subsystems,
                seen: Mutex::default(),
            },
        );
        Ok(ssl)
    }
}

/// Context of a client's handshakes with one subsystem.
pub struct ClientContext {
    context: SslContext,
    psk: Psk,
}

pub(super) struct Offer(Psk);

impl OfferPsk for Offer {
    fn index() -> Index<Ssl, Self> {
        static INDEX: OnceLock<Index<Ssl, Offer>> = OnceLock::new();
        *INDEX.get_or_init(|| Ssl::new_ex_index().expect("OpenSSL has room for an index"))
    }
    fn psk(&self) -> &Psk {
        &self.0
    }
}

impl ClientContext {
    /// A context for handshakes with this key only.
    ///
    /// # Errors
    /// OpenSSL's reason.
    pub fn new(psk: Psk) -> Result<Self, TlsError> {
        let mut context = context(SslMethod::tls_client())?;
        context.set_ciphersuites(suite(psk.hash))?;
        ffi::offer_psks::<Offer>(&mut context);
        Ok(Self {
            context: context.build(),
            psk,
        })
    }

    /// State of one connection's handshake.
    pub(super) fn ssl(&self) -> Result<Ssl, TlsError> {
        let mut ssl = Ssl::new(&self.context)?;
        ssl.set_connect_state();
        ssl.set_ex_data(Offer::index(), Offer(self.psk.clone()));
        Ok(ssl)
    }
}

/// The proven identity of the peer, after a server's successful handshake.
pub(super) fn proven(ssl: &openssl::ssl::SslRef) -> Option<Proven> {
    // Without certificates only a key can have led here; verify that.
    let found = ssl.ex_data(Finder::index())?.seen().found.clone();
    found.filter(|_| ssl.session_reused())
}

/// Why a handshake failed: known errors of its keys first, then OpenSSL's reason.
pub(super) fn refused(ssl: &openssl::ssl::SslRef, error: &openssl::ssl::Error) -> TlsError {
    // OpenSSL's last reason is the most specific.
    let said = error.ssl_error().map(ErrorStack::errors);
    let said = said.and_then(|errors| errors.iter().rev().find_map(|one| one.reason()));
    let said = said.unwrap_or("the connection ended");

    let Some(finder) = ssl.ex_data(Finder::index()) else {
        let why = match said {
            alert if alert.contains("alert") => {
                "the target refused the TLS handshake: it has another key for this host, or none"
                    .into()
            }
            "wrong version number" => "the target does not speak TLS".into(),
            other => format!("the TLS handshake with the target failed: {other}"),
        };
        return TlsError::Refused {
            why,
            kind: "TLS handshake",
            hostnqn: String::new(),
        };
    };
    let seen = finder.seen();

    // Our own knowledge first: "no such key" helps an operator more than OpenSSL's reason.
    let (why, kind, hostnqn) = match (&seen.found, &seen.missed) {
        (None, Some(missed)) => (missed.why.into(), missed.why, missed.hostnqn.clone()),
        (Some(found), _) if said.contains("binder") => {
            let why = "its TLS key is wrong";
            (why.into(), why, found.hostnqn.clone())
        }
        (found, _) => {
            let hostnqn = found.as_ref().map(|found| found.hostnqn.clone());
            let why = format!("the TLS handshake failed: {said}");
            (why, "TLS handshake", hostnqn.unwrap_or_default())
        }
    };
    TlsError::Refused { why, kind, hostnqn }
}
