//! Reference model: the contents that a host may read. The firmware is judged by it.
//!
//! Per LPN the model keeps the effect of the last acknowledged command that touched it (`base`) and
//! the effects of later commands not yet acknowledged. After a power cut exactly these may be read.
//! Two rules tie LPNs together. An atomic command took effect on all its LPNs or on none. An
//! unacknowledged relocation may deallocate a source only where its target shows the moved page or
//! the effect of a later command. Invariants: contents read after a recovery are definite from then
//! on (`adopt`); `live` is the result of reads while power is on. Absent: flash, NVRAM, and how a
//! remap is made durable.

use crate::content::{Content, LOST, UNKNOWN, ZEROES, name};
use crate::script::{ScriptCommand, content_of_many};
use remap_ssd_ftl::{Lpn, Remap};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::Arc;

/// A host command's number, in order of submission.
pub(crate) type CommandId = u32;

#[derive(Clone, Debug, Default)]
struct CommandEffects {
    id: CommandId,
    atomic: bool,
    pages: Vec<(Lpn, Content)>,
    /// Sources that the command deallocates, each with the target of its page.
    moved: Vec<(Lpn, Lpn)>,
}

/// The values of one LPN that a cut may leave, oldest first.
struct PossibleValues {
    lpn: Lpn,
    /// Commands whose value the LPN may show, with the value.
    values: Vec<(CommandId, Content)>,
    /// Of those, the commands that match the value read.
    shown: Vec<CommandId>,
}

/// Outcome of the atomic commands in flight at a cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AtomicVerdict {
    /// Commands that certainly took effect on all pages.
    pub committed: u64,
    /// Commands that certainly had no effect.
    pub aborted: u64,
}

/// Model of the device: all contents that each LPN may read.
#[derive(Clone, Debug)]
pub(crate) struct Oracle {
    live: Vec<Content>,
    base: Vec<Content>,
    /// The command whose effect is `base`.
    base_id: Vec<CommandId>,
    pending: Vec<Arc<CommandEffects>>,
    next_id: CommandId,
    /// Pages of the largest write that is atomic.
    untorn: u32,
    /// The same of remaps.
    untorn_remaps: u32,
    /// Candidates for each content from `UNKNOWN` on.
    unknown: Vec<Arc<[Content]>>,
}

impl Oracle {
    /// Creates the model of a device of `lpns` pages, all unmapped.
    pub(crate) fn new(lpns: u32) -> Self {
        let lpns = lpns as usize;
        Self {
            live: vec![ZEROES; lpns],
            base: vec![ZEROES; lpns],
            base_id: vec![0; lpns],
            pending: Vec::new(),
            next_id: 1,
            untorn: 1,
            untorn_remaps: 1,
            unknown: Vec::new(),
        }
    }

    /// Writes of at most this number of pages are atomic.
    pub(crate) fn with_untorn(self, writes: u32, remaps: u32) -> Self {
        Self {
            untorn: writes,
            untorn_remaps: remaps,
            ..self
        }
    }

    /// Contents returned by reads while power is on.
    pub(crate) fn live(&self) -> &[Content] {
        &self.live
    }

    /// Records the submission of a command; returns its ID.
    pub(crate) fn submit(&mut self, command: &ScriptCommand) -> CommandId {
        let id = self.next_id;
        self.next_id += 1;
        let mut effects = CommandEffects {
            id,
            ..CommandEffects::default()
        };

        match *command {
            ScriptCommand::Write { lpn, content }
            | ScriptCommand::WriteFor { lpn, content, .. }
            | ScriptCommand::FileWrite { lpn, content, .. } => {
                effects.pages.push((lpn, content));
            }
            ScriptCommand::WriteMany {
                lpn,
                len,
                source,
                fresh,
            } => {
                effects.atomic = (2..=self.untorn).contains(&len);
                let content = |at| content_of_many(&self.live, source, fresh, at);
                effects
                    .pages
                    .extend((0..len).map(|at| (lpn.offset(at), content(at))));
            }
            ScriptCommand::Deallocate { lpn, len } => effects
                .pages
                .extend(Lpn::range(lpn, len).map(|lpn| (lpn, ZEROES))),
            ScriptCommand::Remap(Remap {
                target,
                source,
                len,
                relocate,
                atomic,
            }) if target != source => {
                effects.atomic = atomic || (2..=self.untorn_remaps).contains(&len);

                // The sources before the command: a remap may overlap itself.
                for at in 0..len {
                    effects
                        .pages
                        .push((target.offset(at), self.live[source.offset(at).index()]));
                }

                // A source that is also a target keeps its new content.
                for at in (0..len).filter(|at| {
                    relocate && !(target..target.offset(len)).contains(&source.offset(*at))
                }) {
                    effects.pages.push((source.offset(at), ZEROES));
                    effects.moved.push((source.offset(at), target.offset(at)));
                }
            }
            ScriptCommand::Remap(_)
            | ScriptCommand::Flush
            | ScriptCommand::FileReset
            | ScriptCommand::Background { .. } => {}
        }

        // Power is on: reads see the command at once, durable or not.
        for (lpn, content) in &effects.pages {
            self.live[lpn.index()] = *content;
        }
        self.pending.push(Arc::new(effects));
        id
    }

