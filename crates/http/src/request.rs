//! One parsed request: its method, path and body, and the headers used here.
//!
//! Invariants: a head has at most `HEAD_BYTES_MAX` bytes and 64 headers, a body `BODY_BYTES_MAX`;
//! input not understood is refused with a status, never guessed. One request per connection
//! prevents request smuggling. Absent: sockets (`server`).

use crate::response::Response;

/// Maximum size of a request line and its headers.
pub(crate) const HEAD_BYTES_MAX: usize = 8 << 10;
/// Maximum size of a body.
pub(crate) const BODY_BYTES_MAX: usize = 16 << 10;
const HEADERS_MAX: usize = 64;

/// A request, with the headers used here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Request {
    /// Method, as sent: methods are case-sensitive (RFC 9110, 9.1).
    pub method: String,
    /// Path, without the query.
    pub path: String,
    /// Query: the part of the target after `?`.
    pub query: String,
    /// The `Host` header.
    pub host: Option<String>,
    /// The `Authorization` header.
    pub authorization: Option<Vec<u8>>,
    /// Value of `Accept`; empty if missing.
    pub accept: String,
    /// Body; empty if the request has none.
    pub body: Vec<u8>,
}

/// A head, and the length of the body that follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// The request, still without its body.
    pub request: Request,
    /// Length of the head in bytes, with its empty line.
    pub head_bytes: usize,
    /// Bytes of the body, from `Content-Length`.
    pub body_bytes: usize,
}

/// Parses the bytes received of a request; `None` if the head is not complete.
///
/// # Errors
/// The answer to an invalid request.
pub(crate) fn parse(input: &[u8]) -> Result<Option<Head>, Response> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut headers);
    let head_bytes = match parsed.parse(input) {
        // Both arms check the limit: a complete head may arrive in one read and still be too long.
        Ok(httparse::Status::Complete(bytes)) if bytes <= HEAD_BYTES_MAX => bytes,
        Ok(httparse::Status::Partial) if input.len() < HEAD_BYTES_MAX => return Ok(None),
        Ok(_) | Err(httparse::Error::TooManyHeaders) => {
            return Err(Response::error(431, "the headers are too long"));
        }
        Err(_) => return Err(Response::error(400, "this is no HTTP request")),
    };

    let target = parsed.path.unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut request = Request {
        method: parsed.method.unwrap_or_default().into(),
        path: path.into(),
        query: query.into(),
        ..Request::default()
    };
    let length = take_headers(&mut request, parsed.headers)?;
    check_host(request.host.as_deref(), parsed.version)?;
    let body_bytes = length.map_or(Ok(0), body_bytes)?;
    Ok(Some(Head {
        request,
        head_bytes,
        body_bytes,
    }))
}

/// Takes the headers used here into the request; returns the value of `Content-Length`.
fn take_headers<'a>(
    request: &mut Request,
    headers: &[httparse::Header<'a>],
) -> Result<Option<&'a [u8]>, Response> {
    // Servers and proxies differ in reading duplicate headers, which enables request smuggling (RFC
    // 9112, 11.2). `Accept` may be a list over several.
    let mut length: Option<&'a [u8]> = None;

    for header in headers {
        let name = header.name;
        let is_again = if name.eq_ignore_ascii_case("content-length") {
            length.replace(header.value).is_some()
        } else if name.eq_ignore_ascii_case("host") {
            let host = String::from_utf8_lossy(header.value).into_owned();
            request.host.replace(host).is_some()
        } else if name.eq_ignore_ascii_case("authorization") {
            request
                .authorization
                .replace(header.value.to_vec())
                .is_some()
        } else if name.eq_ignore_ascii_case("accept") {
            request
                .accept
                .push_str(&String::from_utf8_lossy(header.value));
            false
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            // Chunks are the only other way to delimit a body; refusing them leaves a single one.
            return Err(Response::error(
                411,
                "say how long the body is: Content-Length",
            ));
        } else {
            false
        };
        if is_again {
            return Err(Response::error(400, "a header comes twice"));
        }
    }

    Ok(length)
}

/// Checks that there is one valid host, or none in a request of HTTP/1.0.
fn check_host(host: Option<&str>, version: Option<u8>) -> Result<(), Response> {
    // HTTP/1.1 requires exactly one valid Host header (RFC 9112, 3.2).
    let is_in_order = match host {
        Some(host) => host.bytes().all(is_of_a_host),
        None => version == Some(0),
    };
    if !is_in_order {
        return Err(Response::error(
            400,
            "no Host header, or one that is no host",
        ));
    }
    Ok(())
}

