//! Short campaigns: every durable scheme passes, and the scheme that cannot be durable is caught.

use remap_ssd_crash::setup::Setup;
use remap_ssd_crash::{
    Adjust, CampaignOptions, CampaignReport, Marks, ReplayCode, replay, replay_adjusted, run,
};
use remap_ssd_ftl::{GcPolicy, Granularity, Guard, SchemeKind};

/// Distinct cuts of each campaign here; long campaigns run from the command line.
const CUTS: u64 = if cfg!(debug_assertions) {
    5_000
} else {
    10_000
};

fn campaign(scheme: SchemeKind, seed: u64, cuts: u64) -> CampaignReport {
    run(
        &CampaignOptions {
            cuts: Some(cuts),
            ..CampaignOptions::new(scheme, seed)
        },
        &mut |_| (),
    )
}

fn keeps_its_promise(scheme: SchemeKind) -> Marks {
    keeps_its_promise_over(scheme, 1, CUTS)
}

fn keeps_its_promise_over(scheme: SchemeKind, seed: u64, cuts: u64) -> Marks {
    let report = campaign(scheme, seed, cuts);
    let failures: Vec<String> = report
        .failures
        .iter()
        .map(|failed| format!("{}\n{}", failed.code, failed.text))
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(report.cuts >= cuts);
    report.marks
}

/// Asserts that each named mark occurred.
fn happened(marks: &Marks, names: &[&str]) {
    let by_name = marks.by_name();
    let never: Vec<_> = names
        .iter()
        .filter(|name| by_name.get(**name).is_none_or(|count| *count == 0))
        .collect();
    assert!(never.is_empty(), "never happened: {never:?} in {by_name:?}");
}

/// Marks required of every scheme.
const ALWAYS: &[&str] = &[
    "no_effect",
    "gc_runs",
    "gc_programs",
    "dealloc_flushes",
    "blocks_retired",
    "program_failures",
    "relocations",
    "trims",
    "partial_cuts",
    "recovery_cuts",
    "forks_adopted",
    "flips_corrected",
];

/// Additional marks required of a scheme that remaps.
const REMAPPING: &[&str] = &[
    "remaps",
    "dedup_hits",
    "demoted_counter_full",
    "demoted_nvram_full",
    "demoted_watermark",
    "metadata_gc_runs",
    "atomic_commands",
    "atomic_committed",
    "atomic_aborted",
];

#[test]
fn remap_ssd_survives_every_cut() {
    let marks = keeps_its_promise(SchemeKind::RemapSsd);
    happened(&marks, ALWAYS);
    happened(&marks, REMAPPING);
}

#[test]
fn remap_ssd_x_survives_every_cut() {
    let marks = keeps_its_promise(SchemeKind::RemapSsdX);
    happened(&marks, ALWAYS);
    happened(&marks, REMAPPING);
    happened(
        &marks,
        &["extents", "extensions", "extents_split", "extents_joined"],
    );
}

#[test]
fn nlog_survives_every_cut() {
    let marks = keeps_its_promise(SchemeKind::NLog);
    happened(&marks, ALWAYS);
    happened(&marks, REMAPPING);
}

#[test]
fn flog_survives_every_cut() {
    let marks = keeps_its_promise(SchemeKind::FLog);
    happened(&marks, ALWAYS);
    happened(&marks, REMAPPING);
}

/// Marks required of a log of pages owned by superblocks.
const GROUP_LOG: &[&str] = &[
    "destages",
    "groups_rewritten",
    "log_superblocks_erased",
    "group_entries_found",
    "group_pages_stale",
];

#[test]
fn local_logs_on_flash_survive_every_cut() {
    let marks = keeps_its_promise(SchemeKind::LocalFlash);
    happened(&marks, ALWAYS);
    happened(&marks, REMAPPING);
    happened(&marks, GROUP_LOG);
    happened(&marks, &["group_pages_moved"]);
}

