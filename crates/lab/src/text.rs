//! The outcome of experiments for a terminal: claims, tables, and how many claims hold; and the list
//! of experiments.
//!
//! Absent: the page (`page`), writing.

use crate::claim::{Claim, Verdict};
use crate::concluded::Concluded;
use crate::config::Form;
use crate::study::Planned;
use remap_ssd_sim::report::format::counted;
use remap_ssd_sim::report::sheet::Sheet;
use serde_json::{Value, json};

/// The claims, the findings, and each experiment's tables.
pub fn outcome(concluded: &[Concluded], form: Form) -> String {
    let claims: Vec<&Claim> = concluded.iter().flat_map(|one| &one.claims).collect();
    let findings: Vec<&Claim> = concluded.iter().flat_map(|one| &one.findings).collect();

    let lists = [&claims, &findings].into_iter();
    let lists = lists
        .filter(|list| !list.is_empty())
        .map(|list| sheet(list));
    let tables = concluded.iter().flat_map(|one| [&one.table, &one.variants]);
    let mut text: String = lists
        .chain(tables.flatten().cloned())
        .map(|table| format!("{}\n", table.text()))
        .collect();

    // Claims are counted, findings are not: a finding claims nothing.
    let of = |verdict: Verdict| {
        claims
            .iter()
            .filter(|claim| claim.verdict == verdict)
            .count()
    };
    if !claims.is_empty() {
        text += &format!(
            "{}: {} hold, {} show the same direction, {} differ, {} calibrated\n",
            counted(claims.len() as u64, "claim"),
            of(Verdict::Holds),
            of(Verdict::SameDirection),
            of(Verdict::Differs),
            of(Verdict::Calibrated)
        );
    }
    if form == Form::Smoke {
        text += "smoke form: the figures mean nothing\n";
    }
    text
}

fn sheet(claims: &[&Claim]) -> Sheet {
    let row = |claim: &&Claim| {
        let part = match claim.part.as_str() {
            "" => &claim.text,
            _ => &claim.part,
        };
        let [id, paper, ours] = [&claim.id, &claim.paper_text, &claim.ours_text].map(String::clone);
        vec![id, part.clone(), paper, ours, claim.verdict_text()]
    };
    let head = ["claim", "", "paper", "ours", "verdict"].map(|name| (name, false));
    Sheet::of_words(&head, claims.iter().map(row).collect(), Vec::new())
}

/// The list of experiments.
pub fn list(planned: &[Planned]) -> String {
    let row = |one: &Planned| {
        let (name, runs) = (one.name.clone(), one.runs.len().to_string());
        vec![
            name,
            runs,
            claimed(one).join(" "),
            one.experiment.title.clone(),
        ]
    };
    let head = ["name", "runs", "claims", "shows"].map(|name| (name, false));
    Sheet::of_words(&head, planned.iter().map(row).collect(), Vec::new()).text()
}

/// The list of experiments as JSON.
pub fn list_json(planned: &[Planned]) -> Value {
    let one = |one: &Planned| {
        json!({
            "name": one.name,
            "title": one.experiment.title,
            "paper": one.paper.title,
            "claims": claimed(one),
            "runs": one.runs.len(),
        })
    };
    planned.iter().map(one).collect()
}

/// The identifiers of an experiment's claims; several claims of one paper may share one.
fn claimed(planned: &Planned) -> Vec<&str> {
    let claims = planned.expectation.claim.iter();
    let mut ids: Vec<&str> = claims.map(|claim| claim.id.as_str()).collect();
    ids.dedup();
    ids
}
