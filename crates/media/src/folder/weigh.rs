//! Finds files of a folder that are damaged, or older than the others, from the headers of the
//! journals and from the page of witnesses.
//!
//! `open` lists the states that no crash can leave. Absent: the records of a journal (`replay`).

use super::damage::DamageFindings;
use super::files::{JOURNALS, Locks, STATES, about};
use super::journal::{HeaderFound, Journal};
use super::slot;
use super::state::{self, StateHeader};
use super::witness::{self, JournalWitness, WitnessDamaged};
use crate::image_file::ImageError;
use crate::pages::CONTENTS;
use std::fs::File;

/// The contents of the page of witnesses.
#[derive(Clone, Copy, Default)]
pub(super) struct FoundWitness {
    pub(super) journal: JournalWitness,
    /// The page must be reset: it is missing or damaged.
    pub(super) blank: bool,
}

impl FoundWitness {
    pub(super) fn read(
        locks: &Locks,
        state: &StateHeader,
        findings: &mut DamageFindings,
    ) -> Result<Self, ImageError> {
        // Only this number shows that there is such a page: earlier versions made none.
        let mut found = Self {
            blank: state.witness == 0,
            ..Self::default()
        };
        if found.blank {
            return Ok(found);
        }

        let geometry = state.geometry()?;
        let at = witness::offset(&geometry);
        let name = STATES[slot(state.generation)];
        let read = witness::of_journal(locks.contents(), &geometry)
            .map_err(|error| about(CONTENTS, error))?;
        match read {
            Err(WitnessDamaged) => {
                let what = "what tells older copies of the other files is damaged or missing";
                let lost = "whether another file is an older copy cannot be known";
                findings.add(CONTENTS, at, what.into(), lost.into())?;
                found.blank = true;
            }
            // The state has a number that was durable before it.
            Ok(journal) if journal.number < state.witness => {
                let what = format!("an older copy of the file: {name} was written later");
                let lost = "pages written since then: they read as media errors".to_owned();
                findings.add(CONTENTS, at, what, lost)?;
                found.journal = journal;
            }
            Ok(journal) => found.journal = journal,
        }

        // Numbers only grow, even after accepted damage.
        found.journal.number = found.journal.number.max(state.witness);
        // A generation that cannot be continued is not genuine.
        if u32::try_from(found.journal.generation).is_err() {
            found.journal = JournalWitness::default();
        }
        Ok(found)
    }

    /// The end of the durable part of a generation's journal, including the contents of its
    /// programs.
    pub(super) fn durable_until(&self, generation: u64) -> u64 {
        if self.journal.generation == generation {
            self.journal.end
        } else {
            0
        }
    }

    /// Compares the files with the durable history. `end`: of the last journal's records.
    pub(super) fn compare(
        &self,
        headers: &JournalHeaders,
        end: u64,
        findings: &mut DamageFindings,
    ) -> Result<(), ImageError> {
        let JournalWitness {
            generation,
            end: durable,
            ..
        } = self.journal;
        let (state, journal) = (STATES[slot(generation)], JOURNALS[slot(generation)]);
        let is_listed = |name: &str| findings.list.iter().any(|damage| damage.file == name);

        // A missing state with a journal has already been found.
        if generation > headers.last && !is_listed(state) {
            let what = format!("an older copy of the file: generation {generation} was written");
            let lost = format!(
                "all since generation {}, flushes and writes with FUA among it",
                headers.last
            );
            return findings.add(state, 0, what, lost);
        }
        if generation == headers.last && end < durable && !is_listed(journal) {
            let what = format!(
                "an older copy of the file: the records end here, and were durable up to byte {durable}"
            );
            let lost = format!(
                "what was recorded up to byte {durable}: flushes and writes with FUA among it, how many cannot be known"
            );
            return findings.add(journal, end, what, lost);
        }
        Ok(())
    }
}

/// Summary of the headers of both journals.
pub(super) struct JournalHeaders {
    /// Generation of the newest complete state.
    pub(super) own: u64,
    /// The newest generation ever begun.
    pub(super) newest: u64,
    /// True if the newest state has a journal.
    pub(super) begun: bool,
    /// The generation that the history reaches: `own`, or the next one, whose state is damaged and
    /// follows from `own` and its journal.
    pub(super) last: u64,
}

