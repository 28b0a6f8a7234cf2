//! One HTTP request, for the exporter of OpenTelemetry.
//!
//! Invariant: a request ends within `PATIENCE`, whatever the collector does. Absent: TLS, and
//! connections that are kept: there is one for each batch.

use async_trait::async_trait;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use remap_ssd_http::client;
use std::time::Duration;

/// Time for one request and its answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct Transport;

#[async_trait]
impl HttpClient for Transport {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let uri = request.uri();
        let authority = uri.authority().map_or("", |authority| authority.as_str());

        let mut headers = Vec::new();
        for (name, value) in request.headers() {
            headers.push((name.as_str(), value.to_str()?));
        }
        // Blocking is right here: the exporter has a thread of its own, and nothing else runs on
        // it.
        let answer = client::post(authority, uri.path(), &headers, request.body(), PATIENCE)?;
        Ok(Response::builder()
            .status(answer.status)
            .body(answer.body.into())?)
    }
}
