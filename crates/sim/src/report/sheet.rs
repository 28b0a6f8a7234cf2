//! Tables for papers and spreadsheets: Markdown, LaTeX and CSV; the same for a terminal and a page.
//!
//! Invariants: all text is escaped for its form, so a name cannot break a table; CSV has every digit
//! and plain names, the others are rounded as on a terminal. Absent: the choice of rows.

use super::format::{MISSING, interval, one_line};
use crate::interval::Interval;
use maud::{Markup, html};
use std::fmt;
use std::path::{Path, PathBuf};

/// The form of a table in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableForm {
    /// Comma-separated values (RFC 4180), an interval in a column of its own.
    Csv,
    /// GitHub's Markdown.
    Markdown,
    /// LaTeX with the rules of booktabs.
    Latex,
}

impl TableForm {
    /// The form by a file's ending.
    ///
    /// # Errors
    /// It has none of the endings.
    pub fn of(path: &Path) -> Result<Self, String> {
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("csv") => Ok(Self::Csv),
            Some("md") => Ok(Self::Markdown),
            Some("tex") => Ok(Self::Latex),
            _ => Err("a table's file ends in .tex, .md or .csv".to_owned()),
        }
    }

    /// Parses the path of a file that has one of the endings.
    ///
    /// # Errors
    /// It has none of them.
    pub fn checked(path: &str) -> Result<PathBuf, String> {
        Self::of(Path::new(path)).map(|_| path.into())
    }
}

/// A cell of a table.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// Text.
    Text(String),
    /// A figure; an unknown interval is NaN.
    Figure(Interval),
    /// No figure.
    Missing,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&match self {
            Self::Text(text) => one_line(text),
            Self::Figure(figure) => interval(figure.value, figure.half),
            Self::Missing => MISSING.to_owned(),
        })
    }
}

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SheetColumn {
    /// Its name in CSV.
    pub name: String,
    /// Its heading elsewhere.
    pub label: String,
    /// True if its cells are figures, which are right-aligned and have intervals.
    pub is_figure: bool,
}

/// A table.
#[derive(Clone, Debug, PartialEq)]
pub struct Sheet {
    /// Its columns.
    pub columns: Vec<SheetColumn>,
    /// Its rows, of as many cells as there are columns.
    pub rows: Vec<Vec<Cell>>,
    /// Where the figures come from, below the table; not in CSV.
    pub notes: Vec<String>,
}

impl Sheet {
    /// A table of words: a name and whether it is a figure for each column.
    pub fn of_words(columns: &[(&str, bool)], rows: Vec<Vec<String>>, notes: Vec<String>) -> Self {
        let column = |(name, is_figure): &(&str, bool)| SheetColumn {
            name: (*name).to_owned(),
            label: (*name).to_owned(),
            is_figure: *is_figure,
        };
        let cells = |row: Vec<String>| row.into_iter().map(Cell::Text).collect();
        Self {
            columns: columns.iter().map(column).collect(),
            rows: rows.into_iter().map(cells).collect(),
            notes,
        }
    }

    /// The table for a terminal, with aligned columns.
    pub fn text(&self) -> String {
        let labels = self.columns.iter().map(|column| column.label.clone());
        let rows = self.rows.iter();
        let rows = rows.map(|row| row.iter().map(Cell::to_string).collect());
        let lines: Vec<Vec<String>> = std::iter::once(labels.collect()).chain(rows).collect();

        let mut text = String::new();
        for line in &lines {
            let cells = self.columns.iter().enumerate().map(|(at, column)| {
                let width = lines.iter().map(|line| line[at].chars().count()).max();
                let (cell, width) = (&line[at], width.unwrap_or(0));
                match column.is_figure {
                    true => format!("{cell:>width$}"),
                    false => format!("{cell:<width$}"),
                }
            });
            text += cells.collect::<Vec<_>>().join("  ").trim_end();
            text.push('\n');
        }
        self.notes
            .iter()
            .for_each(|note| text += &format!("{}\n", one_line(note)));
        text
    }

