//! Traces of commands for a collector, if the program was built with OpenTelemetry.
//!
//! Invariant: a service that was asked for traces has them, or does not begin. Absent: spans
//! (`remap-ssd-otel`).

#[cfg(not(feature = "otel"))]
pub use absent::{TracePlan, Traces};
#[cfg(feature = "otel")]
pub use built::{TracePlan, Traces};

#[cfg(feature = "otel")]
mod built {
    use crate::failure::Failure;
    use crate::service::shape::random;
    use remap_ssd_nvme::controller::spans::Tracer;
    use remap_ssd_otel::{Endpoint, Exporter, Fraction};

    /// What is to be traced, and for whom.
    pub struct TracePlan {
        endpoint: Endpoint,
        fraction: Fraction,
        part: f64,
    }

    impl TracePlan {
        /// A part of all commands, for the collector with this URL.
        ///
        /// # Errors
        /// What is wrong with the URL or the part.
        pub fn new(url: &str, part: f64) -> Result<Self, Failure> {
            let endpoint = url.parse();
            let fraction = Fraction::new(part);
            Ok(Self {
                endpoint: endpoint
                    .map_err(|error| Failure::usage(format_args!("--otlp: {error}")))?,
                fraction: fraction
                    .map_err(|error| Failure::usage(format_args!("--otlp-sample: {error}")))?,
                part,
            })
        }

        /// Begins to send spans for the service with this name.
        ///
        /// # Errors
        /// The endpoint is refused, or there is no thread.
        pub fn start(self, nqn: &str) -> Result<(Box<dyn Tracer>, Traces), Failure> {
            let started = Exporter::start(&self.endpoint, self.fraction, nqn, random());
            let (tracer, exporter) = started.map_err(Failure::failed)?;
            tracing::info!(collector = %self.endpoint, fraction = self.part, "tracing commands");
            Ok((Box::new(tracer), Traces(exporter)))
        }
    }

    /// What sends spans while the device is served.
    pub struct Traces(Exporter);

    impl Traces {
        /// Sends what is left, and logs what became of all spans.
        pub fn finish(self) {
            let counts = self.0.finish();
            let dropped = counts.dropped_full + counts.dropped_failed;
            tracing::info!(exported = counts.exported, dropped, "spans");
        }
    }
}

#[cfg(not(feature = "otel"))]
mod absent {
    use crate::failure::Failure;
    use remap_ssd_nvme::controller::spans::Tracer;
    use std::convert::Infallible;

    /// A plan that cannot exist in a program without OpenTelemetry.
    pub struct TracePlan(Infallible);

    impl TracePlan {
        /// Refuses.
        ///
        /// # Errors
        /// How to get a program that can.
        pub fn new(_: &str, _: f64) -> Result<Self, Failure> {
            Err(Failure::usage(
                "--otlp: this program was built without OpenTelemetry: `cargo install --path crates/cli --features otel` has it",
            ))
        }

        /// Nothing can be started.
        ///
        /// # Errors
        /// None.
        pub fn start(self, _: &str) -> Result<(Box<dyn Tracer>, Traces), Failure> {
            match self.0 {}
        }
    }

    /// Traces that cannot exist, as the plan that would start them.
    pub struct Traces(Infallible);

    impl Traces {
        /// Cannot be called: there is no such value.
        pub fn finish(self) {
            match self.0 {}
        }
    }
}
