//! Commands that wait for memory.
//!
//! A checked command that lacks memory, for its answer or for data that must be gathered, is parked
//! until others release memory. Commands that need none are executed in the meantime.
//!
//! Invariants: no part of a parked command has been executed, and its data have not been requested;
//! parked commands resume in order of arrival; a connection has one place in the line, for the
//! first of them; parked commands count as outstanding, so that the queue's size bounds them; after
//! the quota's time limit a parked command fails. Its queue's standing and its host's rights, which
//! may change in the meantime, are checked when the command is executed, as always. Absent: the
//! line (`memory_line`).

use super::{Connection, End, OUTPUT_STEP, ReceiveContext};
use crate::controller::{IoCommand, Transfer};
use crate::spec::command::{Sgl, Sqe};
use crate::spec::status::Status;
use crate::tcp::memory_line::Wake;
use crate::tcp::quota::Place;
use std::collections::VecDeque;
use std::sync::Arc;

/// Headers, padding and digests of a data PDU, and its response.
pub(super) const HEADERS_BYTES_MAX: usize = 512;

/// Purpose of the memory that a command needs.
#[derive(Clone, Copy)]
enum Need {
    /// An answer of this many bytes.
    Answer(usize),
    /// This many bytes from the host, which must all arrive before the command is executed.
    Data(usize),
}

/// A command that waits for memory.
pub(super) struct Parked {
    sqe: Sqe,
    command: Option<IoCommand>,
    need: Need,
    /// Time of its arrival.
    since: u64,
}

/// All parked commands of a connection.
pub(super) struct ParkedCommands {
    commands: VecDeque<Parked>,
    /// The place in the line, for the first of them.
    place: Option<Place>,
    wake: Wake,
}

impl Default for ParkedCommands {
    fn default() -> Self {
        Self {
            commands: VecDeque::new(),
            place: None,
            wake: Arc::new(|| ()),
        }
    }
}

impl ParkedCommands {
    pub(super) fn len(&self) -> usize {
        self.commands.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    /// Returns true if a command with this identifier is parked.
    pub(super) fn has(&self, cid: u16) -> bool {
        self.commands.iter().any(|one| one.sqe.head().cid() == cid)
    }

    /// The process was paused until now: no earlier wait counts.
    pub(super) fn begin_anew(&mut self, now: u64) {
        for one in &mut self.commands {
            one.since = now;
        }
    }
}

impl Connection {
    /// Sets a function that any thread may call when a parked command may resume.
    pub(crate) fn waking_by(mut self, wake: Arc<dyn Fn() + Send + Sync>) -> Self {
        self.parked.wake = wake;
        self
    }

    /// Returns true if commands wait for memory.
    pub(crate) fn waits_for_others(&self) -> bool {
        !self.parked.is_empty()
    }

    /// Returns true if one of them may resume now.
    pub(crate) fn can_resume(&self) -> bool {
        let place = self.parked.place.as_ref();
        !self.parked.is_empty() && place.is_none_or(Place::is_granted)
    }

    /// Charges the memory that a command needs to proceed; returns the number of bytes charged for
    /// its data. `None` if there is not enough memory: the command is parked.
    #[inline]
    pub(super) fn charge_or_park(
        &mut self,
        sqe: &Sqe,
        command: Option<&IoCommand>,
        transfer: Transfer,
        context: &mut ReceiveContext<'_>,
    ) -> Option<usize> {
        let Some(need) = self.need(sqe, command, transfer, context) else {
            return Some(0);
        };

        // Commands already waiting go first.
        if self.parked.is_empty()
            && let Some(charged) = self.charge(need, context)
        {
            return Some(charged);
        }

        self.parked.commands.push_back(Parked {
            sqe: *sqe,
            command: command.copied(),
            need,
            since: context.now,
        });
        None
    }