#[test]
fn local_logs_that_leave_nvram_for_flash_survive_every_cut_and_demote_nothing_for_want_of_room() {
    // A log large enough for all LPNs takes a while to fill.
    let marks = keeps_its_promise_over(SchemeKind::RemapSsdLh, 1, 3 * CUTS);
    happened(&marks, ALWAYS);
    happened(
        &marks,
        &[
            "remaps",
            "dedup_hits",
            "demoted_counter_full",
            "atomic_committed",
            "atomic_aborted",
        ],
    );
    happened(&marks, GROUP_LOG);
    assert_eq!((marks.demoted_nvram_full, marks.demoted_watermark), (0, 0));
}

/// A capacitor saves the DRAM on power failure, including to flash with failing blocks.
#[test]
fn shadows_saved_by_a_capacitor_survive_every_cut() {
    let marks = keeps_its_promise(SchemeKind::ShadowOob);
    happened(&marks, ALWAYS);
    happened(&marks, REMAPPING);
}

/// Hybrid mapping: blocks are put in order by copies that a cut may interrupt, under every scheme
/// that supports it.
#[test]
fn blocks_in_order_survive_every_cut() {
    const MERGES: &[&str] = &[
        "merges_switch",
        "merges_partial",
        "merges_full",
        "merge_pads",
        "merge_unshared",
    ];

    let durable = SchemeKind::ALL
        .into_iter()
        .filter(|scheme| scheme.is_durable());

    for scheme in durable.filter(|scheme| scheme.needs_pages().is_none()) {
        let cuts = if scheme == SchemeKind::ShadowOob {
            CUTS
        } else {
            CUTS / 5
        };
        let options = CampaignOptions {
            mapping: Granularity::Hybrid,
            cuts: Some(cuts),
            ..CampaignOptions::new(scheme, 1)
        };
        let report = run(&options, &mut |_| ());
        let failures: Vec<_> = report
            .failures
            .iter()
            .map(|failed| format!("{}\n{}", failed.code, failed.text))
            .collect();
        assert!(failures.is_empty(), "{}", failures.join("\n"));
        happened(
            &report.marks,
            &MERGES[..if scheme == SchemeKind::None { 4 } else { 5 }],
        );
    }
}

#[test]
fn a_capacitor_with_too_little_energy_is_caught() {
    let options = CampaignOptions {
        mutant: Some(Guard::CapacitorEnergy),
        failures: 1,
        ..CampaignOptions::new(SchemeKind::ShadowOob, 1)
    };
    let report = run(&options, &mut |_| ());
    assert_eq!(report.violations, 1);
    assert!(
        report.failures[0].text.contains("after a cut, LPN"),
        "data is lost: {}",
        report.failures[0].text
    );
}

/// Dedup hits, full counters and the watermark do not apply: a page has at most two owners, and
/// only an explicit home.
#[test]
fn wal_ssd_survives_every_cut() {
    let marks = keeps_its_promise(SchemeKind::WalSsd);
    happened(&marks, ALWAYS);
    let own = [
        "remaps",
        "demoted_unhinted",
        "demoted_nvram_full",
        "metadata_gc_runs",
    ];
    happened(&marks, &own);
    happened(
        &marks,
        &["atomic_commands", "atomic_committed", "atomic_aborted"],
    );
}

#[test]
fn pebble_survives_every_cut() {
    let marks = keeps_its_promise_over(SchemeKind::Pebble, 4, CUTS);
    happened(&marks, ALWAYS);
    // Its tables have an entry for everything: NVRAM is never full, and nothing is collected there.
    let other = [
        "demoted_nvram_full",
        "demoted_watermark",
        "metadata_gc_runs",
    ];
    let mut names: Vec<&str> = REMAPPING
        .iter()
        .copied()
        .filter(|name| !other.contains(name))
        .collect();
    names.extend(["demoted_degree_full", "slot_clears", "slots_reused"]);
    happened(&marks, &names);
}

