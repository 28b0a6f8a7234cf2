//! Durations of media operations: every die, channel and port is a timeline.
//!
//! Operations are charged once each, in the order of submission, and their end times are known at
//! once. There are two kinds of resource:
//!
//! - A *die* is held: an operation begins when the die is free and its dependencies have ended, and
//!   operations charged later follow it (first come, first served: garbage collection has no lower
//!   priority). There is one exception. If an operation that is not the host's waits (an erase for
//!   all copies, a tail for its data), the die's idle time is kept as its *gap*, and host
//!   operations charged later may use it if they fit.
//! - A *lane* (channel, NVRAM port, hash unit, core, each direction of the host link) is used in turn.
//!   The turn is taken at submission; an operation whose data is not ready yet ends later without
//!   blocking the lane.
//!
//! Lookups of owners and clearings of NVRAM run in parallel with the stores, on separate lanes at
//! the port's speed. A copy by GC does not delay its program for its read, since reads run ahead
//! into the controller's buffers (as in the published evaluations); a copy by a command does.
//!
//! Invariants: no operation ends before the operations in its `after`; end times depend only on the
//! sequence of charges; nothing is allocated per operation. Absent: the host's queue, and retries
//! (recorded as operations).

use crate::config::Latencies;
use crate::ends::{ClearEnds, ProgramEnds};
use crate::lane::{FrontEnd, SerialResource};
use remap_ssd_media::geometry::DIES_MAX;
use remap_ssd_media::op::NO_PAGE;
use remap_ssd_media::{ClearId, Geometry, Op, OpKind, Ppn, Purpose};

const DIES: usize = DIES_MAX as usize;

/// A resource that is held.
#[derive(Clone, Copy, Default)]
struct DieTiming {
    free: u64,
    /// An idle period before `free`; over once `gap_end` has passed.
    gap_begin: u64,
    gap_end: u64,
    channel: usize,
}

/// Submission time of a command, and the time at which its data was in the controller.
#[derive(Clone, Copy, Debug)]
pub struct CommandStart {
    /// Submission time, in nanoseconds.
    pub now: u64,
    /// Earliest start of its own operations.
    pub ready: u64,
}

/// A lookup of owners in progress: its beginning, and the end of its reads so far.
#[derive(Clone, Copy)]
struct PendingLookup {
    begin: u64,
    cursor: u64,
}

/// Dies, channels, ports and the link, each with the time until which it is busy.
pub struct Timing {
    latencies: Latencies,
    geometry: Geometry,
    dies: [DieTiming; DIES],
    dies_len: usize,
    channels: [SerialResource; DIES],
    port: SerialResource,
    clearing: SerialResource,
    scanning: SerialResource,
    pub(crate) front: FrontEnd,
    programs: ProgramEnds,
    clears: ClearEnds,
    lookup: Option<PendingLookup>,
    /// Earliest start of GC operations: the end of the latest lookup.
    looked_up: u64,
    lookup_total: u64,
    /// End of the latest NVRAM store, and of the latest operation of any kind.
    stores_end: u64,
    all_end: u64,
    /// End of the latest store of the current command.
    own_stores_end: u64,
    /// `all_end` before the current row of flash operations that wait for everything: the erases or
    /// tail pages of a superblock wait for the operations before them, not for each other.
    row: Option<u64>,
}

impl Timing {
    /// An idle device at time 0.
    pub fn new(geometry: Geometry, latencies: Latencies) -> Self {
        let mut dies = [DieTiming::default(); DIES];
        for (index, die) in dies.iter_mut().enumerate() {
            die.channel = geometry.channel_of_die(index as u32) as usize;
        }

        Self {
            latencies,
            geometry,
            dies,
            dies_len: geometry.dies_total() as usize,
            channels: [SerialResource::default(); DIES],
            port: SerialResource::default(),
            clearing: SerialResource::default(),
            scanning: SerialResource::default(),
            front: FrontEnd::new(&latencies),
            programs: ProgramEnds::new(geometry),
            clears: ClearEnds::default(),
            lookup: None,
            looked_up: 0,
            lookup_total: 0,
            stores_end: 0,
            all_end: 0,
            own_stores_end: 0,
            row: None,
        }
    }

