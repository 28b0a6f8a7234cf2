//! Figures of the engine `nand`: how busy the device was, what requests waited for, and what bit errors took.
//!
//! Invariant: the causes of a latency add up to its exact mean. Absent: the measuring (the device's).

use remap_ssd_device::nand;
use remap_ssd_device::nand::{Cause, Causes, DieState, Nand};
use serde::{Deserialize, Serialize};

/// How busy each part of the device was, as shares (0..=1) of the run's time, with `timing.engine = "nand"`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Utilisation {
    /// How often a program was suspended.
    pub program_suspensions: u64,
    /// How often an erase was suspended.
    pub erase_suspensions: u64,
    /// Copies of garbage collection that stayed on their die and did not cross the channel, with `timing.copybacks`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copybacks: Option<u64>,
    /// Dies that did anything; the next six are parts of it.
    pub dies: f64,
    /// Dies that read their array.
    pub dies_reading: f64,
    /// Dies that programmed.
    pub dies_programming: f64,
    /// Dies that erased.
    pub dies_erasing: f64,
    /// Dies that suspended or resumed an operation.
    pub dies_suspending: f64,
    /// Dies whose command or data crossed the channel.
    pub dies_transferring: f64,
    /// Dies that waited for the channel.
    pub dies_waiting: f64,
    /// Dies that worked for the host, without suspensions; likewise the next two.
    pub dies_for_host: f64,
    /// Dies that worked for garbage collection.
    pub dies_for_collection: f64,
    /// Dies that worked for metadata.
    pub dies_for_metadata: f64,
    /// Planes whose arrays read, programmed or erased: at most the share of dies that did.
    #[serde(default)]
    pub planes: f64,
    /// Channels between dies and controller.
    pub channels: f64,
    /// Cores that execute the firmware.
    pub cores: f64,
    /// Link from the host.
    pub link_in: f64,
    /// Link to the host.
    pub link_out: f64,
    /// Stores to NVRAM.
    pub nvram_stores: f64,
    /// Clearings of NVRAM.
    pub nvram_clears: f64,
    /// Scans of NVRAM.
    pub nvram_scans: f64,
}

impl Utilisation {
    /// Between two readings.
    pub(crate) fn between(first: &nand::Utilisation, last: &nand::Utilisation) -> Self {
        let used = last.since(first);

        // Two readings at one time have nothing between them: then shares are 0, not NaN.
        let passed = used.at.max(1) as f64;
        let share = |time: u64, count: u64| time as f64 / (passed * count as f64);
        let dies = |time| share(time, used.dies);

        let busy = used.die_ns.iter().sum::<u64>() - used.die_ns[DieState::Idle as usize];
        let state = |state: DieState| dies(used.die_ns[state as usize]);
        let [link_in, link_out] = used.link_ns.map(|time| share(time, 1));
        let [nvram_stores, nvram_clears, nvram_scans] = used.nvram_ns.map(|time| share(time, 1));

        Self {
            program_suspensions: used.program_suspensions,
            erase_suspensions: used.erase_suspensions,
            copybacks: used.copybacks,
            dies: dies(busy),
            dies_reading: dies(
                used.die_ns[DieState::Read as usize] + used.die_ns[DieState::Retry as usize],
            ),
            dies_programming: state(DieState::Program),
            dies_erasing: state(DieState::Erase),
            dies_suspending: state(DieState::Suspension),
            dies_transferring: state(DieState::Transfer),
            dies_waiting: state(DieState::ChannelWait),
            dies_for_host: dies(used.host_ns),
            dies_for_collection: dies(used.collection_ns),
            dies_for_metadata: dies(used.metadata_ns),
            planes: share(used.plane_ns, used.dies * used.planes),
            channels: share(used.channel_ns, used.channels),
            cores: share(used.core_ns, used.cores),
            link_in,
            link_out,
            nvram_stores,
            nvram_clears,
            nvram_scans,
        }
    }
}

/// The mean latency of requests by cause, in microseconds, with `timing.engine = "nand"`: along each request's
/// critical path, back from the operation that ended last.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencyCauses {
    /// The sum of all causes: the exact mean.
    pub total: f64,
    /// In the queue of a die that did other operations of the host.
    pub queue: f64,
    /// The die, or the operation it waited for, did garbage collection or metadata.
    pub collection: f64,
    /// Flash arrays read, programmed or erased for it.
    pub array: f64,
    /// Its commands and data crossed the channel.
    pub transfer: f64,
    /// The channel was taken.
    pub channel: f64,
    /// Its program was suspended, or its die suspended or resumed an operation.
    pub suspension: f64,
    /// It waited for earlier operations while its die was idle.
    pub ordering: f64,
    /// It waited for NVRAM.
    pub nvram: f64,
    /// Link, cores and hash unit.
    pub controller: f64,
    /// Its page was read again.
    pub retry: f64,
}

