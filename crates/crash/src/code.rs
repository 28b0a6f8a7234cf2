//! The short name of a script, from which it runs again exactly.
//!
//! `remap-ssd:3:9f2c41d0` is script 9f2c41d0 (hexadecimal) on setup 3 of scheme remap-ssd; with
//! `:commit` appended, the firmware runs without its guard `commit`; `remap-ssd/cagc:3:9f2c41d0`
//! has another garbage collection policy than the setup's own; `shadow-oob+hybrid:3:9f2c41d0` has
//! hybrid mapping. Invariant: `parse` of `Display` output gives the same code. Absent: a version; a
//! code is valid only for the program that printed it.

use remap_ssd_ftl::{GcPolicy, Granularity, Guard, SchemeKind, UnknownChoice};
use std::fmt;
use std::str::FromStr;

/// Identifies a script so that it can be run again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayCode {
    /// Scheme of the firmware under test.
    pub scheme: SchemeKind,
    /// Granularity of its mapping table.
    pub mapping: Granularity,
    /// Its garbage collection policy, if not the setup's.
    pub policy: Option<GcPolicy>,
    /// Number of the setup in its list.
    pub setup: u32,
    /// Seed of the script.
    pub seed: u32,
    /// The guard switched off.
    pub mutant: Option<Guard>,
}

impl fmt::Display for ReplayCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.scheme)?;
        if self.mapping != Granularity::Page {
            write!(f, "+{}", self.mapping)?;
        }
        self.policy
            .map_or(Ok(()), |policy| write!(f, "/{policy}"))?;
        write!(f, ":{}:{:x}", self.setup, self.seed)?;
        self.mutant.map_or(Ok(()), |guard| write!(f, ":{guard}"))
    }
}

/// Why a text is no code of a script.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodeError {
    /// The text has other parts.
    #[error("'{0}' is not a replay code: it looks like remap-ssd:3:9f2c41d0")]
    NoCode(String),
    /// A part has a wrong value.
    #[error("'{code}': {reason}")]
    Part {
        /// The whole text.
        code: String,
        /// What is wrong with the part.
        reason: String,
    },
    /// Its mapping, policy or guard has no such name.
    #[error(transparent)]
    Unknown(#[from] UnknownChoice),
}

impl FromStr for ReplayCode {
    type Err = CodeError;
    fn from_str(text: &str) -> Result<Self, CodeError> {
        let mut parts = text.split(':');
        let (Some(scheme), Some(setup), Some(seed)) = (parts.next(), parts.next(), parts.next())
        else {
            return Err(CodeError::NoCode(text.into()));
        };

        // From the back: the policy is the last of the three, preceded by the mapping.
        let (scheme, policy) = scheme
            .split_once('/')
            .map_or((scheme, None), |(scheme, policy)| (scheme, Some(policy)));
        let (scheme, mapping) = scheme
            .split_once('+')
            .unwrap_or((scheme, Granularity::Page.name()));
        let mapping = mapping.parse()?;
        let wrong = |reason: String| CodeError::Part {
            code: text.into(),
            reason,
        };
        let scheme = scheme
            .parse()
            .map_err(|_| wrong(format!("no scheme is named '{scheme}'")))?;
        let policy = policy.map(str::parse).transpose()?;

        let setup = setup
            .parse()
            .map_err(|_| wrong(format!("the setup '{setup}' is not a number")))?;
        let seed = u32::from_str_radix(seed, 16).map_err(|_| {
            wrong(format!(
                "the seed '{seed}' is not a hexadecimal number of 32 bits"
            ))
        })?;

        let mutant = parts.next().map(str::parse).transpose()?;
        match parts.next() {
            Some(more) => Err(wrong(format!(
                "nothing can follow the guard, but there is '{more}'"
            ))),
            None => Ok(Self {
                scheme,
                mapping,
                policy,
                setup,
                seed,
                mutant,
            }),
        }
    }
}
