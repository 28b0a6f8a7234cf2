//! A served device as operators see it, and their operations on it.
//!
//! For any number of clients the device is read at most once per `FRESH`, in steps of `STRETCH`
//! superblocks during which hosts wait; between two steps hosts go first
//! (`nvme::controller::turn`). Invariants: the device is never locked while waiting for a client;
//! once closed, nothing here holds the device. Absent: HTTP.

use crate::backup;
use crate::log::{LogLevel, level};
use crate::nqn::random;
use crate::process::resident_bytes;
use crate::table::{SuperblockTable, commands};
use remap_ssd_http::status::Holds;
use remap_ssd_http::{Cells, Host, Refused, Status, Watched};
use remap_ssd_nvme::controller::operate::{Damage, OperateError};
use remap_ssd_nvme::controller::{Access, AnaState, Attachment, Gate, Latency, Subsystem};
use remap_ssd_nvme::tcp::roster::{Listed, Roster};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Maximum age of an answer.
const FRESH: Duration = Duration::from_millis(200);

/// State read from the device, and the time of the reading.
#[derive(Default)]
struct Sampled {
    at: Option<Instant>,
    table: SuperblockTable,
    holds: Holds,
}

/// A served device under observation.
pub struct Served {
    gate: Arc<Gate>,
    epoch: Instant,
    image: Option<PathBuf>,
    nqn: String,
    roster: Option<Arc<Roster>>,
    log: Arc<dyn LogLevel>,
    sampled: Mutex<Sampled>,
    /// Counters at the last reset.
    reset: Mutex<(Instant, BTreeMap<&'static str, u64>)>,
    backup: Mutex<()>,
}

/// Counters that are levels, not sums: a reset does not apply.
const LEVELS: [&str; 4] = [
    "free_superblocks",
    "nvram_capacity_bytes",
    "nvram_used_bytes",
    "nvram_valid_bytes",
];

const ENDED: &str = "the service ends";

impl Served {
    /// A device served since `epoch`; `image` is its folder, unless it is in memory.
    pub fn new(
        gate: Arc<Gate>,
        epoch: Instant,
        image: Option<&Path>,
        nqn: &str,
        roster: Option<Arc<Roster>>,
        log: Arc<dyn LogLevel>,
    ) -> Self {
        Self {
            gate,
            epoch,
            image: image.map(Path::to_owned),
            nqn: nqn.to_owned(),
            roster,
            log,
            sampled: Mutex::default(),
            reset: Mutex::new((epoch, BTreeMap::new())),
            backup: Mutex::new(()),
        }
    }

    /// The device's state, read again if it is too old.
    fn sampled(&self) -> MutexGuard<'_, Sampled> {
        let mut sampled = self.sampled.lock().unwrap_or_else(PoisonError::into_inner);
        if sampled.at.is_none_or(|at| at.elapsed() >= FRESH) {
            self.gate.with(|subsystem| sampled.read(subsystem));
        }
        sampled
    }

    /// Runs an operation on the device, if it still works.
    fn with<R>(
        &self,
        work: impl FnOnce(&Subsystem) -> Result<R, OperateError>,
    ) -> Result<R, Refused> {
        // A failed device gives no reliable answers.
        let done = self.gate.with(|subsystem| {
            if subsystem.is_broken() {
                Err(OperateError("the device has failed".into()))
            } else {
                work(subsystem)
            }
        });
        done.unwrap_or_else(|| Err(OperateError(ENDED.into())))
            .map_err(|error| Refused::Failed(error.to_string()))
    }

    fn drop_hosts(&self, host: Option<&str>) -> usize {
        self.roster
            .as_ref()
            .map_or(0, |roster| roster.drop_hosts(host))
    }