/// All marks of scripts on the file map, under schemes with different ways to make a write durable.
#[test]
fn the_file_map_survives_every_cut() {
    let setup = (0..Setup::COUNT)
        .find(|at| {
            Setup::new(SchemeKind::None, None, *at, None)
                .config
                .fs_files
                > 0
        })
        .expect("one");

    for scheme in [SchemeKind::RemapSsd, SchemeKind::Pebble, SchemeKind::None] {
        let mut marks = Marks::default();
        for seed in 0..20 {
            let report = replay(&ReplayCode {
                scheme,
                mapping: Granularity::Page,
                policy: None,
                setup,
                seed,
                mutant: None,
            });
            assert!(
                report.failures.is_empty(),
                "{}\n{}",
                report.failures[0].code,
                report.failures[0].text
            );
            marks.add(&report.marks);
        }
        happened(
            &marks,
            &[
                "fs_recorded",
                "fs_files_full",
                "fs_blocks_full",
                "fs_resets",
                "gc_runs",
            ],
        );
        happened(
            &marks,
            &[
                "file_pages_kept",
                "file_pages_dropped",
                "file_resets_kept",
                "file_resets_dropped",
            ],
        );
    }
}

#[test]
fn a_device_without_remapping_survives_every_cut() {
    let marks = keeps_its_promise(SchemeKind::None);
    happened(&marks, ALWAYS);
    happened(&marks, &["copies", "wear_runs"]);
}

/// On all devices, superblocks are refreshed whenever they have been read a few times.
#[test]
fn refreshes_survive_every_cut() {
    for scheme in SchemeKind::ALL
        .into_iter()
        .filter(|scheme| scheme.is_durable())
    {
        let reads = "firmware.refresh_reads=30".parse().expect("a setting");
        let options = CampaignOptions {
            cuts: Some(CUTS / 10),
            adjust: Adjust::of_settings(vec![reads]),
            ..CampaignOptions::new(scheme, 3)
        };
        let report = run(&options, &mut |_| ());
        let failures: Vec<&String> = report.failures.iter().map(|failed| &failed.text).collect();
        assert!(failures.is_empty(), "{scheme}: {failures:?}");
        happened(
            &report.marks,
            &["refresh_runs", "partial_cuts", "recovery_cuts"],
        );
    }
}

/// Every policy under every durable scheme; the campaigns above have each policy only on a few
/// devices.
#[test]
fn any_policy_with_any_scheme_survives_every_cut() {
    for scheme in SchemeKind::ALL
        .into_iter()
        .filter(|scheme| scheme.is_durable())
    {
        for policy in GcPolicy::ALL {
            let options = CampaignOptions {
                policy: Some(policy),
                cuts: Some(CUTS / 5),
                ..CampaignOptions::new(scheme, 2)
            };
            let report = run(&options, &mut |_| ());
            let failures: Vec<&String> =
                report.failures.iter().map(|failed| &failed.text).collect();
            assert!(failures.is_empty(), "{scheme} with {policy}: {failures:?}");
            let zoned = scheme != SchemeKind::None && policy.zones() > 1;
            assert_eq!(report.marks.gc_zoned > 0, zoned, "{scheme} with {policy}");
        }
    }
}

/// Devices whose blocks wear out one after the other, until they are read-only.
#[test]
fn a_worn_out_device_survives_every_cut() {
    let wears_out = |index: &u32| {
        Setup::new(SchemeKind::None, None, *index, None)
            .config
            .pe_limit
            > 0
    };

    let setup = (0..Setup::COUNT).find(wears_out).expect("one of them does");
    for scheme in SchemeKind::ALL
        .into_iter()
        .filter(|scheme| scheme.is_durable())
    {
        let options = CampaignOptions {
            setup: Some(setup),
            cuts: Some(CUTS / 5),
            ..CampaignOptions::new(scheme, 3)
        };
        let report = run(&options, &mut |_| ());
        let failures: Vec<&String> = report.failures.iter().map(|failed| &failed.text).collect();
        assert!(failures.is_empty(), "{scheme}: {failures:?}");
        happened(&report.marks, &["blocks_worn", "worn_out"]);
    }
}

