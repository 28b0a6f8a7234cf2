//! Presets, scales and the errors of device files.

use remap_ssd_device::{DeviceConfig, DeviceFile, PRESETS, Setting, parse_scale};
use remap_ssd_ftl::{Config, SchemeKind};

const SCALES: [&str; 4] = ["1", "1/4", "1/16", "1/64"];

#[test]
fn every_preset_works_at_every_scale_under_every_scheme() {
    for preset in PRESETS {
        for scale in SCALES {
            for scheme in SchemeKind::ALL {
                let mut config = preset.config();
                config.firmware.scheme = scheme;
                let tables = config.firmware.tables_bytes(&config.geometry);

                if config.firmware.log_bytes < tables {
                    let error = config
                        .clone()
                        .scale(parse_scale(scale).unwrap())
                        .unwrap_err()
                        .to_string();
                    assert!(error.contains("both mapping tables in NVRAM"), "{error}");
                    config.firmware.log_bytes = tables;
                }

                let scaled = config.scale(parse_scale(scale).unwrap());
                scaled.unwrap_or_else(|error| {
                    panic!("{} at {scale} with {scheme}: {error}", preset.name)
                });
            }
        }
    }
}

#[test]
fn a_scaled_device_keeps_its_proportions() {
    for preset in PRESETS {
        let full = preset.config();
        let share = |config: &DeviceConfig| {
            let data = f64::from(Config::default().data_pages(&config.geometry))
                * f64::from(config.geometry.superblocks());
            let per_page = |value: f64| value / f64::from(config.geometry.pages());
            (
                f64::from(config.firmware.lpns) / data,
                per_page(config.firmware.log_bytes as f64),
            )
        };

        for scale in SCALES {
            let scaled = full.clone().scale(parse_scale(scale).unwrap()).unwrap();
            assert_eq!(scaled.geometry.superblocks(), full.geometry.superblocks());
            assert_eq!(scaled.geometry.dies(), full.geometry.dies());
            let ((lpns, log), (lpns_full, log_full)) = (share(&scaled), share(&full));
            assert!(
                (lpns / lpns_full - 1.0).abs() < 1e-4,
                "{} at {scale}: logical {lpns}",
                preset.name
            );
            assert!(
                (log / log_full - 1.0).abs() < 1e-2,
                "{} at {scale}: log {log}",
                preset.name
            );
        }
        assert_eq!(full.clone().scale(1.0).unwrap(), full);
    }
}

#[test]
fn the_presets_are_the_papers_devices() {
    let gib = |pages: u32| f64::from(pages) / f64::from(1 << 18);
    let fast = DeviceConfig::preset("fast21-32g").unwrap();
    assert_eq!(
        (gib(fast.firmware.lpns), gib(fast.geometry.pages())),
        (32.0, 36.0)
    );
    assert_eq!(
        (
            fast.geometry.superblocks(),
            fast.geometry.pages_per_superblock()
        ),
        (576, 16 * 1024)
    );

    let large = DeviceConfig::preset("fast21-256g").unwrap();
    assert_eq!(
        (gib(large.firmware.lpns), gib(large.geometry.pages())),
        (256.0, 288.0)
    );

    let cold = DeviceConfig::preset("coldmap-16g").unwrap();
    assert_eq!(
        (gib(cold.firmware.lpns), gib(cold.geometry.pages())),
        (12.0, 16.0)
    );

    let pebble = DeviceConfig::preset("pebble-375g").unwrap();
    assert_eq!(
        (u64::from(pebble.firmware.lpns) * 4096).div_ceil(1_000_000_000),
        375
    );
    assert!(PRESETS.iter().all(|preset| !preset.assumed.is_empty()));

    // Bits of a die, with spare ones.
    for (name, gbit) in [
        ("tlc-2t", 512.0),
        ("qlc-2t", 1024.0),
        ("970pro-512g", 256.0),
    ] {
        let geometry = DeviceConfig::preset(name).unwrap().geometry;
        let die = f64::from(geometry.pages() / geometry.dies_total()) * 4096.0 * 8.0;
        assert!(
            (0.97..1.03).contains(&(die / gbit / 1_073_741_824.0)),
            "{name}: {die}"
        );
    }

    // The one without contents is filled whole, and so is Coldmap's ("12 GB of sequential writes"), and drives
    // that are no paper's.
    let drives = [
        "mqsim-512g",
        "femu-16g",
        "970pro-512g",
        "zn540-1t",
        "tlc-2t",
        "qlc-2t",
    ];
    let addressable = |name: &str| {
        if ["fast21-4t", "coldmap-16g"].contains(&name) || drives.contains(&name) {
            1.0
        } else {
            0.9
        }
    };

    assert!(
        PRESETS
            .iter()
            .all(|preset| preset.config().addressable == addressable(preset.name))
    );
}

