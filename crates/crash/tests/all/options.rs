//! Campaigns draw every option of a device, alone and in pairs of scarce resources.

use remap_ssd_crash::setup::{GeometryAdjust, Setup};
use remap_ssd_crash::{Adjust, CampaignOptions, Marks, run};
use remap_ssd_device::DeviceConfig;
use remap_ssd_device::keys::{self, KEYS};
use remap_ssd_ftl::{Granularity, SchemeKind};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Keys that no campaign varies, each with the reason. A table covers all its keys.
const NOT_DRAWN: &[(&str, &str)] = &[
    ("preset", "it stands for other keys"),
    ("scale", "it stands for other keys"),
    ("firmware.gc_mode", "it stands for other keys"),
    ("name", "it is only shown"),
    (
        "firmware.gc_choices",
        "policies are drawn; this changes only which superblock one of them collects",
    ),
    ("addressable", "a script addresses all pages of its device"),
    (
        "queue_depth",
        "a script draws how many commands are under way",
    ),
    ("geometry.channels", "channels take time and nothing else"),
    (
        "flash",
        "a campaign has no time; endurance is `pe_limit` here, and drawn",
    ),
    (
        "nvram",
        "a campaign has no time, and NVRAM does not wear out in it",
    ),
    ("host_ns", "a campaign has no time"),
    ("controller", "a campaign has no time"),
    ("timing", "a campaign has no time"),
    ("energy", "it changes nothing"),
    (
        "errors",
        "they take time; pages that cannot be read are drawn as damage",
    ),
    ("hash", "a campaign has no time"),
    ("link", "a campaign has no time"),
    (
        "background",
        "a campaign has no time: scripts say when the host is idle",
    ),
];

/// All setups under both mappings and every scheme.
fn setups() -> Vec<Setup> {
    let mut all = Vec::new();
    for scheme in SchemeKind::ALL {
        for mapping in [Granularity::Page, Granularity::Hybrid] {
            if mapping == Granularity::Hybrid && scheme.needs_pages().is_some() {
                continue;
            }
            for index in 0..Setup::COMBINED.end {
                all.push(Setup::mapped(mapping, scheme, None, index, None));
            }
        }
    }
    all
}

/// The values of each key in the setups.
fn drawn(setups: &[Setup]) -> BTreeMap<&'static str, BTreeSet<String>> {
    let preset = DeviceConfig::preset("fast21-32g").expect("a preset");
    let mut values: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for setup in setups {
        let device = DeviceConfig {
            geometry: setup.geometry,
            content: setup.mode,
            firmware: setup.config.clone(),
            ..preset.clone()
        };
        let device = serde_json::to_value(device).expect("a device has a JSON form");
        for key in KEYS.iter() {
            let value = key
                .path
                .split('.')
                .try_fold(&device, |table, name| table.get(name));
            // A default value is omitted in a file, but counts as a value.
            let value = value.unwrap_or(&Value::Null);
            values
                .entry(key.path)
                .or_default()
                .insert(value.to_string());
        }
    }
    values
}

fn reason(path: &str) -> Option<&'static str> {
    NOT_DRAWN
        .iter()
        .find(|(key, _)| *key == path || path.starts_with(&format!("{key}.")))
        .map(|(_, why)| *why)
}

#[test]
fn every_option_of_a_device_is_drawn_or_there_is_a_reason_why_it_is_not() {
    let setups = setups();
    let mut wrong = Vec::new();
    for (path, values) in drawn(&setups) {
        match (values.len(), reason(path)) {
            (0 | 1, None) => wrong.push(format!("{path} is always {values:?}")),
            (2.., Some(why)) => wrong.push(format!("{path} is drawn, though '{why}'")),
            _ => {}
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));

    for (key, _) in NOT_DRAWN {
        let is_table = KEYS.iter().any(|one| one.table() == *key);
        assert!(keys::find(key).is_some() || is_table, "{key} is no key");
    }
}

/// Names of the scarce resources of a setup.
fn tight_in(setup: &Setup) -> Vec<&'static str> {
    let is_narrow = setup.geometry.groups() > 1;
    let is_remapping = setup.mix.copy + setup.mix.relocate > setup.mix.write;
    let energy = setup.config.scheme == SchemeKind::ShadowOob
        && setup
            .config
            .scheme
            .key("energy_pages")
            .is_some_and(|key| setup.config.own(key) > 0);
    [
        ("narrow", is_narrow),
        ("damage", setup.media_faults),
        ("wear", setup.config.pe_limit > 0),
        ("remaps", is_remapping),
        ("bad blocks", setup.bad_blocks > 0),
        ("apart", setup.apart),
        ("energy", energy),
        ("gc_free", setup.config.gc_free > 0.0),
    ]
    .into_iter()
    .filter_map(|(name, is_so)| is_so.then_some(name))
    .collect()
}

