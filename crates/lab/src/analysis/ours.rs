//! Our own evaluation with small NVRAM: bandwidth over Opt's, demotions, and NVRAM written per
//! remapped page.

use super::{Findings, content_name, one_panel};
use crate::LabError;
use crate::plot::Plot;
use crate::table::{Ask, Row, Table};

type Metric = fn(&Row, &Row) -> Result<f64, LabError>;

const METRICS: [(&str, &str, &str, Metric); 3] = [
    (
        "bandwidth",
        "Bandwidth",
        "share of Opt's bandwidth",
        |row, opt| Ok(row.number("bandwidth_mib_s")? / opt.number("bandwidth_mib_s")?),
    ),
    (
        "demoted",
        "Remaps that became copies",
        "% of those tried",
        |row, _| Ok(row.demoted()? * 100.0),
    ),
    (
        "nvram",
        "NVRAM written for each remapped page",
        "bytes",
        |row, _| nvram(row),
    ),
];

/// Bytes of NVRAM written per page remapped, reclaiming included.
fn nvram(row: &Row) -> Result<f64, LabError> {
    Ok(row.number("nvram_bytes_written")? / row.number("remaps")?.max(1.0))
}

pub(super) fn analyse(table: &Table) -> Result<Findings, LabError> {
    let mut found = Findings::default();

    let schemes: Vec<&str> = table
        .distinct(|run| run.scheme.as_str())
        .into_iter()
        .filter(|scheme| !["none", "opt"].contains(scheme))
        .collect();

    for content in table.distinct(|run| run.content.as_str()) {
        let short = match content {
            "unique" => "copies",
            content if content.starts_with("runs") => "runs",
            _ => "single",
        };

        let ask = |scheme, log_mib| {
            table.row(Ask {
                content: Some(content),
                scheme: Some(scheme),
                log_mib,
                ..Ask::default()
            })
        };
        let opt = ask("opt", None)?;

        for (name, title, y, metric) in METRICS {
            let mut groups = Vec::new();
            for log in table.logs() {
                let mut bars = Vec::new();

                for scheme in &schemes {
                    let value = metric(ask(scheme, Some(log))?, opt)?;
                    found.measure(format!("{name} {scheme} {short} {log}"), value);
                    bars.push(((*scheme).to_owned(), value));
                }
                groups.push((format!("{log} MiB"), bars));
            }

            found.plots.push(Plot {
                name: format!("{name}-{short}"),
                title: format!("{title}, {}", content_name(content)),
                reading: format!("{title}, by the size of the NVRAM."),
                y: y.into(),
                shape: one_panel("NVRAM", groups, None),
            });
        }

        for log in table.logs() {
            for (name, scheme) in [
                ("x", "remap-ssd-x"),
                ("lh", "remap-ssd-lh"),
                ("paper", "remap-ssd"),
            ] {
                let demoted = ask(scheme, Some(log))?.demoted()?;
                found.measure(format!("{name}_demoted_{short}_{log}"), demoted);
            }
        }

        // With the largest log nothing is demoted, so both hold the same remaps.
        let largest = table.logs().last().copied();
        let ratio = nvram(ask("remap-ssd-x", largest)?)? / nvram(ask("remap-ssd", largest)?)?;
        found.measure(format!("x_nvram_over_remap_ssd_{short}"), ratio);
    }

    Ok(found)
}