#[test]
fn a_device_file_reads_back() {
    for preset in PRESETS {
        let config = preset.config();
        assert_eq!(DeviceConfig::from_toml(&config.to_toml()).unwrap(), config);
    }
}

#[test]
fn a_device_file_may_change_a_preset() {
    let text = "preset = \"fast21-32g\"\nscale = \"1/16\"\nqueue_depth = 8\n[firmware]\nscheme = \"nlog\"\n";
    let config = DeviceConfig::from_toml(text).unwrap();
    let mut expected = DeviceConfig::preset("fast21-32g").unwrap();
    expected.queue_depth = 8;
    expected.firmware.scheme = SchemeKind::NLog;
    assert_eq!(config, expected.scale(1.0 / 16.0).unwrap());
}

/// The error of a file, which must be one sentence containing `part`.
fn refused(text: &str, part: &str) {
    let error = DeviceConfig::from_toml(text).expect_err(text).to_string();
    assert!(error.contains(part), "{error}");
    assert!(!error.contains('\n') && error.len() < 400, "{error}");
}

#[test]
fn what_a_file_gets_wrong_is_said_in_one_sentence() {
    refused(
        "preset = \"fast21-33g\"",
        "no preset is named `fast21-33g`; there are fast21-32g, ",
    );
    refused("preset = 5", "preset = 5 must be");
    refused(
        "preset = \"fast21-32g\"\nqueue_dept = 5",
        "unknown field `queue_dept`",
    );

    refused(
        "preset = \"fast21-32g\"\n[firmware]\nlogbytes = 5",
        "unknown field `firmware.logbytes`: did you mean `firmware.log_bytes`?",
    );
    refused(
        "preset = \"fast21-32g\"\n[flash]\nread_ns = \"fast\"",
        "must be above 0",
    );
    refused("preset = \"fast21-32g\"\n[flash]\nread_ns = -1", "-1");
    for (value, must) in [
        ("4294967296", "4294967296 must be 0 to 4294967295 reads"),
        ("-1", "-1 must be 0 to 4294967295 reads"),
        ("\"often\"", "must be a whole number of reads"),
        ("7.5", "7.5 must be a whole number of reads"),
    ] {
        refused(
            &format!("preset = \"fast21-32g\"\n[firmware]\nrefresh_reads = {value}"),
            must,
        );
    }

    refused(
        "preset = \"fast21-32g\"\n[flash]\nread_ns = 0",
        "must be above 0",
    );
    refused(
        "preset = \"fast21-32g\"\naddressable = 1.5",
        "addressable = 1.5",
    );
    refused(
        "preset = \"fast21-32g\"\nscale = 2",
        "scale 2 must be above 0 and at most 1",
    );

    refused("preset = \"fast21-32g\"\nscale = \"1/0\"", "scale 1/0");
    refused(
        "preset = \"tlc-2t\"\nscale = \"1/64\"\n[geometry]\nchannels = 2\ndies = 4\nsuperblocks = 64\n\
         pages_per_block = 384\nsuperblock_dies = 2\n[firmware]\nlpns = 60000\nlog_bytes = 1048576\ndedup = false",
        "(after scaling by 1/64)",
    );
    refused(
        "preset = \"fast21-32g\"\nscale = 1e-6\n[geometry]\ndies = 2\nchannels = 1",
        "dies x pages_per_block",
    );
    refused(
        "preset = \"fast21-32g\"\n[geometry]\ndies = 65",
        "dies = 65 must be 1 to 64",
    );

    refused(
        "preset = \"fast21-32g\"\n[firmware]\nlpns = 9437184",
        "over-provisioning is too small",
    );
    refused(
        "preset = \"fast21-32g\"\n[firmware]\nscheme = \"slog\"",
        "slog",
    );
    refused(
        "preset = \"fast21-32g\"\ncontent = \"none\"",
        "firmware.dedup",
    );

    refused("", "missing field");
    let full = DeviceConfig::preset("fast21-32g").unwrap().to_toml();
    refused(&full.replace("queue_depth", "queue_deep"), "line ");
    refused(&format!("{full}\n[x"), "line ");
}