    /// The table for a page.
    pub fn markup(&self) -> Markup {
        html! {
            div class="scroll" tabindex="0" role="region" aria-label="table" {
                table {
                    thead { tr { @for column in &self.columns { th scope="col" { (column.label) } } } }
                    tbody { @for row in &self.rows { tr { @for cell in row { td { (cell) } } } } }
                }
            }
            @for note in &self.notes { p class="remark" { (note) } }
        }
    }

    /// The table in a file.
    pub fn write(&self, form: TableForm) -> String {
        match form {
            TableForm::Csv => self.csv(),
            TableForm::Markdown => self.markdown(),
            TableForm::Latex => self.latex(),
        }
    }

    fn csv(&self) -> String {
        let mut names = Vec::new();
        for column in &self.columns {
            names.push(csv_field(&column.name));
            if column.is_figure {
                names.push(csv_field(&format!("ci95.{}", column.name)));
            }
        }
        let number = |value: f64| match value.is_finite() {
            true => value.to_string(),
            false => String::new(),
        };

        let mut text = names.join(",") + "\r\n";
        for row in &self.rows {
            let mut fields = Vec::new();
            for (cell, column) in row.iter().zip(&self.columns) {
                match cell {
                    Cell::Figure(figure) => {
                        fields.extend([number(figure.value), number(figure.half)])
                    }
                    Cell::Missing | Cell::Text(_) if column.is_figure => {
                        fields.extend([String::new(), String::new()])
                    }
                    Cell::Missing => fields.push(String::new()),
                    Cell::Text(text) => fields.push(csv_field(text)),
                }
            }
            text += &(fields.join(",") + "\r\n");
        }
        text
    }

    fn markdown(&self) -> String {
        let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
        let labels = self
            .columns
            .iter()
            .map(|column| escaped_markdown(&column.label));
        let rules = self
            .columns
            .iter()
            .map(|column| if column.is_figure { "---:" } else { "---" }.to_owned());

        let mut text = line(labels.collect()) + &line(rules.collect());
        for row in &self.rows {
            text += &line(
                row.iter()
                    .map(|cell| escaped_markdown(&cell.to_string()))
                    .collect(),
            );
        }
        for note in &self.notes {
            text += &format!("\n{}\n", escaped_markdown(note));
        }
        text
    }

    fn latex(&self) -> String {
        let line = |cells: Vec<String>| format!("  {} \\\\\n", cells.join(" & "));
        let kinds: String = self
            .columns
            .iter()
            .map(|column| if column.is_figure { 'r' } else { 'l' })
            .collect();
        let labels = self
            .columns
            .iter()
            .map(|column| escaped_latex(&column.label));

        // A comment ends with its line.
        let notes = self
            .notes
            .iter()
            .map(|note| format!("% {}\n", one_line(note)));
        let mut text = notes.collect::<String>();
        text += "% \\usepackage{booktabs}\n";
        text += &format!(
            "\\begin{{tabular}}{{{kinds}}}\n  \\toprule\n{}  \\midrule\n",
            line(labels.collect())
        );
        for row in &self.rows {
            text += &line(
                row.iter()
                    .map(|cell| escaped_latex(&cell.to_string()))
                    .collect(),
            );
        }
        text + "  \\bottomrule\n\\end{tabular}\n"
    }
}

