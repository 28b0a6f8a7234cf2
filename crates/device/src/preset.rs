//! The devices of publications, and drives that people know.
//!
//! Invariant: the preset's list of assumptions names every value that is not in the publication.
//! Absent: workloads and aging, which belong to an experiment.

mod drives;

use crate::config::{
    Background, Controller, DeviceConfig, DeviceConfigError, EnergyConfig, Errors, Flash, Hash,
    Link, Nvram, TimingConfig,
};
use crate::nand::CellTimes;
use crate::suggest::did_you_mean;
use remap_ssd_ftl::{Config, FingerprintKind, Medium, SchemeKind};
use remap_ssd_media::geometry::Shape;
use remap_ssd_media::{ContentMode, Geometry};

/// A predefined device.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// Name in files and options.
    pub name: &'static str,
    /// The device that it models, and the source.
    pub about: &'static str,
    /// Values that are not in the publication.
    pub assumed: &'static [&'static str],
    /// What its results were compared with.
    pub checked: &'static str,
    build: fn() -> DeviceConfig,
}

impl Preset {
    /// The complete configuration of the device.
    pub fn config(&self) -> DeviceConfig {
        DeviceConfig {
            name: self.name.into(),
            ..(self.build)()
        }
    }
}

impl DeviceConfig {
    /// A preset by its name.
    ///
    /// # Errors
    /// Lists the known names.
    ///
    /// ```
    /// use remap_ssd_device::nand::CellTimes;
    /// use remap_ssd_device::{DeviceConfig, Setting, parse_scale};
    /// let preset = DeviceConfig::preset("fast21-32g")?;
    /// let mut config = preset.with(&["firmware.gc_free=0.1".parse::<Setting>()?])?;
    /// config.flash.read_ns = CellTimes::flat(40_000);
    /// config = config.scale(parse_scale("1/8")?)?;
    /// assert!(config.check().is_ok() && config.addressable_lpns() <= config.logical_pages());
    /// assert_eq!(config.latencies().flash_read_ns, 40_000);
    ///
    /// // As a file, and from one.
    /// assert_eq!(DeviceConfig::from_toml(&config.to_toml())?, config);
    /// let error = DeviceConfig::preset("fast21").unwrap_err().to_string();
    /// assert!(error.contains("fast21-256g"), "{error}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn preset(name: &str) -> Result<Self, DeviceConfigError> {
        Ok(preset(name)?.config())
    }
}

