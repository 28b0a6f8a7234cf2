//! Hosts that may connect, with their keys: a file with one line per host.
//!
//! ```text
//! # host NQN                 its keys                            options
//! nqn.2014-08.org:uuid:...   DHHC-1:01:...:                      controller=DHHC-1:01:...: hash=sha384 group=ffdhe3072
//! nqn.2014-08.org:uuid:...   NVMeTLSkey-1:01:...:                until=2027-06-30
//! nqn.2014-08.org:uuid:...   NVMeTLSkey-1:01:...: DHHC-1:01:...:    namespaces=1:rw,2:ro
//! ```
//! A host with a secret must authenticate by it; a host with a TLS key must connect by TLS; with
//! both it must do both. Invariants: a file that others can read, or that has an invalid line, is
//! refused as a whole; the loaded keys stay in use until another file has been loaded completely;
//! secrets never appear in messages. Absent: connected hosts (a reload drops none).

use super::group::Group;
use super::hash::Hash;
use super::host::Credentials;
use super::psk::{Claim, Derivation, Psk, TlsKey};
use super::secret::{Secret, SecretError};
use super::turns::{Asker, Turns};
use crate::controller::Rights;
use crate::tls::{ABSENT, IS_BUILT};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;
use time::Date;
use time::format_description::well_known::Iso8601;
use zeroize::Zeroizing;

/// Maximum size of a key file.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Parameters of a successful authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proof {
    /// Hash function negotiated.
    pub hash: Hash,
    /// Diffie-Hellman group negotiated.
    pub group: Group,
    /// True if the controller has authenticated too.
    pub(crate) both_ways: bool,
}

/// The keys of a host: a secret, a TLS key, or both.
#[derive(Clone, Debug)]
pub struct HostEntry {
    /// Its secret, if it has to authenticate by DH-HMAC-CHAP.
    pub host: Option<Secret>,
    /// Its TLS key, if it has to connect by TLS.
    pub tls: Option<TlsKey>,
    /// The controller's secret, for hosts that authenticate the controller.
    pub controller: Option<Secret>,
    /// The weakest hash allowed.
    pub hash: Hash,
    /// The weakest group allowed.
    pub group: Group,
    /// Time from which on it may not connect.
    pub until: Option<SystemTime>,
    /// Its rights to namespaces.
    pub rights: Rights,
}

/// Why a key file is refused.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// The file does not exist or cannot be read.
    #[error("{0}")]
    Unreadable(#[from] io::Error),
    /// Users other than the owner can read or change the file.
    #[error("others can read or change it (mode {0:04o}): chmod 600")]
    Open(u32),
    /// It is not a key file.
    #[error("it is larger than {} MiB, or no text", FILE_BYTES_MAX >> 20)]
    NoText,
    /// It has no entries.
    #[error("it has no line with a key")]
    Empty,
    /// A line is invalid.
    #[error("line {line}: {why}")]
    Line {
        /// Number of the line, counted from 1.
        line: usize,
        /// The error in it, for the message.
        why: String,
    },
}

/// The hosts that may connect, with their secrets.
#[derive(Debug, Default)]
pub struct Keys(BTreeMap<String, Arc<HostEntry>>);

impl Keys {
    /// Reads a file that only its owner can read.
    ///
    /// # Errors
    /// It cannot be read, others can read it, or it has an invalid line.
    pub fn load(path: &Path) -> Result<Self, KeysError> {
        Self::parse(&read(path)?)
    }

    /// Keys from a file's text.
    ///
    /// # Errors
    /// A line is invalid, or there is none.
    pub fn parse(text: &str) -> Result<Self, KeysError> {
        let mut all = BTreeMap::new();
        for (line, content) in lines(text) {
            let wrong = |why: String| KeysError::Line { line, why };
            let (name, entry) = entry(content).map_err(wrong)?;

            // A second line for a host would make its rights depend on the order of lines.
            if all.insert(name.to_owned(), Arc::new(entry)).is_some() {
                return Err(wrong(format!("`{name}` has a line already")));
            }
        }
        if all.is_empty() {
            return Err(KeysError::Empty);
        }
        Ok(Self(all))
    }