    /// End of everything charged so far.
    pub fn busy_until(&self) -> u64 {
        self.all_end
    }

    /// Total time spent on lookups of owners.
    pub fn lookup_total_ns(&self) -> u64 {
        self.lookup_total
    }

    /// End of a flush whose operations end at `done`.
    #[inline]
    pub(crate) fn flush(&mut self, done: u64) -> u64 {
        if self.latencies.flush_ns == 0 {
            return done;
        }
        let end = done + self.latencies.flush_ns;
        self.all_end = self.all_end.max(end);
        end
    }

    /// Charges the operations of one command; returns its completion time.
    // Never inlined: its callers call it at several places, and must stay small enough to be
    // inlined themselves.
    #[inline(never)]
    pub fn charge(&mut self, ops: &[Op], mut command: CommandStart) -> u64 {
        let mut done = command.ready;
        let mut copied = 0;
        for op in ops {
            let end = self.charge_one(op, command, &mut copied);
            if op.kind == OpKind::ReadTable && op.purpose == Purpose::Host {
                command.ready = command.ready.max(end);
            }
            // Operations of collection and metadata are charged with the command that caused them,
            // and delay it only if they are in its way.
            if op.purpose == Purpose::Host {
                done = done.max(end);
            }
        }
        done
    }

    #[inline]
    fn charge_one(&mut self, op: &Op, command: CommandStart, copied: &mut u64) -> u64 {
        let now = command.now;

        let asked = match op.purpose {
            Purpose::Host => command.ready,
            Purpose::Gc => now.max(self.looked_up),
            Purpose::Meta | Purpose::WriteBack => now,
        };

        // The dependencies of most operations ended long ago.
        let waits = op.after_all
            || op.after_fence
            || op.after_own
            || op.after_page != NO_PAGE && self.programs.is_pending(op.after_page, now)
            || op.clear_id != ClearId(0) && self.clears.is_pending(op.clear_id, now);
        let ready = if waits {
            asked.max(self.waited_for(op, now))
        } else {
            asked
        };

        let end = match op.kind {
            OpKind::CopyRow => self.copy_row(op, asked, ready, now),
            OpKind::Program => {
                // A command's copy programs the data it has read; collection reads ahead.
                let ready = if op.purpose == Purpose::Host {
                    ready.max(*copied)
                } else {
                    ready
                };

                let end = self.program(op, ready, now);
                self.programs.note(op.page, end, now);
                end
            }
            OpKind::Read => {
                let end = self.read(op, ready, now);

                if op.purpose == Purpose::Host {
                    *copied = end;
                }
                end
            }
            OpKind::ReadTable => self.read(op, ready, now),
            OpKind::NvWrite | OpKind::NvMark => {
                let length = per_64_bytes(op.amount, self.latencies.nvram_write_ns);
                let end = self.port.pass(now, length, ready);

                self.stores_end = self.stores_end.max(end);
                if op.kind == OpKind::NvMark {
                    self.clears.note(op.clear_id, end, now);
                    self.own_stores_end = end;
                }
                if matches!(op.purpose, Purpose::Host | Purpose::WriteBack) {
                    self.own_stores_end = self.own_stores_end.max(end);
                }
                end
            }
            OpKind::Wait => return ready,
            _ => self.charge_rare(op, ready, now),
        };

        self.all_end = self.all_end.max(end);

        // A row of operations that wait for everything ends with the first one that does not.
        if !op.after_all {
            self.row = None;
        }

        end
    }

    /// End of everything in `op.after`.
    #[inline(never)]
    fn waited_for(&mut self, op: &Op, now: u64) -> u64 {
        let mut until = now;

        if op.after_all {
            until = match op.kind {
                // The erases of a superblock, or its tail pages, are recorded one by one, and all
                // wait for the operations before the first of them.
                OpKind::Erase | OpKind::Program => *self.row.get_or_insert(self.all_end),
                _ => self.all_end,
            };
        }

        if op.after_fence {
            until = until.max(self.stores_end);
        }
        if op.after_own {
            until = until.max(self.own_stores_end);
        }
        if op.after_page != NO_PAGE {
            until = until.max(self.programs.of_all(op.after_page, op.after_pages, now));
        }

        if op.clear_id != ClearId(0) && !op.kind.is_named() {
            until = until.max(self.clears.of(op.clear_id, now));
        }
        until
    }

