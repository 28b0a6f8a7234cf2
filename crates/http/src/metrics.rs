//! A status as metrics: OpenMetrics 1.0, or Prometheus' text format 0.0.4 for clients that do not
//! request it.
//!
//! Names follow Prometheus' practice: prefix `remap_ssd_`, base units, suffix `_total` of counters.
//! Invariant: `io stat` and these agree in names and values. Absent: registries that outlive a
//! scrape; the counters themselves.

use crate::status::Status;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{self, DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use std::fmt;

/// The format for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// OpenMetrics 1.0, for clients that accept it.
    OpenMetrics,
    /// Prometheus' own text, as `promtool check metrics` reads it.
    Text,
}

impl Format {
    /// The format requested by an `Accept` header.
    pub(crate) fn accepted(accept: &str) -> Self {
        if accept.contains("application/openmetrics-text") {
            Self::OpenMetrics
        } else {
            Self::Text
        }
    }

    /// Media type of the format, for `Content-Type`.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// Encodes a status.
pub(crate) fn encode(status: Status, format: Format) -> String {
    // One registry per scrape: the counters live elsewhere, and are not duplicated here.
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Scrape(status)));
    let mut text = String::new();
    let written = match format {
        Format::OpenMetrics => encoding::text::encode(&mut text, &registry),
        Format::Text => encoding::prometheus_text::encode(&mut text, &registry),
    };
    written.expect("a string takes all that is written to it");
    text
}

#[derive(Debug)]
struct Scrape(Status);

type Labels<'a> = [(&'a str, &'a str); 1];

/// Writes families in sequence.
struct Families<'a>(DescriptorEncoder<'a>);

impl Families<'_> {
    fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.0
            .encode_descriptor(name, help, None, MetricType::Counter)?
            .encode_counter::<NoLabelSet, _, u64>(&value, None)
    }

    fn bytes_counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.0
            .encode_descriptor(name, help, Some(&Unit::Bytes), MetricType::Counter)?
            .encode_counter::<NoLabelSet, _, u64>(&value, None)
    }

    fn counters(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        values: &[(&str, u64)],
    ) -> fmt::Result {
        let mut family = self
            .0
            .encode_descriptor(name, help, None, MetricType::Counter)?;
        for (of, value) in values {
            let labels: Labels<'_> = [(label, of)];
            family
                .encode_family(&labels)?
                .encode_counter::<NoLabelSet, _, u64>(value, None)?;
        }
        Ok(())
    }

    fn gauge(&mut self, name: &str, help: &str, unit: Option<&Unit>, value: f64) -> fmt::Result {
        self.0
            .encode_descriptor(name, help, unit, MetricType::Gauge)?
            .encode_gauge(&value)
    }

    fn gauges(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        label: &str,
        values: &[(&str, f64)],
    ) -> fmt::Result {
        let mut family = self
            .0
            .encode_descriptor(name, help, unit, MetricType::Gauge)?;
        for (of, value) in values {
            let labels: Labels<'_> = [(label, of)];
            family.encode_family(&labels)?.encode_gauge(value)?;
        }
        Ok(())
    }
}

/// Counters of the translation layer that are reported unchanged: name and help text.
const PLAIN: [(&str, &str); 20] = [
    (
        "host_pages",
        "Pages written or remapped by hosts, duplicates included",
    ),
    ("host_reads", "Pages read by hosts"),
    ("host_deallocations", "Pages deallocated by hosts"),
    (
        "flash_pages",
        "Flash pages programmed, for whatever purpose",
    ),
    ("remaps", "Remaps done"),
    ("dedup_hits", "Writes whose content was on flash already"),
    (
        "dedup_missed",
        "Duplicates for whose fingerprints there was no room",
    ),
    ("no_effect", "Writes and remaps that changed nothing"),
    (
        "copies",
        "Remaps that a scheme without remapping served as copies",
    ),
    ("gc_runs", "Superblocks reclaimed"),
    ("wear_runs", "Superblocks reclaimed for wear levelling"),
    (
        "refresh_runs",
        "Superblocks reclaimed because of their reads or their age",
    ),
    ("refresh_pages", "Flash pages moved by these refreshes"),
    ("metadata_gc_runs", "Reclaims of remapping metadata alone"),
    ("erases", "Blocks erased"),
    ("blocks_retired", "Blocks retired because they failed"),
    ("program_failures", "Program failures survived"),
    ("atomic_commands", "Atomic remap commands done"),
    ("data_pages", "Flash pages programmed with data of hosts"),
    ("metadata_pages", "Flash pages programmed with metadata"),
];

