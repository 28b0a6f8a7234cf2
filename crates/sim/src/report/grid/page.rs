//! The page of a grid: its pictures and its table in one self-contained file.
//!
//! Invariants: those of [`crate::report::html`]: nothing is loaded or run, and the same results give
//! the same bytes. Absent: the runs' other measurements, which their files have.

use super::Grid;
use super::label::label;
use super::picture::Picture;
use crate::plot::{Size, fluid};
use crate::report::format::counted;
use crate::report::html::{configuration, document};
use maud::{Markup, html as markup};
use serde_json::Value;

impl Grid {
    /// The page; `config` is shown verbatim, so that it says how to repeat the runs.
    pub fn page(&self, config: &Value) -> String {
        let count = counted(self.rows.len() as u64, "combination");
        let about: Vec<String> = std::iter::once(count).chain(self.about()).collect();
        let subtitle = about.join(". ") + ".";
        let figures = (0..self.figures.len()).map(|figure| self.captioned(figure));
        document(
            &self.title,
            &subtitle,
            &markup! {
                section aria-labelledby="figures" {
                    h2 id="figures" { "Figures" }
                    div class="figures wide" { @for figure in figures { (figure) } }
                }
                (self.cells())
                (configuration(config, "The same grid and program give"))
            },
        )
    }

    fn captioned(&self, figure: usize) -> Markup {
        let title = label(&self.figures[figure]);
        let name = format!("{} {}", self.title, self.figures[figure]);
        markup! {
            figure {
                h3 { (title) }
                @match Picture::new(self, figure) {
                    Some(picture) => div class="picture" { (fluid(Size::Wide, &name, |size, alone| picture.draw(size, alone))) },
                    None => p class="empty" { "No run has this figure." },
                }
            }
        }
    }

    fn cells(&self) -> Markup {
        let (head, rows) = self.table();
        let figures_from = head.len() - self.figures.len();
        markup! {
            section aria-labelledby="table" {
                h2 id="table" { "Table" }
                div class="scroll" tabindex="0" role="region" aria-labelledby="table" {
                    table {
                        thead { tr { @for (at, name) in head.iter().enumerate() {
                            th scope="col" { @if at < figures_from { (name) } @else { (label(name)) } }
                        } } }
                        tbody { @for row in &rows { tr { @for cell in row { td { (cell) } } } } }
                    }
                }
                @for remark in self.remarks() { p class="remark" { (remark) } }
            }
        }
    }
}
