//! One response: status, media type, headers and body.
//!
//! Invariant: an error is one sentence, as JSON. Absent: the choice of responses (`route`),
//! sockets.

use serde_json::json;

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Response {
    /// Status code; see `phrase` for its text.
    pub status: u16,
    /// Media type, with its charset if it is text.
    pub content_type: &'static str,
    /// Headers in addition to those of every answer.
    pub headers: Vec<(&'static str, &'static str)>,
    /// Body; for HEAD only its length is sent.
    pub body: Vec<u8>,
}

const JSON: &str = "application/json";

impl Response {
    /// An error: one sentence as JSON.
    pub(crate) fn error(status: u16, sentence: &str) -> Self {
        Self::json(status, &json!({ "error": sentence }))
    }

    pub(crate) fn json(status: u16, value: &impl serde::Serialize) -> Self {
        let mut body = serde_json::to_vec(value).expect("plain data is JSON");
        // For readability in a terminal (curl).
        body.push(b'\n');
        Self::ok(JSON, body).with_status(status)
    }

    pub(crate) fn ok(content_type: &'static str, body: impl Into<Vec<u8>>) -> Self {
        Self {
            status: 200,
            content_type,
            headers: Vec::new(),
            body: body.into(),
        }
    }

    fn with_status(self, status: u16) -> Self {
        Self { status, ..self }
    }

    pub(crate) fn with(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.push((name, value));
        self
    }

    /// The reason phrase of the status.
    pub(crate) fn phrase(&self) -> &'static str {
        match self.status {
            200 => "OK",
            400 => "Bad Request",
            401 => "Unauthorized",
            403 => "Forbidden",
            404 => "Not Found",
            405 => "Method Not Allowed",
            408 => "Request Timeout",
            409 => "Conflict",
            411 => "Length Required",
            413 => "Content Too Large",
            421 => "Misdirected Request",
            431 => "Request Header Fields Too Large",
            503 => "Service Unavailable",
            _ => "Error",
        }
    }
}