impl Collector for Scrape {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut families = Families(encoder);
        let status = &self.0;
        service(status, &mut families)?;
        commands(status, &mut families)?;
        translation(status, &mut families)?;
        medium(status, &mut families)?;
        connections(status, &mut families)
    }
}

fn service(status: &Status, to: &mut Families<'_>) -> fmt::Result {
    let scheme = status.scheme.as_str();
    // Constant text is a family of type info, with the value 1.
    let build = [("version", env!("CARGO_PKG_VERSION")), ("scheme", scheme)];

    to.0.encode_descriptor(
        "remap_ssd_build",
        "The program, and the scheme of the device",
        None,
        MetricType::Info,
    )?
    .encode_info(&build)?;

    let seconds = Some(&Unit::Seconds);

    to.gauge(
        "remap_ssd_uptime",
        "Time since the service began",
        seconds,
        status.uptime_seconds,
    )?;
    to.gauge(
        "remap_ssd_resident_memory",
        "Memory of the process: anonymous and file memory",
        Some(&Unit::Bytes),
        status.resident_bytes as f64,
    )?;
    to.gauge(
        "remap_ssd_resident_anonymous_memory",
        "Memory of the process that is its own, a device in memory included",
        Some(&Unit::Bytes),
        status
            .resident_bytes
            .saturating_sub(status.resident_file_bytes) as f64,
    )?;
    to.gauge(
        "remap_ssd_resident_file_memory",
        "Mapped pages of files, an image included, which the system takes back when it needs memory",
        Some(&Unit::Bytes),
        status.resident_file_bytes as f64,
    )?;
    to.gauge(
        "remap_ssd_read_only",
        "1 if the blocks are so worn that nothing is changed any more",
        None,
        f64::from(u8::from(status.read_only)),
    )?;

    to.counter(
        "remap_ssd_power_cuts",
        "Power cuts that an operator asked for",
        status.power_cuts,
    )?;

    to.counter(
        "remap_ssd_watch_turns",
        "Turns at the device that watching took",
        status.holds.turns,
    )?;
    to.gauge(
        "remap_ssd_watch_hold_max",
        "The longest time for which watching had the device to itself",
        seconds,
        status.holds.max_ns as f64 / 1e9,
    )
}

fn commands(status: &Status, to: &mut Families<'_>) -> fmt::Result {
    let mut family = to.0.encode_descriptor(
        "remap_ssd_command_duration",
        "I/O commands by the time from their data to their answer; emulated time if that is on",
        Some(&Unit::Seconds),
        MetricType::Histogram,
    )?;

    for command in &status.commands {
        let labels: Labels<'_> = [("command", command.name)];
        // Bucket n counts times up to 2^n µs; Prometheus uses seconds, and its last bucket must be
        // `+Inf`.
        let last = command.buckets.len().saturating_sub(1);

        let buckets: Vec<(f64, u64)> = (0..)
            .zip(&command.buckets)
            .map(|(bucket, count)| {
                if bucket == last {
                    (f64::INFINITY, *count)
                } else {
                    ((1u64 << bucket) as f64 / 1e6, *count)
                }
            })
            .collect();

        let count = command.buckets.iter().sum();
        family
            .encode_family(&labels)?
            .encode_histogram::<NoLabelSet>(command.sum_ns as f64 / 1e9, count, &buckets, None)?;
    }

    let failed: Vec<(&str, u64)> = status
        .commands
        .iter()
        .map(|command| (command.name, command.failed))
        .collect();
    to.counters(
        "remap_ssd_command_failures",
        "I/O commands that ended with an error",
        "command",
        &failed,
    )?;

    to.counter(
        "remap_ssd_media_errors",
        "Commands answered with a media error",
        status.media_errors,
    )?;

    to.bytes_counter(
        "remap_ssd_host_read",
        "Read by hosts",
        status.host_read_bytes,
    )?;
    to.bytes_counter(
        "remap_ssd_host_written",
        "Written by hosts",
        status.host_written_bytes,
    )
}

