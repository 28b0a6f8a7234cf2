//! Clients that mean no good: cut, slow, huge, many. None of them may hang the server, or keep
//! others from being answered.

use remap_ssd_http::{Cells, Host, Limits, Refused, Server, Status, Token, Watched, client};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

/// A device that knows only how often it was asked to do something.
#[derive(Default)]
struct Counting(AtomicUsize);

impl Watched for Counting {
    fn status(&self) -> Status {
        Status::default()
    }
    fn cells(&self, _: usize) -> Cells {
        // An answer that does not fit in a socket's buffers.
        Cells {
            state: "f".repeat(32 << 20),
            ..Cells::default()
        }
    }
    fn hosts(&self) -> Vec<Host> {
        Vec::new()
    }
    fn namespaces(&self) -> Value {
        json!([])
    }
    fn config(&self) -> Value {
        json!({})
    }
    fn statistics(&self) -> Value {
        json!({})
    }
    fn ready(&self) -> Result<(), String> {
        Err("not yet".into())
    }
    fn act(&self, _: &str, _: &Value) -> Result<Value, Refused> {
        self.0.fetch_add(1, SeqCst);
        Ok(json!({}))
    }
}

const PATIENCE: Duration = Duration::from_secs(30);

fn start(limits: Limits) -> (Server, Arc<Counting>, String) {
    let watched = Arc::new(Counting::default());
    let token = Token::new("0123456789abcdef").expect("a token");
    let address = "127.0.0.1:0".parse().expect("an address");
    let server = Server::start(address, watched.clone(), Some(token), limits).expect("a port");
    let text = server.address().to_string();
    (server, watched, text)
}

fn answers(address: &str) -> u16 {
    client::ask(address, "/healthz", None, None, PATIENCE)
        .expect("an answer")
        .status
}

fn idle(server: &Server) -> bool {
    let until = Instant::now() + PATIENCE;
    while server.clients() > 0 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    server.clients() == 0
}

#[test]
fn clients_that_hold_every_place_make_room_for_one_that_asks() {
    let limits = Limits {
        clients: 8,
        receive_within: Duration::from_secs(600),
        ..Limits::default()
    };
    let (server, _, address) = start(limits);
    let mut holders = Vec::new();
    for _ in 0..100 {
        let mut holder = TcpStream::connect(&address).expect("it listens");
        holder.write_all(b"GET / HT").expect("taken");
        holders.push(holder);
    }
    for _ in 0..20 {
        assert_eq!(answers(&address), 200);
        assert!(server.clients() <= 8);
    }
}

/// A device whose verb takes until the test lets it end.
struct Busy {
    began: Sender<()>,
    may_end: Mutex<Receiver<()>>,
}

impl Watched for Busy {
    fn status(&self) -> Status {
        Status::default()
    }
    fn cells(&self, _: usize) -> Cells {
        Cells::default()
    }
    fn hosts(&self) -> Vec<Host> {
        Vec::new()
    }
    fn namespaces(&self) -> Value {
        json!([])
    }
    fn config(&self) -> Value {
        json!({})
    }
    fn statistics(&self) -> Value {
        json!({})
    }
    fn ready(&self) -> Result<(), String> {
        Ok(())
    }
    fn act(&self, verb: &str, _: &Value) -> Result<Value, Refused> {
        self.began.send(()).expect("the test waits for it");
        let may_end = self.may_end.lock().expect("nothing fails here");
        may_end.recv().expect("the test says so");
        Ok(json!({ "done": verb }))
    }
}

#[test]
fn strangers_end_neither_a_running_verb_nor_health() {
    let (began, has_begun) = mpsc::channel();
    let (end, may_end) = mpsc::channel();
    let may_end = Mutex::new(may_end);
    let token = || Token::new("0123456789abcdef").expect("a token");
    let address = "127.0.0.1:0".parse().expect("an address");
    let limits = Limits {
        receive_within: Duration::from_secs(600),
        ..Limits::default()
    };
    let watched = Arc::new(Busy { began, may_end });
    let server = Server::start(address, watched, Some(token()), limits).expect("a port");
    let address = server.address().to_string();

    let verb = std::thread::spawn({
        let address = address.clone();
        move || {
            client::ask(
                &address,
                "/api/ctl/snapshot",
                Some(b"{}"),
                Some(&token()),
                PATIENCE,
            )
        }
    });
    has_begun.recv().expect("it has begun");

    // Silent ones, some with half a request, some with a wrong token, more than there are places.
    let mut strangers = Vec::new();
    for number in 0..200 {
        let mut stranger = TcpStream::connect(&address).expect("it listens");
        let said: &[u8] = match number % 4 {
            0 => b"",
            1 => b"GET /healthz HT",
            2 => b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n",
            _ => b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        };
        // It may be displaced at once.
        let _ = stranger.write_all(said);
        strangers.push(stranger);
        if number % 20 == 0 {
            assert_eq!(answers(&address), 200, "health, {number} strangers");
        }
        assert!(server.clients() <= Limits::default().clients);
    }

    end.send(()).expect("it runs");
    let answer = verb.join().expect("no panic").expect("an answer");
    assert_eq!(answer.status, 200);
    assert!(String::from_utf8_lossy(&answer.body).contains("snapshot"));
}

