//! The state of a device, as plain data.
//!
//! Invariants: counters only decrease when the device loses its power; all counts of pages are in
//! flash pages of 4096 bytes. Absent: the source of the numbers.

use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// Why an operation was not executed, and whose error it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// There is no such operation.
    Unknown,
    /// The arguments are invalid: status 400.
    Usage(String),
    /// It cannot be done, or failed.
    Failed(String),
}

/// Provides the state of a device. Calls may come from several threads at once, and often.
pub trait Watched: Send + Sync + 'static {
    /// The counters. May be some hundred milliseconds old.
    fn status(&self) -> Status;
    /// The superblocks, in at most `cells_max` cells.
    fn cells(&self, cells_max: usize) -> Cells;
    /// Connections with a queue; none in a simulation.
    fn hosts(&self) -> Vec<Host>;
    /// The namespaces, in the format of the API.
    fn namespaces(&self) -> Value;
    /// Configuration of the device and the service, as JSON.
    fn config(&self) -> Value;
    /// Counters since they were last reset, as JSON.
    fn statistics(&self) -> Value;
    /// Checks whether hosts can be served; if not, the error is one sentence.
    ///
    /// # Errors
    /// The reason.
    fn ready(&self) -> Result<(), String>;
    /// Executes an operation.
    ///
    /// # Errors
    /// There is no such operation, its arguments are invalid, or it failed.
    fn act(&self, verb: &str, arguments: &Value) -> Result<Value, Refused>;
    /// Changes the playback of a simulation.
    ///
    /// # Errors
    /// Nothing is played, or the change is invalid.
    fn play(&self, _change: &Value) -> Result<Value, Refused> {
        Err(Refused::Unknown)
    }
}

/// I/O commands of one kind.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CommandStatistics {
    /// Name of the kind; label `command` of the metrics.
    pub name: &'static str,
    /// Commands by duration, not cumulative: up to 1 µs, up to 2 µs, and so on; the last is for all
    /// longer ones.
    pub buckets: Vec<u64>,
    /// Sum of their durations, in nanoseconds.
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
    /// NQN in the host's Connect command.
    pub hostnqn: String,
    /// ID of the queue's controller.
    pub controller: u16,
    /// The queue; 0 is the admin queue.
    pub queue: u16,
    /// True if it belongs to a discovery controller.
    pub discovery: bool,
    /// Rights of its host, such as `1:rw,2:ro`.
    pub rights: String,
    /// Commands of its controller denied for lack of rights.
    pub denied: u64,
    /// Seconds since it connected its queue.
    pub seconds: f64,
    /// I/O commands that it has sent.
    pub commands: u64,
}

/// Superblocks by state.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Superblocks {
    /// Erased, or to be erased when opened.
    pub free: u64,
    /// Superblocks being filled.
    pub open: u64,
    /// Full superblocks, the candidates of garbage collection.
    pub closed: u64,
    /// Superblocks with too few good blocks left.
    pub retired: u64,
    /// Number of free ones at which garbage collection starts.
    pub gc_start: u64,
}

/// Erases of the least and the most worn block, and on average.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Wear {
    /// Least worn block.
    pub min: u32,
    /// Mean over all blocks, retired ones included.
    pub mean: f64,
    /// Most worn block.
    pub max: u32,
}

/// Use of NVRAM, or of the log, for remaps.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Nvram {
    /// Total size; 0 if unlimited.
    pub capacity_bytes: u64,
    /// Used by entries, valid or not.
    pub used_bytes: u64,
    /// Used by valid entries.
    pub valid_bytes: u64,
    /// Size of the largest segment group.
    pub largest_group_bytes: u64,
}

/// The firmware's write buffer.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct WriteBuffer {
    /// Total size; 0 without one.
    pub capacity_bytes: u64,
    /// Used by pages that are not on flash yet.
    pub used_bytes: u64,
    /// True if a power cut empties it.
    pub volatile: bool,
}