// Such files are in images that earlier versions made.
#[test]
fn times_of_a_word_line_fit_its_cells() {
    let file = |geometry: &str, flash: &str| {
        DeviceConfig::from_toml(&format!(
            "preset = \"fast21-32g\"\n[geometry]\npages_per_block = 960\n{geometry}\n[flash]\n{flash}\n\
             [background]\nlookup_stalls_dies = false\n[timing]\nengine = \"nand\""
        ))
        .map(|_| ())
        .map_err(|error| error.to_string())
    };
    let tlc = "cell_bits = 3";
    let several = "program_ns = [400_000, 900_000, 1_600_000]";
    for (geometry, flash, part) in [
        (
            tlc.to_string(),
            several,
            "has 3 times: with geometry.one_shot",
        ),
        (
            tlc.to_string(),
            "read_ns = [40_000, 60_000]",
            "cell_bits = 3 needs one or 3",
        ),
        (
            format!("{tlc}\none_shot = false"),
            "program_ns = [400_000, 900_000]",
            "cell_bits = 3 needs one or 3",
        ),
    ] {
        let error = file(&geometry, flash).unwrap_err();
        assert!(error.contains(part), "{error}");
    }
    assert_eq!(file(&format!("{tlc}\none_shot = false"), several), Ok(()));
    assert_eq!(file(tlc, "read_ns = [40_000, 60_000, 80_000]"), Ok(()));
    assert_eq!(file("page_bytes = 16_384", several), Ok(()));

    let planes = "planes = 2";
    let chips = "read_ns = 50_000\n[timing]\nengine = \"nand\"\nindependent_planes = true\ndies_per_chip = 2";
    let text = format!(
        "preset = \"fast21-32g\"\n[geometry]\n{planes}\n[background]\nlookup_stalls_dies = false\n[flash]\n{chips}"
    );
    let error = DeviceConfig::from_toml(&text).unwrap_err().to_string();
    assert!(error.contains("needs timing.dies_per_chip = 1"), "{error}");

    // Two steps program whole word lines from a buffer that is kept.
    let steps = |geometry: &str, flash: &str, firmware: &str| {
        DeviceConfig::from_toml(&format!(
            "preset = \"fast21-32g\"\n[geometry]\npages_per_block = 960\n{geometry}\n[flash]\n{flash}\n\
             [background]\nlookup_stalls_dies = false\n[timing]\nengine = \"nand\"\ntwo_step = true\n\
             [firmware]\nscheme = \"none\"\n{firmware}"
        ))
        .map(|_| ())
        .map_err(|error| error.to_string())
    };
    let (qlc, two) = ("cell_bits = 4", "program_ns = [2_000_000, 4_000_000]");
    assert_eq!(steps(qlc, two, ""), Ok(()));
    for (geometry, flash, firmware, part) in [
        ("", two, "", "needs geometry.cell_bits above 1"),
        (qlc, "program_ns = 1_000_000", "", "needs two times"),
        (qlc, two, "power_loss_protection = false", "by others"),
    ] {
        let error = steps(geometry, flash, firmware).unwrap_err();
        assert!(error.contains(part), "{error}");
    }

    // A copyback moves a whole flash page.
    let copies = |geometry: &str| {
        let text = format!(
            "preset = \"fast21-32g\"\n[geometry]\npages_per_block = 960\n{geometry}\n[background]\n\
             lookup_stalls_dies = false\n[timing]\nengine = \"nand\"\ncopybacks = 3"
        );
        DeviceConfig::from_toml(&text).map(|_| ())
    };
    assert_eq!(copies(""), Ok(()));
    for geometry in ["planes = 2", "page_bytes = 16_384", "cell_bits = 3"] {
        let error = copies(geometry).unwrap_err().to_string();
        assert!(error.contains("a whole flash page"), "{error}");
    }

    // The copy would have no errors of the page.
    let with_errors = |copybacks: &str, rate: &str| {
        let settings = [
            "background.lookup_stalls_dies=false",
            "timing.engine=nand",
            copybacks,
            rate,
        ];
        let settings = settings.map(|text| text.parse().unwrap());
        let preset = DeviceConfig::preset("fast21-32g").unwrap();
        preset.with(&settings).unwrap().check()
    };
    let (copies, errors) = ("timing.copybacks=3", "errors.rate=0.001");
    assert!(with_errors(copies, "errors.rate=0").is_ok());
    assert!(with_errors("timing.copybacks=0", errors).is_ok());
    let error = with_errors(copies, errors).unwrap_err().to_string();
    assert!(error.contains("needs errors.rate = 0"), "{error}");

    // A cache register needs a channel.
    for key in ["cache_read", "cache_program"] {
        let timing = format!("read_ns = 50_000\n[timing]\nengine = \"nand\"\n{key} = true");
        let text = |transfer_ns| {
            let flash = format!("[flash]\ntransfer_ns = {transfer_ns}\n{timing}");
            format!("preset = \"fast21-32g\"\n[background]\nlookup_stalls_dies = false\n{flash}")
        };
        let error = DeviceConfig::from_toml(&text(0)).unwrap_err().to_string();
        assert!(error.contains("above 0"), "{error}");
        assert!(DeviceConfig::from_toml(&text(5000)).is_ok());
    }
}