/// Every preset; the first is the default.
pub const PRESETS: &[Preset] = &[
    Preset {
        name: "fast21-32g",
        about: "Remap-SSD, FAST'21 section 5.1: 32 GiB and 4 GiB of over-provisioning, emulated in FEMU",
        assumed: FAST21_ASSUMED,
        checked: CLAIMS,
        build: || fast21(16, 576, 80 << 20),
    },
    Preset {
        name: "fast21-256g",
        about: "Remap-SSD, FAST'21 section 5.1: 256 of 288 GiB, simulated in SSDsim",
        assumed: FAST21_ASSUMED,
        checked: CLAIMS,
        build: || fast21(32, 2304, 320 << 20),
    },
    Preset {
        name: "fast21-4t",
        about: "Remap-SSD, FAST'21 section 2.3 and 4.6: 4 TiB logical on 4.5 TiB, 1.2 billion flash pages",
        assumed: &[
            "what fast21-32g assumes, but: 64 dies on 16 channels, 1 GiB of NVRAM, the whole device addressed",
            "no deduplication and no contents, so that the simulation takes 15 bytes a page",
        ],
        checked: CLAIMS,
        build: fast21_4t,
    },
    Preset {
        name: "coldmap-16g",
        about: "Coldmap, section 5: 16 GB in FEMU, garbage collection once 12 GB are written",
        assumed: &[
            "geometry, latencies and 12 GiB of logical pages, all of them filled: the defaults of FEMU, whose 16 GiB of \
             flash and 75 % threshold of garbage collection are the figures given",
            "garbage collection as FEMU's: from 75 % of the superblocks in use on, whichever has most garbage if that is an \
             eighth, at once, into the superblock that the host is writing",
            "hash: 1 us for MurmurHash3; each hit is verified by reading the page, since it is no proof",
            "policy of garbage collection: greedy, the paper's baseline; `--gc coldmap` is the paper's own",
            "remapping metadata: 40 MiB of NVRAM at FAST'21's latencies; the paper keeps it in the spare area",
            "endurance of flash: 1,000 cycles, the paper's example of QLC; of NVRAM 1,000 times that",
            "link: PCIe 3.0 x4, and 1 us a command",
            "queue depth 32, background collection after 1 ms of idleness",
        ],
        checked: CLAIMS,
        build: coldmap,
    },
    Preset {
        name: "mqsim-512g",
        about: "MQSim's default: 512 GiB of MLC flash on 8 channels of 4 chips of 2 dies of 2 planes (its ssdconfig.xml of 2022-10-05)",
        assumed: &[
            "dies of a chip take turns, data goes before commands, a request's data cross the link together, cycles of the channel as in its code; both bits take the same time, as in its file",
            "link: 4 lanes at 1 GB/s; 12.7 % of spare flash, since its 7 % leaves garbage collection no room here; its mapping cache is left out, and of its write cache there are two units a chip",
            "garbage collection at 5 % free superblocks, the best of ten random ones; blocks of all dies are one superblock",
            drives::OWN,
        ],
        checked: "MQSim's formulas for idle dies, to the nanosecond, and its closed loops of reads, within 1 %; both with other geometries than this",
        build: drives::mqsim,
    },
    Preset {
        name: "femu-16g",
        about: "FEMU's default: 16 GiB of flash on 8 channels of 8 dies, 40 us a read, 200 us a program, 2 ms an erase (its bbssd at 99ce4fb)",
        assumed: &[
            "dies first come, first served; no time for channels, link and firmware, and no write buffer, as there: it sets no times for channels, and the host's cost is the real time of QEMU",
            "12 GiB of logical pages, since garbage collection begins once 75 % of the superblocks are in use; FEMU gives the host all 16 GiB",
            "garbage collection as FEMU's: whichever superblock has most garbage if that is an eighth, at once, into the superblock that the host is writing; without its threshold of 5 %",
            "endurance of flash: 3,000 cycles",
            drives::OWN,
        ],
        checked: "FEMU's formula of a die: idle dies, and closed loops of reads and of sequential writes, within 1 %",
        build: drives::femu,
    },
    Preset {
        name: "970pro-512g",
        about: "Samsung 970 Pro, 512 GB of MLC, as NVMeVirt models it (its ssd_config.h)",
        assumed: &[
            "page types in turn; 253 ns less for a single page of 4 KiB; channels 152 ns and the link 36 ns per 128 bytes",
            "the firmware's 21.5 us of a read are those of each command; NVMeVirt has 4.5 us for a write of 4 KiB",
            "no time for an erase, as there; one controller instead of four partitions by LPN; 11 % of spare flash instead of 7 %",
            drives::OWN,
        ],
        checked: "NVMeVirt's random reads of 4 KiB at queue depths 1 to 256: within 0.6 %, at a scale of 1/8 or more",
        build: drives::samsung_970_pro,
    },
    Preset {
        name: "zn540-1t",
        about: "WD Ultrastar ZN540, 1 TB of TLC, as NVMeVirt models its flash (its ssd_config.h), without zones",
        assumed: &[
            "word lines of 96 KiB in one operation; 8 us less for a single page of 4 KiB; channels 271 ns and the link 40 ns per 128 bytes",
            "a mapping by page in place of zones, with 11 % of spare flash; the firmware's 20 us of a read are those of each command",
            "no time for an erase, as there",
            drives::OWN,
        ],
        checked: "nothing: it only has the values of its source",
        build: drives::wd_zn540,
    },
    Preset {
        name: "tlc-2t",
        about: "A data-centre drive of 32 dies of TLC, 512 Gbit each: 40 us a read, 184 MB/s a die, 2.0 Gb/s, 4 planes (Samsung, ISSCC 2021)",
        assumed: &[
            "pages of 16 KiB in each plane, all three bits in one operation: 192 KiB in 1.07 ms; one read time for all bits; planes read independently",
            "blocks of 27 MiB, 5 ms an erase, 5,000 cycles; programs and erases suspended in 20 us, up to 16 times",
            "16 channels, PCIe 4.0 x4, 1 us a command, 12 % of spare flash; a buffer that survives power cuts",
            drives::OWN,
        ],
        checked: "nothing: it only has the values of its source",
        build: drives::tlc,
    },
    Preset {
        name: "qlc-2t",
        about: "A drive of 16 dies of QLC, 1 Tbit each: 40 MB/s a die, 4 planes (Intel, ISSCC 2021), mapped by pages of 4 KiB",
        assumed: &[
            "pages of 16 KiB in each plane, all four bits in one operation: 256 KiB in 6.55 ms; 85 us a read for all bits",
            "1.2 Gb/s a channel, blocks of 48 MiB, 10 ms an erase, 1,500 cycles; programs and erases suspended in 20 us, up to 16 times",
            "8 channels, PCIe 4.0 x4, 1 us a command, 8 % of spare flash; a buffer that survives power cuts",
            drives::OWN,
        ],
        checked: "nothing: it only has the values of its source",
        build: drives::qlc,
    },
    Preset {
        name: "pebble-375g",
        about: "PebbleSSD, MEMSYS'17 section 4.1: 375 GB of SLC on 16 channels, PCIe 3.0 x4",
        assumed: &[
            "geometry: 4 dies a channel, 256 pages a block (the paper says 64 to 512), 12.5 % over-provisioning",
            "flash: SLC at 50 us, 300 us and 3 ms, 10 us a transfer (the paper says less than 100 us, several \
             hundred us, several ms); 100,000 cycles",
            "NVRAM: battery-backed DRAM, 50 ns per 64 bytes; 10^15 writes",
            "NVRAM: 2 GiB for L2P and for P2L with two slots of 8 bytes a page (the paper has one of 4 or 8 bytes); two, \
             since a page that moves twice must not lose the one entry that tells of it",
            "fs_write: a million files as in the paper, and lists of two million pages, 32 bytes each",
            "effective link bandwidth 3,200 MiB/s, 1 us a command; no deduplication, contents not stored",
            "addressable share 0.9, queue depth 32, background collection after 1 ms of idleness",
        ],
        checked: CLAIMS,
        build: pebble,
    },
];

