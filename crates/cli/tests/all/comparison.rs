//! `compare`: its contract with programs, determinism, and the effects of the options.

use crate::kit::{TINY, Words, compare, nulls, run, run_in};
use serde_json::Value;

const SCHEMES: [&str; 5] = ["none", "remap-ssd", "flog", "nlog", "opt"];

#[test]
fn the_json_contract_holds_for_every_scheme() {
    // Contents of aging are found again at once, so that there are remaps.
    let result = compare("--seed 7 --aging content=papers:0.3");
    assert_eq!(result["seed"], 7);
    assert!(result["config"].is_object());
    let runs = result["runs"].as_array().unwrap();
    let schemes: Vec<&str> = runs
        .iter()
        .map(|run| run["scheme"].as_str().unwrap())
        .collect();
    assert_eq!(schemes, SCHEMES);
    for run in runs {
        for field in [
            "bandwidth_mib_s",
            "iops",
            "write_amplification",
            "seconds_simulated",
        ] {
            assert!(
                run[field].as_f64().is_some_and(|value| value > 0.0),
                "{field}: {run}"
            );
        }
        for field in ["host_pages", "flash_pages", "gc_pages", "remaps", "erases"] {
            assert!(run[field].is_u64(), "{field}: {run}");
        }
        for field in ["counter_full", "nvram_full", "watermark"] {
            assert!(run["demotions"][field].is_u64(), "{field}: {run}");
        }
        let latency = |field: &str| run["latency_us"][field].as_f64().unwrap();
        assert!(
            latency("p50") > 0.0
                && latency("p50") <= latency("p99")
                && latency("p99") <= latency("p999")
        );
        assert_eq!(run["host_pages"], 3000);
        let requests = &run["requests"];
        assert_eq!(
            (&requests["submitted"], &requests["writes"]),
            (&3000.into(), &3000.into())
        );
        let mut missing = Vec::new();
        nulls(run, "", &mut missing);
        // A part without writes never wears out; a few readings cannot tell whether a state is steady.
        const NEVER: [&str; 6] = [
            ".steady.is_steady",
            // No precision is wanted.
            ".steady.is_precise",
            ".nvram_life_years",
            ".lifetime_years",
            ".recovery",
            ".wear_out.first_retired_bytes",
        ];
        missing.retain(|path| !NEVER.contains(&path.as_str()));
        // The host read and remapped nothing, and 3,000 writes are too few for a quantile of one in
        // ten thousand.
        const FEW: [&str; 4] = [
            ".ci95.",
            ".latency_us.p9999",
            ".read_latency_us.",
            ".remap_latency_us.",
        ];
        missing.retain(|path| !FEW.iter().any(|few| path.starts_with(few)));
        assert_eq!(missing, Vec::<String>::new());
    }
    assert_eq!(runs[0]["remaps"], 0);
    assert!(
        runs[1]["remaps"].as_u64().unwrap() > 1000,
        "{}",
        runs[1]["remaps"]
    );
}

#[test]
fn the_same_seed_gives_the_same_bytes_on_any_number_of_threads() {
    let with = |seed: &str, threads: &str| {
        run(&format!("compare --json --seed {seed} --threads {threads}").and(TINY))
            .ok()
            .out
    };
    let one = with("3", "1");
    assert_eq!(one, with("3", "1"));
    assert_eq!(one, with("3", "4"));
    assert_ne!(one, with("4", "2"));
}

// One scheme and two threads: the firmware gets its own.
#[test]
fn a_run_on_two_threads_prints_the_bytes_of_one() {
    for dedup in ["on", "off"] {
        let with = |threads: &str| {
            let args = ["compare", "--json", "--scheme", "remap-ssd"];
            let more = ["--dedup", dedup, "--threads", threads];
            run(&[&args, &more, TINY].concat()).ok().out
        };
        assert_eq!(with("1"), with("2"), "--dedup {dedup}");
    }
}

