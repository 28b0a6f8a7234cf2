//! HTTP client, for `remap-ssd ctl` and tests: one request, one answer.
//!
//! Invariants: an answer has at most `ANSWER_BYTES_MAX`, and arrives within the time limit. Absent:
//! repeated name lookups, TLS.

use crate::token::Token;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

// Any server may answer: it must not be able to fill our memory.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Status code, from the answer's first line.
    pub status: u16,
    /// Everything after the head; chunked encoding is not decoded.
    pub body: Vec<u8>,
}

/// Gets a path, or posts a body to it, and waits for the answer at most for `patience`.
///
/// # Errors
/// The server is unreachable, or does not speak HTTP.
pub fn ask(
    address: &str,
    path: &str,
    body: Option<&[u8]>,
    token: Option<&Token>,
    patience: Duration,
) -> io::Result<Answer> {
    let until = Instant::now() + patience;
    let mut stream = connect(address, until)?;
    let method = if body.is_some() { "POST" } else { "GET" };
    // With `Connection: close` the answer ends with the stream, so that neither lengths nor chunks
    // need to be parsed.
    let mut request =
        format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
    if let Some(token) = token {
        request.push_str(&format!("Authorization: {}\r\n", token.authorization()));
    }
    if let Some(body) = body {
        request.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    request.push_str("\r\n");
    let request = [request.as_bytes(), body.unwrap_or_default()].concat();
    send(&mut stream, &request, until)?;

    // An answer truncated at `ANSWER_BYTES_MAX` still parses: its body is the part received.
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

/// Connects to the first reachable address.
fn connect(address: &str, until: Instant) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "no such host");
    for to in address.to_socket_addrs()? {
        // An address that drops packets must not use up the time of the others: `localhost` is
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
        // Renewed for each call: a socket's time-out counts from each call, and a peer that takes a
        // byte now and then would otherwise stretch the request without limit.
        stream.set_write_timeout(Some(left(until)?))?;
        match stream.write(rest) {
            Ok(sent) => rest = &rest[sent..],
            Err(error) if is_timeout(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Receives everything until the server closes the connection.
fn receive(stream: &mut TcpStream, until: Instant) -> io::Result<Vec<u8>> {
    let mut answer = Vec::new();
    let mut chunk = [0; 16 << 10];
    while answer.len() < ANSWER_BYTES_MAX {
        // Renewed for each call, as in `send`.
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

/// The time left; an error if there is none.
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
