//! The table of keys is complete, and the files generated from it are current.
//!
//! A program of its own: `tools/new-scheme` builds it, and not all tests, for a changed copy of the
//! tree.

use remap_ssd_device::keys::{DeviceKey, GC_MODES, KEYS, KeyKind, find};
use remap_ssd_device::nand::CellTimes;
use remap_ssd_device::{DeviceConfig, PRESETS, Setting, reference};
use remap_ssd_ftl::{SchemeKind, SchemeValues};
use serde_json::{Value, json};
use std::path::Path;

/// Keys that are no field of a device.
const OF_THE_FILE: [&str; 6] = [
    "preset",
    "scale",
    "firmware.gc_mode",
    "flash.channel_mts",
    "flash.channel_bytes",
    "flash.spare_bytes",
];

/// Fields omitted when they have their defaults.
const SILENT: [&str; 28] = [
    "link.write_saves_ns",
    "timing.erase_suspend_ns",
    "timing.erase_suspensions",
    "firmware.power_loss_protection",
    "geometry.superblock_dies",
    "geometry.planes",
    "geometry.page_bytes",
    "geometry.cell_bits",
    "geometry.one_shot",
    "geometry.indirection_bytes",
    "firmware.mapping",
    "firmware.block_pages",
    "firmware.extension",
    "firmware.gc_choices",
    "firmware.die_by_lpn",
    "firmware.refresh_reads",
    "firmware.refresh_writes",
    "firmware.mapping_cache_bytes",
    "firmware.write_buffer_bytes",
    "firmware.untorn_bytes",
    "firmware.buffered_remaps",
    "firmware.slc_share",
    "firmware.slc_dynamic",
    "firmware.slc_fold_free",
    "firmware.slc_fold_garbage",
    "flash.slc_read_ns",
    "flash.slc_program_ns",
    "flash.slc_endurance",
];

/// Keys without a default of their own: the value of another key takes its place.
const WITHOUT_DEFAULT: [&str; 3] = [
    "timing.erase_suspend_ns",
    "timing.erase_suspensions",
    "flash.channel_mts",
];

fn leaves(table: &str, value: &Value, out: &mut Vec<String>) {
    for (name, value) in value.as_object().into_iter().flatten() {
        let path = format!("{table}{name}");
        if value.is_object() {
            leaves(&format!("{path}."), value, out)
        } else {
            out.push(path)
        }
    }
}