impl JournalHeaders {
    /// Generations whose journals are applied.
    pub(super) fn replayed(&self) -> impl Iterator<Item = u64> + use<> {
        let next = (self.last != self.own).then_some(self.last);
        self.begun.then_some(self.own).into_iter().chain(next)
    }
}

/// The generation in the header of a journal, if valid; `other` is the state of the same file
/// number.
fn generation_begun(
    journal: &Journal,
    index: usize,
    state: &StateHeader,
    other: Option<&StateHeader>,
) -> Option<u64> {
    let begun = match journal.header() {
        HeaderFound::Begun(generation) => Some(generation),
        HeaderFound::BegunBy1(generation) if !state.has_sums() || generation < state.generation => {
            Some(generation)
        }
        // Version 1 left the second journal blank until it was needed.
        HeaderFound::Blank if !state.has_sums() || !other.is_some_and(StateHeader::has_sums) => {
            Some(0)
        }
        _ => None,
    };

    // A generation beyond 32 bits cannot be continued: the next header has no room for it.
    begun
        .filter(|generation| *generation == 0 || slot(*generation) == index)
        .filter(|generation| u32::try_from(*generation).is_ok())
}

const WRONG_CHECKSUM: &str = "the header does not have its checksum";

pub(super) fn weigh_headers(
    journals: &mut [Journal; 2],
    state: &StateHeader,
    states: &[File; 2],
    findings: &mut DamageFindings,
) -> Result<JournalHeaders, ImageError> {
    let own = state.generation;
    let mut headers = JournalHeaders {
        own,
        newest: own,
        begun: false,
        last: own,
    };
    // The generation of the state that contains the own one and all of its journal.
    let continued = match journals[slot(own)].header() {
        HeaderFound::Begun(generation) if generation == own => {
            journals[slot(own)].continued_in(own)
        }
        _ => None,
    };
    for (index, journal) in journals.iter_mut().enumerate() {
        let name = JOURNALS[index];
        let other = || {
            state::read_header(&states[index])
                .ok()
                .filter(|header| slot(header.generation) == index)
        };

        let begun = generation_begun(journal, index, state, other().as_ref());
        headers.newest = headers.newest.max(begun.unwrap_or(0));

        match begun {
            // A journal is begun only when its state is durable. That state is incomplete now, so
            // it was damaged later.
            Some(generation) if generation > own => {
                let what = format!(
                    "no state of generation {generation} is whole, and {name} goes on from it"
                );
                let lost = if continued == Some(generation) {
                    headers.last = generation;
                    format!("nothing: the state of generation {own} and its journal give it again")
                } else {
                    format!(
                        "all since generation {own}, flushes and writes with FUA among it: {}",
                        journal.count(generation)
                    )
                };
                findings.add(STATES[index], 0, what, lost)?;
            }
            _ if index == slot(own) => {
                headers.begun = own_is_begun(journal, begun, own, findings)?;
            }
            Some(_) => {}
            // The state beside it is older and complete, so no newer journal was ever begun there.
            None if other().is_some_and(|header| {
                header.generation < own && state::is_whole(&states[index], &header)
            }) => {}
            None => {
                let lost = format!("what was recorded after generation {own}, if anything was");
                findings.add(name, 0, WRONG_CHECKSUM.into(), lost)?;
            }
        }
    }
    Ok(headers)
}

/// Returns true if the journal of the newest state was begun, also if its header is damaged.
fn own_is_begun(
    journal: &mut Journal,
    begun: Option<u64>,
    own: u64,
    findings: &mut DamageFindings,
) -> Result<bool, ImageError> {
    if begun == Some(own) {
        return Ok(true);
    }

    let (what, lost) = match (begun, journal.read(own).len()) {
        (Some(_), 0) => return Ok(false),
        (Some(_), _) => (
            format!("the header is older than the records after it, of generation {own}"),
            "nothing that is known of".into(),
        ),
        (None, 0) => (
            WRONG_CHECKSUM.into(),
            format!("what was recorded since generation {own}, if anything was"),
        ),
        (None, _) => (
            WRONG_CHECKSUM.into(),
            "nothing that is known of: records of this generation follow".into(),
        ),
    };
    findings.add(JOURNALS[slot(own)], 0, what, lost)?;
    Ok(true)
}
