//! Runs whose pages cross the channel at once: one event for all, instead of one for each page.
//!
//! Nothing interrupts the pages of a run, so the time at which each has crossed is known. All but the last one only enter
//! a buffer, or wait for room there. This is done late: before anything changes a die's buffer, or asks for one of its
//! pages, the pages that have crossed by then *arrive*.
//! If something waits for a page of a run, its pages have events of their own from then on.
//!
//! Invariants: the last page of a run has an event; a page that has an event arrives with it. Absent: buffers
//! (`units`).

use super::Nand;
use super::graph::Graph;
use super::runs::Crossing;

impl Graph {
    /// What was read begins to cross the channel. Returns the number of pages that cross at once.
    pub(super) fn cross(&mut self, at: u32, channel: usize, page_ns: u64, now: u64) -> u16 {
        let node = *self.node(at);
        // The last page has an event in any case, and so has each one if another operation waits for one of them.
        if !node.is_run() || node.missing == 1 || self.run(at).is_awaited {
            return 1;
        }

        let run = self.run_mut(at);
        run.crossing = Crossing {
            since: now,
            page_ns,
            channel: channel as u32,
            pages: node.missing,
            arrived: 0,
        };

        let (die, next) = (usize::from(run.die), run.crossing.next().0);
        self.crossings.runs[die].push(at);
        let time = &mut self.crossings.next[die];
        *time = next.min(*time);
        node.missing
    }

    /// The last page of those that cross at once has crossed.
    pub(super) fn end_crossing(&mut self, at: u32) {
        let run = self.run_mut(at);
        if std::mem::replace(&mut run.crossing, Crossing::NONE).is_under_way() {
            let die = run.die;
            self.crossings.remove(die, at);
        }
    }

    /// A run to a die, with its pages that arrive now: all of them, or `in_order` those that have crossed before
    /// pages of other runs.
    pub(super) fn next_arrivals(&mut self, die: u16, in_order: bool) -> Option<(u32, u16)> {
        let past = self.crossings.past;
        let runs = &self.crossings.runs[usize::from(die)];
        let due = runs.iter().filter_map(|at| {
            let crossing = &self.runs[*at as usize].crossing;
            let pages = crossing.due(past);
            (pages > 0).then(|| (crossing.next(), *at, pages))
        });

        let (_, at, mut pages) = due.min()?;
        if in_order && runs.len() > 1 {
            pages = 1;
        }

        let run = self.run_mut(at);
        run.crossing.arrived += pages;
        run.arrived += pages;
        Some((at, pages))
    }

    /// Everything that has crossed the channel to a die has arrived: it is known when the next page does.
    pub(super) fn note_next_arrival(&mut self, die: u16) {
        let die = usize::from(die);
        let runs = self.crossings.runs[die].iter();
        let times = runs.map(|at| self.runs[*at as usize].crossing.next().0);
        self.crossings.next[die] = times.min().unwrap_or(u64::MAX);
    }

    /// How many of the next `count` pages can enter a buffer with room as one step: nothing waits for one of them, and
    /// no unit is complete before the last one.
    pub(super) fn enter_at_once(&self, at: u32, count: u16) -> u16 {
        let node = self.node(at);
        if !node.is_run() || self.run(at).is_awaited {
            return 1;
        }
        let missing = self.node(node.unit).missing;
        count.min(missing - 1).max(1)
    }
}

impl Nand {
    /// From now on, the pages of a run that have not arrived have events of their own.
    pub(super) fn cross_apart(&mut self, at: u32) {
        let run = self.graph.run_mut(at);
        run.is_awaited = true;
        let crossing = run.crossing;
        if !crossing.is_under_way() {
            return;
        }

        let left = crossing.pages - crossing.arrived;
        self.graph.end_crossing(at);
        self.graph.node_mut(at).missing = left;

        // The channel's event was that of the last page. Each later page counts its own time when it crosses.
        let (time, channel) = crossing.next();
        self.events.set(channel as usize, time);
        self.array
            .watch
            .crosses_later(u64::from(left - 1) * crossing.page_ns);
    }
}