// Also after a round trip: absent keys stay absent.
#[test]
fn erases_are_suspended_like_programs_unless_they_have_limits_of_their_own() {
    let with = |settings: &[&str]| {
        let common = ["background.lookup_stalls_dies=false", "timing.engine=nand"];
        let settings = common.iter().chain(settings).map(|text| text.parse());
        let settings: Vec<Setting> = settings.collect::<Result<_, _>>().unwrap();
        let config = DeviceConfig::preset("fast21-32g").unwrap().with(&settings);
        let config = config.unwrap();
        assert_eq!(DeviceConfig::from_toml(&config.to_toml()).unwrap(), config);
        let timing = config.timing;
        (timing.erase_suspensions, timing.erase_suspend_ns)
    };
    assert_eq!(with(&["timing.suspensions=4"]), (None, None));
    let own = ["timing.erase_suspensions=0", "timing.erase_suspend_ns=40us"];
    assert_eq!(with(&own), (Some(0), Some(40_000)));

    let published = "preset = \"fast21-32g\"\n[timing]\nerase_suspensions = 0";
    let error = DeviceConfig::from_toml(published).unwrap_err();
    assert!(error.to_string().contains("\"nand\" alone"), "{error}");
}

#[test]
fn the_rate_of_a_channel_stands_for_the_time_of_4_kib() {
    let file = |geometry: &str, flash: &str| {
        let text = format!(
            "preset = \"fast21-32g\"\n[geometry]\n{geometry}\n[flash]\n{flash}\n\
             [background]\nlookup_stalls_dies = false\n[timing]\nengine = \"nand\""
        );
        let config = DeviceConfig::from_toml(&text);
        config
            .map(|config| config.flash.transfer_ns)
            .map_err(|error| error.to_string())
    };
    assert_eq!(file("", "channel_mts = 800"), Ok(5120));
    assert_eq!(file("", "channel_mts = 333"), Ok(12_301));
    assert_eq!(file("", "channel_mts = 800\nchannel_bytes = 2"), Ok(2560));
    // As docs/your-flash.md has it: 488 spare bytes for each 4 KiB.
    let page = "page_bytes = 16384";
    let sheet = "channel_mts = 1200\nspare_bytes = 1952";
    assert_eq!(file(page, sheet), Ok(3820));

    let error = file("", "channel_mts = 800\ntransfer_ns = 5120").unwrap_err();
    assert!(error.contains("give the same time"), "{error}");
    let error = file("", "spare_bytes = 1952").unwrap_err();
    assert!(
        error.ends_with("flash.spare_bytes needs flash.channel_mts beside it"),
        "{error}"
    );
    let error = file("", "channel_mts = 0").unwrap_err();
    assert!(error.contains("flash.channel_mts = 0 must be"), "{error}");

    let set = |settings: &[&str]| {
        let settings: Vec<Setting> = settings.iter().map(|text| text.parse().unwrap()).collect();
        let config = DeviceConfig::preset("tlc-2t").unwrap().with(&settings);
        config.map(|config| config.flash.transfer_ns)
    };
    let rate = "flash.channel_mts=1200";
    assert_eq!(set(&[rate, "flash.spare_bytes=1952"]), Ok(3820));
    let spare = "flash.spare_bytes=0";
    assert!(set(&[rate, spare, "flash.transfer_ns=5us"]).is_err());
    // The device no longer knows the spare bytes of its file.
    assert!(set(&[rate]).is_err());
}