    /// The host saw the acknowledgement of a command.
    pub(crate) fn acknowledge(&mut self, id: CommandId) {
        let Some(at) = self.pending.iter().position(|effects| effects.id == id) else {
            return;
        };
        let effects = self.pending.remove(at);
        for (lpn, content) in &effects.pages {
            let lpn = lpn.index();
            // Acknowledgements come in any order. The LPN shows the newest command, not the one
            // acknowledged last.
            if self.base_id[lpn] < id {
                self.base_id[lpn] = id;
                self.base[lpn] = *content;
            }
        }
    }

    /// Returns true if an LPN that reads `content` may show the effect of command `id` or of a
    /// later one.
    pub(crate) fn shows_since(&self, lpn: Lpn, id: CommandId, content: Content) -> bool {
        let at = lpn.index();
        let shows =
            |effects: &CommandEffects| effects.id >= id && effects.pages.contains(&(lpn, content));
        (self.base_id[at] >= id && self.base[at] == content)
            || self.pending.iter().any(|effects| shows(effects))
    }

    /// Returns true if a page with content `held` may read as `read`. A lost page may become
    /// readable again, with its old content.
    pub(crate) fn reads(&self, held: Content, read: Content) -> bool {
        held == read
            || read == LOST
            || held >= UNKNOWN && self.unknown[(held - UNKNOWN) as usize].contains(&read)
    }

    /// Makes the contents read after a recovery definite.
    pub(crate) fn adopt(&mut self, read: &[Content]) {
        let mut truth = read.to_vec();
        for lpn in (0..)
            .map(Lpn)
            .zip(read)
            .filter(|(_, read)| **read == LOST)
            .map(|(lpn, _)| lpn)
        {
            truth[lpn.index()] = self.lost(lpn);
        }

        self.live.copy_from_slice(&truth);
        self.base.copy_from_slice(&truth);
        // An ID newer than all commands: none of them may be shown any more.
        self.base_id.fill(self.next_id);
        self.next_id += 1;
        self.pending.clear();
    }

    /// The content of a lost page: any that the LPN may have now.
    fn lost(&mut self, lpn: Lpn) -> Content {
        let of_lpn = |effects: &Arc<CommandEffects>| {
            effects
                .pages
                .iter()
                .filter(|page| page.0 == lpn)
                .map(|page| page.1)
                .next_back()
        };

        let mut all: Vec<Content> = self.pending.iter().filter_map(of_lpn).collect();
        all.push(self.base[lpn.index()]);
        let known = |content: Content| match content.checked_sub(UNKNOWN) {
            None => vec![content],
            Some(at) => self.unknown[at as usize].to_vec(),
        };

        let mut all: Vec<Content> = all.into_iter().flat_map(known).collect();
        all.sort_unstable();
        all.dedup();
        self.unknown.push(all.into());
        UNKNOWN + self.unknown.len() as Content - 1
    }

    /// Decides whether a cut now, followed by a recovery, may leave a device that reads like this.
    ///
    /// # Errors
    /// The first LPN with a forbidden content, or the broken rule between LPNs.
    pub(crate) fn judge(&self, read: &[Content]) -> Result<AtomicVerdict, Misread> {
        let choices = self.choices(read);

        // Both are sorted by LPN.
        let mut choice = choices.iter().peekable();
        for (lpn, read) in read.iter().enumerate() {
            let open = choice.next_if(|choice| choice.lpn.index() == lpn);
            let allowed = open.map_or(self.reads(self.base[lpn], *read), |choice| {
                !choice.shown.is_empty()
            });

            if !allowed {
                let values = open.map_or_else(
                    || vec![(self.base_id[lpn], self.base[lpn])],
                    |open| open.values.clone(),
                );
                return Err(Misread {
                    lpn: Lpn(lpn as u32),
                    read: *read,
                    rule: None,
                    allowed: values,
                });
            }
        }

        // Only atomic commands and relocations tie LPNs together.
        if !self
            .pending
            .iter()
            .any(|effects| effects.atomic || !effects.moved.is_empty())
        {
            return Ok(AtomicVerdict::default());
        }

        self.judge_rules(&choices, read)
    }

