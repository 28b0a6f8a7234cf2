//! A device in service, for operators: metrics, health, JSON, a live page, and operations, over
//! HTTP.
//!
//! ```text
//! status   the state of a device, as plain data; provided by a `Watched`
//! metrics  a status as OpenMetrics, or as Prometheus' older text format
//! page     the live page: our own HTML, CSS and JavaScript, in the binary
//! route    paths and the permissions that they need
//! token    the token for everything but health and the page
//! request  one request: parsed, within limits
//! response one response: status, headers, body
//! server   sockets, threads, limits of clients and of time
//! places   limits of connections: strangers, public (health or the page), operators
//! client   the client's side, for `remap-ssd ctl`
//! ```
//! Invariants: no request causes a panic here, an endless wait, or the use of more than a few
//! kilobytes; operations always need a token; without a token only host names safe against DNS
//! rebinding are answered. Absent: devices. All data come from a `Watched`, of a served or
//! simulated device.

#![warn(unreachable_pub)]

pub mod client;
mod metrics;
mod page;
mod places;
mod request;
mod response;
mod route;
mod server;
pub mod status;
mod token;

pub use server::{Bound, Limits, Server};
pub use status::{Cells, CommandStatistics, Host, Refused, Status, Watched};
pub use token::{Token, TokenError};
