//! The device in service: `image` creates it, `serve` exports it, `io` sends it commands.

mod args;
pub mod image;
pub mod io;
mod log;
pub mod serve;
mod shape;
