//! The two halves of a device: the firmware, which knows no time, and the timing, which knows no
//! tables.
//!
//! ```text
//! one thread:   firmware executes a command -> its operations -> timing computes its completion time -> next command
//! two threads:  firmware executes many commands -> Record -> timing computes their times while the firmware continues
//! ```
//!
//! Only the operations and the path of a command's data ([`DataPath`]) pass from one half to the
//! other. So both ways give the same times, as long as the order of commands does not depend on
//! completion times.
//!
//! Invariants: a record's operations are those of its steps, in order; nothing is allocated per
//! command once the lists of a record have grown. Absent: requests and their waiting (the
//! caller's), and threads (the caller's as well).

use crate::command::{PageCommand, PageKind};
use crate::host_lpn::HostLpn;
use crate::indirection::{Extent, Indirection};
use crate::nand::Nand;
use crate::step::{DataPath, Step};
use crate::timing::{CommandStart, Timing};
use remap_ssd_ftl::{Ftl, Glimpse, Refusal, UsablePages};
use remap_ssd_media::{Op, Payload};

/// Executes a command of one page. Calls `step` after each of its steps; the step's operations are then
/// in the media's list.
#[inline(always)]
pub(crate) fn perform(
    ftl: &mut Ftl,
    command: &PageCommand,
    goes_on: bool,
    mut step: impl FnMut(&mut Ftl, Step),
) -> Result<(), Refusal> {
    let PageCommand { lpn, content, kind } = *command;
    // Units are pages here.
    let lpn = lpn.unit(0);
    let payload = Payload::Identity(content);

    let of = |data| Step::new(data, goes_on);
    let (done, result) = match kind {
        PageKind::Write if goes_on => (of(DataPath::FromHost), ftl.write_more(lpn, &payload)),
        PageKind::Write => (of(DataPath::FromHost), ftl.write(lpn, &payload)),
        PageKind::WriteFor { home } => (
            of(DataPath::FromHost),
            ftl.write_for(lpn, &payload, home.unit(0)),
        ),
        PageKind::Read => (of(DataPath::ToHost), ftl.read(lpn).map(drop)),
        PageKind::ReadModifyWrite => {
            // Two steps, since the write's data is ready only when the read has ended.
            let read = ftl.read(lpn);
            step(ftl, Step::new(DataPath::ToMerge, read.is_ok() || goes_on));
            read?;
            (of(DataPath::Merged), ftl.write(lpn, &payload))
        }
        PageKind::Trim => (of(DataPath::Absent), ftl.deallocate(lpn, 1)),
        PageKind::Flush => (of(DataPath::Flush), ftl.flush()),
        PageKind::Remap { .. } => {
            let remap = command.as_remap().expect("it is a remap");
            (Step::of_remap(remap.len), ftl.remap(&remap.units(0)))
        }
    };

    step(ftl, done);
    result
}

/// Distance in commands at which the first tables are prefetched.
pub const LOOK_AHEAD_FAR: usize = 16;

/// Distance in commands at which the second tables are prefetched.
pub const LOOK_AHEAD_NEAR: usize = 8;

/// Called before each command of a list is submitted, with its `index`: prefetches the data of
/// later commands. Handles two commands at a time, so that their waits for the page table overlap.
#[inline(always)]
pub(crate) fn look_ahead<T>(
    ftl: &Ftl,
    indirection: Option<&Indirection>,
    list: &[T],
    index: usize,
    command: impl Fn(&T) -> PageCommand,
) {
    const TOGETHER: usize = 2;
    if !index.is_multiple_of(TOGETHER) {
        return;
    }

    let ahead = |by: usize| {
        list.get(index + by..)
            .and_then(<[T]>::first_chunk::<TOGETHER>)
    };

    if let Some(units) = indirection {
        // The identity of a unit is not known yet.
        let firsts = [LOOK_AHEAD_FAR, LOOK_AHEAD_NEAR].map(|by| list.get(index + by));
        if let [Some(far), Some(near)] = firsts.map(|page| page.map(&command)) {
            ftl.look_ahead_far(units.unit(far.lpn), None);
            ftl.look_ahead_near(units.unit(near.lpn), None);
        }
        return;
    }

    if let Some(pair) = ahead(LOOK_AHEAD_FAR) {
        for far in pair.each_ref().map(&command) {
            ftl.look_ahead_far(far.lpn.unit(0), far.identity());

            // A remap looks up its source as well.
            if let PageKind::Remap { source, .. } = far.kind {
                ftl.look_ahead_far(source.unit(0), None);
            }
        }
    }

    if let Some(pair) = ahead(LOOK_AHEAD_NEAR) {
        for near in pair.each_ref().map(&command) {
            ftl.look_ahead_near(near.lpn.unit(0), near.identity());
        }
    }
}