    fn power_cut(&self) -> Result<Value, Refused> {
        // Hosts see a real power cut: their connections end, and they reconnect.
        let connections = self.drop_hosts(None);
        let began = Instant::now();
        // Seed for the losses of a volatile cache, as for `serve --cut-seed`.
        let seed = random();
        let report = self.with(|subsystem| subsystem.power_cut_of_all(seed))?;

        let seconds = began.elapsed().as_secs_f64();
        tracing::warn!(
            seed,
            connections,
            seconds,
            "power was cut and restored for an operator"
        );

        // Counters of a recovered device restart at zero, so the noted values are void. The locks
        // are taken in the same order as in the verb `reset`, so there is no deadlock.
        let mut sampled = self.sampled.lock().unwrap_or_else(PoisonError::into_inner);
        sampled.at = None;
        let mut reset = self.reset.lock().unwrap_or_else(PoisonError::into_inner);
        reset.1.clear();
        Ok(json!({
            "connections_ended": connections,
            "seconds": seconds,
            "recovery": report,
        }))
    }

    fn inject(&self, arguments: &Arguments<'_>) -> Result<Value, Refused> {
        let damage = match arguments.text("what")? {
            "read-error" => {
                let nsid = arguments.number_or("nsid", 1)? as u32;
                let shift = self.with(|subsystem| {
                    let namespace = subsystem.namespace(nsid);
                    let namespace = namespace
                        .ok_or_else(|| OperateError(format!("there is no namespace {nsid}")))?;

                    // Arguments are in blocks of 4,096 bytes, regardless of the namespace's block
                    // size.
                    Ok(12 - namespace.lba_shift)
                })?;

                let (lba, blocks) = (arguments.number("lba")?, arguments.number_or("blocks", 1)?);
                let count = u32::try_from(blocks.saturating_mul(1 << shift));

                Damage::Unreadable {
                    nsid,
                    slba: lba.saturating_mul(1 << shift),
                    count: count.map_err(|_| Refused::Usage("blocks: too many".into()))?,
                }
            }
            "nvram-flip" => Damage::Flip {
                word: arguments.number("word")? as usize,
                bit: arguments.number_or("bit", 0)?.min(u64::from(u32::MAX)) as u32,
            },
            "none" => Damage::None,
            other => {
                return Err(Refused::Usage(format!(
                    "`{other}`: read-error, nvram-flip or none can be injected"
                )));
            }
        };

        let places = self.with(|subsystem| subsystem.damage(damage))?;
        Ok(json!({ "places": places }))
    }

    /// Sets the ANA state of portals.
    fn set_ana_state(&self, arguments: &Arguments<'_>) -> Result<Value, Refused> {
        let (portal, name) = (arguments.text("portal")?, arguments.text("state")?);
        let mut states = AnaState::NAMES.iter();
        let state = states.find(|(known, _)| *known == name);
        let (_, state) = state.ok_or_else(|| {
            Refused::Usage("state: optimized, non-optimized or inaccessible".into())
        })?;

        let address = match portal {
            "all" => None,
            _ => Some(portal.parse().map_err(|_| {
                Refused::Usage(format!(
                    "portal: `{portal}` is no ADDRESS:PORT, and not all"
                ))
            })?),
        };
        self.with(|subsystem| match subsystem.set_ana_state(address, *state) {
            0 => Err(OperateError(format!(
                "nothing listens at {portal}; `ctl config` lists the portals"
            ))),
            _ => Ok(json!({ "portals": portals(subsystem) })),
        })
    }

    fn snapshot(&self, arguments: &Arguments<'_>) -> Result<Value, Refused> {
        let to = Path::new(arguments.text("to")?);
        if !to.is_absolute() {
            return Err(Refused::Usage("to: an absolute path is needed".into()));
        }
        let Some(image) = &self.image else {
            return Err(Refused::Failed(
                "the device is in memory: there is no image to copy".into(),
            ));
        };

        // Two copies at once would lock the device twice as often.
        let Ok(_one) = self.backup.try_lock() else {
            return Err(Refused::Failed("another copy is being made".into()));
        };
        let made = backup::copy(&self.gate, image, to).map_err(Refused::Failed)?;
        serde_json::to_value(made).map_err(|error| Refused::Failed(error.to_string()))
    }
}

