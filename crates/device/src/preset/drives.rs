//! Drives as other simulators model them, and drives of flash with published figures.
//!
//! Invariant: the preset's lists name the source of every value, or say that it is assumed. Absent: the devices of
//! papers on remapping (`preset`).

use super::{ASSUMED_LINK, geometry};
use crate::config::{
    Background, Controller, DeviceConfig, EnergyConfig, Errors, Flash, Hash, Link, Nvram,
    TimingConfig, TimingEngine,
};
use crate::nand::CellTimes;
use remap_ssd_ftl::{Config, GcPolicy};
use remap_ssd_media::{ContentMode, Geometry, WordLine};

/// What none of these drives has: the memory for remapping metadata, and the hash unit.
pub(super) const OWN: &str = "NVRAM of 0.25 % of the flash at FAST'21's latencies; with deduplication, FAST'21's hash unit, \
    through which all written data pass";

const KIB: u32 = 1024;

/// Page types of a flash page's cells, and the operation that programs them.
struct Cells<'a> {
    word_line: WordLine,
    read_ns: &'a [u64],
    program_ns: u64,
    erase_ns: u64,
    endurance: u64,
}

/// A drive whose dies choose. `spare`: flash pages beyond the logical ones, as a share of these.
fn drive(flat: Geometry, cells: &Cells<'_>, transfer_ns: u64, spare: f64) -> DeviceConfig {
    let geometry = flat
        .with_word_line(cells.word_line)
        .expect("a preset's word lines are valid");
    let log_bytes = u64::from(geometry.pages()) * 4096 / 400;

    DeviceConfig {
        name: String::new(),
        addressable: 1.0,
        queue_depth: 32,
        host_ns: 0,
        content: ContentMode::Identity,
        geometry,
        flash: Flash {
            read_ns: CellTimes::new(cells.read_ns).expect("a preset's times are valid"),
            program_ns: CellTimes::flat(cells.program_ns),
            erase_ns: cells.erase_ns,
            transfer_ns,
            flush_ns: 0,
            endurance: cells.endurance,
            slc_read_ns: Flash::SLC_READ_NS,
            slc_program_ns: Flash::SLC_PROGRAM_NS,
            slc_endurance: Flash::SLC_ENDURANCE,
        },
        nvram: Nvram {
            read_ns: 50,
            write_ns: 500,
            endurance: 1000 * cells.endurance,
        },
        hash: Hash {
            latency_ns: 32_000,
            interval_ns: 1000,
        },
        link: ASSUMED_LINK,
        controller: Controller::default(),
        timing: TimingConfig {
            engine: TimingEngine::Nand,
            ..TimingConfig::default()
        },
        energy: EnergyConfig::default(),
        errors: Errors::default(),
        background: Background {
            lookup_stalls_dies: false,
            idle_after_ns: 1_000_000,
        },
        firmware: Config {
            lpns: (f64::from(geometry.pages()) / (1.0 + spare)) as u32,
            log_bytes: log_bytes / 1024 * 1024,
            gc_free: 0.02,
            ..Config::default()
        },
    }
}

/// MQSim's default drive.
pub(super) fn mqsim() -> DeviceConfig {
    let cells = Cells {
        word_line: WordLine {
            planes: 2,
            page_bytes: 8 * KIB,
            ..WordLine::SINGLE
        },
        read_ns: &[75_020],
        program_ns: 750_000,
        erase_ns: 3_800_000,
        endurance: 10_000,
    };

    // 256 pages of 8 KiB in each plane's block; 6 ns for 2 bytes.
    let mut config = drive(geometry(8, 64, 2048, 1024), &cells, 12_288, 0.127);
    config.timing.dies_per_chip = 2;
    config.timing.data_first = true;
    config.timing.whole_reads = true;
    (config.timing.read_command_ns, config.timing.read_plane_ns) = (290, 650);
    (
        config.timing.program_command_ns,
        config.timing.program_plane_ns,
    ) = (361, 816);
    (config.timing.erase_command_ns, config.timing.erase_plane_ns) = (220, 700);

    config.link = Link {
        mib_s: 3131,
        command_ns: 60,
        write_saves_ns: 0,
    };

    config.firmware.gc_policy = GcPolicy::DChoices;
    config.firmware.gc_free = 0.05;
    config.firmware.dedup = false;
    config
}