    /// The LPNs touched by commands in flight, in order, with the values allowed and those that
    /// match.
    fn choices(&self, read: &[Content]) -> Vec<PossibleValues> {
        let mut touched: Vec<(Lpn, CommandId, Content)> = Vec::new();
        for effects in &self.pending {
            let open = effects
                .pages
                .iter()
                .filter(|(lpn, _)| self.base_id[lpn.index()] < effects.id);
            touched.extend(open.map(|(lpn, content)| (*lpn, effects.id, *content)));
        }

        // By LPN and then by command: the last value of a choice is the newest.
        touched.sort_unstable_by_key(|(lpn, id, _)| (*lpn, *id));
        touched
            .chunk_by(|a, b| a.0 == b.0)
            .map(|group| {
                let lpn = group[0].0;
                let mut values = vec![(self.base_id[lpn.index()], self.base[lpn.index()])];
                values.extend(group.iter().map(|(_, id, content)| (*id, *content)));
                let shows = |value: &&(CommandId, Content)| self.reads(value.1, read[lpn.index()]);
                let shown = values.iter().filter(shows).map(|(id, _)| *id).collect();
                PossibleValues { lpn, values, shown }
            })
            .collect()
    }

    /// Checks the rules between LPNs; each LPN alone is right.
    ///
    /// An explanation of the reads assigns each LPN the command that it shows. All combinations of
    /// outcomes are tried for atomic commands of which either outcome is possible: few are in
    /// flight at a time.
    fn judge_rules(
        &self,
        choices: &[PossibleValues],
        read: &[Content],
    ) -> Result<AtomicVerdict, Misread> {
        let atomics: Vec<&CommandEffects> = self
            .pending
            .iter()
            .filter(|effects| effects.atomic)
            .map(|effects| &**effects)
            .collect();
        let mut fixed: Vec<(CommandId, bool)> = Vec::new();
        let mut open: Vec<CommandId> = Vec::new();

        let mut verdict = AtomicVerdict::default();

        // Each command alone first: most reads leave only one possible outcome.
        for atomic in atomics {
            let happened = explain(choices, &[(atomic.id, true)], &[]);
            let not = explain(choices, &[(atomic.id, false)], &[]);
            match (happened, not) {
                (true, true) => open.push(atomic.id),
                (true, false) => {
                    verdict.committed += 1;
                    fixed.push((atomic.id, true));
                }
                (false, true) => {
                    verdict.aborted += 1;
                    fixed.push((atomic.id, false));
                }
                (false, false) => return Err(self.broken_atomic(atomic, choices, read)),
            }
        }

        let relocations: Vec<&CommandEffects> =
            self.pending.iter().map(|effects| &**effects).collect();
        let mut steps = STEPS_MAX;
        let mut finds = |moves: &[&CommandEffects]| {
            can_explain(choices, &mut fixed.clone(), &open, moves, &mut steps)
        };
        if finds(&relocations) {
            return Ok(verdict);
        }
        let without_moves = finds(&[]);

        Err(self.broken_together(without_moves, choices, read))
    }

    fn broken_atomic(
        &self,
        atomic: &CommandEffects,
        choices: &[PossibleValues],
        read: &[Content],
    ) -> Misread {
        let mut rule = format!("atomic command #{} happened in part:", atomic.id);
        let mut first = None;
        for choice in choices
            .iter()
            .filter(|choice| choice.values.iter().any(|(id, _)| *id == atomic.id))
        {
            let earlier = choice.shown.iter().all(|id| *id < atomic.id);
            let only_it = choice.shown.iter().all(|id| *id == atomic.id);
            if earlier || only_it {
                first = first.or(Some(choice));
                let _ = write!(
                    rule,
                    " LPN {} shows {}",
                    choice.lpn,
                    if earlier { "it did not" } else { "it did" }
                );
            }
        }

        self.misread(first, rule, read)
    }

    fn broken_together(
        &self,
        without_moves: bool,
        choices: &[PossibleValues],
        read: &[Content],
    ) -> Misread {
        let mut first = None;
        let mut rule = if without_moves {
            "a relocation under way deallocated its source and its target does not show the page:"
                .to_owned()
        } else {
            "no combination of the atomic commands under way explains all LPNs:".to_owned()
        };

        for effects in &self.pending {
            for (source, target) in &effects.moved {
                let find = |lpn: Lpn| choices.iter().find(|choice| choice.lpn == lpn);
                let (Some(from), to) = (find(*source), find(*target)) else {
                    continue;
                };
                let gone = from.shown.iter().all(|id| *id == effects.id);
                if gone && to.is_some_and(|to| to.shown.iter().all(|id| *id < effects.id)) {
                    first = first.or(Some(from));
                    let _ = write!(rule, " #{}: LPN {source} to LPN {target}", effects.id);
                }
            }
        }

        self.misread(first.or(choices.first()), rule, read)
    }

