//! The colours of a picture in a file of its own: presentation attributes, since the programs that
//! convert pictures for papers (librsvg, Inkscape) know neither variables of a style sheet nor its
//! conditions.
//!
//! Invariants: attributes are those of the style sheet's light colours, so that a file looks like its
//! page in a light window, wherever it is shown; each colour is a literal. Absent: a second list of
//! colours.

use maud::{Markup, PreEscaped};

use super::STYLE;

/// Begins each rule about pictures in the style sheet.
const PICTURE: &str = "svg.plot";

/// Begins the attribute that gives an element its own colour for the style sheet.
const COLOR: &str = " style=\"--c:";

/// Writes the styles of all elements of a picture as attributes.
pub(super) fn with_attributes(picture: &Markup) -> Markup {
    let mut text = String::with_capacity(picture.0.len() * 2);
    for piece in picture.0.split_inclusive('>') {
        // Text before a tag has no `<`: it is escaped.
        let tag = piece.rfind('<').map_or("", |at| &piece[at..]);
        let attributes = attributes(tag);
        if attributes.is_empty() {
            text += piece;
        } else {
            text += &without_color(&piece[..piece.len() - 1]);
            text += &attributes;
            text.push('>');
        }
    }
    PreEscaped(text)
}

/// A tag without its colour for the style sheet, which is a variable.
fn without_color(tag: &str) -> String {
    match tag.split_once(COLOR) {
        Some((before, after)) => {
            let end = after.find('"').map_or(after.len(), |at| at + 1);
            format!("{before}{}", &after[end..])
        }
        None => tag.to_owned(),
    }
}

/// The attributes of a tag by the style sheet, without those that it has.
fn attributes(tag: &str) -> String {
    let classes: Vec<&str> = value(tag, "class").unwrap_or("").split(' ').collect();
    let color = value(tag, "style").and_then(|style| style.strip_prefix("--c:"));
    let is_meant = |selector: &str| match selector.strip_prefix(PICTURE).map(str::trim_start) {
        Some("") => tag.starts_with("<svg"),
        Some("text") => tag.starts_with("<text"),
        Some(class) => class
            .strip_prefix('.')
            .is_some_and(|class| classes.contains(&class)),
        None => false,
    };

    // Of several rules for a property the last one counts.
    let mut found: Vec<(&str, &str)> = Vec::new();
    for (selectors, rule) in STYLE.split('}').filter_map(|rule| rule.split_once('{')) {
        if selectors.split(',').any(|one| is_meant(one.trim())) {
            let pairs = rule.split(';').filter_map(|pair| pair.split_once(':'));
            for (name, value) in pairs.map(|(name, value)| (name.trim(), value.trim())) {
                found.retain(|(other, _)| *other != name);
                found.push((name, value));
            }
        }
    }
    found
        .iter()
        // No presentation attribute.
        .filter(|(name, _)| *name != "font-variant-numeric" && value(tag, name).is_none())
        .map(|(name, value)| format!(" {name}=\"{}\"", literal(value, color)))
        .collect()
}

/// The value of a tag's attribute.
fn value<'a>(tag: &'a str, name: &str) -> Option<&'a str> {
    let begin = format!(" {name}=\"");
    let rest = &tag[tag.find(&begin)? + begin.len()..];
    rest.split('"').next()
}

/// A value without variables; `--c` is `color`.
fn literal<'a>(value: &'a str, color: Option<&'a str>) -> &'a str {
    let Some(variable) = value
        .strip_prefix("var(")
        .and_then(|rest| rest.strip_suffix(')'))
    else {
        return value;
    };
    match (variable.split_once(','), color) {
        (Some(_), Some(color)) => literal(color, None),
        (Some((_, fallback)), None) => literal(fallback.trim(), None),
        (None, Some(color)) if variable == "--c" => literal(color, None),
        (None, _) => {
            // The first value of a variable is that of the light colours.
            let begin = format!("{variable}: ");
            let found = STYLE.split([';', '{']).map(str::trim);
            let mut found =
                found.filter_map(|pair| pair.rsplit('\n').next()?.trim().strip_prefix(&begin));
            found.next().unwrap_or("none")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use maud::html;

    #[test]
    fn a_file_has_the_light_colours_of_its_style_sheet() {
        let picture = html! {
            svg class="plot" {
                rect class="part hollow" style="--c:var(--blue)" {}
                path class="whisker" d="M0 0" {}
                path class="line" style="--c:var(--grey)" stroke-dasharray="2 2" { title { "a <b> class=\"line\"" } }
                text class="heading" x="1" { "x > \"y\"" }
            }
        };
        let text = with_attributes(&picture).0;
        for expected in [
            "<svg class=\"plot\" font-family=\"system-ui, -apple-system, 'Segoe UI'",
            "<rect class=\"part hollow\" fill=\"#ffffff\" stroke=\"#0072b2\" stroke-width=\"2\">",
            "d=\"M0 0\" fill=\"none\" stroke=\"#16191d\" stroke-width=\"1.2\">",
            "stroke-dasharray=\"2 2\" fill=\"none\" stroke=\"#9aa1aa\" stroke-width=\"2.2\" stroke-linejoin=\"round\">",
            "<text class=\"heading\" x=\"1\" fill=\"#16191d\" font-size=\"14px\" font-weight=\"600\">x &gt; &quot;y&quot;</text>",
            "<title>a &lt;b&gt; class=&quot;line&quot;</title>",
        ] {
            assert!(text.contains(expected), "{expected}\n{text}");
        }
        assert!(!text.contains("var("), "{text}");
    }

    #[test]
    fn every_variable_of_the_style_sheet_has_a_literal() {
        for variable in STYLE.split("var(").skip(1) {
            let variable = format!("var({})", &variable[..variable.find([',', ')']).unwrap()]);
            let found = literal(&variable, Some("var(--blue)"));
            assert!(found.starts_with('#'), "{variable}: {found}");
        }
    }
}
