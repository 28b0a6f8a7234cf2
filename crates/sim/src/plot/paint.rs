//! Colours, dashes and fills of named lines and bars.
//!
//! The first colours are Okabe and Ito's, which colour-blind readers can distinguish. A scheme has
//! the same colour in every figure. Other names take the remaining colours in turn; when these are
//! used up, lines differ in dashes and bars in their fill, so that forty names of a figure differ.
//! Absent: the colours' values (`plot.css` has them, for light and dark).

use remap_ssd_ftl::{Hue, SchemeKind};

/// The look of a line or a bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paint {
    /// A colour of the style sheet.
    pub color: &'static str,
    /// SVG dash pattern, for lines only.
    pub dash: &'static str,
    /// Fill, for bars and columns only.
    pub fill: Fill,
}

/// Fill of a bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// Filled with its own colour.
    Solid,
    /// Outlined in its colour, without fill.
    Hollow,
    /// Outlined, and filled with a pale shade of its colour.
    Pale,
    /// Outlined with dashes of its colour, without fill.
    Dashed,
}

impl Fill {
    /// Its class in the style sheet.
    pub fn class(self) -> &'static str {
        match self {
            Fill::Solid => "part",
            Fill::Hollow => "part hollow",
            Fill::Pale => "part pale",
            Fill::Dashed => "part hollow dashed",
        }
    }
}

/// Colours for names that are not schemes, in order.
const OTHERS: [&str; 10] = [
    "var(--sky)",
    "var(--vermilion)",
    "var(--violet)",
    "var(--yellow)",
    "var(--moss)",
    "var(--rose)",
    "var(--grey)",
    "var(--brown)",
    "var(--teal)",
    "var(--wine)",
];

/// Dashes of the first, second, third and fourth line of a colour.
pub(crate) const DASHES: [&str; 4] = ["none", "9 4", "5 2 1 2", "2 2"];
const FILLS: [Fill; 4] = [Fill::Solid, Fill::Hollow, Fill::Pale, Fill::Dashed];

impl Paint {
    /// The paint of the `turn`-th name with this colour, from 0.
    pub fn of(color: &'static str, turn: usize) -> Self {
        Self {
            color,
            dash: DASHES[turn % DASHES.len()],
            fill: FILLS[turn % FILLS.len()],
        }
    }

    /// The paint of the `index`-th name that is not a scheme.
    pub fn other(index: usize) -> Self {
        // All colours first; dashes and fills when these are used up.
        Self::of(OTHERS[index % OTHERS.len()], index / OTHERS.len())
    }
}

/// Returns a paint for each of a figure's names.
pub fn paints<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<Paint> {
    let (mut unknown, mut hues) = (0, Vec::new());
    names
        .into_iter()
        .map(|name| match of_scheme(name) {
            Some(color) => {
                // The second run of a scheme keeps its colour and differs in its dashes.
                let turn = hues.iter().filter(|hue| **hue == color).count();
                hues.push(color);
                Paint::of(color, turn)
            }
            None => {
                unknown += 1;
                Paint::other(unknown - 1)
            }
        })
        .collect()
}

/// Returns the fixed colour of a scheme, if it has one.
pub(crate) fn of_scheme(scheme: &str) -> Option<&'static str> {
    let hue = scheme.parse::<SchemeKind>().ok()?.facts().hue?;
    Some(match hue {
        Hue::Black => "var(--black)",
        Hue::Green => "var(--green)",
        Hue::Blue => "var(--blue)",
        Hue::Orange => "var(--orange)",
        Hue::Purple => "var(--purple)",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn forty_names_of_a_figure_look_different() {
        let names: Vec<String> = (0..40).map(|at| format!("series {at}")).collect();
        let all = paints(names.iter().map(String::as_str));

        let lines: BTreeSet<_> = all.iter().map(|paint| (paint.color, paint.dash)).collect();
        let bars: BTreeSet<_> = all
            .iter()
            .map(|paint| (paint.color, paint.fill.class()))
            .collect();
        assert_eq!((lines.len(), bars.len()), (40, 40));
    }

    #[test]
    fn every_colour_is_in_the_style_sheet() {
        let all = paints(SchemeKind::ALL.map(|scheme| scheme.name()));
        for paint in all.into_iter().chain((0..OTHERS.len()).map(Paint::other)) {
            let name = paint.color.trim_start_matches("var(").trim_end_matches(')');
            assert!(crate::plot::STYLE.contains(&format!("{name}:")), "{name}");
        }
    }
}