    #[inline]
    fn read(&mut self, op: &Op, ready: u64, now: u64) -> u64 {
        let Latencies {
            flash_read_ns,
            transfer_ns,
            host_page_transfer_ns,
            ..
        } = self.latencies;
        let transfer_ns = match op.amount {
            0 => transfer_ns,
            pages => u64::from(pages) * host_page_transfer_ns,
        };

        // The reads of a lookup are sequential; the lookup either stalls the dies or runs in
        // parallel with them (`end_lookup`).
        if let Some(lookup) = &mut self.lookup {
            lookup.cursor = lookup.cursor.max(ready) + flash_read_ns + transfer_ns;
            return lookup.cursor;
        }

        let die = &mut self.dies[op.die as usize % DIES];
        // The read begins late enough for its transfer to meet the channel's turn.
        let turn = self.channels[die.channel].turn(now, transfer_ns);

        die.hold(
            op.purpose,
            ready.max(turn.saturating_sub(flash_read_ns)),
            now,
            flash_read_ns + transfer_ns,
        )
    }

    #[inline]
    fn program(&mut self, op: &Op, ready: u64, now: u64) -> u64 {
        let Latencies {
            flash_program_ns,
            transfer_ns,
            ..
        } = self.latencies;
        let die = &mut self.dies[op.die as usize % DIES];

        // The data crosses the channel before the die programs it.
        let turn = self.channels[die.channel].turn(now, transfer_ns);
        die.hold(
            op.purpose,
            ready.max(turn),
            now,
            transfer_ns + flash_program_ns,
        )
    }

    /// Reads and programs alternately. The row's dependencies delay only its programs.
    #[inline]
    fn copy_row(&mut self, op: &Op, asked: u64, ready: u64, now: u64) -> u64 {
        let Latencies {
            flash_read_ns,
            flash_program_ns,
            transfer_ns,
            ..
        } = self.latencies;

        let geometry = self.geometry;
        let first = geometry.slot(Ppn(op.amount));
        let base = geometry.die_of(geometry.superblock(first.ppn), 0);

        let (mut sources, mut read_end) = (op.sources, 0);
        let (dies, channels) = (&mut self.dies, &mut self.channels);

        // Like `read` and `program`, for a whole row at once.
        let programmed = self
            .programs
            .note_row(op.page, op.sources.count_ones(), now, |index| {
                let from = geometry.die_of_offset(first.die + sources.trailing_zeros());
                sources &= sources - 1;

                let die = &mut dies[(base + from) as usize % DIES];
                let turn = channels[die.channel].turn(now, transfer_ns);

                let begin = asked.max(turn.saturating_sub(flash_read_ns));
                read_end = die
                    .hold(Purpose::Gc, begin, now, flash_read_ns + transfer_ns)
                    .max(read_end);

                let die = &mut dies[(u32::from(op.die) + index) as usize % DIES];
                let turn = channels[die.channel].turn(now, transfer_ns);
                die.hold(
                    Purpose::Gc,
                    ready.max(turn),
                    now,
                    transfer_ns + flash_program_ns,
                )
            });
        programmed.max(read_end)
    }

    #[inline(never)]
    fn charge_rare(&mut self, op: &Op, ready: u64, now: u64) -> u64 {
        match op.kind {
            OpKind::Erase => {
                let die = &mut self.dies[op.die as usize % DIES];
                let end = die.hold(op.purpose, ready, now, self.latencies.erase_ns);
                self.clears.note(op.clear_id, end, now);
                end
            }
            OpKind::NvRead => {
                let length = per_64_bytes(op.amount, self.latencies.nvram_read_ns);
                let end = self.scanning.pass(now, length, self.lookup_cursor(ready));
                self.advance_lookup(end)
            }
            OpKind::ScanFlash => {
                let end = self.scan_flash(op, self.lookup_cursor(ready), now);
                self.advance_lookup(end)
            }
            OpKind::NvClear => {
                // On a separate lane: zeroing runs in parallel with stores, and delays only
                // operations that name it.
                let end = self.clearing.pass(
                    ready,
                    per_64_bytes(op.amount, self.latencies.nvram_write_ns),
                    ready,
                );
                self.clears.note(op.clear_id, end, now);
                end
            }
            OpKind::LookupBegin => {
                assert!(
                    self.lookup.is_none(),
                    "a lookup ends before the next begins"
                );
                self.lookup = Some(PendingLookup {
                    begin: ready,
                    cursor: ready,
                });
                ready
            }
            OpKind::LookupEnd => self.end_lookup(),
            OpKind::Read
            | OpKind::ReadTable
            | OpKind::Program
            | OpKind::CopyRow
            | OpKind::NvWrite
            | OpKind::NvMark
            | OpKind::Wait => unreachable!("charged by the caller"),
        }
    }

