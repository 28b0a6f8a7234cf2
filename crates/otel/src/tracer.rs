//! What connections call: is this command sampled, and here is its span.
//!
//! Invariant: nothing here waits; a span for which there is no room is dropped and counted. Absent:
//! the thread at the other end of the queue (`exporter`).

use crate::sampler::Sampler;
use crate::span::Traced;
use remap_ssd_nvme::controller::spans::{CommandSpan, SpanCounts, Tracer};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::SyncSender;
use std::time::Instant;

/// What tracer and exporter both know.
#[derive(Default)]
pub(crate) struct TracerState {
    pub exported: AtomicU64,
    pub dropped_full: AtomicU64,
    pub dropped_failed: AtomicU64,
    /// Dropped spans have been logged.
    pub is_told: AtomicBool,
    /// The service ends: the exporter sends what is queued, and waits for nothing more.
    pub is_ending: AtomicBool,
}

impl TracerState {
    pub fn counts(&self) -> SpanCounts {
        SpanCounts {
            exported: self.exported.load(Relaxed),
            dropped_full: self.dropped_full.load(Relaxed),
            dropped_failed: self.dropped_failed.load(Relaxed),
        }
    }
}

/// Samples commands, and hands their spans to the exporter.
pub struct OtlpTracer {
    pub(crate) began: Instant,
    pub(crate) sampler: Sampler,
    pub(crate) queue: SyncSender<Traced>,
    pub(crate) shared: Arc<TracerState>,
}

impl Tracer for OtlpTracer {
    fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    fn is_sampled(&self) -> bool {
        self.sampler.draw()
    }

    fn take(&self, span: &CommandSpan<'_>) {
        // A host never waits for a collector: `try_send` returns at once when the queue is full.
        if self.queue.try_send(span.into()).is_err() {
            self.shared.dropped_full.fetch_add(1, Relaxed);
        }
    }

    fn counts(&self) -> SpanCounts {
        self.shared.counts()
    }
}
