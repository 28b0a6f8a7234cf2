//! The other end, for `remap-ssd ctl` and tests: one request, one answer.
//!
//! Invariant: an answer has at most `ANSWER_BYTES_MAX`. Absent: names that are looked up more than
//! once, TLS.

use crate::token::Token;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

const ANSWER_BYTES_MAX: u64 = 16 << 20;

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// HTTP status code.
    pub status: u16,
    /// Body, as sent.
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
    let mut last = io::Error::new(io::ErrorKind::NotFound, "no such host");
    for to in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&to, Duration::from_secs(5)) {
            Ok(stream) => return exchange(stream, address, path, body, token, patience),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn exchange(
    mut stream: TcpStream,
    address: &str,
    path: &str,
    body: Option<&[u8]>,
    token: Option<&Token>,
    patience: Duration,
) -> io::Result<Answer> {
    stream.set_read_timeout(Some(patience))?;
    let method = if body.is_some() { "POST" } else { "GET" };
    let mut request = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\n");
    if let Some(token) = token {
        request.push_str(&format!("Authorization: {}\r\n", token.authorization()));
    }
    if let Some(body) = body {
        request.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    request.push_str("\r\n");
    stream.write_all(&[request.as_bytes(), body.unwrap_or_default()].concat())?;

    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
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
