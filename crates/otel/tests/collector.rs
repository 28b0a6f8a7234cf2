//! Spans, as a collector gets them: how many, what they say, and what becomes of them when the
//! collector is slow, refuses, or is gone.

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use remap_ssd_nvme::controller::spans::{CommandSpan, Tracer};
use remap_ssd_nvme::spec::opcode::io;
use remap_ssd_nvme::spec::status::Status;
use remap_ssd_otel::{Endpoint, Exporter, Fraction, OtlpTracer};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const NQN: &str = "nqn.2026-11.test:remap-ssd";

/// A collector on the loopback: it keeps what it gets.
struct Collector {
    endpoint: Endpoint,
    requests: Arc<Mutex<Vec<ExportTraceServiceRequest>>>,
}

impl Collector {
    /// It answers with this status, after that time.
    fn answering(status: u16, after: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let requests = Arc::new(Mutex::new(Vec::new()));
        let kept = requests.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.expect("it connects");
                let Some(request) = receive(&mut stream) else {
                    continue;
                };
                std::thread::sleep(after);
                if status == 200 {
                    kept.lock().expect("nothing fails here").push(request);
                }
                let _ = write!(
                    stream,
                    "HTTP/1.1 {status} Said\r\nContent-Length: 0\r\n\r\n"
                );
            }
        });
        Self {
            endpoint: format!("http://{address}").parse().expect("a URL"),
            requests,
        }
    }

    fn spans(&self) -> Vec<Span> {
        let requests = self.requests.lock().expect("nothing fails here");
        let scopes = requests
            .iter()
            .flat_map(|request| &request.resource_spans)
            .flat_map(|resource| &resource.scope_spans);
        scopes.flat_map(|scope| scope.spans.clone()).collect()
    }
}

/// A request's body, decoded; `None` if the other end gave up.
fn receive(stream: &mut TcpStream) -> Option<ExportTraceServiceRequest> {
    let mut input = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&input).into_owned();
        if let Some(head) = text.find("\r\n\r\n") {
            assert!(text.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{text}");
            let head_text = text[..head].to_lowercase();
            assert!(head_text.contains("content-type: application/x-protobuf"));
            let length = head_text.split("content-length: ").nth(1)?;
            let length: usize = length.lines().next()?.parse().ok()?;
            // The text may be longer than the bytes: the head is plain.
            let body = &input[head + 4..];
            if body.len() >= length {
                return Some(ExportTraceServiceRequest::decode(&body[..length]).expect("protobuf"));
            }
        }
        match stream.read(&mut chunk) {
            Ok(0) | Err(_) => return None,
            Ok(bytes) => input.extend_from_slice(&chunk[..bytes]),
        }
    }
}

fn start(endpoint: &Endpoint) -> (OtlpTracer, Exporter) {
    Exporter::start(endpoint, Fraction::ALL, NQN, 1).expect("a thread")
}

fn command(slba: u64, status: Status) -> CommandSpan<'static> {
    CommandSpan {
        hostnqn: "nqn.2026-11.test:host",
        connection: 4,
        peer: "192.0.2.7:5000".parse().expect("an address"),
        cntlid: 1,
        qid: 2,
        cid: 77,
        opcode: io::WRITE,
        nsid: 1,
        slba: Some(slba),
        blocks: Some(8),
        bytes: 32768,
        status,
        began_ns: 1_000_000,
        ended_ns: 1_900_000,
        turn_ns: 100_000,
        device_ns: 300_000,
        durable_ns: 400_000,
    }
}

fn attribute<'a>(attributes: &'a [KeyValue], name: &str) -> &'a Value {
    let found = attributes.iter().find(|one| one.key == name);
    let value = found.and_then(|one| one.value.as_ref()?.value.as_ref());
    value.unwrap_or_else(|| panic!("{name} in {attributes:?}"))
}

#[test]
fn as_many_spans_arrive_as_commands_were_taken() {
    let collector = Collector::answering(200, Duration::ZERO);
    let (tracer, exporter) = start(&collector.endpoint);
    for slba in 0..2000 {
        assert!(tracer.is_sampled());
        tracer.take(&command(slba, Status::SUCCESS));
    }
    let counts = exporter.finish();
    assert_eq!(counts.exported, 2000, "{counts:?}");
    assert_eq!((counts.dropped_full, counts.dropped_failed), (0, 0));

    let spans = collector.spans();
    let mut seen: Vec<i64> = spans
        .iter()
        .map(|span| match attribute(&span.attributes, "nvme.lba") {
            Value::IntValue(lba) => *lba,
            other => panic!("{other:?}"),
        })
        .collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..2000).collect::<Vec<_>>());

    // Each is a trace of its own.
    let mut traces: Vec<_> = spans.iter().map(|span| span.trace_id.clone()).collect();
    traces.sort();
    traces.dedup();
    assert_eq!(traces.len(), 2000);
}

