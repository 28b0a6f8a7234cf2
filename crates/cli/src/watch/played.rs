//! A simulated device, played: a workload or a recorded session in virtual time, at any speed, for
//! the same page.
//!
//! A request enters when one of the outstanding ones has ended and not before its recorded time;
//! virtual time follows the clock on the wall as fast as the speed says and the machine can.
//! Invariants: the device is the one that `compare` would measure, and what it is fed is the same;
//! whoever looks waits for at most `CHUNK` pages. Absent: results (`compare` has them).

use super::table::SuperblockTable;
use remap_ssd_device::{Device, PageCommand};
use remap_ssd_http::status::Playing;
use remap_ssd_http::{Cells, CommandStatistics, Host, Refused, Status, Watched};
use remap_ssd_nvme::controller::telemetry::{CommandKind, Telemetry};
use remap_ssd_sim::source::{HostPage, PageKind, Source, SourceError};
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Pages that are submitted before others may look.
const CHUNK: usize = 512;
/// Virtual time is made up for a machine that is too slow up to this; then the rest is given up.
const BEHIND_MAX: Duration = Duration::from_millis(500);
/// How often the clock is looked at while there is nothing to do.
const NAP: Duration = Duration::from_millis(5);
/// Speeds that make sense: virtual seconds a second.
const SPEEDS: std::ops::RangeInclusive<f64> = 1e-6..=1e6;

/// The device and what has happened to it.
struct Stage {
    device: Device,
    /// Ends of the requests that are outstanding.
    outstanding: BinaryHeap<Reverse<u64>>,
    queue_depth: usize,
    began: u64,
    entered: u64,
    /// The request under way: when it entered, and when the pages so far are done.
    request: Option<(u64, u64)>,
    pages: u64,
    pages_total: u64,
    read_bytes: u64,
    written_bytes: u64,
    speed: f64,
    ended: bool,
}

/// A simulation that is played.
pub struct Played {
    title: String,
    telemetry: Telemetry,
    stage: Mutex<Stage>,
    changed: Condvar,
}

/// How to play: how many at once, how much, how fast.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How many requests are in flight at once.
    pub queue_depth: u32,
    /// How many pages are played in all.
    pub pages_total: u64,
    /// Virtual seconds a second; 0 to begin paused.
    pub speed: f64,
}

impl Played {
    /// A device that is about to be fed.
    pub fn new(title: String, device: Device, options: Options) -> Arc<Self> {
        // Aging has taken no virtual time; a device from an image may have.
        let began = device.timing().busy_until();

        Arc::new(Self {
            title,
            telemetry: Telemetry::default(),
            stage: Mutex::new(Stage {
                device,
                outstanding: BinaryHeap::new(),
                queue_depth: options.queue_depth as usize,
                began,
                entered: began,
                request: None,
                pages: 0,
                pages_total: options.pages_total,
                read_bytes: 0,
                written_bytes: 0,
                speed: options.speed,
                ended: false,
            }),
            changed: Condvar::new(),
        })
    }

    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Plays until the source is exhausted or all pages were submitted.
    ///
    /// # Errors
    /// The source cannot go on.
    pub fn play(&self, source: &mut dyn Source) -> Result<(), SourceError> {
        let (mut pages, mut next) = (Vec::new(), 0);
        // Virtual time up to which is played, and when that was computed.
        let (mut until, mut at) = (self.stage().entered as f64, Instant::now());
        loop {
            if next == pages.len() {
                pages.clear();
                next = 0;
                if !source.fill(&mut pages, CHUNK)? {
                    break;
                }
            }

            let mut stage = self.stage();
            // A pause waits for the speed to change, and real time does not count meanwhile.
            if stage.speed == 0.0 {
                stage = self
                    .changed
                    .wait_while(stage, |stage| stage.speed == 0.0)
                    .unwrap_or_else(PoisonError::into_inner);
                at = Instant::now();
            }
            let passed = at.elapsed();
            at = Instant::now();

            // A machine that cannot keep up falls behind only so far: it does not chase a time for
            // ever.
            let behind_max = BEHIND_MAX.as_nanos() as f64 * stage.speed;
            until += passed.as_nanos() as f64 * stage.speed;
            until = until.min(stage.entered as f64 + behind_max);

            let before = next;
            // A few pages a turn, so that those who look do not wait.
            while next < pages.len()
                && next - before < CHUNK
                && (stage.entered as f64) < until
                && !stage.is_done()
            {
                stage.page(&pages[next], &self.telemetry);
                next += 1;
            }
            // A trace may be silent for long: then virtual time passes all the same.
            if let Some(page) = pages.get(next) {
                let arrives = stage.began + page.at_ns;
                if arrives > stage.entered && stage.request.is_none() {
                    stage.entered = arrives.min(until as u64).max(stage.entered);
                }
            }
            if stage.is_done() {
                break;
            }
            let is_ahead = stage.entered as f64 >= until;

            // Given back before the nap, or nobody could look meanwhile.
            drop(stage);
            if is_ahead {
                std::thread::sleep(NAP);
            }
        }
        self.stage().ended = true;
        Ok(())
    }
}