/// A preset by its name.
///
/// # Errors
/// Lists the known names.
pub(crate) fn preset(name: &str) -> Result<&'static Preset, DeviceConfigError> {
    PRESETS
        .iter()
        .find(|preset| preset.name == name)
        .ok_or_else(|| {
            let names = PRESETS
                .iter()
                .map(|preset| preset.name)
                .collect::<Vec<_>>()
                .join(", ");
            let hint = did_you_mean(name, PRESETS.iter().map(|preset| preset.name));
            DeviceConfigError(format!(
                "no preset is named `{name}`; there are {names}{hint}"
            ))
        })
}

/// What the devices of papers were compared with.
const CLAIMS: &str = "the figures of its paper (docs/claims.md)";

const FAST21_ASSUMED: &[&str] = &[
    "channels: one per four dies, transfers not modelled",
    "hash unit: a new page every 1 us (the paper gives its latency, 32 us)",
    "lookups of owners stall all dies, as in the published simulators",
    "endurance of flash: 3,000 cycles; of NVRAM 1,000 times that, the lower bound the paper argues with",
    "link: PCIe 3.0 x4 at 3,200 MiB/s, and 1 us a command",
    "log or NVRAM: 80 MiB of the 40, 80 and 120 MB compared (32 GiB), 320 MiB of 160, 320 and 640 MB (256 GiB)",
    "garbage collection at 10 % free superblocks",
    "addressable share 0.9, queue depth 32, background collection after 1 ms of idleness",
];

const GIB_PAGES: u32 = 1 << 18;

const ASSUMED_LINK: Link = Link {
    mib_s: 3200,
    command_ns: 1000,
    write_saves_ns: 0,
};

fn geometry(channels: u32, dies: u32, superblocks: u32, pages_per_block: u32) -> Geometry {
    Geometry::new(Shape {
        channels,
        dies,
        superblocks,
        pages_per_block,
    })
    .expect("a preset's geometry is valid")
}

