//! Other readings of what a paper leaves open: the same experiment with other inputs.
//!
//! ```toml
//! [[variant]]                       # in experiments/papers/NAME.toml
//! name = "new device"
//! about = "Nothing is aged: the paper ages before traces, and does not say so of this figure"
//! experiments = ["fast21-fig5"]
//! fill = "nothing"                  # each replaces the setups' own value, if it is there
//! nvram_used = 0.0
//! rounds = 0.25                     # times the setup's length
//! device = { host_ns = 500_000 }
//! ```
//! Invariant: a variant changes inputs of a whole experiment, never the figure of one claim. Absent:
//! running them (`study`).

use crate::claim::Claim;
use crate::config::{Paper, Setup, Variant};
use remap_ssd_sim::report::sheet::Sheet;
use serde::Serialize;

/// The claims of an experiment under a variant.
#[derive(Debug, Serialize)]
pub(crate) struct VariantClaims {
    /// The experiment.
    pub experiment: String,
    /// Name of the variant.
    pub variant: String,
    /// What it changes, and what speaks for it.
    pub about: String,
    /// Its claims, in the order of the experiment's.
    pub claims: Vec<Claim>,
}

impl Variant {
    /// The paper's table with this variant's inputs.
    pub(crate) fn of(&self, paper: &Paper) -> Paper {
        let mut paper = paper.clone();
        paper.setup.values_mut().for_each(|setup| self.apply(setup));
        paper
    }

    fn apply(&self, setup: &mut Setup) {
        merge(&mut setup.device, &self.device);
        setup.fill = self.fill.unwrap_or(setup.fill);
        setup.nvram_used = self.nvram_used.unwrap_or(setup.nvram_used);
        if self.aging_content.is_some() {
            setup.aging_content.clone_from(&self.aging_content);
        }
        for length in [&mut setup.full, &mut setup.quick, &mut setup.smoke] {
            length.rounds *= self.rounds.unwrap_or(1.0);
        }
    }
}

/// Replaces the values of `base` that `over` has, table by table.
fn merge(base: &mut toml::Table, over: &toml::Table) {
    for (key, value) in over {
        match (base.get_mut(key), value) {
            (Some(toml::Value::Table(inner)), toml::Value::Table(over)) => merge(inner, over),
            _ => {
                base.insert(key.clone(), value.clone());
            }
        }
    }
}

/// A row for each claim, with our figure under each variant; `claims` are those of the experiment as
/// it is.
pub(crate) fn table(claims: &[Claim], variants: &[&VariantClaims]) -> Sheet {
    let heads = ["claim", "part", "paper", "as it is"];
    let names = variants.iter().map(|one| one.variant.as_str());
    let columns: Vec<(&str, bool)> = heads
        .into_iter()
        .chain(names)
        .map(|head| (head, false))
        .collect();

    let cell = |claim: &Claim| format!("{}, {}", claim.ours_text, claim.verdict_text());
    let row = |(index, claim): (usize, &Claim)| {
        let own = [
            claim.id.clone(),
            claim.part.clone(),
            claim.paper_text.clone(),
            cell(claim),
        ];
        let varied = variants
            .iter()
            .map(|one| one.claims.get(index).map_or_else(String::new, cell));
        own.into_iter().chain(varied).collect()
    };
    let about =
        |one: &&VariantClaims| format!("{}: {}.", one.variant, one.about.trim_end_matches('.'));
    Sheet::of_words(
        &columns,
        claims.iter().enumerate().map(row).collect(),
        variants.iter().map(about).collect(),
    )
}