impl Stage {
    /// Have all pages been submitted? A request that has begun is brought to its end.
    fn is_done(&self) -> bool {
        self.request.is_none() && self.pages >= self.pages_total
    }

    fn page(&mut self, page: &HostPage, telemetry: &Telemetry) {
        let (entered, done_before) = match self.request.take() {
            Some(request) => request,
            None => {
                // The queue is full: a request enters when the first of those under way has ended.
                if self.outstanding.len() >= self.queue_depth
                    && let Some(Reverse(end)) = self.outstanding.pop()
                {
                    self.entered = self.entered.max(end);
                }
                self.entered = self.entered.max(self.began + page.at_ns);
                (self.entered, self.entered)
            }
        };

        let command = PageCommand {
            content: page.content,
            lpn: page.lpn,
            kind: page.kind,
        };
        let done_at = if page.last {
            self.device.submit(entered, &command).done_at
        } else {
            self.device.submit_more(entered, &command).done_at
        };

        // A request is done when the last of its pages is, whichever that was.
        let done_at = done_at.max(done_before);
        self.pages += 1;
        let kind = self.count(page.kind);
        if page.last {
            self.outstanding.push(Reverse(done_at));
            telemetry.observe(kind, 1, done_at.saturating_sub(entered));
        } else {
            self.request = Some((entered, done_at));
        }
    }

    fn count(&mut self, kind: PageKind) -> CommandKind {
        match kind {
            PageKind::Read => {
                self.read_bytes += 4096;
                CommandKind::Read
            }
            PageKind::Write | PageKind::WriteFor { .. } | PageKind::ReadModifyWrite => {
                self.written_bytes += 4096;
                CommandKind::Write
            }
            PageKind::Trim => CommandKind::Deallocate,
            PageKind::Flush => CommandKind::Flush,
            PageKind::Remap { .. } => CommandKind::Remap,
        }
    }

    fn table(&self) -> SuperblockTable {
        let mut table = SuperblockTable::default();
        table.look_at_all(&self.device);
        table
    }
}

impl Watched for Played {
    fn status(&self) -> Status {
        let stage = self.stage();
        let (resident_bytes, resident_file_bytes) = super::resident_bytes();

        let mut status = Status {
            uptime_seconds: (stage.entered - stage.began) as f64 / 1e9,
            simulated: true,
            title: self.title.clone(),
            host_read_bytes: stage.read_bytes,
            host_written_bytes: stage.written_bytes,
            resident_bytes,
            resident_file_bytes,
            playing: Some(Playing {
                speed: stage.speed,
                ended: stage.ended,
                done: stage.pages as f64 / stage.pages_total.max(1) as f64,
            }),
            ..Status::default()
        };

        stage.table().fill(&mut status);
        drop(stage);

        status.commands = super::commands(&self.telemetry);

        status
    }

    fn cells(&self, cells_max: usize) -> Cells {
        let table = self.stage().table();
        table.cells(cells_max)
    }

    fn hosts(&self) -> Vec<Host> {
        Vec::new()
    }

    fn namespaces(&self) -> Value {
        json!([])
    }

    fn config(&self) -> Value {
        let config = self.stage().device.config().clone();
        json!({ "title": self.title, "device": config })
    }

    fn statistics(&self) -> Value {
        let table = self.stage().table();
        json!(
            table
                .counters()
                .iter()
                .copied()
                .collect::<std::collections::BTreeMap<_, _>>()
        )
    }

    fn ready(&self) -> Result<(), String> {
        Ok(())
    }

    fn act(&self, _: &str, _: &Value) -> Result<Value, Refused> {
        // Verbs are for a device that is served: this one has no hosts.
        Err(Refused::Unknown)
    }

    fn play(&self, change: &Value) -> Result<Value, Refused> {
        let speed = change["speed"]
            .as_f64()
            .filter(|speed| *speed == 0.0 || SPEEDS.contains(speed));
        let speed = speed.ok_or_else(|| {
            Refused::Usage("speed: virtual seconds a second, or 0 for a pause".into())
        })?;
        self.stage().speed = speed;
        self.changed.notify_all();
        Ok(json!({ "speed": speed }))
    }
}

/// All kinds of commands, as a status has them.
pub(super) fn commands(telemetry: &Telemetry) -> Vec<CommandStatistics> {
    let kinds = telemetry.read();
    CommandKind::NAMES
        .into_iter()
        .zip(kinds)
        .map(|(name, kind)| CommandStatistics {
            name,
            buckets: kind.buckets.to_vec(),
            sum_ns: kind.sum_ns,
            failed: kind.failed,
        })
        .collect()
}
