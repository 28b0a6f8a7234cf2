//! Figures as SVG files of their own: groups of bars in panels, as the papers arrange them, and lines.
//!
//! Invariants: a figure stands alone (its own colours and background, no style sheet, font or script); a scheme has the
//! same colour in every figure; bars begin at zero; every bar says its value when pointed at. PNG is left to whoever
//! needs it: any browser exports these, and a renderer would double what has to be built.
//! Absent: what is shown (`analysis`).

use maud::{Markup, html};
use remap_ssd_ftl::{Hue, SchemeKind};
use remap_ssd_sim::report::format::number;

/// A figure with its heading and explanation.
#[derive(Clone, Debug)]
pub struct Plot {
    /// Its file's name without ending.
    pub name: String,
    /// Heading of the figure.
    pub title: String,
    /// What to see, in a sentence.
    pub reading: String,
    /// What the vertical axis measures.
    pub y: String,
    /// The marks: bars or lines.
    pub shape: Shape,
}

/// The marks of a figure.
#[derive(Clone, Debug)]
pub enum Shape {
    /// Panels side by side, of groups of bars; a line across at a value.
    Bars(Vec<Panel>, Option<f64>),
    /// Lines over common axes.
    Lines(Lines),
}

/// Groups of bars under one heading.
#[derive(Clone, Debug)]
pub struct Panel {
    /// Heading of the panel.
    pub title: String,
    /// Groups, each with a label and bars of a name and a value.
    pub groups: Vec<(String, Vec<(String, f64)>)>,
}

/// Lines over common axes, in the order of the legend.
#[derive(Clone, Debug)]
pub struct Lines {
    /// What the horizontal axis measures.
    pub x: String,
    /// Whether both axes are logarithmic.
    pub logarithmic: bool,
    /// Each line's name and points (x, y), by x.
    pub lines: Vec<(String, Vec<(f64, f64)>)>,
}

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 340.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 58.0;
const BOTTOM: f64 = 50.0;
const OTHERS: [&str; 8] = [
    "#56b4e9", "#d55e00", "#f0e442", "#9aa1aa", "#8c6bb1", "#1b7837", "#a6761d", "#666666",
];

impl Plot {
    /// The figure as a file of its own.
    pub fn svg(&self) -> String {
        format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{}\n",
            self.draw().into_string()
        )
    }

    /// As an element of a page.
    pub fn draw(&self) -> Markup {
        let names = self.names();
        html! {
            svg xmlns="http://www.w3.org/2000/svg" viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) role="img"
                aria-label=(format!("{}: {}", self.title, self.reading)) font-family="system-ui, sans-serif" font-size="12" {
                rect width=(WIDTH) height=(HEIGHT) fill="#ffffff" {}
                text x=(LEFT) y="18" font-size="14" font-weight="600" fill="#16191d" { (self.title) }
                (legend(&names))
                text x="8" y=(TOP - 8.0) fill="#555d68" { (self.y) }
                @match &self.shape {
                    Shape::Bars(panels, line) => (bars(panels, *line, &names)),
                    Shape::Lines(lines) => (draw_lines(lines, &names)),
                }
            }
        }
    }

    /// The names of bars or lines, each once.
    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        let mut add = |name: &String| {
            if !names.contains(name) {
                names.push(name.clone());
            }
        };
        match &self.shape {
            Shape::Bars(panels, _) => panels
                .iter()
                .flat_map(|panel| &panel.groups)
                .flat_map(|group| &group.1)
                .for_each(|(name, _)| add(name)),
            Shape::Lines(lines) => lines.lines.iter().for_each(|(name, _)| add(name)),
        }
        names
    }
}

fn color(name: &str, names: &[String]) -> &'static str {
    let scheme = |name: &str| {
        let hue = name.parse::<SchemeKind>().ok()?.facts().hue?;
        Some(match hue {
            Hue::Black => "#30343a",
            Hue::Green => "#009e73",
            Hue::Blue => "#0072b2",
            Hue::Orange => "#e69f00",
            Hue::Purple => "#cc79a7",
        })
    };
    scheme(name).unwrap_or_else(|| {
        let others = names.iter().filter(|name| scheme(name).is_none());
        OTHERS[others.take_while(|other| *other != name).count() % OTHERS.len()]
    })
}

