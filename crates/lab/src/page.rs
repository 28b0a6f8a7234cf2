//! The report: one page with the table of claims, then each experiment's figures and measures.
//!
//! Invariants: the page loads no resources and runs no scripts; the same results give the same
//! bytes. Absent: verdicts.

use crate::claim::{Claim, Verdict};
use crate::concluded::Concluded;
use crate::config::Form;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use remap_ssd_sim::report::format::number;
use remap_ssd_sim::report::html::styles;

const MORE_STYLE: &str = "
table.claims { white-space: normal; }
table.claims td, table.claims th { text-align: left; vertical-align: top; }
table.claims td.figure { text-align: right; white-space: nowrap; }
.verdict { font-weight: 600; white-space: nowrap; }
.holds { color: var(--green); } .same-direction { color: var(--accent); } .differs { color: var(--vermilion); } .calibrated { font-weight: 400; }
.readme { white-space: pre-wrap; max-width: 60rem; }
";

/// Renders the report of all experiments as one self-contained HTML page.
pub(crate) fn page(concluded: &[Concluded], form: Form) -> String {
    let claims: Vec<&Claim> = concluded.iter().flat_map(|one| &one.claims).collect();
    let findings: Vec<&Claim> = concluded.iter().flat_map(|one| &one.findings).collect();

    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { "Claims of the papers, and what was measured" }
                (styles())
                style { (PreEscaped(MORE_STYLE)) }
            }
            body {
                header {
                    h1 { "Claims of the papers, and what was measured" }
                    p class="subtitle" { (subtitle(form)) }
                }
                main {
                    (cards(&claims))
                    (table("claims", "Claims", &claims))

                    p class="reading" {
                        "A claim holds if our effect, the distance from “no effect”, is within 25 % of the claimed one; it shows the same "
                        "direction if ours is at least half of it; else it differs. “No effect” is judged by an effect of 10 %. "
                        "A claim “up to” a figure holds below it. An interval is that of 95 %; “(?)”: the interval includes another verdict."
                    }

                    @if !findings.is_empty() { (table("findings", "What else the texts say, and what is ours", &findings)) }
                    @for one in concluded { (experiment(one)) }
                }
            }
        }
    }
    .into_string()
}

fn subtitle(form: Form) -> &'static str {
    match form {
        Form::Full => "Full size.",
        Form::Quick => {
            "Quick form: scaled devices and shorter runs; the full form is the one to quote."
        }
        Form::Smoke => "Smoke form: shows that everything runs. Its figures mean nothing.",
    }
}

fn cards(claims: &[&Claim]) -> Markup {
    let of = |verdict: Verdict| {
        claims
            .iter()
            .filter(|claim| claim.verdict == verdict)
            .count()
    };
    html! {
        dl class="cards" {
            @for verdict in [Verdict::Holds, Verdict::SameDirection, Verdict::Differs, Verdict::Calibrated] {
                div { dt { (verdict.name()) } dd class="value" { (of(verdict)) " of " (claims.len()) } }
            }
        }
    }
}

fn table(id: &str, heading: &str, claims: &[&Claim]) -> Markup {
    html! {
        section aria-labelledby=(id) {
            h2 id=(id) { (heading) }
            div class="scroll" tabindex="0" role="region" aria-labelledby=(id) {
                table class="claims" {
                    thead { tr { @for head in ["claim", "", "paper", "ours", "verdict", "why"] { th scope="col" { (head) } } } }

                    tbody {
                        @for claim in claims {
                            tr {
                                th scope="row" { a href=(format!("#{}", claim.experiment)) { (claim.id) } }
                                td { (claim.text) @if !claim.part.is_empty() { ": " (claim.part) } }
                                td class="figure" { (claim.paper_text) }
                                td class="figure" { (claim.ours_text) }
                                td class=(format!("verdict {}", claim.verdict.name().replace(' ', "-"))) { (claim.verdict_text()) }
                                td { (claim.why) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn experiment(one: &Concluded) -> Markup {
    html! {
        section aria-labelledby=(one.name) {
            h2 id=(one.name) { (one.title) }

            p class="reading" { (one.paper) "; " (one.runs) " runs; " code { "remap-ssd experiment " (one.name) } }
            @if !one.plots.is_empty() {
                div class="figures wide" {
                    @for plot in &one.plots {
                        figure { p class="reading" { (plot.reading) } div class="picture" { (plot.draw()) } }
                    }
                }
            }

            @if let Some(table) = &one.table { (table.markup()) }
            @if let Some(variants) = &one.variants {
                h3 { "Under other readings of the paper" }
                (variants.markup())
            }

            details class="words" {
                summary { "About" }
                div class="readme" { (one.readme) }
            }

            details class="words" {
                summary { "All figures measured" }
                dl { @for (name, value) in &one.measures { dt { (name) } dd { (number(*value)) } } }
            }
        }
    }
}
