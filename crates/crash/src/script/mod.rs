//! Command scripts, drawn from a seed and biased towards difficult cases.
//!
//! A uniform mix of commands keeps a firmware on its easy paths. The generator prefers few hot
//! LPNs, existing contents, remaps that overlap themselves in both directions, many remaps of one
//! source, and deallocations right before and after the commands that they undo. Invariants: one
//! seed, one script; no command extends past the last LPN unless it is meant to be refused. Absent:
//! the effects of commands (the oracle's).

mod command;
mod mix;

use crate::content::{Content, ZEROES, is_known};
pub(crate) use command::ScriptCommand;
pub(crate) use command::content_of_many;
pub(crate) use mix::Mix;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use remap_ssd_ftl::{FilePage, Lpn, Refusal, Remap};
use std::collections::VecDeque;

/// Draws the commands of a script.
#[derive(Clone, Debug)]
pub(crate) struct CommandGenerator {
    random: Xoshiro256PlusPlus,
    lpns: u32,
    mix: Mix,
    /// Largest atomic remap; 0 if there are none.
    atomic_pages: u32,
    /// Pages of an indirection unit.
    unit: u32,
    /// Pages of the largest write that is atomic; 1 if only pages are.
    untorn: u32,
    /// Contents 1 to `pool` repeat; larger ones are written once.
    pool: u32,
    next_unique: Content,
    /// First hot LPN, and the number of hot LPNs.
    hot: Lpn,
    hot_len: u32,
    /// LPNs below it have been written since the device was blank.
    filled: u32,
    /// A source that is remapped repeatedly.
    popular: Lpn,
    /// LPNs of the last commands: probably still in flight.
    recent: [Lpn; 4],
    stream: WriteStream,
    /// First LPN of the last stream of new contents.
    fresh: Lpn,
    /// File page written last: no two have the same number.
    file_page: u32,
    /// True if the device uses homes.
    homes: bool,
    /// The last pages written for a home, with their homes.
    journal: VecDeque<(Lpn, Lpn)>,
}

/// Remaining writes to consecutive LPNs.
#[derive(Clone, Copy, Debug, Default)]
struct WriteStream {
    target: Lpn,
    /// Contents to repeat; `None`: new contents.
    source: Option<Lpn>,
    left: u32,
}

/// Capacity of a journal in pages.
const JOURNAL_PAGES: usize = 12;

impl CommandGenerator {
    /// A script for a device of `lpns` pages whose atomic remaps have at most `atomic_pages`; with
    /// `homes`, pages are written for a home and remapped to it.
    pub(crate) fn new(seed: u64, lpns: u32, mix: Mix, atomic_pages: u32, homes: bool) -> Self {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let hot_len = (lpns / random.random_range(4..16)).max(2).min(lpns);
        let hot = Lpn(random.random_range(0..=lpns - hot_len));

        // Few contents repeat, so that deduplication finds many owners of a page.
        let pool = random.random_range(2..12);
        let popular = Lpn(random.random_range(0..lpns));

        Self {
            random,
            lpns,
            mix,
            atomic_pages,
            unit: 1,
            untorn: 1,
            pool,
            // Above all numbers of the pool.
            next_unique: 1000,
            hot,
            hot_len,
            filled: 0,
            popular,
            recent: [popular; 4],
            stream: WriteStream::default(),
            fresh: Lpn::ZERO,
            file_page: 0,
            homes,
            journal: VecDeque::new(),
        }
    }

    /// Atomic remaps have whole indirection units of `pages` pages, at the same places.
    pub(crate) fn on_units(mut self, pages: u32) -> Self {
        self.unit = pages;
        self
    }

    /// Many writes have several pages, at most this number.
    pub(crate) fn with_untorn(self, pages: u32) -> Self {
        Self {
            untorn: pages,
            ..self
        }
    }

