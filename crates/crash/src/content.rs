//! What pages hold, by number.
//!
//! Invariant: different numbers stand for different bytes. Absent: who wrote which (`oracle`).

/// What a page holds, by number; every number stands for different bytes.
pub type Content = u64;

/// A page that is not mapped reads as zeroes.
pub const ZEROES: Content = 0;

/// What is read of a page that is lost: a media error.
pub const LOST: Content = Content::MAX;

/// Content numbers from here on are unknown ones, of lost pages; each stands for a list of
/// candidates.
pub(crate) const UNKNOWN: Content = 1 << 62;

/// Is this a content that a host can write again?
pub fn is_known(content: Content) -> bool {
    content != ZEROES && content < UNKNOWN
}

/// A content in words, for reports.
pub fn name(content: Content) -> String {
    match content {
        ZEROES => "zeroes".to_owned(),
        LOST => "a media error".to_owned(),
        UNKNOWN.. => "what was lost".to_owned(),
        content => format!("content {content}"),
    }
}