/// FEMU's default flash.
pub(super) fn femu() -> DeviceConfig {
    let cells = Cells {
        word_line: WordLine::SINGLE,
        read_ns: &[40_000],
        program_ns: 200_000,
        erase_ns: 2_000_000,
        endurance: 3000,
    };

    // A quarter of the flash is kept free by garbage collection.
    let mut config = drive(geometry(8, 64, 256, 256), &cells, 0, 1.0 / 3.0);

    // First come, first served.
    config.timing.program_patience_ns = 0;
    config.timing.collection_patience_ns = 0;
    config.timing.metadata_patience_ns = 0;

    config.link = Link {
        mib_s: 0,
        command_ns: 0,
        write_saves_ns: 0,
    };

    config.firmware.gc_free = 0.25;
    config.firmware.gc_garbage = 0.125;
    config.firmware.gc_at_once = true;
    config.firmware.gc_joins_host = true;
    config.firmware.dedup = false;
    config
}

/// Samsung's 970 Pro as NVMeVirt models it.
pub(super) fn samsung_970_pro() -> DeviceConfig {
    let cells = Cells {
        word_line: WordLine {
            page_bytes: 32 * KIB,
            bits: 2,
            one_shot: false,
            ..WordLine::SINGLE
        },
        read_ns: &[30_013, 42_013],
        program_ns: 185_000,
        erase_ns: 1,
        endurance: 3000,
    };

    // 152 ns for 128 bytes.
    let mut config = drive(geometry(8, 16, 8192, 1024), &cells, 4864, 0.11);
    config.timing.part_saves_ns = 253;
    config.link = Link {
        mib_s: 3391,
        command_ns: 21_500,
        write_saves_ns: 17_040,
    };
    config
}

/// WD's ZN540 as NVMeVirt models it.
pub(super) fn wd_zn540() -> DeviceConfig {
    let cells = Cells {
        word_line: WordLine {
            page_bytes: 32 * KIB,
            bits: 3,
            ..WordLine::SINGLE
        },
        read_ns: &[58_000],
        program_ns: 561_000,
        erase_ns: 1,
        endurance: 3000,
    };

    // 271 ns for 128 bytes.
    let mut config = drive(geometry(8, 32, 512, 16_368), &cells, 8672, 0.11);
    config.timing.part_saves_ns = 8000;
    config.link = Link {
        mib_s: 3052,
        command_ns: 20_000,
        write_saves_ns: 0,
    };
    config
}

/// A data-centre drive of TLC flash.
pub(super) fn tlc() -> DeviceConfig {
    let cells = Cells {
        word_line: WordLine {
            planes: 4,
            page_bytes: 16 * KIB,
            bits: 3,
            ..WordLine::SINGLE
        },
        read_ns: &[40_000],
        // 192 KiB at 184 MB/s.
        program_ns: 1_068_500,
        erase_ns: 5_000_000,
        endurance: 5000,
    };

    let mut config = drive(geometry(16, 32, 2368, 6912), &cells, 2048, 0.12);
    suspends(&mut config);
    config.timing.independent_planes = true;
    config.link.mib_s = 6600;
    config
}

/// A drive of QLC flash.
pub(super) fn qlc() -> DeviceConfig {
    let cells = Cells {
        word_line: WordLine {
            planes: 4,
            page_bytes: 16 * KIB,
            bits: 4,
            ..WordLine::SINGLE
        },
        read_ns: &[85_000],
        // 256 KiB at 40 MB/s.
        program_ns: 6_553_600,
        erase_ns: 10_000_000,
        endurance: 1500,
    };
    let mut config = drive(geometry(8, 16, 2730, 12_288), &cells, 3413, 0.08);
    suspends(&mut config);
    config.link.mib_s = 6600;
    config
}

fn suspends(config: &mut DeviceConfig) {
    // Longer than an erase and what is read during it, or nothing would be suspended.
    config.timing.program_patience_ns = 100_000_000;
    config.timing.collection_patience_ns = 100_000_000;
    config.timing.metadata_patience_ns = 100_000_000;
    config.timing.suspend_ns = 20_000;
    config.timing.suspend_least_ns = 100_000;
    config.timing.suspensions = 16;
}