    /// Number of hosts.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if no host is listed: then none needs to authenticate.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Numbers of the namespaces that the lines list.
    pub fn namespaces_listed(&self) -> impl Iterator<Item = u32> {
        self.0.values().flat_map(|entry| entry.rights.listed())
    }
}

/// The text of a file that only its owner can read.
fn read(path: &Path) -> Result<Zeroizing<String>, KeysError> {
    let file = File::open(path)?;
    // Of the open file: the path may name another one by now.
    let mode = file.metadata()?.permissions().mode();
    if mode & 0o077 != 0 {
        return Err(KeysError::Open(mode & 0o7777));
    }

    let mut bytes = Zeroizing::new(Vec::new());
    // One byte more than allowed, to detect a longer file.
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(KeysError::NoText);
    }
    let text = std::str::from_utf8(&bytes).map_err(|_| KeysError::NoText)?;
    Ok(Zeroizing::new(text.to_owned()))
}

/// Lines with content, with their numbers.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let numbered = text
        .lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line.trim()));
    numbered.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
}

fn entry(line: &str) -> Result<(&str, HostEntry), String> {
    let mut words = line.split_whitespace();
    let name = words.next().unwrap_or_default();
    if !name.starts_with("nqn.") || name.len() > 223 {
        return Err("it begins with a host's NQN".into());
    }

    let mut entry = HostEntry {
        host: None,
        tls: None,
        controller: None,
        hash: Hash::Sha256,
        group: Group::Ffdhe2048,
        until: None,
        rights: Rights::ALL,
    };

    // Keys come first, then options: a secret may look like an option.
    let mut words = words.peekable();
    while let Some(word) = words.next_if(|word| is_key(word)) {
        put_key(&mut entry.host, &mut entry.tls, word)?;
    }
    if entry.host.is_none() && entry.tls.is_none() {
        return Err(format!("after the NQN comes {KEYS}"));
    }

    for word in words {
        option(&mut entry, word)?;
    }

    // One leaked secret must not be enough to play both sides.
    if entry.controller.is_some() && entry.controller == entry.host {
        return Err("host and controller have the same secret: each needs its own".into());
    }
    Ok((name, entry))
}

/// The keys of a line, for messages.
const KEYS: &str = "the host's secret (DHHC-1:...), its TLS key (NVMeTLSkey-1:...), or both";

/// Returns true if a word is meant as a key. Its base 64 may contain `=`, as options do.
fn is_key(word: &str) -> bool {
    word.starts_with("DHHC-") || word.starts_with("NVMeTLSkey-")
}

/// Parses a word as a secret or as a TLS key; at most one of each is allowed.
fn put_key(
    secret: &mut Option<Secret>,
    tls: &mut Option<TlsKey>,
    word: &str,
) -> Result<(), String> {
    let is_second = if word.starts_with("NVMeTLSkey-") {
        let key = TlsKey::parse(word).map_err(|error| error.to_string())?;
        // Not ignored: its host could not connect, or would do so without encryption.
        if !IS_BUILT {
            return Err(format!("it has a TLS key, and {ABSENT}"));
        }
        tls.replace(key).is_some()
    } else {
        let key = Secret::parse(word).map_err(|error| error.to_string())?;
        secret.replace(key).is_some()
    };

    if is_second {
        return Err("there is one secret and one TLS key in a line, no more".into());
    }

    Ok(())
}

