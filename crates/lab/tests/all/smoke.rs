//! All experiments at their smallest size, through the library.

use remap_ssd_lab::{Event, Form, Limits, Options, Store, Study, Verdict, built_in};
use std::sync::atomic::{AtomicUsize, Ordering};

// The same claims under each variant, other figures, and runs that are made once.
#[test]
fn variants_have_the_claims_of_their_experiment_with_figures_of_their_own() {
    let library = built_in();
    let mut study = Study::plan(&library, &["pebble-micro".into()], Form::Smoke).unwrap();
    study.add_variants(&library, &[]).unwrap();

    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path(), "test").unwrap();
    let options = Options {
        form: Form::Smoke,
        limits: Limits {
            threads: 2,
            memory: 4 << 30,
        },
        fresh: false,
    };
    study.run(&store, &options, &|_| ()).unwrap();
    let concluded = study.conclude(&store).unwrap();
    let text = std::fs::read(directory.path().join("variants.json")).unwrap();
    let varied: serde_json::Value = serde_json::from_slice(&text).unwrap();

    let page = std::fs::read_to_string(directory.path().join("report.html")).unwrap();
    let usual = &concluded[0].claims;
    assert_eq!(varied.as_array().unwrap().len(), study.variants.len());
    for one in varied.as_array().unwrap() {
        let name = one["variant"].as_str().unwrap();
        let table = concluded[0].variants.as_ref().unwrap();
        assert!(table.columns.iter().any(|column| column.name == name));
        assert!(page.contains(&format!("<th scope=\"col\">{name}</th>")));
        let claims = one["claims"].as_array().unwrap();
        assert_eq!(claims.len(), usual.len());
        let of_id = |id: &str| usual.iter().position(|claim| claim.id == id).unwrap();
        let moved = of_id("PB6");
        assert_ne!(claims[moved]["ours"], usual[moved].ours, "{name}");
        // Its inputs were chosen for the experiment as it is alone.
        assert!(claims.iter().all(|claim| claim["verdict"] != "calibrated"));
    }
    let calibrated = usual
        .iter()
        .filter(|claim| claim.verdict == Verdict::Calibrated);
    assert_eq!(calibrated.count(), 1);
}

// Every analysis finds its runs, every expectation its measure, and every figure is a picture.
#[test]
fn every_experiment_ends_with_claims_and_figures_and_a_second_time_makes_no_run() {
    let library = built_in();
    let names: Vec<String> = library
        .folders
        .iter()
        .map(|folder| folder.name.clone())
        .collect();
    let study = Study::plan(&library, &names, Form::Smoke).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path(), "test").unwrap();
    let limits = Limits {
        threads: 2,
        memory: 4 << 30,
    };
    let options = Options {
        form: Form::Smoke,
        limits,
        fresh: false,
    };
    let missing = AtomicUsize::new(0);
    let tell = |event: Event<'_>| {
        if let Event::Begun { missing: count, .. } = event {
            missing.store(count, Ordering::Relaxed);
        }
    };
    study.run(&store, &options, &tell).unwrap();
    assert!(missing.load(Ordering::Relaxed) > 100);
    let concluded = study.conclude(&store).unwrap();
    for one in &concluded {
        assert!(!one.plots.is_empty(), "{} has figures", one.name);
        for plot in &one.plots {
            let svg = plot.svg();
            let document = roxmltree::Document::parse(&svg)
                .unwrap_or_else(|error| panic!("{}: {error}", plot.name));
            for node in document
                .descendants()
                .filter(|node| node.has_tag_name("rect"))
            {
                let height: f64 = node.attribute("height").unwrap().parse().unwrap();
                assert!(
                    height.is_finite() && height >= 0.0,
                    "{}/{}",
                    one.name,
                    plot.name
                );
            }
        }
        for claim in one.claims.iter().chain(&one.findings) {
            assert!(
                claim.ours.is_finite(),
                "{} {}: {}",
                claim.id,
                claim.part,
                claim.ours
            );
            assert!(claim.verdict != Verdict::Holds || claim.why.is_empty());
            assert!(!claim.why.contains(['{', '}']), "{}", claim.why);
        }
        println!(
            "{}: {} claims, {} findings, {} figures",
            one.name,
            one.claims.len(),
            one.findings.len(),
            one.plots.len()
        );
    }
    let page = std::fs::read(directory.path().join("report.html")).unwrap();
    study.run(&store, &options, &tell).unwrap();
    assert_eq!(missing.load(Ordering::Relaxed), 0, "everything is there");
    study.conclude(&store).unwrap();
    assert_eq!(
        std::fs::read(directory.path().join("report.html")).unwrap(),
        page,
        "the same page"
    );
}