    /// A write of several pages: new contents, or those of other pages.
    fn write_many(&mut self) -> ScriptCommand {
        let most = self.untorn.min(self.lpns / 2);
        let most = match self.random.random_range(0..8) {
            0 => most,
            1..3 => most.min(9),
            _ => most.min(4),
        };
        let len = self.random.random_range(2..=most.max(2));
        let last = Lpn(self.lpns - len);
        let fresh = self.next_unique + 1;
        self.next_unique += u64::from(len);
        let source = self.random.random_ratio(1, 3).then(|| self.lpn().min(last));
        ScriptCommand::WriteMany {
            lpn: self.lpn().min(last),
            len,
            source,
            fresh,
        }
    }

    /// The command, of whole units if it is atomic.
    fn of_units(&self, command: ScriptCommand) -> ScriptCommand {
        match command {
            ScriptCommand::Remap(remap) if remap.atomic && self.unit > 1 => {
                let begin = |lpn: Lpn| lpn.back(lpn.0 % self.unit);
                ScriptCommand::Remap(Remap {
                    target: begin(remap.target),
                    source: begin(remap.source),
                    len: (remap.len / self.unit).max(1) * self.unit,
                    ..remap
                })
            }
            other => other,
        }
    }

    /// The same device state, with another continuation.
    pub(crate) fn branch(&self, seed: u64) -> Self {
        let mut branch = self.clone();
        branch.random = Xoshiro256PlusPlus::seed_from_u64(seed);
        branch
    }

    /// Returns the next write of the first fill, from LPN 0 up, until all LPNs are written.
    pub(crate) fn fill(&mut self) -> Option<ScriptCommand> {
        if self.filled == self.lpns {
            return None;
        }
        let lpn = Lpn(self.filled);
        self.filled += 1;
        Some(ScriptCommand::Write {
            lpn,
            content: self.content(),
        })
    }

    /// Returns the next command, for a device that reads as `live`.
    pub(crate) fn command(&mut self, live: &[Content]) -> ScriptCommand {
        let command = self.draw(live);
        self.of_units(command)
    }

    fn draw(&mut self, live: &[Content]) -> ScriptCommand {
        // An incomplete fill continues between the other commands.
        if self.filled < self.lpns
            && self.random.random_ratio(3, 4)
            && let Some(write) = self.fill()
        {
            return write;
        }

        // Other commands come between its writes only now and then.
        if self.stream.left > 0 && self.random.random_ratio(9, 10) {
            return self.stream_on(live);
        }

        let mix = self.mix;
        let mut draw = self.random.random_range(0..mix.total());

        // One draw; each weight takes its share of it, in the order of the calls.
        let mut drawn = |weight: u32| {
            let hit = draw < weight;
            draw = draw.wrapping_sub(weight);
            hit
        };

        if drawn(mix.write) {
            if self.untorn > 1 && self.random.random_ratio(1, 2) {
                return self.write_many();
            }
            if self.homes && self.random.random_ratio(2, 3) {
                return self.write_for();
            }
            ScriptCommand::Write {
                lpn: self.lpn(),
                content: self.content(),
            }
        } else if drawn(mix.rewrite) {
            let lpn = self.lpn();

            // A write that changes nothing, or a trim of nothing.
            match live[lpn.index()] {
                content if is_known(content) => ScriptCommand::Write { lpn, content },
                _ => ScriptCommand::Deallocate { lpn, len: 1 },
            }
        } else if drawn(mix.copy) {
            self.remap(false)
        } else if drawn(mix.relocate) {
            self.remap(true)
        } else if drawn(mix.deallocate) {
            self.deallocation()
        } else if drawn(mix.run) {
            self.begin_stream();
            self.stream_on(live)
        } else if drawn(mix.flush) {
            ScriptCommand::Flush
        } else if drawn(mix.files) {
            self.file()
        } else {
            ScriptCommand::Background {
                steps: self.random.random_range(1..6),
            }
        }
    }

