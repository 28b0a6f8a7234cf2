//! Functions of OpenSSL 1.1.1 and newer that the crate `openssl` lacks, with safe wrappers.
//!
//! Invariant: all unsafe code for TLS in this crate is here. Absent: the mapping of identities to
//! keys (`handshake`).

use crate::auth::{Hash, Psk};
use foreign_types::{ForeignType, ForeignTypeRef};
use openssl::ex_data::Index;
use openssl::ssl::{Ssl, SslContextBuilder, SslRef, SslSession};
use openssl_sys::{SSL, SSL_CIPHER, SSL_CTX, SSL_SESSION};
use std::ffi::{c_int, c_uchar, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

type FindSession = unsafe extern "C" fn(
    ssl: *mut SSL,
    identity: *const c_uchar,
    identity_len: usize,
    session: *mut *mut SSL_SESSION,
) -> c_int;

type UseSession = unsafe extern "C" fn(
    ssl: *mut SSL,
    digest: *const c_void,
    identity: *mut *const c_uchar,
    identity_len: *mut usize,
    session: *mut *mut SSL_SESSION,
) -> c_int;

// As declared in `openssl/ssl.h`; libssl is linked by `openssl-sys`.
unsafe extern "C" {
    fn SSL_CTX_set_psk_find_session_callback(context: *mut SSL_CTX, find: Option<FindSession>);
    fn SSL_CTX_set_psk_use_session_callback(context: *mut SSL_CTX, offer: Option<UseSession>);
    fn SSL_CIPHER_find(ssl: *mut SSL, id: *const c_uchar) -> *const SSL_CIPHER;
    fn SSL_SESSION_new() -> *mut SSL_SESSION;
    fn SSL_SESSION_set1_master_key(
        session: *mut SSL_SESSION,
        key: *const c_uchar,
        key_len: usize,
    ) -> c_int;
    fn SSL_SESSION_set_cipher(session: *mut SSL_SESSION, cipher: *const SSL_CIPHER) -> c_int;
    fn SSL_SESSION_set_protocol_version(session: *mut SSL_SESSION, version: c_int) -> c_int;
}

/// Cipher suite on the wire (RFC 8446 §B.4).
fn suite(hash: Hash) -> [c_uchar; 2] {
    match hash {
        Hash::Sha384 => [0x13, 0x02],
        _ => [0x13, 0x01],
    }
}

/// A session that represents an external PSK; `None` if OpenSSL lacks memory or this suite.
fn session(ssl: &SslRef, psk: &Psk) -> Option<SslSession> {
    // SAFETY: it takes no arguments, and returns null or a session that we own; `SslSession` frees
    // it.
    let session = unsafe {
        let new = SSL_SESSION_new();
        (!new.is_null()).then(|| SslSession::from_ptr(new))?
    };

    // SAFETY: `ssl` is alive, and exactly two bytes are read. The result is null or a static
    // record.
    let cipher = unsafe { SSL_CIPHER_find(ssl.as_ptr(), suite(psk.hash).as_ptr()) };
    if cipher.is_null() {
        return None;
    }

    // SAFETY: the session is alive and not shared yet; the key is copied; the cipher was found
    // above.
    let is_set = unsafe {
        SSL_SESSION_set1_master_key(session.as_ptr(), psk.key.as_ptr(), psk.key.len()) == 1
            && SSL_SESSION_set_cipher(session.as_ptr(), cipher) == 1
            && SSL_SESSION_set_protocol_version(session.as_ptr(), openssl_sys::TLS1_3_VERSION) == 1
    };
    is_set.then_some(session)
}

/// Looks up keys for a server.
pub(super) trait FindPsk: Send + Sync + 'static {
    /// The index of a connection's key finder in its data.
    fn index() -> Index<Ssl, Self>
    where
        Self: Sized;
    /// The key with this identity, which comes from a stranger.
    fn find(&self, identity: &[u8]) -> Option<Psk>;
}

