//! Groups of columns in panels, as arranged in the papers.
//!
//! Panels stand side by side, and in further rows where columns would get too thin or labels would
//! touch. Invariants: all rows have the same vertical axis; a column is at least `THIN` wide;
//! columns begin at zero.

use maud::{Markup, html};

use super::axis::Axis;
use super::legend::{Legend, Mark, TRANSIENT};
use super::paint::Paint;
use super::{Certainty, Size, px, svg, text, whisker};
use crate::report::format::interval;

/// Minimum column width before the panel continues in another row.
const THIN: f64 = 5.0;
/// Maximum column width.
const THICK: f64 = 40.0;
/// Space between panels of a row.
const GAP: f64 = 18.0;
const RIGHT: f64 = 10.0;
const ROW_HEIGHT: f64 = 215.0;
/// Font size of a label, and its line height.
const LABEL: f64 = 11.0;
const LABEL_ROW: f64 = 13.0;

/// Groups of columns under one heading.
#[derive(Clone, Debug)]
pub struct Panel {
    /// Heading of the panel; may be empty.
    pub title: String,
    /// Groups, each with a label and columns of a name and a value.
    pub groups: Vec<(String, Vec<(String, f64)>)>,
}

/// A chart of columns, in one row of panels or several.
pub struct ColumnChart<'a> {
    /// Heading inside a stand-alone picture.
    pub heading: Option<&'a str>,
    /// Text alternative for screen readers.
    pub description: String,
    /// Label of the vertical axis, with its unit.
    pub y_title: &'a str,
    /// Panels, from left to right.
    pub panels: &'a [Panel],
    /// Names of columns, and their paint.
    pub names: Vec<(&'a str, Paint)>,
    /// Value of a reference line across all columns.
    pub reference: Option<f64>,
    /// What is known about the column of a panel, a group and a name.
    pub certainty: &'a dyn Fn(&str, &str, &str) -> Certainty,
}

/// Some groups of a panel, side by side.
struct Piece<'a> {
    title: &'a str,
    groups: &'a [(String, Vec<(String, f64)>)],
    needs: f64,
}

/// A heading in lines that fit, and their height.
pub(super) struct Heading {
    pub markup: Markup,
    pub height: f64,
}

pub(super) fn heading(heading: Option<&str>, width: f64) -> Heading {
    let lines = heading.map_or_else(Vec::new, |heading| {
        text::wrapped(heading, (width - 12.0) / 1.12, 14.0, 3)
    });
    Heading {
        height: 6.0 + 19.0 * lines.len() as f64,
        markup: html! {
            @for (row, line) in lines.iter().enumerate() {
                text class="heading" x="6" y=(px(18.0 + 19.0 * row as f64)) { (line) }
            }
        },
    }
}

