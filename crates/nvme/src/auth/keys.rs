//! Which hosts may connect, and what they must know: a file of one line a host.
//!
//! ```text
//! # host NQN                 its secret            options
//! nqn.2014-08.org:uuid:...   DHHC-1:01:...:        controller=DHHC-1:01:...: hash=sha384 group=ffdhe3072 until=2027-06-30
//! ```
//! Invariants: a file that others can read, or with a line that is wrong, is refused whole; what was loaded stays in use
//! until something else has been loaded whole; text of secrets never reaches a message. Absent: hosts that are connected
//! (a reload drops none).

use super::group::Group;
use super::hash::Hash;
use super::host::Credentials;
use super::secret::{Secret, SecretError};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::SystemTime;
use time::Date;
use time::format_description::well_known::Iso8601;
use zeroize::Zeroizing;

/// More is no file of keys.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// What a host has proven, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proof {
    /// The hash.
    pub hash: Hash,
    /// The group.
    pub group: Group,
    /// The controller has proven itself too.
    pub both_ways: bool,
}

/// What is known of a host.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its secret.
    pub host: Secret,
    /// The controller's, for hosts that want a proof.
    pub controller: Option<Secret>,
    /// The weakest hash that it may use.
    pub hash: Hash,
    /// The weakest group that it may use.
    pub group: Group,
    /// From then on it may not connect.
    pub until: Option<SystemTime>,
}

/// Why a file holds no keys.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// It cannot be read.
    #[error("{0}")]
    Unreadable(#[from] io::Error),
    /// Others can read it.
    #[error("others can read or change it (mode {0:04o}): chmod 600")]
    Open(u32),
    /// It is no file of keys.
    #[error("it is larger than {} MiB, or no text", FILE_BYTES_MAX >> 20)]
    NoText,
    /// There is nothing in it.
    #[error("it has no line with a secret")]
    Empty,
    /// A line is wrong.
    #[error("line {line}: {why}")]
    Line {
        /// Which, from 1 on.
        line: usize,
        /// Why.
        why: String,
    },
}

/// Hosts and their secrets.
#[derive(Debug, Default)]
pub struct Keys(BTreeMap<String, Arc<Entry>>);

impl Keys {
    /// Reads a file that only its owner can read.
    ///
    /// # Errors
    /// It cannot be read, others can, or a line of it is wrong.
    pub fn load(path: &Path) -> Result<Self, KeysError> {
        Self::parse(&read(path)?)
    }

    /// Keys from a file's text.
    ///
    /// # Errors
    /// A line is wrong, or there is none.
    pub fn parse(text: &str) -> Result<Self, KeysError> {
        let mut all = BTreeMap::new();
        for (line, content) in lines(text) {
            let wrong = |why: String| KeysError::Line { line, why };
            let (name, entry) = entry(content).map_err(wrong)?;
            if all.insert(name.to_owned(), Arc::new(entry)).is_some() {
                return Err(wrong(format!("`{name}` has a line already")));
            }
        }
        if all.is_empty() {
            return Err(KeysError::Empty);
        }
        Ok(Self(all))
    }

    /// How many hosts there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The text of a file that only its owner can read.
fn read(path: &Path) -> Result<Zeroizing<String>, KeysError> {
    let file = File::open(path)?;
    // Of what is open, not of what the path may name by now.
    let mode = file.metadata()?.permissions().mode();
    if mode & 0o077 != 0 {
        return Err(KeysError::Open(mode & 0o7777));
    }

    let mut bytes = Zeroizing::new(Vec::new());
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(KeysError::NoText);
    }
    let text = std::str::from_utf8(&bytes).map_err(|_| KeysError::NoText)?;
    Ok(Zeroizing::new(text.to_owned()))
}

/// Lines that say something, with their numbers.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let numbered = text
        .lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line.trim()));
    numbered.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
}