    /// Returns a command that must be refused, and the reason.
    pub(crate) fn refused(&mut self) -> (ScriptCommand, Refusal) {
        let (first, last, behind) = (Lpn::ZERO, Lpn(self.lpns - 1), Lpn(self.lpns));
        let remap = |target, source, len, relocate, atomic| {
            ScriptCommand::Remap(Remap {
                target,
                source,
                len,
                relocate,
                atomic,
            })
        };

        match self.random.random_range(0..5) {
            0 => (
                ScriptCommand::Write {
                    lpn: behind,
                    content: 1,
                },
                Refusal::OutOfRange,
            ),
            1 => (
                ScriptCommand::Deallocate { lpn: last, len: 2 },
                Refusal::OutOfRange,
            ),
            2 => (remap(last, first, 2, false, false), Refusal::OutOfRange),
            3 => (remap(first, last, 2, true, false), Refusal::OutOfRange),
            _ if self.atomic_pages == 0 => (
                remap(first, Lpn(1), 1, true, true),
                Refusal::AtomicUnsupported,
            ),
            _ => (
                remap(first, Lpn(1), self.atomic_pages + 1, true, true),
                Refusal::AtomicTooLarge,
            ),
        }
    }

    /// Two streams of three repeat a range, mostly the newest; the others are new.
    fn begin_stream(&mut self) {
        let len = self.random.random_range(2..(self.lpns / 2).clamp(3, 24));
        let target = self.lpn().min(Lpn(self.lpns - len));
        let source = match self.random.random_range(0..6) {
            0..2 => None,
            2..5 => Some(self.fresh.min(Lpn(self.lpns - len))),
            _ => Some(self.lpn().min(Lpn(self.lpns - len))),
        };
        if source.is_none() {
            self.fresh = target;
        }
        self.stream = WriteStream {
            target,
            source,
            left: len,
        };
    }

    fn stream_on(&mut self, live: &[Content]) -> ScriptCommand {
        let WriteStream {
            target: lpn,
            source,
            left,
        } = self.stream;

        // Part of the stream in one command: its pages are acknowledged together.
        if left > 1 && self.random.random_ratio(1, 3) {
            let len = self.random.random_range(2..=left);
            let fresh = self.next_unique + 1;
            self.next_unique += u64::from(len);

            self.stream = WriteStream {
                target: lpn.offset(len),
                source: source.map(|source| source.offset(len)),
                left: left - len,
            };

            return ScriptCommand::WriteMany {
                lpn,
                len,
                source,
                fresh,
            };
        }

        self.stream = WriteStream {
            target: lpn.offset(1),
            source: source.map(|source| source.offset(1)),
            left: left - 1,
        };

        let repeated = source.map_or(ZEROES, |source| live[source.index()]);
        if !is_known(repeated) {
            self.next_unique += 1;
            return ScriptCommand::Write {
                lpn,
                content: self.next_unique,
            };
        }

        ScriptCommand::Write {
            lpn,
            content: repeated,
        }
    }

    fn file(&mut self) -> ScriptCommand {
        if self.random.random_ratio(1, 25) {
            return ScriptCommand::FileReset;
        }
        self.file_page += 1;
        let page = FilePage {
            inode: self.random.random_range(0..6),
            offset: self.file_page,
        };
        ScriptCommand::FileWrite {
            lpn: self.lpn(),
            content: self.content(),
            page,
        }
    }

    /// Writes the next page of a journal: often the neighbour of the last one with a neighbouring
    /// home, or an earlier one again.
    fn write_for(&mut self) -> ScriptCommand {
        let next = self
            .journal
            .back()
            .map(|(lpn, home)| (lpn.offset(1), home.offset(1)));
        let next = next.filter(|(lpn, home)| lpn.max(home).is_below(self.lpns));
        let (lpn, home) = match next.filter(|_| self.random.random_ratio(3, 5)) {
            Some(next) => next,
            None => (self.lpn(), self.lpn()),
        };

        // The same page for the same home again: must not be confused with the older one.
        if !self.journal.is_empty() && self.random.random_ratio(1, 5) {
            let (lpn, home) =
                self.journal[self.random.random_range(0..self.journal.len() as u32) as usize];
            return ScriptCommand::WriteFor {
                lpn,
                content: self.content(),
                home,
            };
        }

        self.journal.push_back((lpn, home));
        if self.journal.len() > JOURNAL_PAGES {
            self.journal.pop_front();
        }

        ScriptCommand::WriteFor {
            lpn,
            content: self.content(),
            home,
        }
    }

