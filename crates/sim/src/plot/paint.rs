//! How what has a name is drawn: a colour of the style sheet, and what tells it from others of that
//! colour.
//!
//! The first colours are Okabe and Ito's, which colour-blind readers can tell apart. A scheme has
//! the same colour in every figure. Names that no scheme has take the other colours in turn; when
//! these are used up, lines differ in dashes and bars in their filling, so that forty names of a
//! figure differ. Absent: the colours' values (`plot.css` has them, for light and dark).

use remap_ssd_ftl::{Hue, SchemeKind};

/// How a line or a bar is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paint {
    /// A colour of the style sheet.
    pub color: &'static str,
    /// Dash pattern of SVG, for lines alone.
    pub dash: &'static str,
    /// Filling, for bars and columns alone.
    pub fill: Fill,
}

/// How a bar is filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// Filled with its own colour.
    Solid,
    /// Framed in its colour, and empty.
    Hollow,
    /// Framed, and filled with a pale shade of it.
    Pale,
    /// Framed in dashes of its colour, and empty.
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

/// Colours for what is not a scheme, in their order.
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

/// Dashes of the first, second, third and fourth that has a colour.
pub const DASHES: [&str; 4] = ["none", "9 4", "5 2 1 2", "2 2"];
const FILLS: [Fill; 4] = [Fill::Solid, Fill::Hollow, Fill::Pale, Fill::Dashed];

impl Paint {
    /// The paint of the `turn`-th that has this colour, from 0.
    pub fn of(color: &'static str, turn: usize) -> Self {
        Self {
            color,
            dash: DASHES[turn % DASHES.len()],
            fill: FILLS[turn % FILLS.len()],
        }
    }

    /// The paint of the `index`-th name that is no scheme's.
    pub fn other(index: usize) -> Self {
        // All colours first; dashes and fillings when these are used up.
        Self::of(OTHERS[index % OTHERS.len()], index / OTHERS.len())
    }
}

/// A paint for each of a figure's names.
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

/// The colour that a scheme has everywhere; of some none.
pub fn of_scheme(scheme: &str) -> Option<&'static str> {
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