#[test]
fn a_span_says_who_what_how_and_how_long() {
    let collector = Collector::answering(200, Duration::ZERO);
    let (tracer, exporter) = start(&collector.endpoint);
    tracer.take(&command(40, Status::SUCCESS));
    tracer.take(&command(41, Status::LBA_RANGE));
    assert_eq!(exporter.finish().exported, 2);

    let spans = collector.spans();
    let span = &spans[0];
    assert_eq!(span.name, "Write");
    assert_eq!(span.end_time_unix_nano - span.start_time_unix_nano, 900_000);
    let text = |name: &str, wanted: &str| {
        let value = Value::StringValue(wanted.into());
        assert_eq!(*attribute(&span.attributes, name), value, "{name}");
    };
    text("nvme.host.nqn", "nqn.2026-11.test:host");
    text("network.peer.address", "192.0.2.7");
    for (name, wanted) in [
        ("network.peer.port", 5000),
        ("nvme.connection", 4),
        ("nvme.controller", 1),
        ("nvme.queue", 2),
        ("nvme.command", 77),
        ("nvme.opcode", 1),
        ("nvme.namespace", 1),
        ("nvme.lba", 40),
        ("nvme.blocks", 8),
        ("nvme.bytes", 32768),
        ("nvme.status.type", 0),
        ("nvme.status.code", 0),
        ("nvme.device_ns", 300_000),
        ("nvme.waiting_ns", 600_000),
        ("nvme.waiting.turn_ns", 100_000),
        ("nvme.waiting.durable_ns", 400_000),
    ] {
        let value = Value::IntValue(wanted);
        assert_eq!(*attribute(&span.attributes, name), value, "{name}");
    }

    // 2 is an error.
    let failed = spans[1].status.as_ref().expect("a status");
    assert_eq!(
        (failed.code, &*failed.message),
        (2, "NVMe status type 0h, code 80h")
    );
    assert_ne!(span.status.as_ref().map_or(0, |status| status.code), 2);

    let requests = collector.requests.lock().expect("nothing fails here");
    let resource = requests[0].resource_spans[0]
        .resource
        .as_ref()
        .expect("one");
    let instance = attribute(&resource.attributes, "service.instance.id");
    assert_eq!(*instance, Value::StringValue(NQN.into()));
}

#[test]
fn nobody_waits_for_a_collector_that_does_not_answer() {
    let collector = Collector::answering(200, Duration::from_secs(60));
    let (tracer, exporter) = start(&collector.endpoint);
    let began = Instant::now();
    for slba in 0..20_000 {
        tracer.take(&command(slba, Status::SUCCESS));
    }
    // A queue that waited would wait for seconds.
    assert!(
        began.elapsed() < Duration::from_secs(3),
        "{:?}",
        began.elapsed()
    );

    // One batch is on its way, the queue is full, and all else is counted as lost.
    let dropped = tracer.counts().dropped_full;
    assert!((10_000..=20_000 - 8192).contains(&dropped), "{dropped}");
    let began = Instant::now();
    exporter.finish();
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
}

#[test]
fn spans_that_a_collector_refuses_or_that_find_none_are_counted() {
    let refusing = Collector::answering(400, Duration::ZERO);
    let (tracer, exporter) = start(&refusing.endpoint);
    (0..700).for_each(|slba| tracer.take(&command(slba, Status::SUCCESS)));
    let counts = exporter.finish();
    assert_eq!(
        (counts.exported, counts.dropped_failed),
        (0, 700),
        "{counts:?}"
    );

    // Nobody listens there any more.
    let gone = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = gone.local_addr().expect("bound");
    drop(gone);
    let endpoint = format!("http://{address}").parse().expect("a URL");
    let (tracer, exporter) = start(&endpoint);
    (0..10).for_each(|slba| tracer.take(&command(slba, Status::SUCCESS)));
    let counts = exporter.finish();
    assert_eq!(
        (counts.exported, counts.dropped_failed),
        (0, 10),
        "{counts:?}"
    );
}
