//! The device in service: `image` creates it, `serve` exports it, `io` sends it commands.

mod args;
pub(crate) mod image;
pub(crate) mod io;
mod log;
pub(crate) mod serve;
mod shape;
