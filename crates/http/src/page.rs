//! The live page, in the binary: no file is read, no package is needed, and there is no build step.
//!
//! Absent: data. The page asks for it (`/api/live`, `/api/map`, `/api/hosts`).

/// A part of the page.
#[derive(Clone, Copy, Debug)]
pub struct Asset {
    /// Media type, for `Content-Type`.
    pub content_type: &'static str,
    /// Text of the asset.
    pub text: &'static str,
}

/// The page's structure.
pub const HTML: Asset = Asset {
    content_type: "text/html; charset=utf-8",
    text: include_str!("../page/index.html"),
};

/// The page's styles.
pub const CSS: Asset = Asset {
    content_type: "text/css; charset=utf-8",
    text: include_str!("../page/page.css"),
};

/// The page's script.
pub const JS: Asset = Asset {
    content_type: "text/javascript; charset=utf-8",
    text: include_str!("../page/page.js"),
};
