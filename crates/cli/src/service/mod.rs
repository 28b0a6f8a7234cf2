//! The device in service: `image` makes one, `serve` puts it on the network, `io` talks to it.

mod access;
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
mod supervisor;
mod traces;
pub mod writeback;
