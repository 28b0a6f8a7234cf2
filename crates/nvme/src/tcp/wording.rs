//! Text of log lines about connections.
//!
//! Invariant: names chosen by a peer are escaped, so that none can forge a line. Absent: the
//! occasions, and rate limits.

use super::entrance::TurnedAway;
use super::target::{End, Refused};
use crate::Escaped;
use crate::auth::Proof;
use crate::controller::Association;
use crate::tls::Proven;
use std::io;

/// Why a queue was refused whose exchange neither failed nor succeeded.
pub(super) const NOT_AUTHENTICATED: &str = "it did not authenticate";

/// A connected queue and its host.
pub(super) fn queue(association: &Association, qid: u16) -> String {
    let host = Escaped::name(association.hostnqn());
    format!("{} {qid} of {host}", kind(association))
}

/// A queue was connected; with its host's proof, by TLS and by authentication.
pub(super) fn connected(
    association: &Association,
    qid: u16,
    tls: Option<&Proven>,
    proof: Option<Proof>,
) -> String {
    let host = Escaped::name(association.hostnqn());
    // The proof is in a host's first line, so that an operator need not search for it.
    let over = tls.map(|proven| format!(", over {}", proven.suite()));
    let over = over.unwrap_or_default();
    let by = proof.map(authenticated).unwrap_or_default();
    format!("{} {qid} connected by {host}{over}{by}", kind(association))
}

/// A connection was refused before NVMe/TCP.
pub(super) fn turned_away(turned_away: &TurnedAway) -> String {
    let TurnedAway { why, hostnqn, .. } = turned_away;
    let host = if hostnqn.is_empty() {
        String::new()
    } else {
        format!(" for {}", Escaped::name(hostnqn))
    };
    format!("refused: TLS{host}: {why}")
}

fn kind(association: &Association) -> &'static str {
    if association.is_discovery() {
        "discovery"
    } else {
        "queue"
    }
}

fn authenticated(proof: Proof) -> String {
    let both = if proof.both_ways { ", both ways" } else { "" };
    format!(
        ", authenticated by {} and {}{both}",
        proof.hash.name(),
        proof.group.name()
    )
}

/// A queue ended before its host was authenticated.
pub(super) fn unauthenticated(
    queue: &str,
    reason: Option<&str>,
    result: io::Result<String>,
) -> String {
    // A failed exchange has a reason. An unfinished one has only the end of its connection.
    let reason = reason.map_or_else(
        || {
            let ended = result.unwrap_or_else(|error| error.to_string());
            format!("{NOT_AUTHENTICATED}: {ended}")
        },
        String::from,
    );
    format!("refused: {queue}: {reason}")
}

pub(super) fn refusal(refused: &Refused) -> String {
    let Refused {
        qid,
        host,
        subsystem,
        refusal,
    } = refused;
    let (host, subsystem) = (Escaped::name(host), Escaped::name(subsystem));
    format!(
        "refused: queue {qid} of {subsystem} for {host}: {}",
        refusal.why
    )
}

/// Why the target ended a connection.
pub(super) fn end(end: End) -> String {
    match end {
        End::Closed => "closed".into(),
        End::Refused => "refused".into(),
        End::Reset => "its controller was reset".into(),
        End::Dead => "nothing was heard from its host".into(),
        End::Unauthenticated(reason) => reason.into(),
        End::Fatal(fault) => format!("protocol error: {:?} at byte {}", fault.error, fault.at),
    }
}