fn translation(status: &Status, to: &mut Families<'_>) -> fmt::Result {
    for (name, help) in PLAIN {
        to.counter(&format!("remap_ssd_{name}"), help, status.counter(name))?;
    }

    let of = |name: &str| status.counter(name);
    to.counters(
        "remap_ssd_programs",
        "Flash pages programmed, by purpose: the parts of write amplification",
        "purpose",
        &[
            ("host", of("data_pages")),
            ("gc", of("gc_pages")),
            ("metadata", of("metadata_pages")),
        ],
    )?;

    to.counters(
        "remap_ssd_demotions",
        "Remaps turned into copies, by cause",
        "cause",
        &[
            ("counter_full", of("demoted_counter_full")),
            ("nvram_full", of("demoted_nvram_full")),
            ("watermark", of("demoted_watermark")),
        ],
    )
}

fn medium(status: &Status, to: &mut Families<'_>) -> fmt::Result {
    let (bytes, blocks, wear) = (Some(&Unit::Bytes), &status.superblocks, &status.wear);
    to.gauges(
        "remap_ssd_superblocks",
        "Superblocks by state",
        None,
        "state",
        &[
            ("free", blocks.free as f64),
            ("open", blocks.open as f64),
            ("closed", blocks.closed as f64),
            ("retired", blocks.retired as f64),
        ],
    )?;

    to.gauge(
        "remap_ssd_gc_start_superblocks",
        "Free superblocks at which garbage collection starts",
        None,
        blocks.gc_start as f64,
    )?;

    to.gauges(
        "remap_ssd_block_erases",
        "Erases of a block: of the least worn one, on average, of the most worn one",
        None,
        "of",
        &[
            ("min", wear.min.into()),
            ("mean", wear.mean),
            ("max", wear.max.into()),
        ],
    )?;

    let nvram = &status.nvram;
    to.gauges(
        "remap_ssd_nvram",
        "Room for remaps: all of it, taken by entries, taken by valid ones, the largest segment group",
        bytes,
        "part",
        &[
            ("capacity", nvram.capacity_bytes as f64),
            ("used", nvram.used_bytes as f64),
            ("valid", nvram.valid_bytes as f64),
            ("largest_group", nvram.largest_group_bytes as f64),
        ],
    )?;

    to.bytes_counter(
        "remap_ssd_nvram_written",
        "Stored to NVRAM",
        status.counter("nvram_bytes_written"),
    )?;

    let buffer = &status.write_buffer;
    if buffer.capacity_bytes == 0 {
        return Ok(());
    }
    to.gauges(
        "remap_ssd_write_buffer",
        "The write buffer: all of it, used by pages that are not on flash yet",
        bytes,
        "part",
        &[
            ("capacity", buffer.capacity_bytes as f64),
            ("used", buffer.used_bytes as f64),
        ],
    )
}

fn connections(status: &Status, to: &mut Families<'_>) -> fmt::Result {
    to.gauge(
        "remap_ssd_connections",
        "Connections with a queue",
        None,
        status.connections as f64,
    )?;

    to.counter(
        "remap_ssd_connections_accepted",
        "Connections accepted",
        status.accepted,
    )?;
    to.counter(
        "remap_ssd_connections_dropped",
        "Connections that the service ended because of what they did",
        status.dropped,
    )?;

    let refused: Vec<(&str, u64)> = status
        .refused
        .iter()
        .map(|(why, count)| (*why, *count))
        .collect();

    to.counters(
        "remap_ssd_connects_refused",
        "Connects refused, by reason",
        "reason",
        &refused,
    )?;

    to.counter(
        "remap_ssd_commands_denied",
        "Commands of hosts that lack the rights",
        status.denied,
    )?;
    rights(status, to)
}

fn rights(status: &Status, to: &mut Families<'_>) -> fmt::Result {
    let mut family = to.0.encode_descriptor(
        "remap_ssd_host_namespaces",
        "Namespaces that a connected host may write (rw), or only read (ro)",
        None,
        MetricType::Gauge,
    )?;
    for (host, counts) in &status.rights {
        for (access, count) in ["rw", "ro"].into_iter().zip(counts) {
            let labels = [("host", host.as_str()), ("access", access)];
            family.encode_family(&labels)?.encode_gauge(count)?;
        }
    }
    Ok(())
}