#[test]
fn a_request_that_never_ends_and_an_answer_that_is_never_read_end_their_connections() {
    let limits = Limits {
        clients: 8,
        receive_within: Duration::from_millis(300),
        send_within: Duration::from_millis(300),
    };
    let (server, _, address) = start(limits);

    // A byte now and then is not enough to stay.
    let mut slow = TcpStream::connect(&address).expect("it listens");
    let until = Instant::now() + PATIENCE;
    while slow.write_all(b"a").is_ok() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(Instant::now() < until, "the slow client was not dropped");

    let mut deaf = TcpStream::connect(&address).expect("it listens");
    deaf.write_all(
        b"GET /api/map HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer 0123456789abcdef\r\n\r\n",
    )
    .expect("taken");
    assert!(idle(&server), "the deaf client was not dropped");
    assert_eq!(answers(&address), 200);
}

#[test]
fn requests_cut_at_every_byte_do_nothing() {
    let (server, watched, address) = start(Limits::default());
    let whole = b"POST /api/ctl/power-cut HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer 0123456789abcdef\r\nContent-Length: 2\r\n\r\n{}";
    for len in 0..whole.len() {
        let mut stream = TcpStream::connect(&address).expect("it listens");
        stream.write_all(&whole[..len]).expect("taken");
        drop(stream);
    }
    assert!(idle(&server));
    assert_eq!(watched.0.load(SeqCst), 0, "a part of a request was done");

    let mut stream = TcpStream::connect(&address).expect("it listens");
    // Another request after the first is no request.
    stream
        .write_all(&[&whole[..], &whole[..]].concat())
        .expect("taken");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(idle(&server));
    assert_eq!(watched.0.load(SeqCst), 1);
}

#[test]
fn noise_of_every_length_is_answered_or_dropped() {
    let limits = Limits {
        receive_within: Duration::from_millis(200),
        ..Limits::default()
    };
    let (server, watched, address) = start(limits);
    let mut state = 1u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for round in 0..300 {
        let len = random() as usize % 20_000;
        let mut noise: Vec<u8> = (0..len).map(|_| random() as u8).collect();
        if round % 3 == 0 {
            noise.splice(
                ..0,
                b"POST /api/ctl/x HTTP/1.1\r\nHost: a\r\n".iter().copied(),
            );
        }
        let mut stream = TcpStream::connect(&address).expect("it listens");
        let _ = stream.write_all(&noise);
        if round % 2 == 0 {
            let _ = stream.set_read_timeout(Some(PATIENCE));
            let _ = stream.read_to_end(&mut Vec::new());
        }
    }
    assert_eq!(answers(&address), 200);
    assert!(idle(&server));
    assert_eq!(watched.0.load(SeqCst), 0);
}

#[test]
fn health_and_the_page_need_no_token_and_everything_else_does() {
    let (_server, watched, address) = start(Limits::default());
    let ask = |path: &str, body: Option<&[u8]>, token: Option<&str>| {
        let token = token.map(|text| Token::new(text).expect("a token"));
        client::ask(&address, path, body, token.as_ref(), PATIENCE)
            .expect("an answer")
            .status
    };
    for path in ["/", "/page.css", "/plot.css", "/page.js", "/healthz"] {
        assert_eq!(ask(path, None, None), 200, "{path}");
    }
    assert_eq!(ask("/readyz", None, None), 503);
    let right = Some("0123456789abcdef");
    for path in [
        "/metrics",
        "/api/live",
        "/api/hosts",
        "/api/namespaces",
        "/api/config",
        "/api/statistics",
    ] {
        assert_eq!(ask(path, None, None), 401, "{path}");
        assert_eq!(ask(path, None, Some("0123456789abcdeg")), 401, "{path}");
        assert_eq!(ask(path, None, right), 200, "{path}");
    }
    for (token, status) in [(None, 401), (Some("0123456789abcdeg"), 401), (right, 200)] {
        assert_eq!(ask("/api/ctl/power-cut", Some(b""), token), status);
    }
    assert_eq!(ask("/api/ctl/x", Some(b"[]"), right), 400);
    assert_eq!(ask("/api/ctl/x", Some(b"{"), right), 400);
    assert_eq!(ask("/api/ctl/x", Some(&[b' '; 17 << 10]), right), 413);
    assert_eq!(watched.0.load(SeqCst), 1);
}
