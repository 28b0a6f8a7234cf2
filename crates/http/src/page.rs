//! The live page, in the binary: no files at run time, no packages, no build step.
//!
//! Absent: data. The page fetches them (`/api/live`, `/api/map`, `/api/hosts`).

/// A part of the page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asset {
    /// Media type with its charset: answers carry `nosniff`, so browsers rely on it.
    pub content_type: &'static str,
    /// Text of the asset, compiled into the binary.
    pub text: &'static str,
}

/// The page's structure, `/`; it refers to the other three by path.
pub(crate) const HTML: Asset = Asset {
    content_type: "text/html; charset=utf-8",
    text: include_str!("../page/index.html"),
};

/// The style sheet of [`HTML`], served as `/page.css`.
pub(crate) const CSS: Asset = Asset {
    content_type: "text/css; charset=utf-8",
    text: include_str!("../page/page.css"),
};

/// Colours and strokes of the page's charts, the same as in the program's figures: the file is
/// shared with the plotter, so that there is one palette.
pub(crate) const PLOT_CSS: Asset = Asset {
    content_type: "text/css; charset=utf-8",
    text: include_str!("../page/plot.css"),
};

/// The page's script, `/page.js`; it fetches `/api/live`, `/api/map` and `/api/hosts`.
pub(crate) const JS: Asset = Asset {
    content_type: "text/javascript; charset=utf-8",
    text: include_str!("../page/page.js"),
};

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Names after `prefix` in a text.
    fn names<'a>(text: &'a str, prefix: &str) -> BTreeSet<&'a str> {
        let is_part = |c: char| c.is_ascii_lowercase() || c == '-';
        text.split(prefix)
            .skip(1)
            .map(|rest| &rest[..rest.find(|c| !is_part(c)).unwrap_or(rest.len())])
            .filter(|name| !name.is_empty())
            .collect()
    }

    #[test]
    fn the_page_has_no_colours_but_those_of_the_figures() {
        for text in [CSS.text, HTML.text, JS.text] {
            let hex = |digits: &str| digits.chars().take(3).all(|c| c.is_ascii_hexdigit());
            let colours: Vec<&str> = text
                .split(": #")
                .skip(1)
                .filter(|rest| hex(rest))
                .map(|rest| &rest[..7])
                .collect();
            assert!(colours.is_empty(), "{colours:?}");
            assert!(!text.contains("rgb("));
        }
    }

    #[test]
    fn every_colour_that_the_page_names_is_defined() {
        let sheets = [PLOT_CSS.text, CSS.text].concat();
        let is_defined = |name: &str| name == "c" || sheets.contains(&format!("--{name}:"));

        let mut named = names(CSS.text, "var(--");
        named.extend(names(JS.text, "colour: \""));
        named.extend(names(PLOT_CSS.text, "var(--"));
        assert!(named.len() > 15, "{named:?}");
        for name in named {
            assert!(is_defined(name), "--{name}");
        }
    }
}
