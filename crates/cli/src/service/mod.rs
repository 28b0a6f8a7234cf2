//! The device in service: `image` creates it, `serve` exports it, `io` sends it commands.

mod access;
mod address;
mod args;
mod fronts;
pub mod image;
pub mod io;
pub mod kept;
pub mod log;
pub mod namespaces;
mod recording;
mod relearn;
pub mod serve;
pub mod shape;
mod share;
mod supervisor;
pub mod writeback;