fn legend(names: &[String]) -> Markup {
    let mut x = LEFT;
    let places: Vec<f64> = names
        .iter()
        .map(|name| {
            let at = x;
            x += 34.0 + 7.0 * name.chars().count() as f64;
            at
        })
        .collect();
    html! {
        @for (name, x) in names.iter().zip(places) {
            rect x=(px(x)) y="26" width="11" height="11" fill=(color(name, names)) {}
            text x=(px(x + 16.0)) y="36" fill="#16191d" { (name) }
        }
    }
}

fn px(value: f64) -> String {
    format!("{}", (value * 10.0).round() / 10.0)
}

/// The smallest of 1, 2, 5 times a power of ten that is not below a fifth of `largest`.
fn step(largest: f64) -> f64 {
    let wanted = (largest / 5.0).max(1e-12);
    let decade = 10f64.powf(wanted.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|digit| digit * decade)
        .find(|step| *step >= wanted * 0.999_999)
        .unwrap_or(wanted)
}

fn bars(panels: &[Panel], line: Option<f64>, names: &[String]) -> Markup {
    let values = || {
        panels
            .iter()
            .flat_map(|panel| &panel.groups)
            .flat_map(|group| &group.1)
            .map(|bar| bar.1)
    };

    let finite = |value: f64| if value.is_finite() { value } else { 0.0 };

    let largest = values()
        .map(finite)
        .fold(line.unwrap_or(0.0), f64::max)
        .max(1e-9);

    let step = step(largest);
    let top = (largest / step).ceil() * step;
    let bottom = HEIGHT - BOTTOM;

    let y = |value: f64| bottom - finite(value).clamp(0.0, top) / top * (bottom - TOP);

    let gap = 18.0;
    let width = (WIDTH - LEFT - RIGHT - gap * (panels.len().max(1) - 1) as f64)
        / panels.len().max(1) as f64;

    html! {
        @for mark in 0..=(top / step).round() as u32 {
            @let value = f64::from(mark) * step;
            line x1=(LEFT) x2=(WIDTH - RIGHT) y1=(px(y(value))) y2=(px(y(value))) stroke="#dfe3e8" {}
            text x=(LEFT - 6.0) y=(px(y(value) + 4.0)) text-anchor="end" fill="#555d68" { (number(value)) }

        }

        @for (p, panel) in panels.iter().enumerate() {
            @let left = LEFT + p as f64 * (width + gap);
            (draw_panel(panel, left, width, bottom, &y, names))
        }

        @if let Some(value) = line {
            line x1=(LEFT) x2=(WIDTH - RIGHT) y1=(px(y(value))) y2=(px(y(value))) stroke="#16191d" stroke-dasharray="5 4" {}
        }
    }
}

fn draw_panel(
    panel: &Panel,
    left: f64,
    width: f64,
    bottom: f64,
    y: &impl Fn(f64) -> f64,
    names: &[String],
) -> Markup {
    let pitch = width / panel.groups.len().max(1) as f64;

    html! {
        line x1=(px(left)) x2=(px(left + width)) y1=(bottom) y2=(bottom) stroke="#555d68" {}
        text x=(px(left + width / 2.0)) y=(HEIGHT - 8.0) text-anchor="middle" fill="#16191d" font-weight="600" { (panel.title) }

        @for (g, (label, bars)) in panel.groups.iter().enumerate() {
            @let room = pitch * 0.84;
            @let thick = (room / bars.len().max(1) as f64).min(40.0);
            @let first = left + pitch * (g as f64 + 0.5) - thick * bars.len() as f64 / 2.0;

            text x=(px(left + pitch * (g as f64 + 0.5))) y=(bottom + 16.0) text-anchor="middle" fill="#555d68"
                font-size=(if pitch < 7.0 * label.chars().count() as f64 { "9" } else { "12" }) { (label) }

            @for (b, (name, value)) in bars.iter().enumerate() {
                rect x=(px(first + thick * b as f64)) width=(px(thick * 0.92)) y=(px(y(*value))) height=(px(bottom - y(*value)))
                    fill=(color(name, names)) {
                    title { (panel.title) " " (label) " " (name) ": " (number(*value)) }
                }
            }
        }
    }
}