impl Sampled {
    /// Reads the device, one stretch per lock. After a failure the last state stays.
    fn read(&mut self, subsystem: &Subsystem) {
        // The state from before the failure is the best available.
        if subsystem.is_broken() {
            return;
        }
        self.turn(subsystem, |table, device| {
            table.count(device);
            0
        });
        let mut first = 0;
        while first < self.table.superblocks() && !subsystem.is_broken() {
            first += self.turn(subsystem, |table, device| table.look(device, first));
        }
        self.at = Some(Instant::now());
    }

    /// Runs one step with the device locked, and measures its duration.
    fn turn(
        &mut self,
        subsystem: &Subsystem,
        look: impl FnOnce(&mut SuperblockTable, &remap_ssd_device::Device) -> u32,
    ) -> u32 {
        // Waiting for the lock is not part of the time that hosts wait.
        let turn = subsystem.device();
        let began = Instant::now();
        let looked = look(&mut self.table, &turn);
        drop(turn);

        let held_ns = began.elapsed().as_nanos() as u64;
        let holds = &mut self.holds;
        holds.turns += 1;
        holds.sum_ns += held_ns;
        holds.max_ns = holds.max_ns.max(held_ns);
        holds.superblocks_max = holds.superblocks_max.max(looked.into());
        looked
    }
}

/// Arguments of a verb by name.
struct Arguments<'a>(&'a Value);

impl Arguments<'_> {
    fn text(&self, name: &str) -> Result<&str, Refused> {
        self.0[name]
            .as_str()
            .filter(|text| !text.is_empty())
            .ok_or_else(|| Refused::Usage(format!("{name}: a text is needed")))
    }

    fn number(&self, name: &str) -> Result<u64, Refused> {
        self.0[name]
            .as_u64()
            .ok_or_else(|| Refused::Usage(format!("{name}: a number is needed")))
    }

    fn number_or(&self, name: &str, otherwise: u64) -> Result<u64, Refused> {
        match self.0[name] {
            Value::Null => Ok(otherwise),
            _ => self.number(name),
        }
    }

    fn one_of<T: Copy>(&self, name: &str, values: [(&str, T); 2]) -> Result<T, Refused> {
        let said = self.text(name)?;
        let found = values.iter().find(|(known, _)| *known == said);
        let [(first, _), (second, _)] = values;
        found
            .map(|(_, value)| *value)
            .ok_or_else(|| Refused::Usage(format!("{name}: {first} or {second}")))
    }
}

impl Watched for Served {
    fn status(&self) -> Status {
        let (resident_bytes, resident_file_bytes) = resident_bytes();
        let mut status = Status {
            uptime_seconds: self.epoch.elapsed().as_secs_f64(),
            title: self.nqn.clone(),
            resident_bytes,
            resident_file_bytes,
            ..Status::default()
        };
        self.gate.with(|subsystem| count(subsystem, &mut status));
        if let Some(roster) = &self.roster {
            let tally = roster.tally();
            let listed = roster.list();
            status.connections = listed.len() as u64;

            // Outside the roster's lock: it counts through the subsystem.
            self.gate
                .with(|subsystem| count_rights(subsystem, &listed, &mut status));
            (status.accepted, status.dropped) = (tally.accepted, tally.dropped);
            status.refused = tally.refused;
        }
        let sampled = self.sampled();
        sampled.table.fill(&mut status);
        status.holds = sampled.holds;
        status
    }

    fn cells(&self, cells_max: usize) -> Cells {
        self.sampled().table.cells(cells_max)
    }

