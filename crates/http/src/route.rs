//! Paths, their answers, and the permissions that they need.
//!
//! ```text
//! GET  /  /page.css  /plot.css  /page.js  the page, which contains no data
//! GET  /healthz  /readyz                  for supervisors, without a token
//! GET  /metrics                           for Prometheus
//! GET  /api/live  /api/map?cells=N        for the page
//! GET  /api/hosts  namespaces  config  statistics
//! POST /api/ctl/VERB                      with a token
//! POST /api/play                          speed of a simulation
//! ```
//! Without a token file, only requests whose `Host` names the loopback are answered, which stops
//! DNS rebinding. Paths are compared whole: there is no lookup in a file system. Absent: sockets.

use crate::metrics::{self, Format};
use crate::page;
use crate::places::Caller;
use crate::request::Request;
use crate::response::Response;
use crate::status::{Refused, Watched};
use crate::token::Token;
use serde_json::{Value, json};
use std::net::IpAddr;

/// Paths of the page, which contains no data.
const OPEN: [&str; 4] = ["/", "/page.css", "/plot.css", "/page.js"];
/// Paths for supervisors and load balancers.
const HEALTH: [&str; 2] = ["/healthz", "/readyz"];
/// Default and maximum cells of a map.
const CELLS: usize = 1024;
const CELLS_MAX: usize = 4096;

/// The kind of a request's sender.
pub(crate) fn caller(request: &Request, token: Option<&Token>) -> Caller {
    let is_public = || OPEN.contains(&&*request.path) || HEALTH.contains(&&*request.path);
    match token {
        Some(token) if has(token, request) => Caller::Operator,
        None if !names_loopback(request.host.as_deref()) => Caller::Stranger,
        _ if is_public() => Caller::Public,
        Some(_) => Caller::Stranger,
        None => Caller::Operator,
    }
}

/// Answers a request, after checking its token and the name of its host.
pub(crate) fn answer(request: &Request, watched: &dyn Watched, token: Option<&Token>) -> Response {
    let is_get = matches!(&*request.method, "GET" | "HEAD");
    // Listening only on the loopback does not keep web pages out: a remote page can make its own
    // name resolve to 127.0.0.1 (DNS rebinding). Its requests still carry its name in `Host`.
    if token.is_none() && !names_loopback(request.host.as_deref()) {
        return Response::error(
            421,
            "without --http-token only 127.0.0.1, [::1] and localhost are answered",
        );
    }

    // Paths without data are open to all.
    if let Some(asset) = asset(&request.path) {
        return if is_get {
            Response::ok(asset.content_type, asset.text)
        } else {
            wrong_method("GET, HEAD")
        };
    }
    // Supervisors and load balancers have no token, and learn only one word here.
    if HEALTH.contains(&&*request.path) {
        return if is_get {
            health(&request.path, watched)
        } else {
            wrong_method("GET, HEAD")
        };
    }

    // Operations change the device or cut its power: they need a token even on the loopback, to
    // which any local user, and any page in a local browser, can connect.
    if let Some(verb) = request.path.strip_prefix("/api/ctl/") {
        return operate(verb, request, watched, token);
    }

    // A simulation's speed is not data of a device: a token is needed only if there is one.
    if request.path == "/api/play" {
        return match &*request.method {
            "POST" if token.is_some_and(|token| !has(token, request)) => unauthorized(),
            "POST" => told(&request.body, |change| watched.play(change)),
            _ => wrong_method("POST"),
        };
    }

    let known = [
        "/metrics",
        "/api/live",
        "/api/map",
        "/api/hosts",
        "/api/namespaces",
        "/api/config",
        "/api/statistics",
    ];
    // Unknown paths are reported before the token is checked: the existing ones are documented.
    if !known.contains(&&*request.path) {
        return Response::error(404, "there is nothing here");
    }
    if !is_get {
        return wrong_method("GET, HEAD");
    }
    if token.is_some_and(|token| !has(token, request)) {
        return unauthorized();
    }
    read(request, watched)
}

/// The part of the page at a path.
fn asset(path: &str) -> Option<page::Asset> {
    match path {
        "/" => Some(page::HTML),
        "/page.css" => Some(page::CSS),
        "/plot.css" => Some(page::PLOT_CSS),
        "/page.js" => Some(page::JS),
        _ => None,
    }
}

