//! Log lines of a server, at a bounded rate.
//!
//! Invariants: a line about a connection has the connection's number, and its host's NQN once
//! known; text from peers is escaped; lines that peers can cause at will are rate-limited by kind
//! (`notice`). Absent: the sentences (`wording`).

use crate::Escaped;
use crate::tcp::notice::{Notices, Pace, more};
use std::fmt::{Display, Formatter, Result};
use std::io;
use std::net::SocketAddr;

/// Label of a connection in log lines: `connection=7 host=nqn.2026-11.org:a`.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLabel<'a> {
    /// Counts connections from 1, as `Listed::number`.
    pub number: u64,
    /// Address that the host connects from.
    pub peer: SocketAddr,
    /// The NQN of the host, escaped, once a Connect has named it. Verified only if hosts
    /// authenticate.
    pub host: Option<Escaped<'a>>,
}

impl Display for ConnectionLabel<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "connection={}", self.number)?;
        match &self.host {
            Some(host) => write!(f, " host={host}"),
            None => Ok(()),
        }
    }
}

/// Destination of log lines. Text from peers is escaped, and lines that peers can cause at will are
/// rate-limited (`notice`).
pub trait Log: Send + Sync + 'static {
    /// One line about a connection.
    fn connection(&self, connection: &ConnectionLabel<'_>, text: &str);
    /// One line about a step of every connection, such as its end by its host: for those who look for details. By
    /// default it is like the others.
    fn detail(&self, connection: &ConnectionLabel<'_>, text: &str) {
        self.connection(connection, text);
    }
    /// One line about the server itself.
    fn server(&self, text: &str);
}

/// An ordinary event of a connection.
pub(super) struct Ordinary {
    /// The kind of which the rate is limited.
    pub kind: &'static str,
    pub text: String,
    /// A step that every connection has.
    pub is_detail: bool,
}

/// A log with a rate limit per kind of line. Times are nanoseconds since the server's epoch.
pub(super) struct RateLimitedLog {
    log: Box<dyn Log>,
    notices: Notices,
}

impl RateLimitedLog {
    pub(super) fn new(log: Box<dyn Log>) -> Self {
        Self {
            log,
            notices: Notices::default(),
        }
    }

    /// A line that peers can cause at will.
    pub(super) fn notice(
        &self,
        now: u64,
        kind: &'static str,
        connection: &ConnectionLabel<'_>,
        text: &str,
    ) {
        // The text is built only if the line is written: a flood must be cheap.
        if let Some(left_out) = self.notices.admit(kind, Pace::SELDOM, now) {
            self.log
                .connection(connection, &format!("{text}{}", more(left_out)));
        }
    }

    /// An ordinary event of a connection: hosts have many queues, so the rate is higher.
    pub(super) fn ordinary(&self, now: u64, connection: &ConnectionLabel<'_>, event: &Ordinary) {
        if let Some(left_out) = self.notices.admit(event.kind, Pace::OFTEN, now) {
            let text = format!("{}{}", event.text, more(left_out));
            if event.is_detail {
                self.log.detail(connection, &text);
            } else {
                self.log.connection(connection, &text);
            }
        }
    }

    /// Logs a failure before a connection could be served.
    pub(super) fn cannot_accept(&self, now: u64, error: &io::Error) {
        if let Some(left_out) = self.notices.admit("accept", Pace::SELDOM, now) {
            self.log.server(&format!(
                "a connection could not be accepted: {error}{}",
                more(left_out)
            ));
        }
    }
}