    fn hosts(&self) -> Vec<Host> {
        let now_ns = self.epoch.elapsed().as_nanos() as u64;
        let listed = self.roster.iter().flat_map(|roster| roster.list());
        listed
            .map(|one| Host {
                connection: one.number,
                peer: one.peer.to_string(),
                hostnqn: one.hostnqn,
                controller: one.cntlid,
                queue: one.qid,
                discovery: one.discovery,
                rights: one.rights.to_string(),
                denied: one.denied,
                // A host may have connected after `now_ns` was read.
                seconds: now_ns.saturating_sub(one.since_ns) as f64 / 1e9,
                commands: one.commands,
            })
            .collect()
    }

    fn namespaces(&self) -> Value {
        let namespaces = self.gate.with(|subsystem| {
            let each = subsystem.namespaces().into_iter().map(|namespace| {
                let attachment = subsystem.attachment(namespace.nsid);
                json!({
                    "nsid": namespace.nsid,
                    "block_bytes": 1u64 << namespace.lba_shift,
                    "blocks": namespace.size_blocks(),
                    "size_bytes": u64::from(namespace.pages) * 4096,
                    "attached": attachment.as_ref().is_some_and(|attachment| attachment.others),
                    "attached_except": attachment.as_ref().map(|attachment| &attachment.except),
                    "attached_to": attachment.as_ref().map(attached_to),
                    "reservation": reservation(subsystem, namespace.nsid),
                })
            });
            each.collect::<Vec<_>>()
        });
        json!(namespaces.unwrap_or_default())
    }

    fn config(&self) -> Value {
        let made = self.gate.with(|subsystem| {
            let emulated = subsystem.latency() == Latency::Emulated;

            // A failed device cannot be read.
            let (device, paused) = if subsystem.is_broken() {
                (Value::Null, false)
            } else {
                let turn = subsystem.device();

                let config = turn.config().clone();
                let paused = turn.ftl().is_dedup_paused();
                drop(turn);

                (serde_json::to_value(config).unwrap_or_default(), paused)
            };

            json!({
                "nqn": self.nqn,
                "image": self.image,
                "latency": if emulated { "emulated" } else { "none" },
                "dedup_paused": paused,
                "log_level": self.log.get().to_string().to_lowercase(),
                "portals": portals(subsystem),
                "device": device,
            })
        });

        made.unwrap_or_default()
    }

    fn statistics(&self) -> Value {
        // The counters never decrease; values noted at a reset are subtracted.
        let counters = self.sampled().table.counters().to_vec();
        let reset = self.reset.lock().unwrap_or_else(PoisonError::into_inner);
        let mut since: Map<String, Value> = counters
            .iter()
            .map(|(name, value)| {
                let before = reset.1.get(name).copied().unwrap_or(0);
                ((*name).to_owned(), json!(value.saturating_sub(before)))
            })
            .collect();
        let seconds = reset.0.elapsed().as_secs_f64();
        since.insert("seconds".into(), json!(seconds));
        since.into()
    }

    fn ready(&self) -> Result<(), String> {
        match self.gate.with(|subsystem| subsystem.is_broken()) {
            Some(false) => Ok(()),
            Some(true) => Err("the device has failed".into()),
            None => Err(ENDED.into()),
        }
    }

