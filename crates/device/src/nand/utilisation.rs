//! How long each resource was busy.
//!
//! Invariant: a die's times by state add up to the time since the start. Absent: shares of a run's time (the
//! caller's).

use super::causes::Cause;
use super::graph::Work;

/// What a die does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum DieState {
    /// Nothing; an operation may be suspended.
    Idle,
    /// It waits for its channel, with a command or with data.
    ChannelWait,
    /// Its command or its data cross the channel.
    Transfer,
    /// It reads.
    Read,
    /// It programs.
    Program,
    /// It erases.
    Erase,
    /// It suspends or resumes an operation.
    Suspension,
    /// It reads again, to correct errors.
    Retry,
}

impl DieState {
    /// Their number.
    pub const COUNT: usize = 8;

    pub(super) fn of(work: Work) -> Self {
        match work {
            Work::Program => Self::Program,
            Work::Erase => Self::Erase,
            Work::Read | Work::Scan => Self::Read,
            Work::Nothing | Work::Buffer => Self::Idle,
            Work::NvStore | Work::NvClear | Work::NvScan => Self::Idle,
        }
    }

    /// True if it does something for its operation.
    #[inline]
    pub(super) fn is_work(self) -> bool {
        !matches!(self, Self::Idle | Self::Suspension)
    }

    /// Why the host waits meanwhile.
    #[inline]
    pub(super) fn cause(self) -> Cause {
        match self {
            Self::Idle => Cause::Ordering,
            Self::ChannelWait => Cause::Channel,
            Self::Transfer => Cause::Transfer,
            Self::Read | Self::Program | Self::Erase => Cause::Array,
            Self::Suspension => Cause::Suspension,
            Self::Retry => Cause::Retry,
        }
    }
}

/// Times since the start, in nanoseconds: of all dies together, of all channels, and so on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Utilisation {
    /// When these were read.
    pub at: u64,
    /// Number of dies, or of chips whose dies take turns.
    pub dies: u64,
    /// Number of planes of a die.
    pub planes: u64,
    /// Number of channels.
    pub channels: u64,
    /// Number of cores.
    pub cores: u64,
    /// Of the dies, by [`DieState`].
    pub die_ns: [u64; DieState::COUNT],
    /// Of these, without idle times and those of suspensions: for the host.
    pub host_ns: u64,
    /// For garbage collection.
    pub collection_ns: u64,
    /// For metadata.
    pub metadata_ns: u64,
    /// Of the planes whose arrays worked.
    pub plane_ns: u64,
    /// Of the channels.
    pub channel_ns: u64,
    /// Of the cores that execute the firmware.
    pub core_ns: u64,
    /// Of the link, from the host and to it.
    pub link_ns: [u64; 2],
    /// Of the NVRAM: stores, clearings and scans, which are done side by side.
    pub nvram_ns: [u64; 3],
    /// How often a program was suspended.
    pub program_suspensions: u64,
    /// How often an erase was.
    pub erase_suspensions: u64,
    /// Copies that did not cross the channel; `None` without `timing.copybacks`.
    pub copybacks: Option<u64>,
}

impl Utilisation {
    /// The same from `earlier` on.
    pub fn since(&self, earlier: &Self) -> Self {
        let mut since = *self;
        since.at -= earlier.at;
        for (time, before) in since.die_ns.iter_mut().zip(earlier.die_ns) {
            *time -= before;
        }
        for (time, before) in since.link_ns.iter_mut().zip(earlier.link_ns) {
            *time -= before;
        }
        for (time, before) in since.nvram_ns.iter_mut().zip(earlier.nvram_ns) {
            *time -= before;
        }

        since.host_ns -= earlier.host_ns;
        since.collection_ns -= earlier.collection_ns;
        since.metadata_ns -= earlier.metadata_ns;
        since.plane_ns -= earlier.plane_ns;
        since.channel_ns -= earlier.channel_ns;
        since.core_ns -= earlier.core_ns;
        since.program_suspensions -= earlier.program_suspensions;
        since.erase_suspensions -= earlier.erase_suspensions;

        let copybacks = since.copybacks.zip(earlier.copybacks);
        since.copybacks = copybacks.map(|(now, before)| now - before);
        since
    }
}