    fn lookup_cursor(&self, ready: u64) -> u64 {
        self.lookup.map_or(ready, |lookup| lookup.cursor.max(ready))
    }

    fn advance_lookup(&mut self, end: u64) -> u64 {
        if let Some(lookup) = &mut self.lookup {
            lookup.cursor = end;
        }
        end
    }

    /// Reads pages spread evenly over the dies.
    fn scan_flash(&mut self, op: &Op, ready: u64, now: u64) -> u64 {
        let Latencies {
            flash_read_ns,
            transfer_ns,
            lookup_stalls_dies,
            ..
        } = self.latencies;

        let each = flash_read_ns + transfer_ns;

        // The first `rest` dies have one page more.
        let (share, rest) = (
            op.amount as usize / self.dies_len,
            op.amount as usize % self.dies_len,
        );

        // The end of the lookup stalls the dies for its whole duration; holding them here would
        // count it twice.
        if self.lookup.is_some() && lookup_stalls_dies {
            return ready + (share + usize::from(rest > 0)) as u64 * each;
        }

        let mut end = ready;
        for (index, die) in self.dies[..self.dies_len].iter_mut().enumerate() {
            let pages = share + usize::from(index < rest);
            if pages > 0 {
                end = end.max(die.hold(op.purpose, ready, now, pages as u64 * each));
            }
        }

        end
    }

    fn end_lookup(&mut self) -> u64 {
        let PendingLookup { begin, cursor } =
            self.lookup.take().expect("a lookup begins before it ends");
        let length = cursor - begin;
        self.lookup_total += length;
        // The collection may move pages only once it knows their owners.
        self.looked_up = cursor;
        if self.latencies.lookup_stalls_dies && length > 0 {
            for die in &mut self.dies[..self.dies_len] {
                die.stall(begin, length);
            }
        }
        cursor
    }
}

impl DieTiming {
    /// Holds the die for `length` from `ready` on, or from when it is free. Returns the end.
    #[inline]
    fn hold(&mut self, purpose: Purpose, ready: u64, now: u64, length: u64) -> u64 {
        // A host's operation may use the time in which a die waits for others; collection keeps its
        // place.
        if self.gap_end > now && purpose == Purpose::Host {
            let end = self.gap_begin.max(ready) + length;
            if end <= self.gap_end {
                self.gap_begin = end;
                return end;
            }
        }
        let begin = self.free.max(ready);

        // The die is idle until this operation's dependencies have ended: the host may use that
        // time.
        if purpose != Purpose::Host && begin > self.free.max(now) {
            self.keep_gap(begin, now);
        }
        self.free = begin + length;
        self.free
    }

    /// Keeps the longer of the current gap's rest and the new gap from `free` to `end`.
    #[cold]
    fn keep_gap(&mut self, end: u64, now: u64) {
        let begin = self.free.max(now);
        if end - begin > self.gap_end.saturating_sub(self.gap_begin.max(now)) {
            (self.gap_begin, self.gap_end) = (begin, end);
        }
    }

    /// Keeps the die busy for `length` more nanoseconds.
    fn stall(&mut self, begin: u64, length: u64) {
        self.free = self.free.max(begin) + length;
        // Nothing can overtake while the die is stalled.
        self.gap_end = 0;
    }
}

/// Time for `bytes` at `each` per 64 bytes, rounded up.
#[inline]
pub(crate) fn per_64_bytes(bytes: u32, each: u64) -> u64 {
    (u64::from(bytes) * each).div_ceil(64)
}