/// The length of a body from the value of `Content-Length`.
fn body_bytes(digits: &[u8]) -> Result<usize, Response> {
    // `usize::parse` would accept a leading `+`, which is not a valid length (RFC 9110, 8.6).
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(Response::error(400, "Content-Length is no number"));
    }

    // Digits that overflow are a valid number, only too large: 413 below, not 400.
    let bytes = std::str::from_utf8(digits)
        .ok()
        .and_then(|digits| digits.parse::<usize>().ok())
        .unwrap_or(usize::MAX);
    if bytes > BODY_BYTES_MAX {
        return Err(Response::error(413, "the body is too long"));
    }
    Ok(bytes)
}

/// Returns true for bytes allowed in a host and its port (RFC 3986, 3.2.2 and 3.2.3).
fn is_of_a_host(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+,;=[]:".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status_of(input: &[u8]) -> Option<u16> {
        parse(input).err().map(|response| response.status)
    }

    #[test]
    fn a_request_is_cut_where_it_ends_and_waits_for_what_is_missing() {
        let whole = b"POST /api/x?y=1 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}";
        for len in 0..whole.len() - 2 {
            assert_eq!(parse(&whole[..len]), Ok(None), "{len} bytes");
        }
        let head = parse(whole).expect("a request").expect("whole");
        assert_eq!((head.head_bytes, head.body_bytes), (whole.len() - 2, 2));
        let Request {
            method,
            path,
            query,
            host,
            ..
        } = head.request;
        assert_eq!((&*method, &*path, &*query), ("POST", "/api/x", "y=1"));
        assert_eq!(host.as_deref(), Some("localhost"));
    }

    #[test]
    fn what_two_programs_could_read_in_two_ways_is_refused() {
        let with = |header: &str| format!("POST / HTTP/1.1\r\nHost: a\r\n{header}\r\n\r\n");
        for (header, status) in [
            ("Content-Length: 1\r\nContent-Length: 2", 400),
            ("Content-Length: +1", 400),
            ("Content-Length: 1,1", 400),
            ("Content-Length:", 400),
            ("Content-Length: 99999999999999999999999", 413),
            ("Content-Length: 16385", 413),
            ("Transfer-Encoding: chunked", 411),
            ("Host: b", 400),
            ("Authorization: a\r\nAuthorization: b", 400),
            (" folded: x", 400),
        ] {
            assert_eq!(status_of(with(header).as_bytes()), Some(status), "{header}");
        }
    }

    #[test]
    fn a_request_of_http_1_1_names_one_host_and_an_older_one_need_not() {
        for (head, status) in [
            ("HTTP/1.1\r\n", Some(400)),
            ("HTTP/1.1\r\nAccept: */*\r\n", Some(400)),
            ("HTTP/1.1\r\nHost: a b\r\n", Some(400)),
            ("HTTP/1.1\r\nHost: a/b\r\n", Some(400)),
            ("HTTP/1.1\r\nHost: user@a\r\n", Some(400)),
            ("HTTP/1.1\r\nHost: a\r\nHost: a\r\n", Some(400)),
            ("HTTP/1.1\r\nHost: [::1]:80\r\n", None),
            ("HTTP/1.1\r\nHost: b%C3%A4r.example\r\n", None),
            ("HTTP/1.1\r\nHost:\r\n", None),
            ("HTTP/1.0\r\n", None),
            ("HTTP/1.0\r\nHost: a b\r\n", Some(400)),
        ] {
            let request = format!("GET / {head}\r\n");
            assert_eq!(status_of(request.as_bytes()), status, "{request:?}");
        }
    }

    #[test]
    fn an_endless_head_is_refused_before_it_fills_more_than_its_share() {
        let long = [b"GET /".as_slice(), &[b'a'; HEAD_BYTES_MAX]].concat();
        assert_eq!(status_of(&long), Some(431));
        let many = format!(
            "GET / HTTP/1.1\r\n{}\r\n",
            "a: b\r\n".repeat(HEADERS_MAX + 1)
        );
        assert_eq!(status_of(many.as_bytes()), Some(431));
    }

    // Any damaged request results in a status or a wait, never a panic.
    #[test]
    fn no_byte_anywhere_makes_the_parser_fail() {
        let whole = b"GET /metrics HTTP/1.1\r\nHost: [::1]:9\r\nAccept: */*\r\n\r\n";
        for at in 0..whole.len() {
            for byte in 0..=255 {
                let mut damaged = whole.to_vec();
                damaged[at] = byte;
                let _ = parse(&damaged);
                damaged.truncate(at + 1);
                let _ = parse(&damaged);
            }
        }
    }
}