    /// Remaps homes to consecutive journal pages, often with following pages that have other homes:
    /// the command is then part remap, part copy, and collects garbage on the way.
    fn checkpoint(&mut self, relocate: bool, atomic: bool) -> ScriptCommand {
        let at = self.random.random_range(0..self.journal.len() as u32) as usize;
        let (mut source, mut target) = self.journal[at];
        let follows = |(next, page): (usize, &(Lpn, Lpn))| {
            *page == (source.offset(next as u32), target.offset(next as u32))
        };
        let mut len = self
            .journal
            .iter()
            .skip(at)
            .enumerate()
            .take_while(|next| follows(*next))
            .count() as u32;
        if self.random.random_ratio(1, 2) {
            let more = self.random.random_range(0..24);
            len += more;
            // The last pages are copied first if the target is above the source.
            if target > source {
                let down = more.min(source.0);
                (source, target) = (source.back(down), target.back(down));
            }
        }

        if atomic {
            len = len.min(self.atomic_pages);
        }

        let len = len.min(self.lpns - source.max(target).0);
        ScriptCommand::Remap(Remap {
            target,
            source,
            len,
            relocate,
            atomic,
        })
    }

    fn content(&mut self) -> Content {
        if self.random.random_ratio(1, 3) {
            return Content::from(self.random.random_range(1..=self.pool));
        }
        self.next_unique += 1;
        self.next_unique
    }

    fn lpn(&mut self) -> Lpn {
        let lpn = match self.random.random_range(0..10) {
            // Probably still in flight: overwriting it then tests the ordering.
            0..2 => return self.recent[self.random.random_range(0..4u32) as usize],
            2..7 => self.hot.offset(self.random.random_range(0..self.hot_len)),
            _ => Lpn(self.random.random_range(0..self.lpns)),
        };
        self.recent.rotate_right(1);
        self.recent[0] = lpn;
        lpn
    }

    fn len(&mut self) -> u32 {
        if self.mix.run > 0 && self.random.random_ratio(1, 2) {
            return self.random.random_range(2..(self.lpns / 2).clamp(3, 49));
        }
        let len = match self.random.random_range(0..16) {
            0..9 => 1,
            9..15 => self.random.random_range(2..8),
            _ => self.random.random_range(2..(self.lpns / 4).clamp(3, 48)),
        };
        len.min(self.lpns)
    }

    fn deallocation(&mut self) -> ScriptCommand {
        if self.random.random_ratio(1, 64) {
            // Refilled, or the rest of the script would run on an empty device.
            self.filled = 0;
            return ScriptCommand::Deallocate {
                lpn: Lpn::ZERO,
                len: self.lpns,
            };
        }
        let len = self.len();
        ScriptCommand::Deallocate {
            lpn: self.lpn().min(Lpn(self.lpns - len)),
            len,
        }
    }

    fn remap(&mut self, relocate: bool) -> ScriptCommand {
        let atomic = self.atomic_pages > 0 && self.random.random_ratio(2, 5);
        if !self.journal.is_empty() && self.random.random_ratio(3, 4) {
            return self.checkpoint(relocate, atomic);
        }

        let len = if atomic {
            self.len().min(self.atomic_pages)
        } else {
            self.len()
        };

        let last = Lpn(self.lpns - len);
        let start = self.lpn().min(last);
        let (target, source) = match self.random.random_range(0..16) {
            // Overlapping, to the right and to the left.
            0..3 if len > 1 => (
                start,
                start.back(self.random.random_range(1..len).min(start.0)),
            ),
            3..6 if len > 1 => (
                start.back(self.random.random_range(1..len).min(start.0)),
                start,
            ),
            // One source, many targets, until its page's counter is full.
            6..9 => {
                if self.random.random_ratio(1, 8) {
                    self.popular = self.lpn();
                }
                (start, self.popular.min(last))
            }

            // Onto itself: nothing may change.
            9 => (start, start),
            _ => (start, self.lpn().min(last)),
        };

        ScriptCommand::Remap(Remap {
            target,
            source,
            len,
            relocate,
            atomic,
        })
    }
}
