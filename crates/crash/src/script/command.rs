//! The commands of a script, and how a report says them.
//!
//! Absent: how they are drawn (`CommandGenerator`), and what they do (the oracle's).

use crate::content::{Content, ZEROES, is_known};
use remap_ssd_ftl::{FilePage, Lpn};
use std::fmt;

/// One step of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptCommand {
    /// Writes a page that nothing else is known of.
    Write {
        /// The LPN that is written.
        lpn: Lpn,
        /// Number that stands for the page's bytes.
        content: Content,
    },
    /// Writes consecutive pages by one command.
    WriteMany {
        /// First LPN that is written.
        lpn: Lpn,
        /// Pages that are written, at least two.
        len: u32,
        /// What the pages from this LPN on held before, where they held anything.
        source: Option<Lpn>,
        /// Elsewhere: this, and the numbers after it.
        fresh: Content,
    },
    /// One page of a file, noted in the file map.
    FileWrite {
        /// The LPN that is written.
        lpn: Lpn,
        /// Number that stands for the page's bytes.
        content: Content,
        /// File and page that are noted.
        page: FilePage,
    },
    /// A reset of the file map.
    FileReset,
    /// One page that is meant to be remapped to its home.
    WriteFor {
        /// The LPN that is written: a journal's.
        lpn: Lpn,
        /// Number that stands for the page's bytes.
        content: Content,
        /// LPN that the page is written for.
        home: Lpn,
    },
    /// Deallocates pages, as trims and Write Zeroes do.
    Deallocate {
        /// First LPN that loses its page.
        lpn: Lpn,
        /// Pages that are deallocated, from `lpn` on.
        len: u32,
    },
    /// Lets LPNs share what other LPNs hold.
    Remap {
        /// First LPN that gets another page.
        target: Lpn,
        /// First LPN whose page it shares from now on.
        source: Lpn,
        /// Pages of source and target each.
        len: u32,
        /// Whether the source is deallocated.
        relocate: bool,
        /// Whether all pages are remapped or none.
        atomic: bool,
    },
    /// Makes everything that was acknowledged durable.
    Flush,
    /// Garbage collection while the host is idle.
    Background {
        /// At most so many steps.
        steps: u32,
    },
}

/// What page `at` of `WriteMany` is to hold.
pub fn content_of_many(live: &[Content], source: Option<Lpn>, fresh: Content, at: u32) -> Content {
    // What is not known cannot be repeated: such a page gets a content of its own.
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
            Self::Remap {
                target,
                source,
                len,
                relocate,
                atomic,
            } => {
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
