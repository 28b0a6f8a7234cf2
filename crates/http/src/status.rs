//! What is known of a device, as plain data.
//!
//! Invariants: counters never go back but when the device has lost its power; whatever is counted
//! in pages is in flash pages of 4096 bytes. Absent: where the numbers come from.

use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// Why a verb is not done: a sentence and whose mistake it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// There is no such verb.
    Unknown,
    /// The arguments are wrong: status 400.
    Usage(String),
    /// It cannot be done, or failed.
    Failed(String),
}

/// Who knows a device. Calls may come from several threads at once, and often.
pub trait Watched: Send + Sync + 'static {
    /// What is counted. May be some hundred milliseconds old.
    fn status(&self) -> Status;
    /// The superblocks, in at most so many cells.
    fn cells(&self, cells_max: usize) -> Cells;
    /// Connections with a queue; none in a simulation.
    fn hosts(&self) -> Vec<Host>;
    /// The namespaces, in the form of the API.
    fn namespaces(&self) -> Value;
    /// What the device and the service were made with, as JSON.
    fn config(&self) -> Value;
    /// Counters since they were last reset, as JSON.
    fn statistics(&self) -> Value;
    /// Can hosts be served? If not, one sentence says why.
    ///
    /// # Errors
    /// The reason.
    fn ready(&self) -> Result<(), String>;
    /// Does what a verb says.
    ///
    /// # Errors
    /// There is no such verb, its arguments are wrong, or it cannot be done.
    fn act(&self, verb: &str, arguments: &Value) -> Result<Value, Refused>;
    /// Changes how a simulation is played.
    ///
    /// # Errors
    /// Nothing is played, or not like this.
    fn play(&self, _change: &Value) -> Result<Value, Refused> {
        Err(Refused::Unknown)
    }
}

/// I/O commands of one kind.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CommandStatistics {
    /// Name of the kind, as label `command` of the metrics.
    pub name: &'static str,
    /// Commands by time, not cumulative: up to 1 µs, up to 2 µs, and so on; the last is for all
    /// that took longer.
    pub buckets: Vec<u64>,
    /// Sum of their times, in nanoseconds.
    pub sum_ns: u64,
    /// Those that ended with an error.
    pub failed: u64,
}

/// A connection with a queue.
#[derive(Clone, Debug, Serialize)]
pub struct Host {
    /// Its number, as in the log.
    pub connection: u64,
    /// Address and port of the host.
    pub peer: String,
    /// NQN that the host gave in its Connect command.
    pub hostnqn: String,
    /// Controller that the queue belongs to.
    pub controller: u16,
    /// The queue; 0 is the admin queue.
    pub queue: u16,
    /// Whether it is a discovery controller's.
    pub discovery: bool,
    /// What its host may do, `1:rw,2:ro`.
    pub rights: String,
    /// Commands of its controller that were denied for want of rights.
    pub denied: u64,
    /// Seconds since it connected its queue.
    pub seconds: f64,
    /// I/O commands that it has sent.
    pub commands: u64,
}

/// Superblocks by what they are.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Superblocks {
    /// Erased, or to be erased when they are opened.
    pub free: u64,
    /// Superblocks that are being filled.
    pub open: u64,
    /// Superblocks that are full, and are collection's candidates.
    pub closed: u64,
    /// Too few good blocks are left.
    pub retired: u64,
    /// Free ones at which collection starts.
    pub gc_start: u64,
}

/// Erases of the least and the most worn block, and on average.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Wear {
    /// Of the least worn block.
    pub min: u32,
    /// Mean over all blocks, retired ones included.
    pub mean: f64,
    /// Of the most worn block.
    pub max: u32,
}

/// NVRAM, or the log, for remaps.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Nvram {
    /// All of it; 0 if unlimited.
    pub capacity_bytes: u64,
    /// Taken by entries, valid or not.
    pub used_bytes: u64,
    /// Bytes of entries that are in force.
    pub valid_bytes: u64,
    /// Bytes of the largest segment group.
    pub largest_group_bytes: u64,
}