/// Executes an operation, if the request has the token.
fn operate(
    verb: &str,
    request: &Request,
    watched: &dyn Watched,
    token: Option<&Token>,
) -> Response {
    match (&*request.method, token) {
        ("POST", None) => Response::error(
            403,
            "verbs need a token: serve with --http-token FILE, and send what is in it",
        ),
        ("POST", Some(token)) if !has(token, request) => unauthorized(),
        ("POST", Some(_)) => told(&request.body, |arguments| {
            let done = watched.act(verb, arguments)?;
            // Only executed operations are logged at this level; a refusal is returned to the
            // sender.
            tracing::info!(verb, %arguments, "done for an operator");
            Ok(done)
        }),
        _ => wrong_method("POST"),
    }
}

fn read(request: &Request, watched: &dyn Watched) -> Response {
    match &*request.path {
        "/metrics" => {
            let format = Format::accepted(&request.accept);

            let text = metrics::encode(watched.status(), format);
            Response::ok(format.content_type(), text).with("Vary", "Accept")
        }
        "/api/live" => Response::json(200, &watched.status()),
        "/api/map" => {
            let asked = request.query.strip_prefix("cells=");
            let cells = asked.map_or(Ok(CELLS), str::parse);

            match cells.map(|cells: usize| cells.clamp(1, CELLS_MAX)) {
                Ok(cells) => Response::json(200, &watched.cells(cells)),
                Err(_) => Response::error(400, "cells is no number"),
            }
        }
        "/api/hosts" => Response::json(200, &watched.hosts()),
        "/api/namespaces" => Response::json(200, &watched.namespaces()),
        "/api/config" => Response::json(200, &watched.config()),
        _ => Response::json(200, &watched.statistics()),
    }
}

fn health(path: &str, watched: &dyn Watched) -> Response {
    // Alive means any answer; ready means that the device works.
    match watched.ready() {
        Err(why) if path == "/readyz" => Response::error(503, &why),
        _ => Response::ok("text/plain; charset=utf-8", "ok\n"),
    }
}

/// Executes an operation with the JSON arguments in a body.
fn told(body: &[u8], act: impl FnOnce(&Value) -> Result<Value, Refused>) -> Response {
    let arguments = if body.trim_ascii().is_empty() {
        json!({})
    } else {
        match serde_json::from_slice::<Value>(body) {
            Ok(arguments) if arguments.is_object() => arguments,
            _ => return Response::error(400, "the body is no JSON object"),
        }
    };
    match act(&arguments) {
        Ok(done) => Response::json(200, &done),
        Err(Refused::Unknown) => Response::error(404, "there is no such verb"),
        Err(Refused::Usage(sentence)) => Response::error(400, &sentence),
        Err(Refused::Failed(sentence)) => Response::error(409, &sentence),
    }
}

fn has(token: &Token, request: &Request) -> bool {
    request
        .authorization
        .as_deref()
        .is_some_and(|said| token.is_in(said))
}

fn unauthorized() -> Response {
    Response::error(401, "a token is needed: Authorization: Bearer TOKEN")
        .with("WWW-Authenticate", "Bearer")
}

fn wrong_method(allow: &'static str) -> Response {
    Response::error(405, "not with this method").with("Allow", allow)
}

/// Returns true if a `Host` header names the loopback. Only HTTP/1.0 clients may omit it
/// (`request`).
fn names_loopback(host: Option<&str>) -> bool {
    let Some(host) = host else {
        return true;
    };
    // A bare `::1` is parsed as a name with a port, and refused: an IPv6 address must be in
    // brackets (RFC 3986, 3.2.2).
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let name = match host.rsplit_once(':') {
        Some((name, port)) if is_port(port) => name,
        _ => host,
    };
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost")
        || bare
            .parse::<IpAddr>()
            .is_ok_and(|address| address.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_a_browser_was_tricked_into_is_not_the_loopback() {
        for host in [
            "localhost",
            "LOCALHOST:8080",
            "127.0.0.1:9",
            "127.1.2.3",
            "[::1]:9",
            "[::1]",
        ] {
            assert!(names_loopback(Some(host)), "{host}");
        }

        for host in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example:80",
            "10.0.0.1",
            "",
        ] {
            assert!(!names_loopback(Some(host)), "{host}");
        }
    }
}