    fn act(&self, verb: &str, arguments: &Value) -> Result<Value, Refused> {
        let arguments = Arguments(arguments);

        match verb {
            "drop" => {
                let host = arguments.text("host")?;

                match self.drop_hosts(Some(host)) {
                    0 => Err(Refused::Failed(format!("`{host}` is not connected"))),
                    connections => Ok(json!({ "connections_ended": connections })),
                }
            }
            "power-cut" => self.power_cut(),
            "inject" => self.inject(&arguments),
            "latency" => {
                let modes = [("none", Latency::None), ("emulated", Latency::Emulated)];

                let mode = arguments.one_of("mode", modes)?;

                self.with(|subsystem| {
                    if mode == Latency::Emulated {
                        let known = subsystem.device().config().check_known_ends();
                        known.map_err(|error| OperateError(error.to_string()))?;
                    }
                    subsystem.set_latency(mode);
                    Ok(json!({ "latency": arguments.0["mode"] }))
                })
            }
            "dedup" => {
                let on = arguments.one_of("mode", [("on", true), ("off", false)])?;

                self.with(|subsystem| subsystem.set_dedup(on))?;
                Ok(json!({ "dedup": arguments.0["mode"] }))
            }
            "reset" => {
                let mut sampled = self.sampled();

                // Even if they are fresh: a reset notes the values of this instant.
                self.gate.with(|subsystem| sampled.read(subsystem));
                let counters = sampled.table.counters().iter().copied();

                // A level is no sum: it is shown unchanged.
                let sums = counters.filter(|(name, _)| !LEVELS.contains(name));

                let mut reset = self.reset.lock().unwrap_or_else(PoisonError::into_inner);
                *reset = (Instant::now(), sums.collect());

                Ok(json!({ "counters": reset.1.len() }))
            }
            "ana" => self.set_ana_state(&arguments),
            "release" => {
                let nsid = arguments.number("nsid")? as u32;

                let hosts = self.with(|subsystem| subsystem.release_reservations(nsid))?;
                Ok(json!({ "hosts_unregistered": hosts }))
            }
            "snapshot" => self.snapshot(&arguments),
            "log" => {
                let name = arguments.text("level")?;

                let level = level(name).map_err(|why| Refused::Usage(why.into()))?;

                if !self.log.set(level) {
                    return Err(Refused::Failed(
                        "the log level of this program is fixed".into(),
                    ));
                }
                Ok(json!({ "log_level": name }))
            }
            _ => Err(Refused::Unknown),
        }
    }
}

/// The hosts that see a namespace, in words.
fn attached_to(attachment: &Attachment) -> String {
    let named: Vec<&str> = attachment.except.iter().map(String::as_str).collect();
    let named = named.join(", ");
    match (attachment.others, named.is_empty()) {
        (true, true) => "all hosts".into(),
        (true, false) => format!("all hosts but {named}"),
        (false, true) => "no host".into(),
        (false, false) => named,
    }
}

/// Number of namespaces that each host may write, and those it may only read.
fn count_rights(subsystem: &Subsystem, listed: &[Listed], status: &mut Status) {
    // Discovery has no rights to count.
    for one in listed.iter().filter(|one| !one.discovery) {
        let count = |access| {
            let all = subsystem.namespaces().into_iter();
            all.filter(|namespace| one.rights.access(namespace.nsid) == access)
                .count() as u64
        };
        let counts = [Access::ReadWrite, Access::ReadOnly].map(count);
        status.rights.insert(one.hostnqn.clone(), counts);
    }
}

/// The portals with their ANA states.
fn portals(subsystem: &Subsystem) -> Value {
    let all = subsystem.portals();
    let each = all.iter().map(
        |portal| json!({ "address": portal.address().to_string(), "state": portal.state().name() }),
    );
    each.collect()
}

/// Registrants of a namespace, and the holder of its reservation; null if there are none.
fn reservation(subsystem: &Subsystem, nsid: u32) -> Value {
    let all = subsystem.reservations_of(nsid);
    if all.registrants.is_empty() {
        return Value::Null;
    }

    let hosts: Vec<&str> = all
        .registrants
        .iter()
        .map(|one| one.host.nqn.as_str())
        .collect();
    let held = all.reservation.as_ref();
    json!({
        "type": held.map(|held| held.kind),
        "holder": held.and_then(|held| held.holder.as_ref()).map(|host| &host.nqn),
        "registered": hosts,
        "persists": all.persists,
    })
}

/// Counts that do not need the device.
fn count(subsystem: &Subsystem, status: &mut Status) {
    let health = subsystem.health();
    // SMART counts sectors of 512 bytes, regardless of the namespaces' block size.
    status.host_read_bytes = health.sectors_read * 512;
    status.host_written_bytes = health.sectors_written * 512;
    status.media_errors = health.media_errors;
    status.power_cuts = subsystem.power_cuts();
    status.denied = subsystem.denied();
    status.commands = commands(subsystem.telemetry());
}
