//! The page: one self-contained HTML file.
//!
//! Invariants: the page loads nothing and runs nothing (no script, font or image; the only links
//! save its own pictures); all
//! external text is escaped; the same input gives the same bytes, so it has neither a date nor
//! wall-clock time; it can be read without colours. Absent: the choice of data ([`super::metrics`],
//! `figures`, `headline`).

use maud::{DOCTYPE, Markup, PreEscaped, html as markup};

use super::figures::{Figure, figures};
use super::format::one_line;
use super::headline::cards;
use super::metrics::{self, Overview, Section};
use super::progress::Progress;
use crate::plot::{self, paint::paints};
use crate::summary::RunSummary;
use crate::timeline::DieTimeline;

/// The style sheet of the page, also for other pages of the same look; pictures have their own.
const PAGE_STYLE: &str = include_str!("page.css");

/// Style sheets of a page with pictures, as elements.
pub fn styles() -> Markup {
    markup! { style { (PreEscaped(plot::STYLE)) (PreEscaped(PAGE_STYLE)) } }
}

/// Renders the report of several runs as one page.
///
/// ```
/// use remap_ssd_sim::aging::{AgingSpec, age};
/// use remap_ssd_sim::device::{Device, DeviceConfig};
/// use remap_ssd_sim::report::{Progress, html, html::styles};
/// use remap_ssd_sim::run::{RunOptions, run};
/// use remap_ssd_sim::workload::NamedWorkload;
/// use std::ops::ControlFlow;
///
/// let mut device = Device::format(DeviceConfig::preset("fast21-32g")?.scale(1.0 / 256.0)?)?;
/// let pages = device.config().addressable_lpns();
/// let workload: NamedWorkload = "zipf:0.9".parse()?;
/// let mut source = workload.source(workload.content_default(), pages, 1, 0)?;
///
/// let aging: AgingSpec = "fill=sequential".parse()?;
/// let units = device.config().addressable_units();
/// age(&mut device, &mut *source, &aging.options(units, 1))?;
/// let options = RunOptions { pages: Some(1000), ..RunOptions::default() };
/// let summary = run(&mut device, &mut *source, &options, &mut |_| ControlFlow::Continue(()))?;
///
/// let config = serde_json::json!({ "workload": "zipf:0.9" });
/// let page = html(&[summary], &[], "One run", "of 1000 pages", &config, 1, Progress::HostPages);
/// assert!(page.contains(&styles().0) && !page.contains("<script"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// `timelines` are those of the runs, as far as they are known. `config` is shown verbatim, with `seed`, so that the
/// page says how to repeat the runs.
pub fn html(
    runs: &[RunSummary],
    timelines: &[Option<&DieTimeline>],
    title: &str,
    subtitle: &str,
    config: &serde_json::Value,
    seed: u64,
    progress: Progress,
) -> String {
    let content = markup! {
        @if runs.is_empty() {
            p class="empty" { "There are no runs to show." }
        } @else {
            (headline(runs))
            (overview(runs))
            section aria-labelledby="figures" {
                h2 id="figures" { "Figures" }
                div class="figures" { @for figure in figures(runs, progress) { (draw(&figure)) } }
            }
            (dies(runs, timelines))
            (everything(runs))
        }
        (configuration(config, &format!("Seed {seed}. The same seed and configuration give")))
    };
    document(title, subtitle, &content)
}

/// A whole page of this content.
pub(super) fn document(title: &str, subtitle: &str, content: &Markup) -> String {
    markup! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (one_line(title)) }
                (styles())
            }

            body {
                header {
                    h1 { (title) }
                    @if !subtitle.is_empty() { p class="subtitle" { (subtitle) } }
                }
                main { (content) }
            }
        }
    }
    .into_string()
}

fn headline(runs: &[RunSummary]) -> Markup {
    markup! {
        dl class="cards" {
            @for card in cards(runs) {
                div {
                    dt { (card.title) }
                    dd class="value" { (card.value) }
                    @if !card.note.is_empty() { dd { (card.note) } }
                }
            }
        }
    }
}