fn draw_lines(lines: &Lines, names: &[String]) -> Markup {
    let scale = |value: f64| {
        if lines.logarithmic {
            value.max(1e-12).log10()
        } else {
            value
        }
    };

    let all = || {
        lines
            .lines
            .iter()
            .flat_map(|line| &line.1)
            .filter(|point| point.0.is_finite() && point.1.is_finite())
    };

    let (mut x, mut y) = (
        (f64::INFINITY, f64::NEG_INFINITY),
        (f64::INFINITY, f64::NEG_INFINITY),
    );

    for point in all() {
        x = (x.0.min(scale(point.0)), x.1.max(scale(point.0)));
        y = (y.0.min(scale(point.1)), y.1.max(scale(point.1)));
    }

    if x.0 > x.1 {
        return html! { text x=(LEFT) y=(HEIGHT / 2.0) { "nothing to show" } };
    }

    // Round ends, so that the outermost marks lie on the frame.
    let widen = |range: (f64, f64)| {
        if lines.logarithmic {
            (range.0.floor(), range.1.ceil().max(range.0.floor() + 1.0))
        } else {
            (
                0.0,
                (range.1.max(1e-9) / step(range.1)).ceil() * step(range.1),
            )
        }
    };

    let (x, y) = (widen(x), widen(y));
    let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT - 20.0);
    let at_x = |value: f64| LEFT + (scale(value) - x.0) / (x.1 - x.0) * (right - LEFT);
    let at_y = |value: f64| bottom - (scale(value) - y.0) / (y.1 - y.0) * (bottom - TOP);

    let marks = |range: (f64, f64)| -> Vec<f64> {
        let step = if lines.logarithmic {
            1.0
        } else {
            step(range.1)
        };

        let count = ((range.1 - range.0) / step).round() as u32;
        let value = |mark: u32| range.0 + f64::from(mark) * step;
        (0..=count)
            .map(|mark| {
                if lines.logarithmic {
                    10f64.powf(value(mark))
                } else {
                    value(mark)
                }
            })
            .collect()
    };

    html! {
        @for value in marks(y) {
            line x1=(LEFT) x2=(right) y1=(px(at_y(value))) y2=(px(at_y(value))) stroke="#dfe3e8" {}
            text x=(LEFT - 6.0) y=(px(at_y(value) + 4.0)) text-anchor="end" fill="#555d68" { (number(value)) }
        }

        @for value in marks(x) {
            line x1=(px(at_x(value))) x2=(px(at_x(value))) y1=(bottom) y2=(bottom + 5.0) stroke="#555d68" {}
            text x=(px(at_x(value))) y=(bottom + 18.0) text-anchor="middle" fill="#555d68" { (number(value)) }
        }

        line x1=(LEFT) x2=(right) y1=(bottom) y2=(bottom) stroke="#555d68" {}
        text x=(px((LEFT + right) / 2.0)) y=(HEIGHT - 8.0) text-anchor="middle" fill="#16191d" { (lines.x) }

        @for (name, points) in &lines.lines {
            @let path: Vec<String> = points.iter().map(|point| format!("{},{}", px(at_x(point.0)), px(at_y(point.1)))).collect();
            polyline points=(path.join(" ")) fill="none" stroke=(color(name, names)) stroke-width="2.2" { title { (name) } }

            @for point in points {
                circle cx=(px(at_x(point.0))) cy=(px(at_y(point.1))) r="3" fill=(color(name, names)) {
                    title { (name) ": " (number(point.0)) ", " (number(point.1)) }
                }
            }
        }
    }
}