#[test]
fn schemes_come_in_the_order_asked_for_and_once() {
    let result = compare("--scheme opt,none,opt --threads 2");
    let schemes: Vec<&Value> = result["runs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| &run["scheme"])
        .collect();
    assert_eq!(schemes, ["opt", "none"]);
}

#[test]
fn without_deduplication_random_writes_remap_nothing() {
    let result = compare("--scheme remap-ssd --dedup off");
    assert_eq!(
        (
            &result["runs"][0]["remaps"],
            &result["runs"][0]["dedup_hits"]
        ),
        (&0.into(), &0.into())
    );
    assert_eq!(result["config"]["device"]["firmware"]["dedup"], false);
}

#[test]
fn more_duplicates_are_fewer_flash_writes() {
    let pages = |share: &str| {
        compare(&["--scheme", "remap-ssd", "--duplicates", share])["runs"][0]["host_programs"]
            .as_u64()
            .unwrap()
    };
    assert!(pages("0.6") < pages("30%") && pages("30%") < pages("0"));
    let unique = compare("--scheme remap-ssd --content unique");
    assert_eq!(unique["runs"][0]["dedup_hits"], 0);
    let plain = compare("--scheme remap-ssd --content plain:0.5");
    let hits = plain["runs"][0]["dedup_hits"].as_u64().unwrap();
    assert!((1_200..1_800).contains(&hits), "{hits} of 3000");
}

#[test]
fn the_log_size_is_that_of_the_whole_device() {
    let bytes = |size: &str| {
        compare(&["--scheme", "remap-ssd", "--log-size", size])["config"]["device"]["firmware"]["log_bytes"]
            .as_u64()
            .unwrap()
    };
    assert_eq!(bytes("40MiB"), (40 << 20) / 64);
    assert_eq!(bytes("80 MiB"), (80 << 20) / 64);
}

#[test]
fn a_new_device_is_not_aged() {
    let new = compare("--scheme none --no-aging");
    assert!(new["runs"][0]["aging"].is_null());
    assert_eq!(new["runs"][0]["gc_pages"], 0);
    let aged = compare("--scheme none");
    assert!(aged["runs"][0]["aging"]["filled"].as_u64().unwrap() > 70_000);
    assert!(aged["runs"][0]["gc_pages"].as_u64().unwrap() > 0);
}

#[test]
fn reads_and_larger_requests_are_counted_as_what_they_are() {
    let result = compare("--scheme none --workload zipfrw:0.99:70,pages=4");
    let run = &result["runs"][0];
    let requests = &run["requests"];
    assert_eq!(requests["submitted"], 750);
    assert_eq!(
        requests["reads"].as_u64().unwrap() + requests["writes"].as_u64().unwrap(),
        750
    );
    assert!(run["read_latency_us"]["p50"].as_f64().unwrap() > 0.0);
}

#[test]
fn the_table_is_aligned_and_names_what_was_run() {
    let shown = run(&"compare --seed 5 --details".and(TINY)).ok();
    let table: Vec<&str> = shown
        .out
        .lines()
        .skip_while(|line| !line.contains("───"))
        .take(6)
        .collect();
    let width = |line: &str| line.chars().count();
    assert!(
        table[1..].iter().all(|line| width(line) == width(table[0])),
        "{}",
        shown.out
    );
    SCHEMES
        .iter()
        .zip(&table[1..])
        .for_each(|(scheme, line)| assert!(line.starts_with(scheme), "{line}"));
    [
        "fast21-32g at 1/64",
        "randwrite",
        "papers:0.3",
        "queue depth 32",
        "seed",
        "Simulated in",
    ]
    .iter()
    .for_each(|word| assert!(shown.out.contains(word), "{word}: {}", shown.out));
    assert!(!shown.out.contains('\u{1b}'), "no escape codes");
}

#[test]
fn the_report_is_the_same_page_each_time() {
    let directory = tempfile::tempdir().unwrap();
    let page = |name: &str, threads: &str| {
        let args = [&["compare", "--report", name, "--threads", threads], TINY].concat();
        run_in(directory.path(), &args).ok();
        std::fs::read_to_string(directory.path().join(name)).unwrap()
    };
    let first = page("a.html", "1");
    assert!(first.starts_with("<!DOCTYPE html>") && first.contains("<svg"));
    assert_eq!(first, page("b.html", "2"));
}

#[test]
fn a_device_file_makes_the_device() {
    let directory = tempfile::tempdir().unwrap();
    let toml = run("presets --toml fast21-32g").ok().out;
    std::fs::write(
        directory.path().join("device.toml"),
        toml.replace("read_ns = 50000", "read_ns = 70000"),
    )
    .unwrap();
    let args = "compare --json --scheme none --config device.toml".and(TINY);
    let result = run_in(directory.path(), &args).ok().json();
    assert_eq!(result["config"]["device"]["flash"]["read_ns"], 70_000);
    assert_eq!(
        result["config"]["device"]["geometry"]["pages_per_block"],
        16
    );
}

#[test]
fn a_device_is_aged_as_asked() {
    // Duplicates would use up the metadata before the remaps of aging do.
    let apart = |more: &[&str]| {
        let args = "--scheme remap-ssd --dedup off".and(more);
        compare(&args)["runs"][0]["aging"].clone()
    };
    let aging = |spec: &str| apart(&["--aging", spec]);
    let half = aging("fill=whole,nvram_used=0.5,nvram_valid=0.9");
    let share = |of: &Value, name: &str| of[name].as_f64().unwrap();
    assert!((0.5..0.6).contains(&share(&half, "nvram_used")), "{half}");
    assert!((0.8..=1.0).contains(&share(&half, "nvram_valid")), "{half}");
    let random = aging("fill=random");
    // Each page once, before random writes: garbage collection begins after a different number of
    // writes.
    assert_ne!(half["filled"], random["filled"], "{half} {random}");
    let default = apart(&[]);
    assert_eq!(default, aging("fill=whole"));
    assert_eq!(aging("nvram_used=0")["remapped"], 0);
    let sequential = aging("fill=sequential");
    assert_eq!(sequential["remapped"], 0);
    assert!(
        sequential["filled"].as_u64() < default["filled"].as_u64(),
        "{sequential} {default}"
    );
    let text = run(&"compare --aging fill=random".and(TINY)).ok().out;
    assert!(
        text.contains("fill=random,nvram_used=0.9,nvram_valid=0.7,overwrite=2,content=unique"),
        "{text}"
    );
}

#[test]
fn metadata_that_holds_no_entries_and_log_pages_in_the_array_are_shown() {
    // Contents of aging are found again at once, so that there are remaps to log.
    let duplicates = ["--aging", "content=papers:0.3"];
    let result = compare(&[&duplicates[..], &["--scheme", "none,remap-ssd,flog,opt"]].concat());
    let number = |run: usize, name: &str| result["runs"][run][name].as_u64().unwrap();
    // A segment has a head; and space for rewriting the fullest superblock is reserved.
    assert!(
        number(1, "nvram_heads_bytes") > 0 && number(1, "nvram_reserve_bytes") > 0,
        "{result}"
    );
    assert!(
        number(1, "nvram_heads_bytes") + number(1, "nvram_reserve_bytes")
            < number(1, "nvram_room_bytes")
    );
    assert_eq!(
        (number(0, "nvram_room_bytes"), number(3, "nvram_room_bytes")),
        (0, 0),
        "without limit"
    );

    assert!(
        number(2, "log_pages") > 0 && number(2, "log_pages") <= number(2, "metadata_pages"),
        "{result}"
    );
    assert_eq!((number(0, "log_pages"), number(1, "log_pages")), (0, 0));
    for run in 0..4 {
        let data = number(run, "host_programs") + number(run, "gc_pages");
        assert_eq!(
            data + number(run, "metadata_pages"),
            number(run, "flash_pages"),
            "{run}"
        );
        let amplification = result["runs"][run]["write_amplification_data"]
            .as_f64()
            .unwrap();
        assert!((amplification - data as f64 / number(run, "host_pages") as f64).abs() < 1e-12);
    }
}