    fn misread(&self, choice: Option<&PossibleValues>, rule: String, read: &[Content]) -> Misread {
        let lpn = choice.map_or(Lpn::ZERO, |choice| choice.lpn);
        let allowed = choice.map_or_else(Vec::new, |choice| choice.values.clone());
        Misread {
            lpn,
            read: read[lpn.index()],
            rule: Some(rule),
            allowed,
        }
    }
}

/// Tries of a search for an explanation. One that needs more is taken for found: the check is only weaker.
const STEPS_MAX: u32 = 1 << 14;

/// Returns true if some outcomes of the commands `open`, with those in `ends`, explain the reads. A partial choice that explains
/// nothing is not continued, so nearly every search goes straight to its end.
fn can_explain(
    choices: &[PossibleValues],
    ends: &mut Vec<(CommandId, bool)>,
    open: &[CommandId],
    relocations: &[&CommandEffects],
    steps: &mut u32,
) -> bool {
    if *steps == 0 {
        return true;
    }
    *steps -= 1;
    if !explain(choices, ends, relocations) {
        return false;
    }
    let Some((first, rest)) = open.split_first() else {
        return true;
    };
    for happened in [true, false] {
        ends.push((*first, happened));
        if can_explain(choices, ends, rest, relocations, steps) {
            return true;
        }
        ends.pop();
    }
    false
}

/// Returns true if each LPN can be assigned a command to show such that the atomic commands have
/// the outcomes `ends` and, for each page that `relocations` moved away, the target shows the move
/// or a later command.
fn explain(
    choices: &[PossibleValues],
    ends: &[(CommandId, bool)],
    relocations: &[&CommandEffects],
) -> bool {
    let mut shown: Vec<Vec<CommandId>> = Vec::with_capacity(choices.len());
    for choice in choices {
        let touched = |id: CommandId| choice.values.iter().skip(1).any(|(value, _)| *value == id);
        let fits = |shows: &CommandId| {
            ends.iter()
                .filter(|(id, _)| touched(*id))
                .all(|(id, done)| if *done { shows >= id } else { shows != id })
        };
        let left: Vec<CommandId> = choice.shown.iter().copied().filter(|id| fits(id)).collect();
        if left.is_empty() {
            return false;
        }
        shown.push(left);
    }

    // A source may show a relocation only while its target can show it or a later command. Removing
    // the other choices until nothing changes is enough: the newest remaining choice is then right
    // for all LPNs at once.
    let find = |lpn: Lpn| choices.binary_search_by_key(&lpn, |choice| choice.lpn).ok();
    loop {
        let mut struck = BTreeSet::new();
        for effects in relocations {
            for (source, target) in &effects.moved {
                // An LPN without choices shows something later than all commands in flight.
                let (Some(from), Some(to)) = (find(*source), find(*target)) else {
                    continue;
                };
                let target_touched = choices[to]
                    .values
                    .iter()
                    .skip(1)
                    .any(|(id, _)| *id == effects.id);
                if target_touched
                    && shown[from].contains(&effects.id)
                    && shown[to].last().is_none_or(|newest| *newest < effects.id)
                {
                    struck.insert((from, effects.id));
                }
            }
        }

        if struck.is_empty() {
            return true;
        }

        for (lpn, id) in struck {
            shown[lpn].retain(|shows| *shows != id);
            if shown[lpn].is_empty() {
                return false;
            }
        }
    }
}

/// A read that no order of events explains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Misread {
    /// The LPN whose content is wrong.
    pub lpn: Lpn,
    /// The content read; `LOST` for a media error.
    pub read: Content,
    /// The broken rule between LPNs, if the value alone would be allowed.
    pub rule: Option<String>,
    /// The contents that the LPN may show, with their commands.
    pub allowed: Vec<(CommandId, Content)>,
}

impl std::fmt::Display for Misread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LPN {} reads {}; allowed:", self.lpn, name(self.read))?;
        for (at, (id, content)) in self.allowed.iter().enumerate() {
            let what = if at == 0 {
                "acknowledged or seen"
            } else {
                "under way"
            };
            write!(
                f,
                "{} {} (#{id}, {what})",
                if at == 0 { "" } else { "," },
                name(*content)
            )?;
        }

        if let Some(rule) = &self.rule {
            write!(f, "; {rule}")?;
        }

        Ok(())
    }
}

#[cfg(test)]
mod tests;