fn option(entry: &mut HostEntry, word: &str) -> Result<(), String> {
    let secret = |error: SecretError| format!("controller: {error}");
    match word.split_once('=') {
        // Without a secret these would silently have no effect.
        Some((name @ ("controller" | "hash" | "group"), _)) if entry.host.is_none() => {
            return Err(format!(
                "{name} goes with a secret (DHHC-1:...), and there is none"
            ));
        }
        Some(("controller", text)) => {
            entry.controller = Some(Secret::parse(text).map_err(secret)?);
        }
        Some(("hash", name)) => {
            let known = Hash::ALL.into_iter().find(|hash| hash.name() == name);
            entry.hash = known.ok_or("hash: sha256, sha384 or sha512")?;
        }
        Some(("group", name)) => {
            let known = Group::ALL.into_iter().find(|group| group.name() == name);
            entry.group = known
                .ok_or("group: null, ffdhe2048, ffdhe3072, ffdhe4096, ffdhe6144 or ffdhe8192")?;
        }
        Some(("until", date)) => {
            let end =
                end_of_day(date).ok_or("until: a date like 2027-06-30, which is the last day")?;
            entry.until = Some(end);
        }
        Some(("namespaces", text)) => entry.rights = Rights::parse(text)?,
        // Not quoted: the word may be a secret.
        _ => {
            return Err(
                "after the keys come only controller=, hash=, group=, until= and namespaces="
                    .into(),
            );
        }
    }
    Ok(())
}

/// The end of a day in UTC, `YYYY-MM-DD`.
fn end_of_day(date: &str) -> Option<SystemTime> {
    let day = Date::parse(date, &Iso8601::DATE).ok()?;
    // The day itself is still valid.
    Some(day.next_day()?.midnight().assume_utc().into())
}

/// The keys of a host of ours: a secret, a TLS key, both, or none.
#[derive(Clone, Debug, Default)]
pub struct HostKeys {
    /// For targets that require authentication.
    pub credentials: Option<Arc<Credentials>>,
    /// With a TLS key it connects only by TLS.
    pub tls: Option<Arc<TlsKey>>,
}

impl HostKeys {
    /// Reads a file of one line, `[SECRET] [TLS-KEY] [controller=SECRET]`.
    ///
    /// # Errors
    /// It cannot be read, others can read it, or it does not have exactly one valid line.
    pub fn load(path: &Path) -> Result<Self, KeysError> {
        let text = read(path)?;
        let mut said = lines(&text);
        let (line, content) = said.next().ok_or(KeysError::Empty)?;
        if let Some((line, _)) = said.next() {
            let why = "one line is enough: the keys, and controller=SECRET".into();
            return Err(KeysError::Line { line, why });
        }
        Self::parse(content).map_err(|why| KeysError::Line { line, why })
    }

    /// The keys of a line.
    ///
    /// # Errors
    /// The error in it.
    pub fn parse(line: &str) -> Result<Self, String> {
        let (mut secret, mut tls, mut controller) = (None, None, None);
        let mut words = line.split_whitespace().peekable();
        while let Some(word) = words.next_if(|word| is_key(word)) {
            put_key(&mut secret, &mut tls, word)?;
        }
        if secret.is_none() && tls.is_none() {
            return Err(format!("it begins with {KEYS}"));
        }

        if let Some(word) = words.next() {
            let text = word.strip_prefix("controller=");
            let text = text.ok_or("after the keys comes only controller=SECRET")?;
            controller = Some(Secret::parse(text).map_err(|error| error.to_string())?);
        }
        if words.next().is_some() {
            return Err("there is more than the keys and controller=SECRET".into());
        }
        if controller.is_some() && secret.is_none() {
            return Err("controller= goes with a secret (DHHC-1:...), and there is none".into());
        }

        let credentials = secret.map(|host| Arc::new(Credentials { host, controller }));
        Ok(Self {
            credentials,
            tls: tls.map(Arc::new),
        })
    }
}

/// The host and subsystem named in a TLS handshake, with their key.
pub struct Named {
    /// Name (NQN) of the host that the key is for.
    pub hostnqn: String,
    /// Name (NQN) of the subsystem that the key is for.
    pub subnqn: String,
    /// The shared key.
    pub psk: Psk,
}

/// Why there is no key for a TLS identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoPsk {
    /// The reason in words, for the log.
    pub why: &'static str,
    /// The host named in it, unverified; empty if there is none.
    pub hostnqn: String,
}

impl NoPsk {
    const NO_IDENTITY: Self = Self {
        why: "its TLS identity is none of NVMe's",
        hostnqn: String::new(),
    };
    const VERSION: Self = Self {
        why: "its TLS identity is of version 0: insert its key with --identity=1",
        hostnqn: String::new(),
    };
}

