//! Sockets and threads: one request per connection, one thread each, within limits.
//!
//! `tiny_http` and similar servers keep a thread per connection without a time limit; that is why
//! this server is our own, on `httparse`. Invariants: at most `Limits::clients` connections, with
//! displacement by `places`; a request that does not arrive within `Limits::receive_within`, or an
//! answer that is not taken within `Limits::send_within`, ends its connection. Absent: the answers
//! (`route`).

use crate::places::{Caller, Places};
use crate::request::{self, HEAD_BYTES_MAX, Head, Request};
use crate::response::Response;
use crate::route;
use crate::status::Watched;
use crate::token::Token;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Limits on resources used by clients.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum connections. A quarter is for those that have shown no token, and a quarter for
    /// health and the page: there the next one displaces the oldest. The rest is for requests with
    /// a token, or for all if none is needed.
    pub clients: usize,
    /// Time for a whole request to arrive.
    pub receive_within: Duration,
    /// Time for a whole answer to be taken.
    pub send_within: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            clients: 32,
            receive_within: Duration::from_secs(5),
            send_within: Duration::from_secs(10),
        }
    }
}

/// Time for which a server that ends waits for its connections.
const FINISH_WITHIN: Duration = Duration::from_secs(2);
/// Maximum bytes read from a client that goes on sending after its answer, so that the answer is
/// not lost.
const DRAIN_BYTES_MAX: usize = 64 << 10;
const DRAIN_WITHIN: Duration = Duration::from_millis(500);
// One thread per client: 32 times the default of 2 MiB would waste 64 MiB of address space.
const STACK_BYTES: usize = 512 << 10;

/// Sent with every answer. The page's scripts and data may only come from this server.
const HEADERS: &str = "Connection: close\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n\
    Referrer-Policy: no-referrer\r\nContent-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; \
    connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n";

struct ServerState {
    watched: Arc<dyn Watched>,
    token: Option<Token>,
    limits: Limits,
    stop: AtomicBool,
    places: Places,
}

/// A bound address whose clients can connect, and wait for the server.
pub struct Bound {
    listener: TcpListener,
    address: SocketAddr,
    token: Option<Token>,
}

impl Bound {
    /// Listens. An address beyond the loopback requires a token.
    ///
    /// # Errors
    /// The system's reason; `InvalidInput` for such an address without a token.
    pub fn bind(address: SocketAddr, token: Option<Token>) -> io::Result<Self> {
        // `to_canonical`: ::ffff:127.0.0.1 is the loopback too.
        if token.is_none() && !address.ip().to_canonical().is_loopback() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "this address can be reached from elsewhere: a token is needed",
            ));
        }

        let listener = TcpListener::bind(address)?;
        Ok(Self {
            // The actual port, if the requested one is 0.
            address: listener.local_addr()?,
            listener,
            token,
        })
    }

    /// Address and port on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves from now on.
    ///
    /// # Errors
    /// The system's reason.
    pub fn start(self, watched: Arc<dyn Watched>, limits: Limits) -> io::Result<Server> {
        let shared = Arc::new(ServerState {
            watched,
            token: self.token,
            limits,
            stop: AtomicBool::new(false),
            places: Places::new(limits.clients),
        });

        let thread = std::thread::Builder::new().name("http".into()).spawn({
            let (shared, listener) = (shared.clone(), self.listener);
            move || shared.run(&listener)
        })?;

        Ok(Server {
            address: self.address,
            shared,
            thread: Some(thread),
        })
    }
}

/// A server, which runs until dropped.
pub struct Server {
    address: SocketAddr,
    shared: Arc<ServerState>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens, and serves from now on. An address beyond the loopback requires a token.
    ///
    /// # Errors
    /// The system's reason; `InvalidInput` for such an address without a token.
    pub fn start(
        address: SocketAddr,
        watched: Arc<dyn Watched>,
        token: Option<Token>,
        limits: Limits,
    ) -> io::Result<Self> {
        Bound::bind(address, token)?.start(watched, limits)
    }

    /// Address and port on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Number of connections that have a place now, answered or not.
    pub fn clients(&self) -> usize {
        self.shared.places.len()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        // `accept` cannot be interrupted: a connection to ourselves makes it return. Some systems
        // cannot connect to the unspecified address, so use the loopback for it.
        let mut to = self.address;
        if to.ip().is_unspecified() {
            to.set_ip(match to {
                SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
                SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
            });
        }
        // Wakes the listener.
        let _ = TcpStream::connect_timeout(&to, Duration::from_millis(200));
        let _ = self.thread.take().map(JoinHandle::join);

        // Requests in progress may finish; then all sockets are closed.
        self.shared.places.end_all(FINISH_WITHIN);
    }
}

