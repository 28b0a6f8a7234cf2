//! Colours, dashes and fills of named lines and bars.
//!
//! The first colours are Okabe and Ito's, which colour-blind readers can distinguish. A scheme has
//! the same colour in every figure: a name belongs to the scheme that is its first word, such as
//! `nlog, 40 MB`. Other names take the remaining colours in turn. Names of
//! one colour differ as lines in dashes and as bars in their fill, so that forty names of a figure
//! differ. The lines of references (no remapping, the ideal) are dashed from the first.
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
    /// Filled with a pale shade of its colour and stripes; of boxes only.
    Striped,
}

impl Fill {
    /// Its class in the style sheet.
    pub(crate) fn class(self) -> &'static str {
        match self {
            Fill::Solid => "part",
            Fill::Hollow => "part hollow",
            Fill::Pale => "part pale",
            Fill::Dashed => "part hollow dashed",
            Fill::Striped => "held",
        }
    }
}

/// Colours of the schemes without a hue, in the order of the list of schemes: none is that of a
/// part of a stacked bar but the grey of `unsafe`, which loses data.
const SCHEMES: [&str; 7] = [
    "var(--grey)",
    "var(--violet)",
    "var(--moss)",
    "var(--rose)",
    "var(--teal)",
    "var(--brown)",
    "var(--wine)",
];

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
/// Dashes of the first line of a reference.
const REFERENCES: [(&str, &str); 2] = [
    (SchemeKind::BASELINE.name(), "6 4"),
    (SchemeKind::IDEAL.name(), "2 5"),
];
const FILLS: [Fill; 4] = [Fill::Solid, Fill::Hollow, Fill::Pale, Fill::Dashed];

/// In place of dashes: a point for each value, and no line.
const POINTS: &str = "points";

impl Paint {
    /// The same colour for points without a line, such as another program's figures.
    pub fn as_points(self) -> Self {
        Self {
            dash: POINTS,
            ..self
        }
    }

    /// Returns true if only points are drawn.
    pub(crate) fn is_points(&self) -> bool {
        self.dash == POINTS
    }

    /// The paint of the `turn`-th name with this colour, from 0.
    pub(crate) fn of(color: &'static str, turn: usize) -> Self {
        Self {
            color,
            dash: DASHES[turn % DASHES.len()],
            fill: FILLS[turn % FILLS.len()],
        }
    }

    /// The paint of the `index`-th name that is not a scheme.
    pub(crate) fn other(index: usize) -> Self {
        // All colours first; dashes and fills when these are used up.
        Self::of(OTHERS[index % OTHERS.len()], index / OTHERS.len())
    }
}

/// Returns a paint for each of a figure's names.
pub fn paints<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<Paint> {
    let mut others = OTHERS.into_iter().cycle();
    let mut taken: Vec<&str> = Vec::new();
    names
        .into_iter()
        .map(|name| {
            // The second run of a scheme keeps its colour and differs in its dashes, as long as
            // there are any.
            let mut color = of_scheme(name).or_else(|| others.next());
            let turn = |color: &str| taken.iter().filter(|other| **other == color).count();
            for _ in OTHERS {
                color = color
                    .filter(|color| turn(color) < DASHES.len())
                    .or_else(|| others.next());
            }

            let color = color.unwrap_or(OTHERS[0]);
            let mut paint = Paint::of(color, turn(color));

            let reference = REFERENCES
                .iter()
                .find(|(scheme, _)| first_word(name) == Some(scheme));
            if let (Some((_, dash)), 0) = (reference, turn(color)) {
                paint.dash = dash;
            }

            taken.push(color);
            paint
        })
        .collect()
}

/// Returns the fixed colour of the scheme that is the first word of a name.
fn of_scheme(name: &str) -> Option<&'static str> {
    let scheme: SchemeKind = first_word(name)?.parse().ok()?;
    Some(match scheme.facts().hue {
        Some(Hue::Black) => "var(--black)",
        Some(Hue::Green) => "var(--green)",
        Some(Hue::Blue) => "var(--blue)",
        Some(Hue::Orange) => "var(--orange)",
        Some(Hue::Purple) => "var(--purple)",
        None => {
            let mut rest = SchemeKind::ALL
                .into_iter()
                .filter(|other| other.facts().hue.is_none());
            SCHEMES[rest.position(|other| other == scheme)? % SCHEMES.len()]
        }
    })
}

/// The word of a name that may be a scheme's.
fn first_word(name: &str) -> Option<&str> {
    name.split([' ', ',', ':', '/', '+']).next()
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
    fn a_scheme_has_its_own_colour_in_every_figure() {
        let names = SchemeKind::ALL.map(|scheme| scheme.name());
        let together: Vec<_> = paints(names).into_iter().map(|paint| paint.color).collect();
        assert_eq!(together.iter().collect::<BTreeSet<_>>().len(), names.len());

        for (name, color) in names.into_iter().zip(together) {
            let detailed = format!("{name}, 40 MB");
            let beside = ["something else", name, &detailed];
            let found = paints(beside);
            assert_eq!((found[1].color, found[2].color), (color, color), "{name}");
            assert_ne!(found[1].dash, found[2].dash);
        }
    }

    #[test]
    fn twenty_runs_of_one_scheme_look_different_too() {
        let names: Vec<String> = (0..20).map(|at| format!("nlog {at}")).collect();
        let all = paints(names.iter().map(String::as_str));
        let lines: BTreeSet<_> = all.iter().map(|paint| (paint.color, paint.dash)).collect();
        assert_eq!(lines.len(), 20);
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
