//! The integration tests of media, in one program; those that need a program of their own are
//! beside it.

mod bit_errors;
mod commit;
mod damage;
mod effects;
mod folder;
mod format;
mod image_file;
#[path = "../kit/mod.rs"]
mod kit;
mod limits;
mod media;
mod older;
mod rail;
mod reserved;
mod rest;
mod resting;
mod snapshot;
mod torn_clearing;
mod word_lines;