fn entry(line: &str) -> Result<(&str, Entry), String> {
    let mut words = line.split_whitespace();
    let name = words.next().unwrap_or_default();
    if !name.starts_with("nqn.") || name.len() > 223 {
        return Err("it begins with a host's NQN".into());
    }
    let host = words
        .next()
        .ok_or("behind the NQN comes the host's secret")?;

    let mut entry = Entry {
        host: Secret::parse(host).map_err(|error| error.to_string())?,
        controller: None,
        hash: Hash::Sha256,
        group: Group::Ffdhe2048,
        until: None,
    };
    for word in words {
        option(&mut entry, word)?;
    }
    if entry.controller.as_ref() == Some(&entry.host) {
        return Err("host and controller have the same secret: each needs its own".into());
    }
    Ok((name, entry))
}

fn option(entry: &mut Entry, word: &str) -> Result<(), String> {
    let secret = |error: SecretError| format!("controller: {error}");
    match word.split_once('=') {
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
        // What it says may be a secret.
        _ => {
            return Err("behind the secret come only controller=, hash=, group= and until=".into());
        }
    }
    Ok(())
}

/// The end of a day in UTC, `YYYY-MM-DD`.
fn end_of_day(date: &str) -> Option<SystemTime> {
    let day = Date::parse(date, &Iso8601::DATE).ok()?;
    Some(day.next_day()?.midnight().assume_utc().into())
}

/// What a host of ours needs to connect: a file of one line, `SECRET [controller=SECRET]`.
///
/// # Errors
/// It cannot be read, others can, or it is no such line.
pub fn load_credentials(path: &Path) -> Result<Credentials, KeysError> {
    let text = read(path)?;
    let mut said = lines(&text);
    let (line, content) = said.next().ok_or(KeysError::Empty)?;
    let wrong = |line: usize, why: String| KeysError::Line { line, why };
    if let Some((line, _)) = said.next() {
        return Err(wrong(
            line,
            "one line is enough: a secret, and controller=SECRET".into(),
        ));
    }

    let mut words = content.split_whitespace();
    let secret = |text: &str| Secret::parse(text).map_err(|error| wrong(line, error.to_string()));
    let host = secret(words.next().unwrap_or_default())?;
    let controller = match words.next() {
        None => None,
        Some(word) => {
            let text = word.strip_prefix("controller=");
            let text = text.ok_or_else(|| {
                wrong(
                    line,
                    "behind the secret comes only controller=SECRET".into(),
                )
            });
            Some(secret(text?)?)
        }
    };
    match words.next() {
        None => Ok(Credentials { host, controller }),
        Some(_) => Err(wrong(
            line,
            "there is more than a secret and controller=SECRET".into(),
        )),
    }
}

/// The keys in use, which an operator may replace at any time.
pub struct Keyring {
    keys: RwLock<Arc<Keys>>,
    clock: fn() -> SystemTime,
    sequence: AtomicU32,
    turn: Mutex<()>,
}

impl Keyring {
    /// With the system's clock.
    pub fn new(keys: Keys) -> Self {
        Self::with_clock(keys, SystemTime::now)
    }

    /// With another clock.
    pub fn with_clock(keys: Keys, clock: fn() -> SystemTime) -> Self {
        let mut first = [0; 4];
        super::fill_random(&mut first);
        Self {
            keys: RwLock::new(Arc::new(keys)),
            clock,
            sequence: AtomicU32::new(u32::from_le_bytes(first)),
            turn: Mutex::new(()),
        }
    }

    /// Puts others in their place: from now on hosts connect by these.
    pub fn replace(&self, keys: Keys) {
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
    }

    /// What is known of a host, if its key has not expired.
    pub fn find(&self, hostnqn: &str) -> Option<Arc<Entry>> {
        let keys = self
            .keys
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let entry = keys.0.get(hostnqn)?;
        let is_valid = entry.until.is_none_or(|until| (self.clock)() < until);
        is_valid.then(|| entry.clone())
    }

    /// The number of the next challenge; never 0.
    pub(super) fn next_sequence(&self) -> u32 {
        match self.sequence.fetch_add(1, Ordering::Relaxed) {
            0 => self.sequence.fetch_add(1, Ordering::Relaxed).max(1),
            number => number,
        }
    }

    /// Calculates while nobody else does: strangers can ask for this, and get one processor at most.
    pub(super) fn in_turn<R>(&self, work: impl FnOnce() -> R) -> R {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        work()
    }
}