/// The key that a client offers.
pub(super) trait OfferPsk: Send + Sync + 'static {
    /// The index of a connection's key in its data.
    fn index() -> Index<Ssl, Self>
    where
        Self: Sized;
    /// The key. Its memory is not moved as long as the connection exists.
    fn psk(&self) -> &Psk;
}

/// Makes a server look up keys by the `F` of each connection.
pub(super) fn find_psks<F: FindPsk>(context: &mut SslContextBuilder) {
    // SAFETY: the context is alive, and the callback has the type that OpenSSL declares.
    unsafe { SSL_CTX_set_psk_find_session_callback(context.as_ptr(), Some(raw_find::<F>)) }
}

/// Makes a client offer the key of each connection's `O`.
pub(super) fn offer_psks<O: OfferPsk>(context: &mut SslContextBuilder) {
    // SAFETY: the context is alive, and the callback has the type that OpenSSL declares.
    unsafe { SSL_CTX_set_psk_use_session_callback(context.as_ptr(), Some(raw_offer::<O>)) }
}

/// Called by OpenSSL in a server's handshake, for each identity until one is known.
///
/// Returns 1 with or without a key: without one the handshake fails later, since there are no
/// certificates.
unsafe extern "C" fn raw_find<F: FindPsk>(
    ssl: *mut SSL,
    identity: *const c_uchar,
    identity_len: usize,
    session_out: *mut *mut SSL_SESSION,
) -> c_int {
    // A panic must not unwind into C.
    let found = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: OpenSSL passes the connection of this handshake, which no other code uses until
        // this returns.
        let ssl = unsafe { SslRef::from_ptr(ssl) };
        let identity = if identity_len == 0 {
            &[]
        } else {
            // SAFETY: OpenSSL passes `identity_len` bytes of the message that it reads, and they
            // stay valid until this returns.
            unsafe { std::slice::from_raw_parts(identity, identity_len) }
        };
        let psk = ssl.ex_data(F::index())?.find(identity)?;
        session(ssl, &psk)
    }));

    let session = found.ok().flatten();
    // SAFETY: OpenSSL passes a valid place for the result, and frees the session.
    unsafe { *session_out = session.map_or(ptr::null_mut(), into_raw) };
    1
}

/// Called by OpenSSL in a client's handshake, once or twice.
unsafe extern "C" fn raw_offer<O: OfferPsk>(
    ssl: *mut SSL,
    _digest: *const c_void,
    identity_out: *mut *const c_uchar,
    identity_len_out: *mut usize,
    session_out: *mut *mut SSL_SESSION,
) -> c_int {
    let offered = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: OpenSSL passes the connection of this handshake, which no other code uses until
        // this returns.
        let ssl = unsafe { SslRef::from_ptr(ssl) };
        let psk = ssl.ex_data(O::index())?.psk();
        // Only the key's own suite is offered, so the requested digest is always the key's.
        let session = session(ssl, psk)?;
        Some((psk.identity.as_ptr(), psk.identity.len(), session))
    }));

    let (identity, identity_len, session) = match offered.ok().flatten() {
        Some((identity, len, session)) => (identity, len, into_raw(session)),
        None => (ptr::null(), 0, ptr::null_mut()),
    };
    // SAFETY: OpenSSL passes valid places for the results. The identity lives in the connection's
    // own data, which are not changed (`OfferPsk::psk`) before the connection is freed; OpenSSL
    // copies it at once.
    unsafe {
        *identity_out = identity;
        *identity_len_out = identity_len;
        *session_out = session;
    }
    c_int::from(!session.is_null())
}

/// Passes ownership of a session to OpenSSL.
fn into_raw(session: SslSession) -> *mut SSL_SESSION {
    // OpenSSL frees it, so we must not.
    let raw = session.as_ptr();
    std::mem::forget(session);
    raw
}
