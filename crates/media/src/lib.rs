//! NAND flash and NVRAM: the state that survives power loss.
//!
//! A [`Media`] is the storage of the firmware: a NAND array (channels, dies, blocks, pages, OOB)
//! and an NVRAM of 8-byte words. Every operation takes effect at once in the *live* view, is
//! recorded in [`Media::ops`] for the timing model, and, while a power [`rail`] is attached, stays
//! *pending* until settled, so that a cut can leave it whole, absent or torn.
//!
//! Absent: time, threads, randomness, and the meaning of the bytes.

#![warn(unreachable_pub)]

mod array;
mod bit_errors;
mod content;
mod effect;
mod escaped;
mod fault;
pub mod folder;
pub mod geometry;
mod identities;
mod image;
pub mod image_file;
mod media;
pub mod oob;
pub mod op;
mod pages;
pub mod rail;
pub mod slab;
mod slc;
mod word_line;

pub use array::StoredPage;
pub use bit_errors::BitErrors;
pub use content::{ContentMode, Page, PageView, Payload};
pub use escaped::Escaped;
pub use fault::{Faults, MediaError};
pub use geometry::{BlockId, Geometry, Lpn, PageSlot, Ppn, SbId};
pub use image::Image;
pub use media::{Media, WriteBackMark};
pub use oob::{Oob, SecondOwner};
pub use op::{After, ClearId, Op, OpKind, Purpose, ReadOutcome};
pub use rail::{AckSet, Outcome};
pub use slc::{SlcArea, SlcModes};
pub use word_line::WordLine;