impl ColumnChart<'_> {
    /// Renders the chart as an SVG element of a page, or stand-alone.
    pub fn draw(&self, size: Size, alone: bool) -> Markup {
        let width = size.width();
        let heading = heading(self.heading, width);
        let columns = self.columns();
        let legend = Legend::new(
            self.names.iter().copied(),
            Mark::Box,
            columns.iter().any(|(_, known)| known.is_transient),
            (6.0, width - 6.0),
        );

        let largest = columns
            .iter()
            .map(|(value, known)| usable(*value) + usable(known.half))
            .fold(self.reference.unwrap_or(0.0), f64::max);
        // One axis for all rows, so that heights can be compared.
        let axis = Axis::rounded(largest);
        let labels = axis
            .marks
            .iter()
            .map(|mark| text::width(&mark.1, text::TEXT));
        // Room for the widest label of the axis.
        let left = labels.fold(18.0, f64::max) + 12.0;

        let rows = self.rows(width - RIGHT - left);
        let title_y = heading.height + legend.height() + 15.0;
        let mut top = title_y + 12.0;

        let rows: Vec<(f64, Markup)> = rows
            .iter()
            .map(|row| {
                let at = top;
                let (height, markup) = self.row(row, &axis, (left, width - RIGHT), at);
                top += height;
                (height, markup)
            })
            .collect();

        let content = html! {
            (heading.markup)
            (legend.draw(heading.height))
            text class="axis-title" x="6" y=(px(title_y)) { (text::fitted(self.y_title, width - 12.0, text::TEXT)) }
            @for (_, row) in &rows { (row) }
        };
        svg((width, top + 2.0), &self.description, alone, &content)
    }

    /// The values of all columns, and what is known about them.
    fn columns(&self) -> Vec<(f64, Certainty)> {
        let mut columns = Vec::new();
        for panel in self.panels {
            for (group, named) in &panel.groups {
                let certainty = |name: &str| (self.certainty)(&panel.title, group, name);
                columns.extend(named.iter().map(|(name, value)| (*value, certainty(name))));
            }
        }
        columns
    }

    /// Distributes panels and pieces of panels over rows of this width.
    fn rows(&self, room: f64) -> Vec<Vec<Piece<'_>>> {
        let mut rows: Vec<Vec<Piece>> = Vec::new();
        let mut free = 0.0;

        for panel in self.panels {
            let mut groups = &panel.groups[..];
            while !groups.is_empty() {
                // As many groups as fit in an empty row, or the whole panel.
                let mut count = 1;
                let mut needs = group_needs(&groups[..1]);
                while count < groups.len() && group_needs(&groups[..count + 1]) <= room {
                    count += 1;
                    needs = group_needs(&groups[..count]);
                }

                let (piece, rest) = groups.split_at(count);
                let piece = Piece {
                    title: &panel.title,
                    groups: piece,
                    needs: needs.max(text::width_bold(&panel.title, text::TEXT).min(room)),
                };
                groups = rest;

                // The gap counts only if the row is not empty.
                let wanted = piece.needs + if free < room { GAP } else { 0.0 };
                match rows.last_mut() {
                    Some(row) if wanted <= free => {
                        free -= wanted;
                        row.push(piece);
                    }
                    _ => {
                        free = room - piece.needs;
                        rows.push(vec![piece]);
                    }
                }
            }
        }
        rows
    }

    /// Renders a row; also returns its height.
    fn row(
        &self,
        pieces: &[Piece],
        axis: &Axis,
        (left, right): (f64, f64),
        top: f64,
    ) -> (f64, Markup) {
        let bottom = top + ROW_HEIGHT;
        let y = |value: f64| bottom - axis.place(usable(value)) * ROW_HEIGHT;

        // Remaining space is distributed in proportion.
        let gaps = GAP * (pieces.len() - 1) as f64;
        let needed: f64 = pieces.iter().map(|piece| piece.needs).sum();
        let stretch = (right - left - gaps) / needed;

        let mut x = left;
        let places: Vec<(f64, f64)> = pieces
            .iter()
            .map(|piece| {
                let at = (x, piece.needs * stretch);
                x += at.1 + GAP;
                at
            })
            .collect();

        // The longest label determines the height of the row.
        let label_rows = pieces
            .iter()
            .zip(&places)
            .map(|(piece, place)| {
                label_lines(piece, place.1)
                    .iter()
                    .map(Vec::len)
                    .max()
                    .unwrap_or(0)
            })
            .max()
            .unwrap_or(0);
        let title_y = bottom + 7.0 + LABEL_ROW * label_rows as f64 + 15.0;
        let titled = pieces.iter().any(|piece| !piece.title.is_empty());
        let height = title_y - top + if titled { 18.0 } else { 0.0 };

        let markup = html! {
            @for (value, label) in &axis.marks {
                line class="grid" x1=(px(left)) x2=(px(right)) y1=(px(y(*value))) y2=(px(y(*value))) {}
                text class="mark" x=(px(left - 6.0)) y=(px(y(*value) + 4.0)) text-anchor="end" { (label) }
            }
            @for (piece, place) in pieces.iter().zip(&places) {
                (self.piece(piece, *place, bottom, &y))
                text class="panel" x=(px(place.0 + place.1 / 2.0)) y=(px(title_y)) text-anchor="middle" {
                    (text::fitted(piece.title, place.1 / 1.12, text::TEXT)) title { (piece.title) }
                }
            }
            @if let Some(value) = self.reference {
                line class="reference" x1=(px(left)) x2=(px(right)) y1=(px(y(value))) y2=(px(y(value))) {}
            }
        };
        (height, markup)
    }

    fn piece(
        &self,
        piece: &Piece,
        (left, width): (f64, f64),
        bottom: f64,
        y: &impl Fn(f64) -> f64,
    ) -> Markup {
        let pitch = width / piece.groups.len().max(1) as f64;
        let paint = |name: &str| {
            // A name missing in the legend still needs a colour.
            let found = self.names.iter().find(|one| one.0 == name);
            found.map_or(Paint::other(0), |one| one.1)
        };

        html! {
            line class="base" x1=(px(left)) x2=(px(left + width)) y1=(px(bottom)) y2=(px(bottom)) {}
            @for (g, ((label, columns), lines)) in piece.groups.iter().zip(label_lines(piece, width)).enumerate() {
                @let middle = left + pitch * (g as f64 + 0.5);
                @let thick = (pitch * 0.86 / columns.len().max(1) as f64).min(THICK);
                @let first = middle - thick * columns.len() as f64 / 2.0;

                @for (row, line) in lines.iter().enumerate() {
                    text class="label" x=(px(middle)) y=(px(bottom + 14.0 + LABEL_ROW * row as f64)) text-anchor="middle" {
                        (line) title { (label) }
                    }
                }
                @for (c, (name, value)) in columns.iter().enumerate() {
                    @let paint = paint(name);
                    @let Certainty { half, is_transient } = (self.certainty)(piece.title, label, name);
                    rect class=(paint.fill.class()) style=(format!("--c:{}", paint.color)) x=(px(first + thick * c as f64))
                        width=(px(thick * 0.92)) y=(px(y(*value))) height=(px(bottom - y(*value))) {
                        title { (piece.title) " " (label) " " (name) ": " (interval(*value, half)) }
                    }
                    @if half.is_finite() {
                        path class="whisker" d=(whisker(first + thick * (c as f64 + 0.46), y(value + half), y(value - half), thick * 0.2)) {}
                    }
                    @if is_transient {
                        circle class="dot hollow" style=(format!("--c:{}", paint.color)) r="2.8"
                            cx=(px(first + thick * (c as f64 + 0.46))) cy=(px(y(*value))) { title { (TRANSIENT) } }
                    }
                }
            }
        }
    }
}

/// Labels in lines that do not touch those of the neighbours.
fn label_lines(piece: &Piece, width: f64) -> Vec<Vec<String>> {
    let pitch = width / piece.groups.len().max(1) as f64;
    piece
        .groups
        .iter()
        .map(|(label, _)| text::wrapped(label, pitch - 4.0, LABEL, 3))
        .collect()
}

/// Width of groups side by side: all get as much as the widest.
fn group_needs(groups: &[(String, Vec<(String, f64)>)]) -> f64 {
    let one = |(label, columns): &(String, Vec<(String, f64)>)| {
        let word = label
            .split_whitespace()
            .map(|word| text::width(word, LABEL))
            .fold(0.0, f64::max);
        (columns.len() as f64 * THIN / 0.86).max(word.min(120.0) + 5.0)
    };
    groups.len() as f64 * groups.iter().map(one).fold(0.0, f64::max)
}

fn usable(value: f64) -> f64 {
    if value.is_finite() {
        value.max(0.0)
    } else {
        0.0
    }
}
