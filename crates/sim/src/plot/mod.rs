//! Pictures as SVG: lines, horizontal bars, and groups of columns, for all reports and figures of
//! the program.
//!
//! Written with `maud`, not with a plotting library: inline SVG takes its colours and fonts from a
//! style sheet, so light and dark pages (and print) share one picture, its text can be selected and
//! read by screen readers, and parts have tooltips.
//!
//! Invariants: text is measured before it is placed (`text`); text that does not fit is wrapped
//! or shortened, never cut off; a picture is drawn for a [`Size`], and [`fluid`] shows the one that
//! fits the page; the first forty names of a figure look different; bars begin at zero; every bar
//! and line has a tooltip; the same input gives the same bytes; no script, font or image is needed;
//! a picture of a page can be saved as a file ([`fluid`]), whose colours need no style sheet.
//! Absent: the data.

mod alone;
pub mod axis;
pub(crate) mod bars;
pub mod columns;
pub(crate) mod dies;
mod legend;
pub mod lines;
pub mod paint;
pub mod series;
pub(crate) mod text;

use maud::{Markup, html};

/// Style sheet of all pictures, for light and dark; also of a page that shows them.
pub(crate) const STYLE: &str = include_str!("plot.css");

/// Width of a picture, in units that are pixels if there is enough room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// The width of a telephone.
    Narrow,
    /// A column of a page.
    Column,
    /// The whole width of a page.
    Wide,
}

impl Size {
    /// Maximum points of a line.
    pub(crate) fn points_max(self) -> usize {
        match self {
            Size::Narrow => series::POINTS_MAX / 2,
            Size::Column | Size::Wide => series::POINTS_MAX,
        }
    }

    /// Width of the drawing, in its own units.
    pub(crate) fn width(self) -> f64 {
        match self {
            Size::Narrow => 360.0,
            Size::Column => 560.0,
            Size::Wide => 960.0,
        }
    }
}

/// What is known about a measured value in a picture.
#[derive(Clone, Copy, Debug)]
pub struct Certainty {
    /// Half the width of its interval; NaN without one.
    pub half: f64,
    /// True if its run measured no steady state: its point is hollow.
    pub is_transient: bool,
}

impl Certainty {
    /// Of a value that is no measurement, or whose interval is unknown.
    pub const UNKNOWN: Self = Self {
        half: f64::NAN,
        is_transient: false,
    };
}

/// A picture that adapts to its page, the narrow drawing on a narrow one, else `size`'s; with a link
/// that saves it as an SVG file of this name. `draw` gets the size, and true for the file.
pub fn fluid(size: Size, name: &str, draw: impl Fn(Size, bool) -> Markup) -> Markup {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let name: String = name.chars().map(letter).collect();
    html! {
        div class="fits-wide" { (draw(size, false)) }
        div class="fits-narrow" { (draw(Size::Narrow, false)) }
        p class="save" {
            a download=(format!("{name}.svg")) href=(data_url(&file(&draw(size, true)))) { "Save as SVG" }
        }
    }
}

/// A picture as the address of its own content (RFC 2397).
fn data_url(svg: &str) -> String {
    let mut url = "data:image/svg+xml,".to_owned();
    for byte in svg.bytes() {
        match byte {
            b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => url.push(byte.into()),
            b'-' | b'.' | b'_' | b'~' | b':' | b';' | b'=' | b',' | b'(' | b')' => {
                url.push(byte.into())
            }
            byte => url += &format!("%{byte:02X}"),
        }
    }
    url
}

/// Renders a stand-alone SVG file.
pub fn file(picture: &Markup) -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{}\n",
        picture.0
    )
}

/// An SVG element of this size; `alone`: with its own colours and background.
pub(crate) fn svg(
    (width, height): (f64, f64),
    description: &str,
    alone: bool,
    content: &Markup,
) -> Markup {
    let size = format!("0 0 {} {}", px(width), px(height));
    let picture = html! {
        svg xmlns=[alone.then_some("http://www.w3.org/2000/svg")] class="plot" role="img" viewBox=(size)
            width=[alone.then(|| px(width))] height=[alone.then(|| px(height))] aria-label=(description) {
            @if alone {
                rect class="surface" width=(px(width)) height=(px(height)) {}
            }
            (content)
        }
    };
    if alone {
        alone::with_attributes(&picture)
    } else {
        picture
    }
}

/// The path of an error bar from `top` to `bottom`, with an end of `half` to each side.
pub(crate) fn whisker(x: f64, top: f64, bottom: f64, half: f64) -> String {
    let (left, middle, right) = (px(x - half), px(x), px(x + half));
    let (top, bottom) = (px(top), px(bottom));
    format!(
        "M{left} {top}L{right} {top}M{middle} {top}L{middle} {bottom}M{left} {bottom}L{right} {bottom}"
    )
}

/// Formats a coordinate to a tenth of a unit, as short as possible.
pub(crate) fn px(coordinate: f64) -> String {
    format!("{}", (coordinate * 10.0).round() / 10.0)
}

#[cfg(test)]
pub(crate) mod tests;
