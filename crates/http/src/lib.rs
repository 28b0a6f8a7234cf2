//! A device in service, for operators: metrics, health, JSON, a live page, and verbs, over HTTP.
//!
//! ```text
//! status   what is known of a device, as plain data; `Watched` is who knows it
//! metrics  a status as OpenMetrics, or as Prometheus' older text format
//! page     the live page: HTML, CSS and JavaScript of our own, in the binary
//! route    which path gives what, and who may have it
//! token    who may have more than health and the page
//! request  one request: parsed, within limits
//! response one response: status, headers, body
//! server   sockets, threads, limits of clients and of time
//! places   who has a place: strangers, those who ask for health or the page, operators
//! client   the other end, for `remap-ssd ctl`
//! ```
//! Invariants: no request makes anything here panic, wait for ever, or hold more than a few
//! kilobytes; verbs need a token, always; without a token only names that a browser cannot be
//! tricked into are answered. Absent: devices. What is shown here is what a `Watched` says, whether
//! that is served or simulated.

pub mod client;
pub mod metrics;
pub mod page;
mod places;
pub mod request;
pub mod response;
pub mod route;
pub mod server;
pub mod status;
pub mod token;

pub use server::{Limits, Server};
pub use status::{Cells, CommandStatistics, Host, Refused, Spans, Status, Watched};
pub use token::{Token, TokenError};
