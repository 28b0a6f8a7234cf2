//! The thread that sends spans to the collector, in batches.
//!
//! A batch is sent when it is full, or `LINGER` after its first span. While the collector does not
//! answer, the queue fills, and then spans are dropped where they are made. Invariants: the thread
//! never holds more than one batch beside the queue; the service's end waits for it no longer than
//! `FINISH_WITHIN`. Absent: hosts.

use crate::endpoint::Endpoint;
use crate::sampler::{Fraction, Sampler};
use crate::span::Traced;
use crate::tracer::{OtlpTracer, TracerState};
use crate::transport::{PATIENCE, Transport};
use futures_executor::block_on;
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{RandomIdGenerator, SpanData, SpanExporter as _};
use remap_ssd_nvme::controller::spans::SpanCounts;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant, SystemTime};

/// Spans that wait for the exporter.
const QUEUE_SPANS: usize = 8192;
/// Most spans of one request; 512 is OpenTelemetry's default for batches.
const BATCH_SPANS: usize = 512;
/// How long the first span of a batch waits for others.
const LINGER: Duration = Duration::from_secs(1);
/// How often it is looked whether the service ends.
const TICK: Duration = Duration::from_millis(100);
/// How long the end of the service waits for spans to be sent.
const FINISH_WITHIN: Duration = Duration::from_secs(3);

/// Why spans cannot be sent.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// OpenTelemetry refuses the endpoint; its reason in words.
    #[error("{0}")]
    Refused(String),
    /// There is no thread for it.
    #[error("{0}")]
    Thread(#[from] io::Error),
}

/// The thread that sends spans.
pub struct Exporter {
    endpoint: Endpoint,
    shared: Arc<TracerState>,
    /// The thread's end of it is dropped when it ends.
    ended: Receiver<()>,
}

impl Exporter {
    /// Begins to send spans, of a part of all commands, for the service with this name.
    ///
    /// # Errors
    /// The endpoint is refused, or there is no thread.
    pub fn start(
        endpoint: &Endpoint,
        fraction: Fraction,
        nqn: &str,
        seed: u64,
    ) -> Result<(OtlpTracer, Self), StartError> {
        let mut collector = SpanExporter::builder()
            .with_http()
            .with_http_client(Transport)
            .with_endpoint(endpoint.to_string())
            .with_timeout(PATIENCE)
            .build()
            .map_err(|error| StartError::Refused(error.to_string()))?;
        collector.set_resource(&resource(nqn));

        let shared = Arc::new(TracerState::default());
        let (sender, queue) = sync_channel(QUEUE_SPANS);
        // Nothing is ever sent here: the receiver learns of the thread's end when the sender is
        // dropped. A `JoinHandle` cannot be waited for with a limit.
        let (alive, ended) = sync_channel(0);
        // Spans are timed by the clock that never goes back, and placed in the day by one look at
        // the other.
        let (began, epoch) = (Instant::now(), SystemTime::now());

        let worker = Worker {
            collector,
            queue,
            shared: shared.clone(),
            endpoint: endpoint.clone(),
            epoch,
            ids: RandomIdGenerator::default(),
            scope: InstrumentationScope::builder("remap-ssd")
                .with_version(env!("CARGO_PKG_VERSION"))
                .build(),
        };
        std::thread::Builder::new()
            .name("otlp".into())
            .spawn(move || {
                worker.run();
                drop(alive);
            })?;

        let tracer = OtlpTracer {
            began,
            sampler: Sampler::new(fraction, seed),
            queue: sender,
            shared: shared.clone(),
        };
        let exporter = Self {
            endpoint: endpoint.clone(),
            shared,
            ended,
        };
        Ok((tracer, exporter))
    }

    /// Sends what is left, as far as the collector takes it in time, and says what became of all
    /// spans.
    pub fn finish(self) -> SpanCounts {
        self.shared.is_ending.store(true, Relaxed);
        if let Err(RecvTimeoutError::Timeout) = self.ended.recv_timeout(FINISH_WITHIN) {
            let endpoint = &self.endpoint;
            tracing::warn!(%endpoint, "the collector did not take the last spans in time");
        }

        // The thread may still wait for an answer, and could not say it.
        tell_if_full(&self.shared, &self.endpoint);
        self.shared.counts()
    }
}

/// Who the spans are from. What the environment says of it (`OTEL_RESOURCE_ATTRIBUTES`) is added.
fn resource(nqn: &str) -> Resource {
    Resource::builder()
        .with_attributes([
            KeyValue::new("service.name", "remap-ssd"),
            KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
            KeyValue::new("service.instance.id", nqn.to_owned()),
        ])
        .build()
}

struct Worker {
    collector: SpanExporter,
    queue: Receiver<Traced>,
    shared: Arc<TracerState>,
    endpoint: Endpoint,
    epoch: SystemTime,
    ids: RandomIdGenerator,
    scope: InstrumentationScope,
}

impl Worker {
    fn run(&self) {
        while let Some(batch) = self.gather() {
            self.export(batch);
        }
    }

    /// The next batch; `None` if the service ends and nothing is left.
    fn gather(&self) -> Option<Vec<SpanData>> {
        let mut batch = Vec::new();
        let mut until = None;

        while batch.len() < BATCH_SPANS && until.is_none_or(|until| Instant::now() < until) {
            // Read before the queue is: what was put there before the end is still taken, then the
            // wait is 0.
            let is_ending = self.shared.is_ending.load(Relaxed);
            match self
                .queue
                .recv_timeout(if is_ending { Duration::ZERO } else { TICK })
            {
                Ok(traced) => {
                    until.get_or_insert_with(|| Instant::now() + LINGER);
                    batch.push(traced.into_span(self.epoch, &self.ids, &self.scope));
                }
                Err(RecvTimeoutError::Timeout) if !is_ending => {}
                Err(_) => break,
            }
        }

        (!batch.is_empty()).then_some(batch)
    }

    fn export(&self, batch: Vec<SpanData>) {
        let spans = batch.len() as u64;
        match block_on(self.collector.export(batch)) {
            Ok(()) => {
                self.shared.exported.fetch_add(spans, Relaxed);
            }
            Err(error) => {
                // Not tried again: spans that wait for a collector that is gone would fill the
                // queue with old ones.
                self.shared.dropped_failed.fetch_add(spans, Relaxed);
                tell_dropped(&self.shared, &self.endpoint, &error.to_string());
            }
        }
        tell_if_full(&self.shared, &self.endpoint);
    }
}

/// Logs that the queue was full, if it was.
fn tell_if_full(shared: &TracerState, endpoint: &Endpoint) {
    if shared.dropped_full.load(Relaxed) > 0 {
        tell_dropped(shared, endpoint, "it is slower than the hosts");
    }
}

/// Logs once that spans are dropped; how many is among the metrics.
fn tell_dropped(shared: &TracerState, endpoint: &Endpoint, why: &str) {
    if !shared.is_told.swap(true, Relaxed) {
        tracing::warn!(
            %endpoint,
            "spans are dropped, and counted in remap_ssd_spans_dropped_total: {why}"
        );
    }
}
