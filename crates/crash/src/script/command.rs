//! The commands of a script, and their text in reports.
//!
//! Absent: drawing them (`CommandGenerator`), and their effects (the oracle's).

use crate::content::{Content, ZEROES, is_known};
use remap_ssd_ftl::{FilePage, Lpn, Remap};
use std::fmt;

/// One step of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScriptCommand {
    /// Writes a page, without hints.
    Write {
        /// LPN written.
        lpn: Lpn,
        /// Number that stands for the page's bytes.
        content: Content,
    },
    /// Writes consecutive pages by one command.
    WriteMany {
        /// First LPN written.
        lpn: Lpn,
        /// Number of pages written, at least two.
        len: u32,
        /// First LPN of earlier contents to repeat, where these are known.
        source: Option<Lpn>,
        /// Elsewhere: this content, and the following numbers.
        fresh: Content,
    },
    /// Writes one page of a file, recorded in the file map.
    FileWrite {
        /// LPN written.
        lpn: Lpn,
        /// Number that stands for the page's bytes.
        content: Content,
        /// File and page recorded.
        page: FilePage,
    },
    /// Resets the file map.
    FileReset,
    /// Writes one page that will be remapped to its home.
    WriteFor {
        /// LPN written: a journal's.
        lpn: Lpn,
        /// Number that stands for the page's bytes.
        content: Content,
        /// LPN that the page is written for.
        home: Lpn,
    },
    /// Deallocates pages, as trims and Write Zeroes do.
    Deallocate {
        /// First LPN deallocated.
        lpn: Lpn,
        /// Number of pages deallocated.
        len: u32,
    },
    /// Maps LPNs to the pages of other LPNs.
    Remap(Remap),
    /// Makes all acknowledged commands durable.
    Flush,
    /// Garbage collection while the host is idle.
    Background {
        /// Maximum number of steps.
        steps: u32,
    },
}

/// Content to write to page `at` of `WriteMany`.
pub(crate) fn content_of_many(
    live: &[Content],
    source: Option<Lpn>,
    fresh: Content,
    at: u32,
) -> Content {
    // An unknown content cannot be repeated: such a page gets a new one.
    let repeated = source.map_or(ZEROES, |source| live[source.offset(at).index()]);
    if is_known(repeated) {
        repeated
    } else {
        fresh + Content::from(at)
    }
}

impl fmt::Display for ScriptCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pages = |lpn: Lpn, len: u32| {
            if len == 1 {
                format!("{lpn}")
            } else {
                format!("{lpn}..{}", lpn.offset(len))
            }
        };

        match *self {
            Self::Write { lpn, content } => write!(f, "write {lpn}: content {content}"),
            Self::WriteMany {
                lpn,
                len,
                source,
                fresh,
            } => {
                write!(f, "write {}: ", pages(lpn, len))?;
                match source {
                    Some(source) => write!(
                        f,
                        "what {} is, or content {fresh} and on",
                        pages(source, len)
                    ),
                    None => write!(f, "content {fresh} and on"),
                }
            }
            Self::FileWrite {
                lpn,
                content,
                page: FilePage { inode, offset },
            } => {
                write!(
                    f,
                    "write {lpn}: content {content}, page {offset} of file {inode}"
                )
            }
            Self::FileReset => f.write_str("reset the file map"),
            Self::WriteFor { lpn, content, home } => {
                write!(f, "write {lpn}, for {home}: content {content}")
            }
            Self::Deallocate { lpn, len } => write!(f, "deallocate {}", pages(lpn, len)),
            Self::Remap(Remap {
                target,
                source,
                len,
                relocate,
                atomic,
            }) => {
                write!(
                    f,
                    "remap {} to what {} is",
                    pages(target, len),
                    pages(source, len)
                )?;
                f.write_str(if relocate { ", relocate" } else { "" })?;
                f.write_str(if atomic { ", atomic" } else { "" })
            }
            Self::Flush => f.write_str("flush"),
            Self::Background { steps } => write!(f, "background, {steps} steps"),
        }
    }
}
