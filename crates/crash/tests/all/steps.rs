//! Traces of the firmware's steps have the form that docs/proof.md describes, and devices that its checker does not judge are refused.

use remap_ssd_crash::{Adjust, CampaignOptions, StepSink, run};
use remap_ssd_ftl::{Config, EntrySize, Granularity, SchemeKind};
use std::sync::{Arc, Mutex};

/// The lines of a step, which say after a colon what its operations wait for.
const STEPS: [&str; 18] = [
    "open",
    "pad",
    "write",
    "remap",
    "deallocate",
    "begin",
    "commit",
    "copy",
    "reenter",
    "restate",
    "clear",
    "zero",
    "die",
    "erase",
    "list",
    "clear-open",
    "unlist",
    "aside",
];

fn numbers(words: &[&str]) -> Vec<u64> {
    let number = |word: &&str| word.parse().unwrap_or_else(|_| panic!("{word}: a number"));
    words.iter().map(number).collect()
}

/// Waits are positions below that of the operation, or all operations or stores below one. After a semicolon follow those of the next
/// operation.
fn check_waits(waits: &str, first: u64) {
    for (own, waits) in (first..).zip(waits.split(';')) {
        for word in waits.split_whitespace() {
            let bound = word
                .strip_prefix("all<")
                .or_else(|| word.strip_prefix("stores<"));
            let position = numbers(&[bound.unwrap_or(word)])[0];
            let is_earlier = position < own || bound.is_some() && position == own;
            assert!(is_earlier, "{word} of {own}");
        }
    }
}

#[test]
fn a_trace_has_the_documented_form() {
    let text = Arc::new(Mutex::new(String::new()));
    let taken = Arc::clone(&text);
    let sink = StepSink(Arc::new(move |steps| {
        taken.lock().expect("no writer panics").push_str(steps);
    }));
    let options = CampaignOptions {
        cuts: Some(5),
        steps: Some(sink),
        ..CampaignOptions::new(SchemeKind::None, 1)
    };
    assert_eq!(run(&options, &mut |_| ()).violations, 0);

    let text = text.lock().expect("no writer panics");
    let (mut lpns, mut next) = (0, 0);
    let (mut steps, mut cuts, mut acks, mut forks) = (0, 0, 0, Vec::new());
    for (at, line) in text.lines().enumerate() {
        let (what, waits) = line.split_once(" :").unwrap_or((line, ""));
        let words: Vec<&str> = what.split(' ').collect();
        match (words[0], &words[1..]) {
            ("script", [code]) => assert!(at == 0 && code.starts_with("none:"), "{line}"),
            ("device", sizes) => {
                let sizes = numbers(sizes);
                assert!(at == 1 && sizes.len() == 7, "{line}");
                lpns = sizes[6] as usize;
            }
            ("done", ranges) => assert!(!ranges.is_empty(), "{line}"),
            ("rest", []) => next = 0,
            ("command", [_, ..]) | ("give-up" | "has" | "keeps", [_, ..]) => {}
            ("ack", [number]) => acks += numbers(&[number]).len(),
            ("fork", []) => forks.push(next),
            ("back", []) => next = forks.pop().expect("after a fork"),
            ("stay", []) => drop(forks.pop().expect("after a fork")),
            ("cut", [ends]) => {
                assert!(ends.chars().all(|end| "wat".contains(end)), "{line}");
                assert_eq!(ends.len() as u64, next, "{line}");
                (next, cuts) = (0, cuts + 1);
            }
            ("cut", []) => panic!("{line}: a cut of nothing"),
            ("shown", contents) => assert_eq!(numbers(contents).len(), lpns, "{line}"),
            (verb, _) => {
                assert!(STEPS.contains(&verb), "line {at}: {line}");
                check_waits(waits, next);
                next += match verb {
                    "remap" | "reenter" | "deallocate" => 2,
                    "clear" | "zero" => words.len() as u64 - 1,
                    _ => 1,
                };
                steps += 1;
            }
        }
    }
    assert!(
        forks.is_empty() && steps > 100 && cuts >= 5 && acks > 10,
        "{steps} steps, {cuts} cuts, {acks} acknowledgements"
    );
}

#[test]
fn what_the_checker_does_not_judge_is_refused() {
    let plain = CampaignOptions {
        steps: Some(StepSink(Arc::new(|_| ()))),
        ..CampaignOptions::new(SchemeKind::NLog, 1)
    };
    let with = |change: fn(&mut Config)| CampaignOptions {
        adjust: Adjust {
            firmware: Some(Arc::new(move |config| {
                let mut config = config.clone();
                change(&mut config);
                Ok(config)
            })),
            ..Adjust::default()
        },
        ..plain.clone()
    };
    assert!(plain.setups().is_ok());

    let pebble = CampaignOptions::new(SchemeKind::Pebble, 1);
    let cases = [
        (
            CampaignOptions {
                steps: plain.steps.clone(),
                ..pebble
            },
            "this scheme (only remap-ssd, nlog and none)",
        ),
        (
            CampaignOptions {
                mapping: Granularity::Hybrid,
                ..plain.clone()
            },
            "hybrid mapping",
        ),
        (
            CampaignOptions {
                media_faults: true,
                ..plain.clone()
            },
            "failing media",
        ),
        (
            with(|config| config.untorn_bytes = 64 << 10),
            "untorn writes (firmware.untorn_bytes=0 is without them)",
        ),
        (
            with(|config| config.entry = EntrySize::Bytes24),
            "24-byte entries",
        ),
    ];
    for (options, what) in cases {
        let refused = options.setups().expect_err(what).to_string();
        let wanted = format!("the proof's checker does not judge {what} yet");
        assert!(refused.ends_with(&wanted), "{refused}");
    }
}
