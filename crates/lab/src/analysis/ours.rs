//! Our own evaluation with small NVRAM: bandwidth over Opt's, demotions, and NVRAM written per
//! remapped page.

use super::{Findings, content_name};
use crate::LabError;
use crate::plot::{MarkKind, Panel, Plot};
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

    let contents = table.distinct(|run| run.content.as_str());
    let schemes: Vec<&str> = table
        .distinct(|run| run.scheme.as_str())
        .into_iter()
        .filter(|scheme| !["none", "opt"].contains(scheme))
        .collect();

    let ask = |content, scheme, log_mib| {
        table.row(Ask {
            content: Some(content),
            scheme: Some(scheme),
            log_mib,
            ..Ask::default()
        })
    };

    for content in &contents {
        let short = match *content {
            "unique" => "copies",
            content if content.starts_with("runs") => "runs",
            _ => "single",
        };

        let opt = ask(content, "opt", None)?;

        for (name, title, y, metric) in METRICS {
            let mut groups = Vec::new();
            for log in table.logs() {
                let mut bars = Vec::new();

                for scheme in &schemes {
                    let value = metric(ask(content, scheme, Some(log))?, opt)?;
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
                shape: MarkKind::Bars(
                    vec![Panel {
                        title: "NVRAM".into(),
                        groups,
                    }],
                    None,
                ),
            });
        }

        for log in table.logs() {
            found.measure(
                format!("x_demoted_{short}_{log}"),
                ask(content, "remap-ssd-x", Some(log))?.demoted()?,
            );
            found.measure(
                format!("lh_demoted_{short}_{log}"),
                ask(content, "remap-ssd-lh", Some(log))?.demoted()?,
            );
            found.measure(
                format!("paper_demoted_{short}_{log}"),
                ask(content, "remap-ssd", Some(log))?.demoted()?,
            );
        }

        // With the largest log nothing is demoted, so both hold the same remaps.
        let largest = table.logs().last().copied();
        let (x, plain) = (
            ask(content, "remap-ssd-x", largest)?,
            ask(content, "remap-ssd", largest)?,
        );

        found.measure(
            format!("x_nvram_over_remap_ssd_{short}"),
            nvram(x)? / nvram(plain)?,
        );
    }

    Ok(found)
}