#[test]
fn options_that_are_tight_together_are_drawn_together() {
    const PAIRS: &[[&str; 2]] = &[
        ["narrow", "damage"],
        ["wear", "remaps"],
        ["wear", "bad blocks"],
        ["wear", "damage"],
        ["wear", "energy"],
        ["apart", "remaps"],
        ["apart", "gc_free"],
    ];
    let tight: Vec<Vec<&str>> = setups().iter().map(tight_in).collect();
    for pair in PAIRS {
        let is_drawn = tight
            .iter()
            .any(|of| pair.iter().all(|name| of.contains(name)));
        assert!(is_drawn, "no setup is tight in both of {pair:?}");
    }
}

fn survives(options: &CampaignOptions) -> Marks {
    let report = run(options, &mut |_| ());
    let failures: Vec<String> = report
        .failures
        .iter()
        .map(|failed| format!("{}\n{}", failed.code, failed.text))
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    report.marks
}

/// The schemes with a log on flash, which may be the last to find space.
#[test]
fn a_device_that_wears_out_under_remaps_ends_read_only_and_keeps_what_it_acknowledged() {
    let wears_out = |index: &u32| {
        let setup = Setup::new(SchemeKind::RemapSsdLh, None, *index, None);
        tight_in(&setup).contains(&"wear") && tight_in(&setup).contains(&"remaps")
    };
    // Scripts without long writes wear the device out sooner.
    let setting = "firmware.untorn_bytes=0".parse().expect("a setting");
    let adjust = Adjust::of_settings(vec![setting]);
    for scheme in [
        SchemeKind::RemapSsdLh,
        SchemeKind::LocalFlash,
        SchemeKind::FLog,
    ] {
        let mut worn_out = 0;
        for setup in Setup::COMBINED.filter(wears_out) {
            worn_out += survives(&CampaignOptions {
                setup: Some(setup),
                cuts: Some(2_000),
                adjust: adjust.clone(),
                ..CampaignOptions::new(scheme, 1)
            })
            .worn_out;
        }
        assert!(worn_out > 0, "{scheme} never wore out");
    }
}

#[test]
fn setups_that_are_tight_in_two_places_survive_every_cut_under_every_scheme() {
    for scheme in SchemeKind::ALL.into_iter().filter(|one| one.is_durable()) {
        for setup in Setup::COMBINED {
            survives(&CampaignOptions {
                setup: Some(setup),
                cuts: Some(100),
                ..CampaignOptions::new(scheme, 4)
            });
        }
    }
}

#[test]
fn the_numbers_of_the_flash_array_can_be_set_and_what_cannot_be_is_said() {
    let with = |geometry: GeometryAdjust| {
        let adjust = Adjust {
            geometry,
            ..Adjust::default()
        };
        Setup::adjusted(
            Granularity::Page,
            SchemeKind::RemapSsd,
            None,
            0,
            None,
            &adjust,
        )
    };

    let set = with(GeometryAdjust {
        dies: Some(4),
        superblocks: Some(19),
        pages_per_block: Some(11),
        superblock_dies: Some(2),
        ..GeometryAdjust::default()
    })
    .expect("it works");
    let geometry = set.geometry;
    assert_eq!(
        (
            geometry.dies_total(),
            geometry.blocks_per_die(),
            geometry.pages_per_block(),
            geometry.dies(),
        ),
        (4, 19, 11, 2)
    );

    let numbers = [
        (Some(0), None, None, None, "dies = 0 must be"),
        (None, Some(0), None, None, "superblocks = 0 must be"),
        (None, None, Some(1), None, "dies x pages_per_block = 2"),
        (Some(4), None, None, Some(3), "must divide the 4 dies"),
        (None, Some(3), None, None, "over-provisioning is too small"),
        (Some(64), None, Some(4096), None, "too large for a campaign"),
    ];
    for (dies, superblocks, pages_per_block, superblock_dies, wanted) in numbers {
        let error = with(GeometryAdjust {
            dies,
            superblocks,
            pages_per_block,
            superblock_dies,
            ..GeometryAdjust::default()
        })
        .expect_err(wanted)
        .to_string();
        assert!(error.contains(wanted), "{error}");
    }
}

#[test]
fn nvram_that_is_too_large_to_copy_at_each_cut_is_refused_before_it_is_allocated() {
    for set in [
        (|config| config.log_bytes = 1 << 44) as fn(&mut remap_ssd_ftl::Config),
        |config| config.dealloc_slots = u32::MAX,
        |config| (config.fs_files, config.fs_blocks) = (u32::MAX, u32::MAX),
    ] {
        let adjust = Adjust {
            firmware: Some(Arc::new(move |config| {
                let mut config = config.clone();
                set(&mut config);
                Ok(config)
            })),
            ..Adjust::default()
        };
        let error = Setup::adjusted(
            Granularity::Page,
            SchemeKind::RemapSsd,
            None,
            0,
            None,
            &adjust,
        )
        .expect_err("too large")
        .to_string();
        assert!(error.contains("bytes of NVRAM"), "{error}");
    }
}