/// The keys in use, which an operator may replace at any time.
pub struct Keyring {
    keys: RwLock<Arc<Keys>>,
    clock: fn() -> SystemTime,
    sequence: AtomicU32,
    turns: Turns,
}

impl Keyring {
    /// Keys that expire by the system's clock.
    pub fn new(keys: Keys) -> Self {
        Self::with_clock(keys, SystemTime::now)
    }

    /// Keys that expire by another clock, for tests.
    pub fn with_clock(keys: Keys, clock: fn() -> SystemTime) -> Self {
        // Random, so that a restart is unlikely to repeat the numbers of earlier challenges.
        let mut first = [0; 4];
        super::fill_random(&mut first);
        Self {
            keys: RwLock::new(Arc::new(keys)),
            clock,
            sequence: AtomicU32::new(u32::from_le_bytes(first)),
            turns: Turns::default(),
        }
    }

    /// Replaces the keys, for all connections from now on.
    pub fn replace(&self, keys: Keys) {
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
    }

    fn keys(&self) -> Arc<Keys> {
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        keys.clone()
    }

    /// Numbers of the namespaces that the lines list.
    pub fn namespaces_listed(&self) -> Vec<u32> {
        self.keys().namespaces_listed().collect()
    }

    /// The entry of a host, unless it has expired.
    pub fn find(&self, hostnqn: &str) -> Option<Arc<HostEntry>> {
        let keys = self.keys();
        let entry = keys.0.get(hostnqn)?;
        // Checked at every use, so that a key expires without a reload.
        let is_valid = entry.until.is_none_or(|until| (self.clock)() < until);
        is_valid.then(|| entry.clone())
    }

    /// The key for the identity of a TLS handshake, for one of these subsystems.
    ///
    /// # Errors
    /// Why there is none, for a log. The names in it come from the host, unverified.
    pub fn find_psk(&self, identity: &[u8], subsystems: &[&str]) -> Result<Named, NoPsk> {
        let text = std::str::from_utf8(identity).map_err(|_| NoPsk::NO_IDENTITY)?;
        // Version 0 identities do not identify their key.
        if text.starts_with("NVMe0R") {
            return Err(NoPsk::VERSION);
        }
        let claim = Claim::parse(text).ok_or(NoPsk::NO_IDENTITY)?;
        let no = |why| NoPsk {
            why,
            hostnqn: claim.hostnqn.into(),
        };
        if !subsystems.contains(&claim.subnqn) {
            return Err(no("its TLS identity is for another subsystem"));
        }
        let entry = self.find(claim.hostnqn);
        let entry = entry.ok_or_else(|| no("this host has no key, or its key has expired"))?;
        let tls = entry.tls.as_ref();
        let tls = tls.ok_or_else(|| no("this host has no TLS key"))?;

        // The digest in an identity is computed with the key.
        let ours = Derivation::ALL.map(|way| tls.psk(claim.hostnqn, claim.subnqn, way));
        let psk = ours.into_iter().find(|psk| psk.identity == text);
        let psk = psk.ok_or_else(|| no("its TLS key is another one than ours"))?;
        Ok(Named {
            hostnqn: claim.hostnqn.into(),
            subnqn: claim.subnqn.into(),
            psk,
        })
    }

    /// The sequence number of the next challenge; never 0.
    pub(super) fn next_sequence(&self) -> u32 {
        // 0 means "no challenge", so it is skipped when the numbers wrap around.
        match self.sequence.fetch_add(1, Ordering::Relaxed) {
            0 => self.sequence.fetch_add(1, Ordering::Relaxed).max(1),
            number => number,
        }
    }

    /// Calculates in a group, one connection at a time: strangers can request this, and get at most
    /// one processor. `None` if the asker ended before its turn.
    pub(super) fn in_turn<R>(
        &self,
        group: Group,
        asker: &Asker<'_>,
        work: impl FnOnce() -> R,
    ) -> Option<R> {
        // Without a group there is no expensive calculation.
        if group == Group::Null {
            return Some(work());
        }

        let _turn = self.turns.take(asker)?;
        Some(work())
    }
}