/// Charges the firmware's operations to the timing model.
pub(crate) struct OpCharger {
    pub timing: Timing,
    /// The other model, if the device has it: then `timing` is not used.
    pub nand: Option<Box<Nand>>,
    /// True if written data passes the hash unit.
    pub hashes: bool,
    /// True if time is modelled; otherwise everything completes at once.
    pub timed: bool,
    /// When the page of the latest `DataPath::ToMerge` was read.
    merged: u64,
    /// True inside a request, whose next step is no command of its own.
    goes_on: bool,
}

impl OpCharger {
    pub(crate) fn new(timing: Timing, nand: Option<Box<Nand>>, hashes: bool) -> Self {
        Self {
            timing,
            nand,
            hashes,
            timed: true,
            merged: 0,
            goes_on: false,
        }
    }

    /// Charges the operations of a command submitted at `now`; returns its completion time.
    #[inline(always)]
    pub(crate) fn charge(&mut self, now: u64, step: Step, ops: &[Op]) -> u64 {
        if let Some(nand) = &mut self.nand {
            return nand.alone(now, step, self.hashes, if self.timed { ops } else { &[] });
        }
        let timing = &mut self.timing;
        let (data, pages) = (step.data(), step.pages() as u16);
        // Also at the end of a request that the firmware ends itself.
        let begins =
            !std::mem::replace(&mut self.goes_on, step.goes_on()) & (data != DataPath::Own);

        // In the same order with one thread or two: each call takes a turn on a lane, and turns
        // determine the times.
        let received = match data {
            DataPath::Own => now,
            DataPath::Absent | DataPath::Flush | DataPath::ToHost | DataPath::ToCopy => {
                timing.front.arrive(now)
            }
            DataPath::FromHost | DataPath::ToMerge => timing.front.receive(now, pages),
            DataPath::Merged => self.merged,
        };

        let hashed = match data {
            DataPath::FromHost | DataPath::Merged if self.hashes => {
                timing.front.hash_page(now, received)
            }
            _ => received,
        };
        let ready = timing
            .front
            .process(timing.front.arrive(now), hashed, begins, pages.into());

        let done = if self.timed {
            timing.charge(ops, CommandStart { now, ready })
        } else {
            now
        };

        // A page that was read is sent; one to be merged stays for the next step.
        match data {
            DataPath::ToHost => timing.front.send(now, pages.into(), done),
            DataPath::Flush if self.timed => timing.flush(done),
            DataPath::ToMerge | DataPath::ToCopy => {
                self.merged = done;
                done
            }
            _ => done,
        }
    }
}

impl OpCharger {
    /// Gives the operations of a step to the model whose dies choose.
    ///
    /// # Panics
    /// The device has the other model.
    #[inline]
    pub(crate) fn submit(&mut self, request: u32, now: u64, step: Step, ops: &[Op]) {
        let nand = self.nand.as_mut().expect("the device has this model");
        let ops = if self.timed { ops } else { &[] };
        nand.step(Some(request), now, step, self.hashes, ops);
    }
}

/// A step, and the number of its operations.
#[derive(Clone, Copy)]
struct ChargedStep {
    ops: u32,
    step: Step,
}

const _: () = assert!(size_of::<ChargedStep>() == 8);

/// Executed commands that the timing has not processed yet.
#[derive(Default)]
pub struct CommandRecord {
    ops: Vec<Op>,
    steps: Vec<ChargedStep>,
    ops_charged: usize,
    steps_charged: usize,
}

impl CommandRecord {
    /// Forgets everything, and keeps its allocations.
    pub fn clear(&mut self) {
        self.ops.clear();
        self.steps.clear();
        (self.ops_charged, self.steps_charged) = (0, 0);
    }

    /// Number of steps recorded so far.
    pub fn steps(&self) -> usize {
        self.steps.len()
    }

    #[inline(always)]
    fn note(&mut self, ftl: &mut Ftl, step: Step) {
        let done = &mut ftl.media_mut().ops;
        self.ops.extend_from_slice(done);
        self.steps.push(ChargedStep {
            ops: done.len() as u32,
            step,
        });
        done.clear();
    }
}