impl LatencyCauses {
    /// The mean of `count` requests; `None` if there are none.
    pub(crate) fn mean(sum: &Causes, count: u64) -> Option<Self> {
        let mean = |time: u64| time as f64 / count as f64 / 1e3;
        let of = |cause| mean(sum.of(cause));
        (count > 0).then(|| Self {
            total: mean(sum.total()),
            queue: of(Cause::Queue),
            collection: of(Cause::Collection),
            array: of(Cause::Array),
            transfer: of(Cause::Transfer),
            channel: of(Cause::Channel),
            suspension: of(Cause::Suspension),
            ordering: of(Cause::Ordering),
            nvram: of(Cause::Nvram),
            controller: of(Cause::Controller),
            retry: of(Cause::Retry),
        })
    }

    /// Each cause with its name, in the order in which they are shown.
    pub(crate) fn parts(&self) -> [(&'static str, f64); 10] {
        [
            ("queue at the die", self.queue),
            ("collection", self.collection),
            ("suspension", self.suspension),
            ("flash array", self.array),
            ("transfer", self.transfer),
            ("wait for the channel", self.channel),
            ("ordering", self.ordering),
            ("NVRAM", self.nvram),
            ("link and controller", self.controller),
            ("read retries", self.retry),
        ]
    }
}

/// Reads of pages of 4 KiB from flash by what the correction of their bit errors needed, with `timing.engine = "nand"`
/// and `errors.rate` above 0. Those of garbage collection and metadata count too.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReadErrors {
    /// Retries of a read, in the mean.
    pub retries_per_read: f64,
    /// Reads that all retries did not correct, but soft decoding did.
    pub soft: u64,
    /// Reads that nothing corrected.
    pub uncorrectable: u64,
    /// Of those, reads by garbage collection: the data is lost for all owners of the page.
    pub lost: u64,
    /// Reads that ended after 0, 1, 2, .. retries.
    pub by_retries: Vec<u64>,
}

impl ReadErrors {
    /// Between two readings.
    fn between(first: &nand::ReadErrors, last: &nand::ReadErrors) -> Self {
        let found = last.since(first);
        Self {
            retries_per_read: found.retries_per_read(),
            soft: found.soft,
            uncorrectable: found.uncorrectable,
            lost: found.lost,
            by_retries: found.by_retries,
        }
    }
}

/// What the engine has counted so far.
struct Counted {
    used: nand::Utilisation,
    errors: Option<nand::ReadErrors>,
}

impl Counted {
    fn of(nand: &Nand) -> Self {
        Self {
            used: nand.utilisation(),
            errors: nand.read_errors().cloned(),
        }
    }
}

/// What is measured for these figures during a run.
#[derive(Default)]
pub(crate) struct FlashTimes {
    first: Option<Counted>,
    last: Option<Counted>,
    reads: Causes,
    writes: Causes,
}

impl FlashTimes {
    /// Nothing is measured yet, or with an engine a run that begins now.
    pub(crate) fn begin(nand: Option<&Nand>) -> Self {
        Self {
            first: nand.map(Counted::of),
            ..Self::default()
        }
    }

    /// The last request has ended.
    pub(crate) fn end(&mut self, nand: &Nand) {
        self.last = Some(Counted::of(nand));
    }

    /// A request has ended that is counted among reads, or writes.
    pub(crate) fn add(&mut self, is_read: bool, causes: Causes) {
        if is_read {
            self.reads += causes;
        } else {
            self.writes += causes;
        }
    }

    pub(crate) fn utilisation(&self) -> Option<Utilisation> {
        let (first, last) = (self.first.as_ref()?, self.last.as_ref()?);
        Some(Utilisation::between(&first.used, &last.used))
    }

    pub(crate) fn read_errors(&self) -> Option<ReadErrors> {
        let (first, last) = (self.first.as_ref()?, self.last.as_ref()?);
        let errors = (first.errors.as_ref()?, last.errors.as_ref()?);
        Some(ReadErrors::between(errors.0, errors.1))
    }

    /// The causes of the given numbers of reads and writes.
    pub(crate) fn causes(&self, reads: u64, writes: u64) -> [Option<LatencyCauses>; 2] {
        self.first.as_ref().map_or([None, None], |_| {
            [(&self.reads, reads), (&self.writes, writes)]
                .map(|(sum, count)| LatencyCauses::mean(sum, count))
        })
    }
}
