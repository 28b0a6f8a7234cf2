//! Traces of commands: one span for each sampled command, sent to a collector by OTLP over HTTP.
//!
//! ```text
//! connection ──is_sampled, take──► tracer ──queue──► exporter (a thread) ──HTTP──► collector
//! ```
//! - `endpoint`: where a collector is.
//! - `sampler`: which commands are sampled.
//! - `tracer`: what connections call.
//! - `exporter`: the thread that sends spans in batches.
//! - `span`: a command as a span of OpenTelemetry.
//! - `transport`: one HTTP request.
//!
//! Invariants: a host never waits for a collector: a span that finds no room in the queue is dropped
//! and counted; a collector that is gone is logged once, and costs its spans. Absent: TLS, retries
//! across batches, an async runtime, and commands (`remap-ssd-nvme` makes their spans).

mod endpoint;
mod exporter;
mod sampler;
mod span;
mod tracer;
mod transport;

pub use endpoint::{Endpoint, EndpointError};
pub use exporter::{Exporter, StartError};
pub use sampler::{Fraction, FractionError};
pub use tracer::OtlpTracer;