/// A field of CSV, in quotes if it must be.
fn csv_field(text: &str) -> String {
    if text.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

fn escaped_markdown(text: &str) -> String {
    let mut escaped = String::new();
    for letter in one_line(text).chars() {
        if matches!(
            letter,
            '\\' | '|' | '*' | '_' | '`' | '<' | '[' | '~' | '#' | '&' | '$'
        ) {
            escaped.push('\\');
        }
        escaped.push(letter);
    }
    escaped
}

fn escaped_latex(text: &str) -> String {
    let mut escaped = String::new();
    for letter in one_line(text).chars() {
        match letter {
            '\\' => escaped += "\\textbackslash{}",
            '~' => escaped += "\\textasciitilde{}",
            '^' => escaped += "\\textasciicircum{}",
            '<' => escaped += "\\textless{}",
            '>' => escaped += "\\textgreater{}",
            '|' => escaped += "\\textbar{}",
            // Fonts of LaTeX lack it.
            '\u{fffd}' => escaped.push('?'),
            'µ' => escaped += "\\textmu{}",
            '±' => escaped += "$\\pm$",
            // After the end of a row, the first would be an argument and the second a star.
            '[' => escaped += "{[}",
            '*' => escaped += "{*}",
            '&' | '%' | '$' | '#' | '_' | '{' | '}' => {
                escaped.push('\\');
                escaped.push(letter);
            }
            letter => escaped.push(letter),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sheet() -> Sheet {
        let column = |name: &str, label: &str, is_figure| SheetColumn {
            name: name.to_owned(),
            label: label.to_owned(),
            is_figure,
        };
        let figure = |value, half| Cell::Figure(Interval { value, half });
        Sheet {
            columns: vec![
                column("scheme", "scheme", false),
                column("latency_us.p99", "latency p99, µs", true),
            ],
            rows: vec![
                vec![
                    Cell::Text("a_b|c, \"100%\" & #1\n".into()),
                    figure(1234.5, 2.25),
                ],
                vec![Cell::Text("{~^<\\>}$".into()), figure(0.5, f64::NAN)],
                vec![Cell::Text("plain".into()), Cell::Missing],
            ],
            notes: vec!["made by\n\\end{tabular}".into()],
        }
    }

    #[test]
    fn csv_has_all_digits_and_columns_of_intervals() {
        assert_eq!(
            sheet().write(TableForm::Csv),
            "scheme,latency_us.p99,ci95.latency_us.p99\r\n\"a_b|c, \"\"100%\"\" & #1\n\",1234.5,2.25\r\n{~^<\\>}$,0.5,\r\nplain,,\r\n"
        );
    }

    #[test]
    fn names_do_not_break_markdown() {
        assert_eq!(
            sheet().write(TableForm::Markdown),
            "| scheme | latency p99, µs |\n| --- | ---: |\n| a\\_b\\|c, \"100%\" \\& \\#1\u{fffd} | 1,235 ±3 |\n\
             | {\\~^\\<\\\\>}\\$ | 0.500 |\n| plain | - |\n\nmade by\u{fffd}\\\\end{tabular}\n"
        );
    }

    #[test]
    fn names_do_not_break_latex() {
        assert_eq!(
            sheet().write(TableForm::Latex),
            "% made by\u{fffd}\\end{tabular}\n% \\usepackage{booktabs}\n\\begin{tabular}{lr}\n  \\toprule\n  \
             scheme & latency p99, \\textmu{}s \\\\\n  \\midrule\n  \
             a\\_b\\textbar{}c, \"100\\%\" \\& \\#1? & 1,235 $\\pm$3 \\\\\n  \
             \\{\\textasciitilde{}\\textasciicircum{}\\textless{}\\textbackslash{}\\textgreater{}\\}\\$ & 0.500 \\\\\n  \
             plain & - \\\\\n  \\bottomrule\n\\end{tabular}\n"
        );
    }

    #[test]
    fn columns_of_a_terminal_are_aligned() {
        let rows = [["a", "1"], ["long name", "1,000"]];
        let rows = rows.map(|row| row.map(str::to_owned).to_vec()).to_vec();
        let sheet = Sheet::of_words(&[("name", false), ("n", true)], rows, vec!["said".into()]);
        assert_eq!(
            sheet.text(),
            "name           n\na              1\nlong name  1,000\nsaid\n"
        );
        assert!(
            sheet
                .markup()
                .0
                .contains("<td>long name</td><td>1,000</td>")
        );
    }

    #[test]
    fn a_name_is_no_argument_of_the_row_before_it() {
        assert_eq!(escaped_latex("[2pt] *"), "{[}2pt] {*}");
    }

    #[test]
    fn the_ending_of_a_file_is_its_form() {
        assert_eq!(TableForm::of(Path::new("a/b.tex")), Ok(TableForm::Latex));
        assert_eq!(TableForm::of(Path::new("b.md")), Ok(TableForm::Markdown));
        assert_eq!(TableForm::of(Path::new("b.csv")), Ok(TableForm::Csv));
        assert!(TableForm::of(Path::new("tex")).is_err());
    }
}
