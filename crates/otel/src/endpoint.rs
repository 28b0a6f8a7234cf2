//! Where a collector is: the URL that an operator gives.
//!
//! Invariant: an endpoint can be asked without TLS. Absent: whether anybody is there.

use std::fmt;
use std::str::FromStr;

/// The path of traces below a collector's URL (OTLP 1.7, "OTLP/HTTP request").
const TRACES: &str = "/v1/traces";

/// The URL of a collector that takes traces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    authority: String,
    path: String,
}

/// Why a text is no endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// The scheme is `https`: spans are not sent in the clear to where TLS was asked for.
    #[error(
        "there is no TLS to collectors: use http://, and a collector on this machine that has it"
    )]
    Tls,
    /// It is no `http` URL with a host, a port if any, and a path if any.
    #[error("a URL like http://127.0.0.1:4318 is needed")]
    Shape,
}

impl Endpoint {
    /// Host and port, as `Host` and `ToSocketAddrs` want them; port 80 if the URL has none.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Path of the requests, from the first slash on.
    pub fn path(&self) -> &str {
        &self.path
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        if text.starts_with("https://") {
            return Err(EndpointError::Tls);
        }
        let rest = text.strip_prefix("http://").ok_or(EndpointError::Shape)?;
        let (authority, path) = match rest.find('/') {
            Some(slash) => rest.split_at(slash),
            None => (rest, ""),
        };

        let host = match authority.rsplit_once(':') {
            // The colons of an IPv6 address are in brackets.
            Some((host, port)) if !port.ends_with(']') => {
                port.parse::<u16>().map_err(|_| EndpointError::Shape)?;
                host
            }
            _ => authority,
        };
        let is_text = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        // `user:password@` would be sent nowhere, and blanks or control characters would end up in
        // a request line: both are refused rather than changed.
        if host.is_empty() || host.contains('@') || !is_text(host) || !is_text(path) {
            return Err(EndpointError::Shape);
        }

        // A base URL means the usual path below it; any other path is meant as it is.
        let path = match path {
            "" | "/" => TRACES,
            path => path,
        };
        // `ToSocketAddrs` needs a port.
        let has_port = host.len() < authority.len();
        Ok(Self {
            authority: if has_port {
                authority.into()
            } else {
                format!("{authority}:80")
            },
            path: path.into(),
        })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority, self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_url_means_the_usual_path_and_any_other_path_is_kept() {
        let of = |text: &str| text.parse::<Endpoint>().map(|it| it.to_string());
        for (text, whole) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
            ("http://collector/", "http://collector:80/v1/traces"),
            ("http://[::1]:4318/otlp/v1", "http://[::1]:4318/otlp/v1"),
            ("http://[::1]", "http://[::1]:80/v1/traces"),
        ] {
            assert_eq!(of(text), Ok(whole.into()));
        }
    }

    #[test]
    fn what_cannot_be_asked_is_refused() {
        let of = |text: &str| text.parse::<Endpoint>();
        assert_eq!(of("https://collector:4318"), Err(EndpointError::Tls));
        for text in [
            "127.0.0.1:4318",
            "http://",
            "http://:4318",
            "http://a:99999",
            "http://a b/",
            "http://user@host:1",
            "grpc://a:4317",
            "http://a:1/x y",
        ] {
            assert_eq!(of(text), Err(EndpointError::Shape), "{text}");
        }
    }
}