impl ServerState {
    fn ends(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    fn run(self: Arc<Self>, listener: &TcpListener) {
        for number in 0.. {
            let stream = listener.accept();
            if self.ends() {
                return;
            }
            match stream {
                Ok((stream, _)) => self.clone().admit(number, stream),
                // For example, no file descriptors are left: the listener itself still works.
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    /// Gives a connection a place and a thread.
    fn admit(self: Arc<Self>, number: u64, stream: TcpStream) {
        let Ok(handle) = stream.try_clone() else {
            return;
        };
        if !self.places.admit(number, handle, || self.ends()) {
            return;
        }

        let place = ConnectionSlot {
            shared: self.clone(),
            number,
        };
        // If no thread can be created, dropping the closure returns the place.
        let _ = std::thread::Builder::new()
            .name("http client".into())
            .stack_size(STACK_BYTES)
            .spawn(move || {
                let _ = place.shared.serve(number, &stream);
                drop(place);
            });
    }

    fn serve(&self, number: u64, mut stream: &TcpStream) -> io::Result<()> {
        // An answer is one write; waiting for more (Nagle) would only delay it.
        stream.set_nodelay(true)?;
        let response = match self.receive(stream)? {
            Ok(request) => {
                let response = self.answer(number, &request);
                tracing::debug!(
                    method = request.method,
                    path = request.path,
                    status = response.status,
                    "http"
                );
                match &*request.method {
                    "HEAD" => self.send(stream, &response, false)?,
                    _ => self.send(stream, &response, true)?,
                }
                None
            }
            Err(response) => Some(response),
        };
        if let Some(response) = response {
            self.send(stream, &response, true)?;
        }

        // Closing with unread input would reset the connection, and the answer might be lost in
        // transit.
        stream.shutdown(Shutdown::Write)?;
        stream.set_read_timeout(Some(Duration::from_millis(100)))?;
        let (until, mut drained) = (Instant::now() + DRAIN_WITHIN, 0);
        let mut chunk = [0; 2048];
        while drained < DRAIN_BYTES_MAX && Instant::now() < until {
            match stream.read(&mut chunk)? {
                0 => break,
                bytes => drained += bytes,
            }
        }
        Ok(())
    }

    /// Answers a request, after promotion of its connection.
    fn answer(&self, number: u64, request: &Request) -> Response {
        let token = self.token.as_ref();
        let caller = route::caller(request, token);
        if self.places.promote(number, caller, || self.ends()) {
            return route::answer(request, &*self.watched, token);
        }
        match caller {
            Caller::Operator => Response::error(503, "as many requests as can be are under way"),
            _ => Response::error(503, "the service ends"),
        }
    }

    /// Receives a whole request, or returns the answer to an invalid one.
    fn receive(&self, mut stream: &TcpStream) -> io::Result<Result<Request, Response>> {
        let until = Instant::now() + self.limits.receive_within;
        let mut input = Vec::with_capacity(1024);
        let mut chunk = [0; 2048];
        loop {
            match request::parse(&input) {
                Ok(Some(Head {
                    mut request,
                    head_bytes,
                    body_bytes,
                })) => {
                    if let Some(body) = input.get(head_bytes..head_bytes + body_bytes) {
                        request.body = body.to_vec();
                        return Ok(Ok(request));
                    }
                }
                Ok(None) => {}
                Err(response) => return Ok(Err(response)),
            }
            // `parse` has refused longer requests, so a client cannot make this buffer grow
            // further.
            debug_assert!(input.len() < HEAD_BYTES_MAX + request::BODY_BYTES_MAX + chunk.len());

            // One deadline for the whole request: with a time-out for each read, a client that
            // sends a byte per second could keep its place for hours.
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let late = Response::error(408, "the request did not come in time");
                return Ok(Err(late));
            }
            stream.set_read_timeout(Some(left))?;
            match stream.read(&mut chunk) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => input.extend_from_slice(&chunk[..bytes]),
                Err(error) if is_timeout(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn send(&self, mut stream: &TcpStream, response: &Response, body: bool) -> io::Result<()> {
        let (status, phrase) = (response.status, response.phrase());
        let mut bytes = format!(
            "HTTP/1.1 {status} {phrase}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{HEADERS}",
            response.content_type,
            response.body.len()
        );
        for (name, value) in &response.headers {
            bytes.push_str(&format!("{name}: {value}\r\n"));
        }
        bytes.push_str("\r\n");
        let mut bytes = bytes.into_bytes();
        if body {
            bytes.extend_from_slice(&response.body);
        }

        let until = Instant::now() + self.limits.send_within;
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            stream.set_write_timeout(Some(left))?;
            match stream.write(rest) {
                Ok(sent) => rest = &rest[sent..],
                Err(error) if is_timeout(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}

/// A connection's place, until its thread ends, even by a panic.
struct ConnectionSlot {
    shared: Arc<ServerState>,
    number: u64,
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.shared.places.remove(self.number);
    }
}
