//! A command as a span of OpenTelemetry.
//!
//! Each is the root of a trace of its own: NVMe carries no trace context. Invariant: attributes
//! have names that `docs/operate.md` lists. Absent: queues, and the collector.

use opentelemetry::trace::{
    SpanContext, SpanId, SpanKind, Status as SpanStatus, TraceFlags, TraceState,
};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator, SpanData, SpanEvents, SpanLinks};
use remap_ssd_nvme::controller::spans::{CommandSpan, command_name};
use remap_ssd_nvme::spec::status::Status;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

/// A command on its way to the exporter.
#[derive(Debug)]
pub(crate) struct Traced {
    hostnqn: String,
    peer: SocketAddr,
    connection: u64,
    cntlid: u16,
    qid: u16,
    cid: u16,
    opcode: u8,
    nsid: u32,
    slba: Option<u64>,
    blocks: Option<u32>,
    bytes: u32,
    status: Status,
    began_ns: u64,
    ended_ns: u64,
    turn_ns: u64,
    device_ns: u64,
    durable_ns: u64,
}

impl From<&CommandSpan<'_>> for Traced {
    fn from(span: &CommandSpan<'_>) -> Self {
        Self {
            hostnqn: span.hostnqn.to_owned(),
            peer: span.peer,
            connection: span.connection,
            cntlid: span.cntlid,
            qid: span.qid,
            cid: span.cid,
            opcode: span.opcode,
            nsid: span.nsid,
            slba: span.slba,
            blocks: span.blocks,
            bytes: span.bytes,
            status: span.status,
            began_ns: span.began_ns,
            ended_ns: span.ended_ns,
            turn_ns: span.turn_ns,
            device_ns: span.device_ns,
            durable_ns: span.durable_ns,
        }
    }
}

impl Traced {
    /// The span, of a tracer whose clock began at `epoch`.
    pub fn into_span(
        self,
        epoch: SystemTime,
        ids: &RandomIdGenerator,
        scope: &InstrumentationScope,
    ) -> SpanData {
        let context = SpanContext::new(
            ids.new_trace_id(),
            ids.new_span_id(),
            TraceFlags::SAMPLED,
            false,
            TraceState::NONE,
        );
        let at = |ns: u64| epoch + Duration::from_nanos(ns);

        SpanData {
            span_context: context,
            // NVMe commands carry no trace context, so each span is the root of its own trace.
            parent_span_id: SpanId::INVALID,
            parent_span_is_remote: false,
            span_kind: SpanKind::Server,
            name: command_name(self.opcode).into(),
            start_time: at(self.began_ns),
            end_time: at(self.ended_ns),
            attributes: self.attributes(),
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: self.span_status(),
            instrumentation_scope: scope.clone(),
        }
    }

    fn attributes(&self) -> Vec<KeyValue> {
        // OTLP's integers are signed; what does not fit becomes the largest, rather than negative.
        let number = |name: &'static str, value: u64| {
            KeyValue::new(name, i64::try_from(value).unwrap_or(i64::MAX))
        };
        let took_ns = self.ended_ns.saturating_sub(self.began_ns);

        let mut attributes = vec![
            KeyValue::new("nvme.host.nqn", self.hostnqn.clone()),
            KeyValue::new("network.peer.address", self.peer.ip().to_string()),
            number("network.peer.port", self.peer.port().into()),
            number("nvme.connection", self.connection),
            number("nvme.controller", self.cntlid.into()),
            number("nvme.queue", self.qid.into()),
            number("nvme.command", self.cid.into()),
            number("nvme.opcode", self.opcode.into()),
            number("nvme.namespace", self.nsid.into()),
            number("nvme.bytes", self.bytes.into()),
            number("nvme.status.type", self.status.kind().into()),
            number("nvme.status.code", self.status.code().into()),
            number("nvme.device_ns", self.device_ns),
            number("nvme.waiting_ns", took_ns.saturating_sub(self.device_ns)),
            number("nvme.waiting.turn_ns", self.turn_ns),
            number("nvme.waiting.durable_ns", self.durable_ns),
        ];
        // Only commands that name blocks have these two.
        attributes.extend(self.slba.map(|slba| number("nvme.lba", slba)));
        attributes.extend(self.blocks.map(|count| number("nvme.blocks", count.into())));
        attributes
    }

    fn span_status(&self) -> SpanStatus {
        if self.status.is_success() {
            // OpenTelemetry's convention: a success is left unset, and `Ok` is for applications to
            // say.
            return SpanStatus::Unset;
        }
        let (kind, code) = (self.status.kind(), self.status.code());
        SpanStatus::error(format!("NVMe status type {kind}h, code {code:02x}h"))
    }
}