fn fast21(dies: u32, superblocks: u32, log_bytes: u64) -> DeviceConfig {
    // The paper does not give the channels: see `FAST21_ASSUMED`.
    let geometry = geometry(dies / 4, dies, superblocks, 1024);

    DeviceConfig {
        name: String::new(),
        addressable: 0.9,
        queue_depth: 32,
        host_ns: 0,
        content: ContentMode::Identity,
        geometry,

        flash: Flash {
            read_ns: CellTimes::flat(50_000),
            program_ns: CellTimes::flat(500_000),
            erase_ns: 5_000_000,
            transfer_ns: 0,
            flush_ns: 0,
            endurance: 3000,
            slc_read_ns: Flash::SLC_READ_NS,
            slc_program_ns: Flash::SLC_PROGRAM_NS,
            slc_endurance: Flash::SLC_ENDURANCE,
        },
        nvram: Nvram {
            read_ns: 50,
            write_ns: 500,
            endurance: 3_000_000,
        },
        hash: Hash {
            latency_ns: 32_000,
            interval_ns: 1000,
        },

        link: ASSUMED_LINK,
        controller: Controller::default(),
        timing: TimingConfig::default(),
        energy: EnergyConfig::default(),
        errors: Errors::default(),
        background: Background {
            lookup_stalls_dies: true,
            idle_after_ns: 1_000_000,
        },

        // 8/9 of the flash is logical in both of the paper's devices.
        firmware: Config {
            lpns: geometry.pages() / 9 * 8,
            log_bytes,
            ..Config::default()
        },
    }
}

fn fast21_4t() -> DeviceConfig {
    let mut config = fast21(64, 18_432, 1 << 30);
    (config.addressable, config.content) = (1.0, ContentMode::None);
    config.firmware.dedup = false;
    config
}

fn coldmap() -> DeviceConfig {
    DeviceConfig {
        name: String::new(),
        addressable: 1.0,
        queue_depth: 32,
        host_ns: 0,
        content: ContentMode::Identity,

        geometry: geometry(8, 64, 256, 256),
        flash: Flash {
            read_ns: CellTimes::flat(40_000),
            program_ns: CellTimes::flat(200_000),
            erase_ns: 2_000_000,
            transfer_ns: 0,
            flush_ns: 0,
            endurance: 1000,
            slc_read_ns: Flash::SLC_READ_NS,
            slc_program_ns: Flash::SLC_PROGRAM_NS,
            slc_endurance: Flash::SLC_ENDURANCE,
        },
        nvram: Nvram {
            read_ns: 50,
            write_ns: 500,
            endurance: 1_000_000,
        },
        hash: Hash {
            latency_ns: 1000,
            interval_ns: 1000,
        },

        link: ASSUMED_LINK,
        controller: Controller::default(),
        timing: TimingConfig::default(),
        energy: EnergyConfig::default(),
        errors: Errors::default(),
        background: Background {
            lookup_stalls_dies: true,
            idle_after_ns: 1_000_000,
        },

        firmware: Config {
            lpns: 12 * GIB_PAGES,
            log_bytes: 40 << 20,
            gc_free: 0.25,
            gc_garbage: 0.125,
            gc_at_once: true,
            gc_joins_host: true,
            fingerprint: FingerprintKind::Murmur3,
            ..Config::default()
        },
    }
}

fn pebble() -> DeviceConfig {
    // 375 GB of 4 KiB pages, and an eighth more superblocks than they need.
    let lpns = (375_000_000_000_u64 / 4096) as u32;

    DeviceConfig {
        name: String::new(),
        addressable: 0.9,
        queue_depth: 32,
        host_ns: 0,
        content: ContentMode::None,
        geometry: geometry(16, 64, 6300, 256),

        flash: Flash {
            read_ns: CellTimes::flat(50_000),
            program_ns: CellTimes::flat(300_000),
            erase_ns: 3_000_000,
            transfer_ns: 10_000,
            flush_ns: 0,
            endurance: 100_000,
            slc_read_ns: Flash::SLC_READ_NS,
            slc_program_ns: Flash::SLC_PROGRAM_NS,
            slc_endurance: Flash::SLC_ENDURANCE,
        },
        nvram: Nvram {
            read_ns: 50,
            write_ns: 50,
            endurance: 1_000_000_000_000_000,
        },
        hash: Hash {
            latency_ns: 0,
            interval_ns: 0,
        },

        link: ASSUMED_LINK,
        controller: Controller::default(),
        timing: TimingConfig::default(),
        energy: EnergyConfig::default(),
        errors: Errors::default(),
        background: Background {
            lookup_stalls_dies: false,
            idle_after_ns: 1_000_000,
        },

        firmware: Config {
            lpns,
            log_bytes: 2 << 30,
            scheme: SchemeKind::on(Medium::Tables).expect("a scheme of mapping tables in NVRAM"),
            dedup: false,
            fs_files: 1 << 20,
            fs_blocks: 2 << 20,
            ..Config::default()
        },
    }
}