/// How long watching has had the device to itself.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Holds {
    /// Turns at the device that watching took; hosts wait during each.
    pub turns: u64,
    /// Sum of their times, in nanoseconds.
    pub sum_ns: u64,
    /// Time of the longest turn, in nanoseconds.
    pub max_ns: u64,
    /// Most superblocks looked at in one turn.
    pub superblocks_max: u64,
}

/// What became of the spans of traced commands.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Spans {
    /// Spans that a collector has taken.
    pub exported: u64,
    /// Spans for which there was no room: the collector is slower than the hosts.
    pub dropped_full: u64,
    /// Spans that were lost with a collector that could not be reached, or refused them.
    pub dropped_failed: u64,
}

/// What is known of a device.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Status {
    /// Since the service began; virtual seconds of a simulation.
    pub uptime_seconds: f64,
    /// Is it a simulation, in virtual time?
    pub simulated: bool,
    /// What is shown: a name, a workload.
    pub title: String,
    /// How remaps survive a power cut.
    pub scheme: String,
    /// Counters of the translation layer by name, as `io stat` has them.
    pub counters: BTreeMap<&'static str, u64>,
    /// I/O commands by kind, with their times.
    pub commands: Vec<CommandStatistics>,
    /// Bytes that hosts read by I/O commands.
    pub host_read_bytes: u64,
    /// Bytes that hosts wrote by I/O commands; remaps carry no data.
    pub host_written_bytes: u64,
    /// Commands answered with a media error.
    pub media_errors: u64,
    /// Number of superblocks by state.
    pub superblocks: Superblocks,
    /// Erases of blocks: least, mean, most.
    pub wear: Wear,
    /// Room for remaps and its use.
    pub nvram: Nvram,
    /// Is nothing changed any more?
    pub read_only: bool,
    /// Power cuts that an operator asked for.
    pub power_cuts: u64,
    /// Connections that have a queue.
    pub connections: u64,
    /// Connections that were accepted so far.
    pub accepted: u64,
    /// Connections that the service ended.
    pub dropped: u64,
    /// Number of Connects refused, by reason.
    pub refused: BTreeMap<&'static str, u64>,
    /// Commands denied to hosts that lack the rights.
    pub denied: u64,
    /// How many namespaces each host that is connected may write, and only read.
    pub rights: BTreeMap<String, [u64; 2]>,
    /// Resident memory of the process, in bytes.
    pub resident_bytes: u64,
    /// What of it are pages of files, an image's above all, which the system may take back.
    pub resident_file_bytes: u64,
    /// Time for which watching held the device.
    pub holds: Holds,
    /// What became of spans, if commands are traced.
    pub spans: Option<Spans>,
    /// How fast a simulation is played, and whether it has ended.
    pub playing: Option<Playing>,
}

/// A simulation that is played.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Playing {
    /// Virtual seconds a second; 0 while it is paused.
    pub speed: f64,
    /// Has it come to its end?
    pub ended: bool,
    /// The part of the requests that is done, 0 to 1.
    pub done: f64,
}

impl Status {
    /// A counter of the translation layer; 0 if there is none of this name.
    pub fn counter(&self, name: &str) -> u64 {
        self.counters.get(name).copied().unwrap_or(0)
    }
}

/// Superblocks, several to a cell where there are many.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Cells {
    /// Superblocks in all, and in one cell.
    pub superblocks: u32,
    /// Superblocks that a cell stands for.
    pub per_cell: u32,
    /// Pages of a superblock, so that `valid` and `garbage` can be shares.
    pub pages_per_superblock: u32,
    /// One letter a cell: `f`ree, `h` open for the host, `g` open for collection, `c`losed,
    /// `r`etired; of several superblocks the one that is open, else the most frequent.
    pub state: String,
    /// Pages that an LPN owns, by cell.
    pub valid: Vec<u32>,
    /// LPNs that were mapped by a remap, so that they may share their page.
    pub remapped: Vec<u32>,
    /// Pages that no LPN owns, by cell.
    pub garbage: Vec<u32>,
    /// Erases of a block, on average.
    pub erases: Vec<u32>,
    /// Segments of remaps in NVRAM.
    pub segments: Vec<u32>,
}
