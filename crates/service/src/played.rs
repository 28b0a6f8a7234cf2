//! Plays a simulated device: a workload or a recorded session in virtual time, at any speed, for
//! the same page.
//!
//! A request enters when an outstanding one has ended, but not before its recorded time. Virtual
//! time follows real time at the chosen speed, as far as the machine can keep up. Invariants:
//! device and requests are those that `compare` would measure; an observer waits for at most
//! `CHUNK` pages. Absent: results (`compare` has them).

use crate::error::ServiceError;
use crate::process::resident_bytes;
use crate::table::{SuperblockTable, commands};
use remap_ssd_device::{Device, PageCommand};
use remap_ssd_http::status::Playing;
use remap_ssd_http::{Cells, Host, Refused, Status, Watched};
use remap_ssd_nvme::controller::telemetry::{CommandKind, Telemetry};
use remap_ssd_sim::source::{HostPage, PageKind, Source, SourceError};
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Maximum pages submitted per lock.
const CHUNK: usize = 512;
/// Maximum lag that is made up if the machine is too slow; any further lag is dropped.
const BEHIND_MAX: Duration = Duration::from_millis(500);
/// Polling interval when there is nothing to do.
const NAP: Duration = Duration::from_millis(5);
/// Valid speeds: virtual seconds per second.
const SPEEDS: std::ops::RangeInclusive<f64> = 1e-6..=1e6;

/// The device and the state of the simulation.
struct Stage {
    device: Device,
    /// End times of the outstanding requests.
    outstanding: BinaryHeap<Reverse<u64>>,
    queue_depth: usize,
    began: u64,
    entered: u64,
    /// The current request: its entry time, and the end of its pages so far.
    request: Option<(u64, u64)>,
    pages: u64,
    pages_total: u64,
    read_bytes: u64,
    written_bytes: u64,
    speed: f64,
    ended: bool,
}

/// A simulation being played.
pub struct Played {
    title: String,
    telemetry: Telemetry,
    stage: Mutex<Stage>,
    changed: Condvar,
}

/// Options of a simulation.
#[derive(Clone, Copy, Debug)]
pub struct PlayedOptions {
    /// Maximum requests in flight.
    pub queue_depth: u32,
    /// Total number of pages to play.
    pub pages_total: u64,
    /// Virtual seconds per second, at most 1,000,000; 0 to begin paused.
    pub speed: f64,
}

impl Played {
    /// Creates a simulation of a device, before its first request.
    ///
    /// # Errors
    /// The speed is negative, too high, or not a number.
    pub fn new(
        title: String,
        device: Device,
        options: PlayedOptions,
    ) -> Result<Arc<Self>, ServiceError> {
        if !(0.0..=*SPEEDS.end()).contains(&options.speed) {
            return Err(ServiceError::usage(
                "--speed: 0 to 1000000 virtual seconds a second",
            ));
        }

        let config = device.config();
        let known = config.check_known_ends();
        let known = known.and_then(|()| config.check_unit_is_page());
        known.map_err(|error| ServiceError::usage(error.to_string()))?;

        // Aging took no virtual time; the past of an image may have.
        let began = device.busy_until();

        Ok(Arc::new(Self {
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
        }))
    }

    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Plays until the source is exhausted or all pages were submitted.
    ///
    /// # Errors
    /// The source failed.
    pub fn play(&self, source: &mut dyn Source) -> Result<(), SourceError> {
        let (mut pages, mut next) = (Vec::new(), 0);
        // Virtual time to play up to, and the real time at which it was computed.
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
            // A pause waits for the speed to change; real time does not count until then.
            if stage.speed == 0.0 {
                stage = self
                    .changed
                    .wait_while(stage, |stage| stage.speed == 0.0)
                    .unwrap_or_else(PoisonError::into_inner);
                at = Instant::now();
            }
            let passed = at.elapsed();
            at = Instant::now();

            // The lag is bounded: a machine that cannot keep up does not chase real time
            // indefinitely.
            let behind_max = BEHIND_MAX.as_nanos() as f64 * stage.speed;
            until += passed.as_nanos() as f64 * stage.speed;
            until = until.min(stage.entered as f64 + behind_max);

            let before = next;
            // A few pages per lock, so that observers do not wait.
            while next < pages.len()
                && next - before < CHUNK
                && (stage.entered as f64) < until
                && !stage.is_done()
            {
                stage.page(&pages[next], &self.telemetry);
                next += 1;
            }
            // Virtual time also passes during gaps in a trace.
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

            // Released before the sleep, so that observers get it.
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
    /// Returns true if all pages were submitted. A started request is completed first.
    fn is_done(&self) -> bool {
        self.request.is_none() && self.pages >= self.pages_total
    }

    fn page(&mut self, page: &HostPage, telemetry: &Telemetry) {
        let (entered, done_before) = match self.request.take() {
            Some(request) => request,
            None => {
                // The queue is full: a request enters when the first outstanding one has ended.
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

        // A request ends with the last of its pages to end.
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
        let (resident_bytes, resident_file_bytes) = resident_bytes();

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

        status.commands = commands(&self.telemetry);

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
        // Verbs are for a served device: this one has no hosts.
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