/// The half that executes commands.
///
/// ```
/// use remap_ssd_device::{CommandRecord, Device, DeviceConfig, HostLpn, PageCommand, PageKind};
/// let mut device = Device::format(DeviceConfig::preset("fast21-32g")?.scale(1.0 / 256.0)?)?;
/// let (mut firmware, mut timing) = device.halves().ok_or("time is kept")?;
/// let mut record = CommandRecord::default();
///
/// // One thread does commands, another one asks later when they were done.
/// let write = PageCommand { content: 1, lpn: HostLpn::ZERO, kind: PageKind::Write };
/// firmware.submit(&write, false, &mut record)?;
/// firmware.deallocate(HostLpn::ZERO, 1, &mut record)?;
/// assert_eq!(record.steps(), 2);
///
/// let written = timing.charge(0, &mut record);
/// let gone = timing.charge(written, &mut record);
/// assert!(gone > written && firmware.glimpse().programs > 0);
/// record.clear();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct FirmwareHalf<'a> {
    pub(crate) ftl: &'a mut Ftl,
    pub(crate) indirection: Option<&'a mut Indirection>,
    pub(crate) usable: UsablePages,
}

impl FirmwareHalf<'_> {
    /// Like `Device::look_ahead`.
    #[inline(always)]
    pub fn look_ahead<T>(&self, list: &[T], index: usize, command: impl Fn(&T) -> PageCommand) {
        look_ahead(self.ftl, self.indirection.as_deref(), list, index, command);
    }

    /// Executes one page of a request, and records its operations. `goes_on`: the request continues
    /// with the next call.
    ///
    /// # Errors
    /// The reason for the refusal.
    #[inline(always)]
    pub fn submit(
        &mut self,
        command: &PageCommand,
        goes_on: bool,
        record: &mut CommandRecord,
    ) -> Result<(), Refusal> {
        if let Some(indirection) = &mut self.indirection {
            let mut note = |ftl: &mut Ftl, step| record.note(ftl, step);
            return indirection.submit(self.ftl, command, goes_on, &mut note);
        }
        perform(self.ftl, command, goes_on, |ftl, step| {
            record.note(ftl, step)
        })
    }

    /// Deallocates `len` pages from `lpn` on, and records the operations.
    ///
    /// # Errors
    /// The reason for the refusal.
    pub fn deallocate(
        &mut self,
        lpn: HostLpn,
        len: u32,
        record: &mut CommandRecord,
    ) -> Result<(), Refusal> {
        if let Some(indirection) = &mut self.indirection {
            let mut note = |ftl: &mut Ftl, step| record.note(ftl, step);
            return indirection.deallocate(self.ftl, lpn, len, Extent::Units, &mut note);
        }
        let result = self.ftl.deallocate(lpn.unit(0), len);
        record.note(self.ftl, Step::new(DataPath::Absent, false));
        result
    }

    /// The current counters of a time series.
    #[inline(always)]
    pub fn glimpse(&mut self) -> Glimpse {
        let glimpse = self.ftl.glimpse(&mut self.usable);
        match &self.indirection {
            None => glimpse,
            Some(units) => units.counts().glimpse_in_pages(glimpse, units.pages()),
        }
    }
}

/// The half that computes completion times.
pub struct TimingHalf<'a>(pub(crate) &'a mut OpCharger);

impl TimingHalf<'_> {
    /// Charges the next step of a record, of a command submitted at `now`; returns its completion
    /// time.
    ///
    /// # Panics
    /// The record has no further step.
    #[inline(always)]
    pub fn charge(&mut self, now: u64, record: &mut CommandRecord) -> u64 {
        let ChargedStep { ops, step } = record.steps[record.steps_charged];
        let first = record.ops_charged;
        record.steps_charged += 1;
        record.ops_charged += ops as usize;
        self.0
            .charge(now, step, &record.ops[first..record.ops_charged])
    }

    /// Gives the next step of a record to the model whose dies choose, as part of a request.
    ///
    /// # Panics
    /// The record has no further step, or the device has the other model.
    #[inline(always)]
    pub fn submit(&mut self, request: u32, now: u64, record: &mut CommandRecord) {
        let ChargedStep { ops, step } = record.steps[record.steps_charged];
        let first = record.ops_charged;
        record.steps_charged += 1;
        record.ops_charged += ops as usize;
        self.0
            .submit(request, now, step, &record.ops[first..record.ops_charged]);
    }

    /// The model whose dies choose, if the device has it.
    pub fn nand(&mut self) -> Option<&mut Nand> {
        self.0.nand.as_deref_mut()
    }
}