    /// The memory that a command needs, if any. A queue that is not authenticated never waits: it
    /// has no share yet.
    fn need(
        &self,
        sqe: &Sqe,
        command: Option<&IoCommand>,
        transfer: Transfer,
        context: &ReceiveContext<'_>,
    ) -> Option<Need> {
        let is_admitted = self.queue.as_ref().is_some_and(|queue| queue.is_admitted());
        match transfer {
            _ if !is_admitted => None,
            Transfer::ToHost(bytes) => Some(Need::Answer(bytes as usize + HEADERS_BYTES_MAX)),
            // Parts of most writes are executed as they arrive.
            Transfer::FromHost(bytes) if sqe.sgl.identifier == Sgl::TRANSPORT => {
                let in_parts = command.is_some_and(|command| {
                    let part = self.write_part(command, 0, bytes, true, context);
                    part.is_some()
                });
                (!in_parts).then_some(Need::Data(bytes as usize))
            }
            _ => None,
        }
    }

    /// Charges a need; returns the bytes charged for data. `None` if there is not enough memory.
    fn charge(&mut self, need: Need, context: &ReceiveContext<'_>) -> Option<usize> {
        match need {
            Need::Answer(bytes) => self.charge_output(bytes, context.out).then_some(0),
            Need::Data(bytes) => {
                let queue = self.queue.as_mut()?;
                queue.seat.charge(bytes).then_some(bytes)
            }
        }
    }

    /// Takes the charge granted to the first parked command; returns the bytes for data.
    fn take_granted(&mut self, need: Need, place: Place) -> Option<usize> {
        let bytes = self.queue.as_mut()?.seat.take(place);
        match need {
            Need::Answer(_) => {
                self.output_bytes += bytes;
                None
            }
            Need::Data(_) => Some(bytes),
        }
    }

    /// Resumes the first parked command, if possible; returns whether it did.
    ///
    /// # Errors
    /// The connection must end.
    pub(super) fn resume(&mut self, context: &mut ReceiveContext<'_>) -> Result<bool, End> {
        let (Some(first), Some(queue)) = (self.parked.commands.front(), &self.queue) else {
            return Ok(false);
        };
        let (need, waited_ns) = (first.need, context.now.saturating_sub(first.since));
        let is_late = u128::from(waited_ns) >= queue.seat.memory_within().as_nanos();

        // A granted charge is taken, however late.
        let granted = match self.parked.place.take() {
            Some(place) if place.is_granted() => self.take_granted(need, place),
            Some(place) if !is_late => {
                self.parked.place = Some(place);
                return Ok(false);
            }
            // Dropping a place leaves the line.
            _ => None,
        };

        // An answer's own room was granted. Other unsent output may need some too.
        let charged = granted.or_else(|| self.charge(need, context));
        if charged.is_none() && !is_late {
            self.enter_line(need);
            return Ok(self.can_resume());
        }

        let Some(parked) = self.parked.commands.pop_front() else {
            return Ok(false);
        };
        match charged {
            Some(charged) => self.begin(&parked, charged, context)?,
            None => self.refuse(&parked.sqe, Status::INTERRUPTED, context)?,
        }
        Ok(true)
    }

    fn enter_line(&mut self, need: Need) {
        let Some(queue) = &self.queue else { return };
        let bytes = match need {
            Need::Answer(bytes) => bytes.next_multiple_of(OUTPUT_STEP),
            Need::Data(bytes) => bytes,
        };
        self.parked.place = Some(queue.seat.wait(bytes, self.parked.wake.clone()));
    }

    /// Requests the data of a command that was charged for them, or executes it.
    fn begin(
        &mut self,
        parked: &Parked,
        charged: usize,
        context: &mut ReceiveContext<'_>,
    ) -> Result<(), End> {
        let Parked {
            sqe, command, need, ..
        } = parked;
        if let Need::Data(bytes) = *need {
            self.transfers.add(*sqe, *command, bytes as u32, charged);
            self.grant(context);
            return Ok(());
        }
        self.execute(sqe, command.as_ref(), &[], context)
    }
}