/// Time for which watching has held the device.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Holds {
    /// Turns at the device taken by watching; hosts wait during each.
    pub turns: u64,
    /// Sum of their durations, in nanoseconds.
    pub sum_ns: u64,
    /// Duration of the longest turn, in nanoseconds.
    pub max_ns: u64,
    /// Maximum superblocks visited in one turn.
    pub superblocks_max: u64,
}

/// The state of a device.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Status {
    /// Seconds since the service began; virtual seconds of a simulation.
    pub uptime_seconds: f64,
    /// True for a simulation, in virtual time.
    pub simulated: bool,
    /// Title: a name, a workload.
    pub title: String,
    /// Scheme by which remaps survive a power cut.
    pub scheme: String,
    /// Counters of the translation layer, with the names of `io stat`.
    pub counters: BTreeMap<&'static str, u64>,
    /// I/O commands by kind, with their durations.
    pub commands: Vec<CommandStatistics>,
    /// Bytes read by hosts' I/O commands.
    pub host_read_bytes: u64,
    /// Bytes written by hosts' I/O commands; remaps carry no data.
    pub host_written_bytes: u64,
    /// Commands answered with a media error.
    pub media_errors: u64,
    /// Number of superblocks by state.
    pub superblocks: Superblocks,
    /// Erases of blocks: least, mean, most.
    pub wear: Wear,
    /// Room for remaps and its use.
    pub nvram: Nvram,
    /// The firmware's write buffer and its use.
    pub write_buffer: WriteBuffer,
    /// True if the device is read-only.
    pub read_only: bool,
    /// Power cuts requested by an operator.
    pub power_cuts: u64,
    /// Connections with a queue.
    pub connections: u64,
    /// Connections accepted so far.
    pub accepted: u64,
    /// Connections that the service ended.
    pub dropped: u64,
    /// Number of Connects refused, by reason.
    pub refused: BTreeMap<&'static str, u64>,
    /// Commands denied to hosts that lack the rights.
    pub denied: u64,
    /// Number of namespaces that each connected host may write, and only read.
    pub rights: BTreeMap<String, [u64; 2]>,
    /// Resident memory of the process, in bytes.
    pub resident_bytes: u64,
    /// Part of it in mapped pages of files, mainly an image, which the system may reclaim.
    pub resident_file_bytes: u64,
    /// Time for which watching held the device.
    pub holds: Holds,
    /// Playback of a simulation.
    pub playing: Option<Playing>,
}

/// Playback of a simulation.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Playing {
    /// Virtual seconds per second; 0 while paused.
    pub speed: f64,
    /// True if it has ended.
    pub ended: bool,
    /// Fraction of the requests done, 0 to 1.
    pub done: f64,
}

impl Status {
    /// A counter of the translation layer; 0 if there is none of this name.
    pub(crate) fn counter(&self, name: &str) -> u64 {
        self.counters.get(name).copied().unwrap_or(0)
    }
}

/// Superblocks, several to a cell if there are many.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Cells {
    /// Total number of superblocks.
    pub superblocks: u32,
    /// Number of superblocks per cell.
    pub per_cell: u32,
    /// Pages per superblock, to convert `valid` and `garbage` to shares.
    pub pages_per_superblock: u32,
    /// One letter per cell: `f`ree, `h` open for the host, `g` open for garbage collection,
    /// `c`losed, `r`etired; of several superblocks the open one, else the most frequent state.
    pub state: String,
    /// Pages owned by an LPN, by cell.
    pub valid: Vec<u32>,
    /// LPNs mapped by a remap, which may share their page.
    pub remapped: Vec<u32>,
    /// Pages owned by no LPN, by cell.
    pub garbage: Vec<u32>,
    /// Mean erases of a block.
    pub erases: Vec<u32>,
    /// Segments of remaps in NVRAM.
    pub segments: Vec<u32>,
}