fn overview(runs: &[RunSummary]) -> Markup {
    let Overview { columns, rows } = metrics::overview(runs);

    markup! {
        section aria-labelledby="overview" {
            h2 id="overview" { "Overview" }

            div class="scroll" tabindex="0" role="region" aria-labelledby="overview" {
                table {
                    thead { tr {
                        @for column in &columns {
                            th scope="col" title=(column.help) {
                                (column.head)
                                @if !column.unit.is_empty() { " " span class="unit" { (column.unit) } }
                            }
                        }
                    } }

                    tbody {
                        @for (row, paint) in rows.iter().zip(paints(rows.iter().map(|row| row[0].as_str()))) {
                            tr {
                                th scope="row" { (swatch(paint.color)) (row[0]) }
                                @for cell in &row[1..] { td { (cell) } }
                            }
                        }
                    }
                }
            }

            @for remark in metrics::remarks(runs) { p class="remark" { (remark) } }

            details class="words" {
                summary { "What the columns mean" }
                dl {
                    @for column in &columns {
                        dt { (column.head) " " (column.unit) }
                        dd { (column.help) }
                    }
                }
            }
        }
    }
}

fn draw(figure: &Figure) -> Markup {
    markup! {
        figure {
            h3 { (figure.title) }
            p class="reading" { (figure.reading) }
            @match &figure.picture {
                Ok(picture) => div class="picture" { (picture) },
                Err(why) => p class="empty" { (why) },
            }
        }
    }
}

/// What each die did: a picture for each run, of which a click shows those after the first.
fn dies(runs: &[RunSummary], timelines: &[Option<&DieTimeline>]) -> Markup {
    let labels = metrics::labels(runs);
    let paints = paints(labels.iter().map(String::as_str));
    let known = labels.iter().zip(paints).zip(timelines);
    let known: Vec<_> = known
        .filter_map(|((label, paint), timeline)| Some((label, paint, (*timeline)?)))
        .collect();

    markup! {
        @if !known.is_empty() {
            section aria-labelledby="dies" {
                h2 id="dies" { "What each die did" }
                @for (at, (label, paint, timeline)) in known.iter().enumerate() {
                    details class="words" open[at == 0] {
                        summary { (swatch(paint.color)) (label) }
                        p class="reading" { (timeline.reading()) }
                        div class="picture" { (timeline.fluid(label)) }
                    }
                }
            }
        }
    }
}

fn swatch(color: &str) -> Markup {
    markup! { span class="swatch" style=(format!("--c:{color}")) aria-hidden="true" {} }
}

/// All other measurements, a column for each run.
fn everything(runs: &[RunSummary]) -> Markup {
    let labels = metrics::labels(runs);

    let columns: Vec<Vec<Section>> = runs.iter().map(metrics::details).collect();

    // One column per run, after that of the labels.
    let width = runs.len() + 1;

    markup! {
        section aria-labelledby="everything" {
            h2 id="everything" { "All measurements" }

            div class="scroll" tabindex="0" role="region" aria-labelledby="everything" {
                table class="long" {
                    thead { tr {
                        td {}
                        @for (label, paint) in labels.iter().zip(paints(labels.iter().map(String::as_str))) {
                            th scope="col" { (swatch(paint.color)) (label) }
                        }
                    } }

                    @for (s, section) in columns[0].iter().enumerate() {
                        tbody {
                            tr { th scope="rowgroup" class="group" colspan=(width) { (section.title) } }
                            @for (r, (label, _)) in section.rows.iter().enumerate() {
                                tr {
                                    th scope="row" { (label) }
                                    @for column in &columns { td { (column[s].rows[r].1) } }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// How to repeat the runs; `given` begins a sentence on what must be the same.
pub(super) fn configuration(config: &serde_json::Value, given: &str) -> Markup {
    let text = format!("{config:#}");
    markup! {
        section aria-labelledby="configuration" {
            h2 id="configuration" { "Configuration" }
            p { (given) " the same figures on any machine." }
            @if !config.is_null() {
                pre class="scroll" tabindex="0" { (text) }
            }
        }
    }
}