#[test]
fn a_suspension_longer_than_what_it_interrupts_is_refused() {
    let with = |settings: &str| {
        let common = ["background.lookup_stalls_dies=false", "timing.engine=nand"];
        let settings = common.into_iter().chain(settings.split(','));
        let settings: Vec<Setting> = settings.map(|text| text.parse().unwrap()).collect();
        let config = DeviceConfig::preset("fast21-32g").unwrap().with(&settings);
        config.unwrap().check().map_err(|error| error.to_string())
    };
    // Programs take 500 us and erases 5 ms.
    let longer = with("timing.suspensions=4,timing.suspend_ns=501us").unwrap_err();
    let expected = "timing.suspend_ns = 501000 must be at most flash.program_ns = 500000";
    assert!(longer.starts_with(expected), "{longer}");
    assert_eq!(with("timing.suspensions=4,timing.suspend_ns=500us"), Ok(()));
    assert_eq!(
        with("timing.suspensions=0,timing.suspend_ns=501us"),
        Ok(()),
        "it has no effect"
    );

    let types = "flash.program_ns=200us/600us/2ms,geometry.pages_per_block=1536,geometry.cell_bits=3,geometry.one_shot=false,timing.suspensions=4";
    let longer = with(&format!("{types},timing.suspend_ns=201us")).unwrap_err();
    assert!(
        longer.contains("at most flash.program_ns = 200000"),
        "{longer}"
    );
    let slc = "geometry.pages_per_block=1536,geometry.cell_bits=3,geometry.one_shot=true,firmware.slc_share=0.1,timing.suspensions=4";
    let longer = with(&format!("{slc},timing.suspend_ns=201us")).unwrap_err();
    assert!(
        longer.contains("at most flash.slc_program_ns = 200000"),
        "{longer}"
    );

    let erases = "timing.erase_suspensions=1,timing.erase_suspend_ns=6ms";
    let longer = with(erases).unwrap_err();
    let expected = "timing.erase_suspend_ns = 6000000 must be at most flash.erase_ns = 5000000";
    assert!(longer.starts_with(expected), "{longer}");
    let inherited = with("timing.erase_suspensions=1,timing.suspend_ns=6ms").unwrap_err();
    let expected = "timing.suspend_ns = 6000000 must be at most flash.erase_ns";
    assert!(inherited.starts_with(expected), "{inherited}");
}