#[test]
fn every_field_of_a_device_has_a_row_and_every_row_a_field() {
    let whole = serde_json::to_value(PRESETS[0].config()).unwrap();
    let mut fields = Vec::new();
    leaves("", &whole, &mut fields);
    fields.extend(SILENT.map(str::to_owned));
    for scheme in SchemeKind::ALL {
        let own = scheme.facts().keys.iter();
        fields.extend(own.map(|key| format!("firmware.{scheme}.{}", key.name)));
    }

    let mut rows: Vec<&str> = KEYS.iter().map(|key| key.path).collect();
    rows.retain(|path| !OF_THE_FILE.contains(path));
    let sorted = |mut names: Vec<&str>| {
        names.sort_unstable();
        names
            .iter()
            .map(|&name| name.to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        sorted(rows),
        sorted(fields.iter().map(String::as_str).collect())
    );
    for key in KEYS.iter() {
        assert!(key.about.ends_with('.'), "{}: {}", key.path, key.about);
        match key.default() {
            Some(value) => assert!(key.problem(&value).is_none(), "{}: {value}", key.path),
            None => assert!(WITHOUT_DEFAULT.contains(&key.path), "{}", key.path),
        }
    }
}

#[test]
fn a_file_with_comments_reads_back_as_the_same_device() {
    for preset in PRESETS {
        let text = reference::commented(&preset.config());
        assert_eq!(
            DeviceConfig::from_toml(&text).unwrap(),
            preset.config(),
            "{text}"
        );
        assert!(text.lines().all(|line| line.len() <= 100), "{text}");

        // A mode of collection stands for its three keys.
        let is_shown = |key: &DeviceKey| {
            let (line, absent) = (format!("{} = ", key.name()), format!("# {} = ", key.name()));
            let mut lines = text.lines();
            lines.any(|shown| shown.starts_with(&line) || shown.starts_with(&absent))
        };
        let is_hidden = |path: &&str| !OF_THE_FILE.contains(path) && !is_shown(find(path).unwrap());
        let mut hidden: Vec<&str> = KEYS.iter().map(|key| key.path).collect();
        hidden.retain(|path| is_hidden(path));
        let of_modes = ["gc_garbage", "gc_at_once", "gc_joins_host"];
        assert!(
            hidden.is_empty() || hidden == of_modes.map(|name| format!("firmware.{name}")),
            "{hidden:?}"
        );
    }
}

#[test]
fn just_outside_a_range_is_refused_and_just_inside_is_not() {
    let refused = |path: &str, value: Value| find(path).unwrap().problem(&value).is_some();
    for key in KEYS.iter() {
        match key.kind {
            KeyKind::Integer(least, most) => {
                assert!(!refused(key.path, least.into()), "{}", key.path);
                assert!(!refused(key.path, most.into()), "{}", key.path);
                assert!(least == 0 || refused(key.path, (least - 1).into()));
                assert!(most == u64::MAX || refused(key.path, (most + 1).into()));
                assert!(refused(key.path, (-1).into()) && refused(key.path, 0.5.into()));
            }
            KeyKind::Number(range) => {
                assert_eq!(refused(key.path, range.least.into()), range.above);
                assert_eq!(refused(key.path, range.most.into()), range.below);
                assert!(refused(key.path, (range.most + 0.01).into()));
                assert!(refused(key.path, Value::Null), "not a number");
            }
            KeyKind::Flag => assert!(refused(key.path, 1.into())),
            KeyKind::Choice(names) => {
                assert!(
                    names()
                        .iter()
                        .all(|name| !refused(key.path, (*name).into()))
                );
                assert!(refused(key.path, "no such thing".into()));
            }
            KeyKind::Text | KeyKind::Factor => assert!(refused(key.path, false.into())),
            KeyKind::Rates => {
                let fine = [json!([]), json!([0.5]), json!([1e-6, 0.002, 1])];
                assert!(fine.into_iter().all(|value| !refused(key.path, value)));
                let wrong = [
                    json!(0.1),
                    json!([0]),
                    json!([0.2, 0.2]),
                    json!([0.3, 0.2]),
                    json!([2]),
                ];
                assert!(wrong.into_iter().all(|value| refused(key.path, value)));
            }
            KeyKind::CellTimes => {
                let fine = [json!(1), json!([1, 2]), json!([5, 5, 5, 5])];
                assert!(fine.into_iter().all(|value| !refused(key.path, value)));
                let wrong = [
                    json!(0),
                    json!([]),
                    json!([2, 1]),
                    json!([1, 1, 1, 1, 1]),
                    json!(["1"]),
                ];
                assert!(wrong.into_iter().all(|value| refused(key.path, value)));
            }
        }
    }
}

#[test]
fn all_that_is_wrong_is_said_at_once_with_lines_and_suggestions() {
    let text = "preset = \"fast21-32g\"\nqueue_dept = 5\n[flash]\nread_ns = 0\n[firmware]\nscheme = \
                \"Remap-SDD\"\ngc_free = 2\n";
    let error = DeviceConfig::from_toml(text).unwrap_err().to_string();
    let lines: Vec<&str> = error.lines().collect();
    assert_eq!(lines[0], "4 things are wrong:");
    assert!(lines[1].contains("line 2: unknown field `queue_dept`: did you mean `queue_depth`?"));
    assert!(
        lines[2].contains("line 4: flash.read_ns = 0 must be above 0"),
        "{error}"
    );

    assert!(
        lines[3].contains("line 6: firmware.scheme = \"Remap-SDD\" must be one of")
            && lines[3].ends_with("did you mean `remap-ssd`?"),
        "{error}"
    );
    assert!(
        lines[4].contains("line 7: firmware.gc_free = 2 must be 0 to below 0.9"),
        "{error}"
    );
}

#[test]
fn a_mode_of_garbage_collection_is_its_three_keys_and_a_key_beside_it_prevails() {
    let firmware = |text: &str| {
        let text = format!("preset = \"coldmap-16g\"\n[firmware]\n{text}");
        DeviceConfig::from_toml(&text).unwrap().firmware
    };
    for mode in GC_MODES {
        let one = firmware(&format!("gc_mode = \"{}\"", mode.name));
        let old = firmware(&format!(
            "gc_at_once = {}\ngc_joins_host = {}\ngc_garbage = {:?}",
            mode.at_once, mode.joins_host, mode.garbage
        ));
        assert_eq!(one, old, "{}", mode.name);
    }
    let mixed = firmware("gc_mode = \"published\"\ngc_joins_host = false");
    assert!(mixed.gc_at_once && !mixed.gc_joins_host && mixed.gc_garbage == 0.0);
}

#[test]
fn single_values_are_set_by_their_names() {
    let set = |text: &str| text.parse::<Setting>();
    let settings = [
        "firmware.gc_free=20%",
        "firmware.log_bytes=40MiB",
        "flash.read_ns=40_000",
    ]
    .map(|text| set(text).unwrap());
    let config = PRESETS[0].config().with(&settings).unwrap();
    assert_eq!(config.firmware.gc_free, 0.2);
    assert_eq!(config.firmware.log_bytes, 40 << 20);
    assert_eq!(config.flash.read_ns, CellTimes::flat(40_000));

    let read_ns = |text: &str| {
        let setting = set(&format!("flash.read_ns={text}")).unwrap();
        PRESETS[0]
            .config()
            .with(&[setting])
            .unwrap()
            .flash
            .read_ns
            .mean()
    };
    let times = ["30us", "30 µs", "0.5ms", "700ns", "1s"].map(read_ns);
    assert_eq!(times, [30_000, 30_000, 500_000, 700, 1_000_000_000]);

    let wrong = [
        ("firmware.gc_fre=0.1", "did you mean `firmware.gc_free`?"),
        ("gc_free=0.1", "did you mean `firmware.gc_free`?"),
        ("firmware.gc_free=2", "must be 0 to below 0.9"),
        ("firmware.scheme=REMAP-SSD", "did you mean `remap-ssd`?"),
        ("firmware", "KEY=VALUE"),
        ("flash.read_ns=30min", "its units are ns, us, µs, ms, s"),
        ("firmware.log_bytes=4parsec", "its units are KiB, MiB"),
        (
            "flash.program_ns=[400_000",
            "a list is typed as 400us/900us/1.6ms; its units are ns",
        ),
        (
            "errors.retry_rates=[0.1]",
            "a list is typed as 0.01/0.012/0.015",
        ),
        ("preset=fast21-32g", "use --preset"),
    ];
    for (text, part) in wrong {
        let error = set(text).unwrap_err();
        assert!(error.to_string().contains(part), "{text}: {error}");
    }
    // A choice has a unit in the reference, and none that one could type.
    let error = set("firmware.entry=32").unwrap_err();
    assert!(!error.to_string().contains("its units"), "{error}");
}

#[test]
fn the_schema_knows_every_key() {
    let schema = reference::schema();
    for key in KEYS.iter() {
        let names = key.path.split('.');
        let place: String = names.map(|name| format!("/properties/{name}")).collect();
        let one = schema.pointer(&place).unwrap_or_else(|| panic!("{place}"));
        assert!(one["description"].is_string(), "{place}");
        let has_default = !WITHOUT_DEFAULT.contains(&key.path);
        assert_eq!(one.get("default").is_some(), has_default, "{place}");
    }
}

#[test]
fn the_reference_page_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, reference::page()).unwrap();
    }
    let page = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        page == reference::page(),
        "docs/configuration.md is stale: UPDATE_DOCS=1 cargo test -p remap-ssd-device --test reference"
    );
}

