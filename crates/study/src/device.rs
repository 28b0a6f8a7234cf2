//! A device in words.
//!
//! Absent: all its keys (`remap_ssd_device::reference`).

use remap_ssd_device::DeviceConfig;
use remap_ssd_device::config::{Link, TimingEngine};
use remap_ssd_device::nand::CellTimes;
use remap_ssd_media::geometry::PAGE_BYTES;
use remap_ssd_sim::report::format::{bytes, exact, percent, seconds};

/// A device in a few lines, a label and a text each.
///
/// ```
/// use remap_ssd_device::PRESETS;
/// use remap_ssd_study::device_rows;
///
/// let rows = device_rows(&PRESETS[0].config());
/// assert_eq!(rows[0].0, "logical");
/// ```
pub fn device_rows(config: &DeviceConfig) -> Vec<(&'static str, String)> {
    let DeviceConfig {
        geometry,
        firmware,
        flash,
        nvram,
        hash,
        link,
        ..
    } = config;
    let pages = |count: u64| {
        let size = bytes(count * PAGE_BYTES as u64);
        format!("{size}, {} pages", exact(count))
    };

    let array = format!(
        "{} channels, {} dies, {} superblocks of {} pages ({} a block)",
        geometry.channels(),
        geometry.dies_total(),
        exact(geometry.superblocks().into()),
        exact((geometry.pages_per_superblock() * geometry.host_pages()).into()),
        exact((geometry.pages_per_block() * geometry.host_pages()).into())
    );

    let [read, program] = [flash.read_ns, flash.program_ns].map(page_types);
    let [erase, transfer] = [flash.erase_ns, flash.transfer_ns].map(time);
    let cycles = exact(flash.endurance);
    let [nvram_read, nvram_write] = [nvram.read_ns, nvram.write_ns].map(time);
    let nvram_writes = exact(nvram.endurance);
    let [latency, interval] = [hash.latency_ns, hash.interval_ns].map(time);

    let firmware_text = format!(
        "scheme {}, {} of remapping metadata in segments of {}, deduplication {}, garbage collection at {} free",
        firmware.scheme,
        bytes(firmware.log_bytes),
        bytes(firmware.segment_bytes.into()),
        if firmware.dedup { "on" } else { "off" },
        percent(firmware.gc_free)
    );
    let (addressed, depth) = (percent(config.addressable), config.queue_depth);

    vec![
        (
            "logical",
            match geometry.word_line().indirection_bytes {
                4096 => pages(config.logical_pages()),
                unit => format!(
                    "{}, in indirection units of {}",
                    pages(config.logical_pages()),
                    bytes(unit.into())
                ),
            },
        ),
        ("flash", pages(config.flash_pages())),
        ("array", array),
        (
            "flash times",
            format!(
                "read {read}, program {program}, erase {erase}, transfer {transfer}; {cycles} cycles"
            ),
        ),
        ("order of a die", order_of_a_die(config)),
        (
            "NVRAM times",
            format!("64 bytes: read {nvram_read}, write {nvram_write}; {nvram_writes} writes"),
        ),
        ("hash", format!("{latency}, a page every {interval}")),
        ("link", in_words(link)),
        ("firmware", firmware_text),
        (
            "host",
            format!("{addressed} of the logical pages addressed, queue depth {depth}"),
        ),
    ]
}

fn time(ns: u64) -> String {
    seconds(ns as f64 / 1e9)
}

/// The times of the page types of a word line.
fn page_types(times: CellTimes) -> String {
    let times: Vec<String> = times.times().iter().map(|ns| time(*ns)).collect();
    times.join("/")
}

fn in_words(link: &Link) -> String {
    let rate = match link.mib_s {
        0 => "unlimited".to_owned(),
        rate => format!("{} MiB/s each way", exact(rate)),
    };
    let saved = match link.write_saves_ns {
        0 => String::new(),
        saved => format!(", {} less if the host sends data with it", time(saved)),
    };
    format!("{rate}, {} a command{saved}", time(link.command_ns))
}

fn order_of_a_die(config: &DeviceConfig) -> String {
    match (config.timing.engine, config.timing.suspensions) {
        (TimingEngine::Published, _) => "first come, first served".into(),
        (TimingEngine::Nand, _) if config.timing.program_patience_ns == 0 => {
            "first come, first served".into()
        }
        (TimingEngine::Nand, 0) => "reads first".into(),
        (TimingEngine::Nand, most) => format!(
            "reads first, suspending a program or an erase {} times at most",
            exact(most.into())
        ),
    }
}