#[test]
fn a_larger_flash_array_that_keeps_its_presets_logical_size_is_noted() {
    let note = |text: &str| {
        let text = format!("preset = \"fast21-32g\"\n[geometry]\n{text}");
        DeviceFile::read(&text).unwrap().note
    };
    let larger = note("superblocks = 1152").unwrap();
    let expected = "firmware.lpns = 8388608 is that of fast21-32g, which has 9437184 pages of flash; this geometry has 18874368";
    assert!(larger.starts_with(expected), "{larger}");
    assert!(larger.contains("firmware.lpns = 16777216 for"), "{larger}");
    assert_eq!(
        note("superblocks = 1152\n[firmware]\nlpns = 8_388_608"),
        None
    );
    assert_eq!(note("superblocks = 576"), None);
}

#[test]
fn a_file_says_at_which_scale_its_device_is() {
    let scale = |text: &str| {
        let text = format!("preset = \"fast21-32g\"\n{text}");
        DeviceFile::read(&text).unwrap().scale
    };
    assert_eq!(scale(""), 1.0);
    assert_eq!(scale("scale = \"1/16\""), 1.0 / 16.0);
    // A block of one page.
    assert_eq!(scale("scale = \"1/100000\""), 1.0 / 1024.0);
}

#[test]
fn reads_slower_than_programs_are_noted() {
    let note = |settings: &str| {
        let settings: Vec<Setting> = settings
            .split(',')
            .map(|text| text.parse().unwrap())
            .collect();
        let config = DeviceConfig::preset("fast21-32g").unwrap().with(&settings);
        config.unwrap().reads_slower_than_programs()
    };
    let slower = note("flash.read_ns=501us").unwrap();
    let expected = "flash.read_ns = 501000 is above flash.program_ns = 500000";
    assert!(slower.starts_with(expected), "{slower}");
    assert_eq!(note("flash.read_ns=500us"), None);

    // Page type by page type.
    let types = "flash.program_ns=100us/900us,flash.read_ns";
    assert_eq!(note(&format!("{types}=90us/200us")), None);
    assert!(note(&format!("{types}=110us/200us")).is_some());
    assert!(note(&format!("{types}=110us")).is_some());
}

#[test]
fn error_rates_that_contradict_each_other_are_refused() {
    let file = |engine: &str, errors: &str| {
        DeviceConfig::from_toml(&format!(
            "preset = \"fast21-32g\"\n[errors]\n{errors}\n\
             [background]\nlookup_stalls_dies = false\n[timing]\nengine = \"{engine}\""
        ))
        .map(|config| config.errors.rate)
        .map_err(|error| error.to_string())
    };
    for (engine, errors, part) in [
        (
            "published",
            "rate = 0.001",
            "timing.engine = \"nand\" alone",
        ),
        (
            "nand",
            "retry_rates = [0.02, 0.01]",
            "each above the one before",
        ),
        (
            "nand",
            "retry_rates = [0.005]",
            "must begin above 0.0087890625",
        ),
        (
            "nand",
            "retry_rates = [0.01]\nretry_ns = 70_000\nsoft_rate = 0.01\nsoft_ns = 500_000",
            "must be 0, or above 0.01",
        ),
        (
            "nand",
            "retry_rates = [0.01, 0.02]",
            "errors.retry_ns = 0, but errors.retry_rates has 2 retries",
        ),
        (
            "nand",
            "soft_rate = 0.03",
            "errors.soft_ns = 0, but errors.soft_rate = 0.03",
        ),
        (
            "nand",
            "correctable_bits = 9000",
            "at most errors.codeword_bits",
        ),
    ] {
        let error = file(engine, errors).unwrap_err();
        assert!(error.contains(part), "{error}");
    }
    let all = "rate = 0.001\nretry_rates = [0.01, 0.02]\nretry_ns = 70_000\nsoft_rate = 0.03\nsoft_ns = 500_000";
    assert_eq!(file("nand", all), Ok(0.001));
    assert_eq!(file("published", ""), Ok(0.0));
}

#[test]
fn a_file_without_the_tables_that_were_added_later_is_read() {
    let whole = DeviceConfig::preset("fast21-32g").unwrap();
    let mut table: toml::Table = whole.to_toml().parse().unwrap();
    for added in ["controller", "timing", "host_ns"] {
        assert!(table.remove(added).is_some(), "{added}");
    }
    assert_eq!(DeviceConfig::from_toml(&table.to_string()).unwrap(), whole);
}