/// Superblocks of one and of two dies of four, under every scheme without its own superblocks.
#[test]
fn superblocks_of_fewer_dies_survive_every_cut() {
    for scheme in SchemeKind::ALL
        .into_iter()
        .filter(|scheme| scheme.is_durable() && !scheme.keeps_entries_on_flash())
    {
        let groups = |index: u32| Setup::new(scheme, None, index, None).geometry.groups();
        let setups: Vec<u32> = (0..Setup::COUNT)
            .filter(|index| groups(*index) > 1)
            .collect();
        assert_eq!(
            setups
                .iter()
                .map(|index| groups(*index))
                .collect::<Vec<_>>(),
            [4, 2]
        );
        let mut all = Marks::default();
        for setup in setups {
            let options = CampaignOptions {
                setup: Some(setup),
                cuts: Some(CUTS / 5),
                ..CampaignOptions::new(scheme, 5)
            };
            let report = run(&options, &mut |_| ());
            let failures: Vec<&String> =
                report.failures.iter().map(|failed| &failed.text).collect();
            assert!(failures.is_empty(), "{scheme}: {failures:?}");
            happened(&report.marks, &["gc_runs", "partial_cuts", "recovery_cuts"]);
            all.add(&report.marks);
        }
        // With many bad blocks and many remaps, a victim of the second is mostly empty.
        happened(&all, &["gc_programs"]);
    }
}

#[test]
fn schemes_that_keep_their_remaps_in_dram_are_caught() {
    for scheme in [SchemeKind::Opt, SchemeKind::Unsafe] {
        let report = run(
            &CampaignOptions {
                failures: 1,
                ..CampaignOptions::new(scheme, 1)
            },
            &mut |_| (),
        );
        assert_eq!(report.violations, 1);
        let failed = &report.failures[0];
        let code: ReplayCode = failed.code.parse().expect("a printed code can be parsed");
        assert_eq!(
            replay(&code).failures,
            report.failures,
            "the code runs the same script again"
        );
    }
}

#[test]
fn a_campaign_bounded_by_cuts_reports_the_same_on_any_number_of_threads() {
    let run_with = |threads: u32| {
        run(
            &CampaignOptions {
                cuts: Some(1_000),
                threads,
                ..CampaignOptions::new(SchemeKind::RemapSsd, 7)
            },
            &mut |_| (),
        )
    };
    assert_eq!(run_with(1), run_with(3));
}

/// A file-map entry before the end of its page's write, three times; and a life record that cannot be read, of a superblock that hybrid
/// mapping closed early because a block failed.
#[test]
fn scripts_that_once_lost_data_lose_none() {
    let volatile = "firmware.untorn_bytes=64KiB,firmware.write_buffer_bytes=24KiB,firmware.power_loss_protection=false";
    for (code, settings) in [
        ("none:23:8db842f5", volatile),
        ("local-flash:23:e11637fe", volatile),
        (
            "remap-ssd+hybrid:36:cae3fdba",
            "firmware.untorn_bytes=64KiB,firmware.entry=24",
        ),
    ] {
        let settings = settings
            .split(',')
            .map(|one| one.parse().expect("a setting"));
        let adjust = Adjust::of_settings(settings.collect());
        let code: ReplayCode = code.parse().expect("a code");
        let report = replay_adjusted(&code, &adjust).expect("the device works");
        assert_eq!(report.violations, 0, "{code}: {:?}", report.failures);
        assert!(report.cuts > 200, "{code}");
    }
}

#[test]
fn a_replay_code_names_its_script() {
    for text in [
        "remap-ssd:3:9f2c41d0",
        "nlog:11:0:commit",
        "flog:0:ffffffff",
        "nlog/cost-benefit:1:a",
    ] {
        let code: ReplayCode = text.parse().expect(text);
        assert_eq!(code.to_string(), text);
    }

    for text in [
        "",
        "remap-ssd:3",
        "remap-ssd:x:1",
        "remap-ssd:1:xyz",
        "nothing:1:1",
        "nlog:1:1:commit:more",
        "nlog/lazy:1:1",
    ] {
        assert!(text.parse::<ReplayCode>().is_err(), "{text}");
    }
}
