//! Contents of pages, by number.
//!
//! Invariant: different numbers stand for different bytes. Absent: the writers of contents
//! (`oracle`).

/// Content of a page, by number; every number stands for different bytes.
pub(crate) type Content = u64;

/// Content of an unmapped page.
pub(crate) const ZEROES: Content = 0;

/// Content of a lost page: a media error.
pub(crate) const LOST: Content = Content::MAX;

/// Content numbers from here on are unknown contents of lost pages; each stands for a list of
/// candidates.
pub(crate) const UNKNOWN: Content = 1 << 62;

/// Returns true if a host can write this content again.
pub(crate) fn is_known(content: Content) -> bool {
    content != ZEROES && content < UNKNOWN
}

/// Name of a content, for reports.
pub(crate) fn name(content: Content) -> String {
    match content {
        ZEROES => "zeroes".to_owned(),
        LOST => "a media error".to_owned(),
        UNKNOWN.. => "what was lost".to_owned(),
        content => format!("content {content}"),
    }
}
