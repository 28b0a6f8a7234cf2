//! The other end, for `remap-ssd ctl`, collectors of traces and tests: one request, one answer.
//!
//! Invariants: an answer has at most `ANSWER_BYTES_MAX`, and is there when the patience ends. Absent: names that are looked up more than
//! once, TLS.

use crate::token::Token;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

// A server of whatever kind answers here: it must not be able to fill our memory.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Status code, from the answer's first line.
    pub status: u16,
    /// Everything behind the head; chunked encoding is not undone.
    pub body: Vec<u8>,
}

/// Asks for a path, or posts a body to it, and waits for the answer as long as `patience`.
///
/// # Errors
/// The server cannot be reached, or does not speak HTTP.
pub fn ask(
    address: &str,
    path: &str,
    body: Option<&[u8]>,
    token: Option<&Token>,
    patience: Duration,
) -> io::Result<Answer> {
    let authorization = token.map(Token::authorization);
    let authorization = authorization
        .as_ref()
        .map(|value| ("Authorization", value.as_str()));
    let headers: Vec<(&str, &str)> = authorization.into_iter().collect();
    exchange(address, path, &headers, body, Instant::now() + patience)
}

/// Posts a body with headers of its own, to a server of whatever kind.
///
/// # Errors
/// The server cannot be reached, or does not speak HTTP, or not in time.
pub fn post(
    address: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
    patience: Duration,
) -> io::Result<Answer> {
    exchange(
        address,
        path,
        headers,
        Some(body),
        Instant::now() + patience,
    )
}

fn exchange(
    address: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: Option<&[u8]>,
    until: Instant,
) -> io::Result<Answer> {
    let mut stream = connect(address, until)?;
    let method = if body.is_some() { "POST" } else { "GET" };
    // `Connection: close` makes the end of the answer the end of the stream, so that neither
    // lengths nor chunks need to be followed.
    let mut request =
        format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    if let Some(body) = body {
        request.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    request.push_str("\r\n");
    let request = [request.as_bytes(), body.unwrap_or_default()].concat();
    send(&mut stream, &request, until)?;

    // An answer that `ANSWER_BYTES_MAX` cut short parses all the same: its body is what came.
    let answer = receive(&mut stream, until)?;
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut parsed = httparse::Response::new(&mut headers);
    match parsed.parse(&answer) {
        Ok(httparse::Status::Complete(head)) => Ok(Answer {
            status: parsed.code.unwrap_or(0),
            body: answer[head..].to_vec(),
        }),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "what answers there does not speak HTTP",
        )),
    }
}

/// Connects to the first of the address's hosts that can be reached.
fn connect(address: &str, until: Instant) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "no such host");
    for to in address.to_socket_addrs()? {
        // One address that swallows packets must not use up the time of the others: `localhost` is
        // often both ::1 and 127.0.0.1, and only one of them listens.
        let within = left(until)?.min(Duration::from_secs(5));
        match TcpStream::connect_timeout(&to, within) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn send(stream: &mut TcpStream, mut rest: &[u8], until: Instant) -> io::Result<()> {
    while !rest.is_empty() {
        // Renewed each time: a socket's timeout counts from each call, and a peer that takes a byte
        // now and then would stretch the request without end.
        stream.set_write_timeout(Some(left(until)?))?;
        match stream.write(rest) {
            Ok(sent) => rest = &rest[sent..],
            Err(error) if is_timeout(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// All that comes until the server closes the connection.
fn receive(stream: &mut TcpStream, until: Instant) -> io::Result<Vec<u8>> {
    let mut answer = Vec::new();
    let mut chunk = [0; 16 << 10];
    while answer.len() < ANSWER_BYTES_MAX {
        // Renewed each time, as in `send`.
        stream.set_read_timeout(Some(left(until)?))?;
        match stream.read(&mut chunk) {
            Ok(0) => break,
            Ok(bytes) => answer.extend_from_slice(&chunk[..bytes]),
            Err(error) if is_timeout(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(answer)
}

/// How much time is left; an error if none is.
fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "there was no answer in time",
        ));
    }
    Ok(left)
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}