// A scheme declares its keys in its own folder; files, single values and the schema take them from
// there.
#[test]
fn a_schemes_own_key_is_in_its_table_and_read_where_older_files_have_it() {
    let mut seen = 0;
    for scheme in SchemeKind::ALL {
        for own in scheme.facts().keys {
            seen += 1;
            let (name, value) = (own.name, own.default + 1);
            let expected = SchemeValues::of(scheme, name, value);
            let file = |text: String| {
                let text = format!("preset = \"fast21-32g\"\n{text}");
                DeviceConfig::from_toml(&text).map(|device| device.firmware.scheme_values)
            };

            let table = format!("[firmware.{scheme}]\n{name} = {value}");
            assert_eq!(file(table).unwrap(), expected);
            assert_eq!(
                file(format!("[firmware]\n{name} = {value}")).unwrap(),
                expected
            );

            let device = PRESETS[0].config();
            for path in [
                format!("firmware.{scheme}.{name}"),
                format!("firmware.{name}"),
            ] {
                let setting: Setting = format!("{path}={value}").parse().unwrap();
                let set = device.with(&[setting]).unwrap();
                assert_eq!(set.firmware.scheme_values, expected, "{path}");
                assert_eq!(DeviceConfig::from_toml(&set.to_toml()).unwrap(), set);
            }

            let wrong = file(format!("[firmware.{scheme}]\n{name} = -1")).unwrap_err();
            assert!(
                wrong.to_string().starts_with("line 3: firmware."),
                "{wrong}"
            );
            let elsewhere = file(format!("[firmware.none]\n{name} = {value}")).unwrap_err();
            assert!(
                elsewhere.to_string().contains("unknown field"),
                "{elsewhere}"
            );

            let pointer =
                format!("/properties/firmware/properties/{scheme}/properties/{name}/default");
            assert_eq!(
                reference::schema().pointer(&pointer),
                Some(&own.default.into())
            );
        }
    }
    assert!(seen >= 3, "{seen} keys of schemes");
}

#[test]
fn a_value_that_a_scheme_cannot_work_with_is_refused_by_its_key() {
    for scheme in SchemeKind::ALL {
        for own in scheme.facts().keys.iter().filter(|key| key.least > 0) {
            let mut device = PRESETS[0].config();
            device.firmware.scheme = scheme;
            device.firmware.scheme_values = SchemeValues::of(scheme, own.name, own.least - 1);
            let error = device.check().unwrap_err().to_string();
            assert!(
                error.contains(&format!("{} = {} must be", own.name, own.least - 1)),
                "{error}"
            );
        }
    }
}
