//! Checks of experiments before anything runs: the list of experiments, and errors in one.

use remap_ssd_lab::{Form, LabError, Library, Study, built_in};
use std::collections::BTreeSet;
use std::path::Path;

fn names(library: &Library) -> Vec<String> {
    library
        .folders
        .iter()
        .map(|folder| folder.name.clone())
        .collect()
}

#[test]
fn every_folder_is_built_in_and_every_experiment_can_be_planned_at_every_size() {
    let experiments = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
    let on_disk: BTreeSet<String> = std::fs::read_dir(experiments)
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.path().is_dir() && entry.path().join("experiment.toml").exists())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    let library = built_in();
    assert_eq!(
        names(&library).into_iter().collect::<BTreeSet<_>>(),
        on_disk
    );
    for form in [Form::Full, Form::Quick, Form::Smoke] {
        let mut study = Study::plan(&library, &names(&library), form).unwrap();
        study.add_variants(&library, &[]).unwrap();
        for (variant, varied) in &study.variants {
            let name = &variant.name;
            let usual = study.planned.iter().find(|one| one.name == varied.name);
            assert_ne!(usual.unwrap().runs, varied.runs, "{name} changes no run");
        }
        for planned in &study.planned {
            assert!(
                (3..=20).contains(&planned.readme.lines().count()),
                "{} has a README of about ten lines",
                planned.name
            );
            let most = planned
                .runs
                .iter()
                .map(|run| run.memory_bytes())
                .max()
                .unwrap_or(0);
            assert!(
                most < (10 << 30),
                "{}: two runs at a time must fit into 20 GiB, one takes {most}",
                planned.name
            );
        }
    }
}

/// Returns the error of an experiment with this file.
fn wrong(experiment: &str) -> String {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().join("mine");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("experiment.toml"), experiment).unwrap();
    let mut library = built_in();
    library.lay_over(directory.path()).unwrap();
    match Study::plan(&library, &["mine".into()], Form::Smoke) {
        Err(LabError::Wrong(text)) => {
            assert_eq!(text.lines().count(), 1, "one sentence: {text}");
            text
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("nothing was wrong with {experiment}"),
    }
}

const GOOD: &str = r#"
title = "mine"
paper = "fast21"
analysis = "table"
[[runs]]
setup = "a"
scheme = ["none"]
workload = ["randwrite"]
content = ["papers:0.3"]
"#;

#[test]
fn mistakes_are_said_in_one_sentence_before_anything_runs() {
    let with = |from: &str, to: &str| {
        let text = GOOD.replace(from, to);
        assert_ne!(text, GOOD);
        wrong(&text)
    };
    let cases = [
        (
            with("setup = \"a\"", "setup = \"a\"\ntemperature = 7"),
            vec!["mine/experiment.toml", "line 7", "temperature"],
        ),
        (
            with("paper = \"fast21\"", "paper = \"fast22\""),
            vec!["fast22", "fast21"],
        ),
        (
            with("\"table\"", "\"chair\""),
            vec!["no analysis is named `chair`", "table"],
        ),
        (with("\"a\"", "\"z\""), vec!["no setup `z`", "a, b"]),
        (
            with("\"none\"", "\"nonsense\""),
            vec!["nonsense", "remap-ssd"],
        ),
        (with("randwrite", "sleepwalk"), vec!["sleepwalk"]),
        (
            with("randwrite", "trace:/nowhere/at/all.fiu"),
            vec!["/nowhere/at/all.fiu"],
        ),
        (with("papers:0.3", "papers:3"), vec!["0 to 1"]),
        (
            with("content = [\"papers:0.3\"]", ""),
            vec!["need `workload` and `content`"],
        ),
        (
            with("\"randwrite\"", "\"recording:nothing\""),
            vec![
                "mine/experiment.toml",
                "`nothing`",
                "sqlite-wal-fillseq-remap",
            ],
        ),
        (
            with(
                "scheme = [\"none\"]",
                "scheme = [\"remap-ssd\"]\nlog_mib = [0.001]",
            ),
            vec!["mine/experiment.toml", "remap-ssd"],
        ),
        (
            wrong(
                &GOOD
                    .replace("[[runs]]", "[[runs]]\nkind = \"recovery\"")
                    .replace("none", "opt"),
            ),
            vec!["nothing to recover"],
        ),
    ];
    for (text, words) in &cases {
        words
            .iter()
            .for_each(|word| assert!(text.contains(word), "`{word}` is not in: {text}"));
    }
}

#[test]
fn mistakes_in_a_variant_are_said_before_anything_runs() {
    let planned = |variant: &str| {
        let mut library = built_in();
        let paper = library.papers.get_mut("pebble").unwrap();
        paper.push_str(&format!(
            "[[variant]]\nname = \"mine\"\nabout = \"\"\n{variant}"
        ));
        let mut study = Study::plan(&library, &["pebble-micro".into()], Form::Smoke)?;
        study
            .add_variants(&library, &[])
            .map(|()| study.variants.len())
    };
    let others = planned("experiments = [\"pebble-bam\"]").unwrap();
    assert_eq!(
        planned("experiments = [\"pebble-micro\"]").unwrap(),
        others + 1
    );

    for (variant, word) in [
        (
            "experiments = [\"pebble-micro\"]\ndevice = { host_s = 1 }",
            "host_s",
        ),
        (
            "experiments = [\"pebble-micro\"]\ntemperature = 7",
            "temperature",
        ),
        ("", "experiments"),
        ("experiments = [\"pebble-micr\"]", "pebble-micr"),
    ] {
        let error = planned(variant).unwrap_err().to_string();
        assert!(
            error.contains(word) && error.contains("pebble.toml"),
            "{error}"
        );
    }
}

#[test]
fn an_unknown_experiment_names_those_there_are() {
    let error = Study::plan(&built_in(), &["fig99".into()], Form::Smoke)
        .err()
        .unwrap()
        .to_string();
    assert!(
        error.contains("fig99") && error.contains("fast21-fig5"),
        "{error}"
    );
}
