//! Observers of a device during a measurement: a metrics scraper, and an open page.
//!
//! Both query the device's own server, over HTTP on the loopback, at the rate of Prometheus with a
//! short interval and of the page. Invariant: they end before the device does. Absent: a browser,
//! which uses processor time of its own.

use crate::BenchError;
use remap_ssd_http::{Limits, Server, client};
use remap_ssd_nvme::controller::{Gate, Subsystem};
use remap_ssd_nvme::tcp::roster::Roster;
use remap_ssd_service::Served;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Query interval: the page's, and a short one for a scraper.
const EVERY: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(5);

/// Observers of the device: a metrics scraper, an open page, both or none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Watching {
    /// Query `/metrics` once per `EVERY`.
    pub metrics: bool,
    /// The live page is open.
    pub page: bool,
}

impl Watching {
    /// The paths to query, one after the other.
    fn paths(self) -> Vec<&'static str> {
        let metrics: &[&str] = if self.metrics { &["/metrics"] } else { &[] };
        let page: &[&str] = if self.page {
            &["/api/live", "/api/map?cells=1024", "/api/hosts"]
        } else {
            &[]
        };
        [metrics, page].concat()
    }
}

/// Running observers; dropping this ends them.
pub(crate) struct Watchers {
    gate: Arc<Gate>,
    server: Option<Server>,
    /// Dropped to end them.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watchers {
    /// Starts the observers; `None` if none are requested.
    ///
    /// # Errors
    /// There is no port, or no thread.
    pub(crate) fn start(
        watching: Watching,
        subsystem: &Arc<Subsystem>,
        epoch: Instant,
        roster: Arc<Roster>,
    ) -> Result<Option<Self>, BenchError> {
        let paths = watching.paths();
        if paths.is_empty() {
            return Ok(None);
        }

        let gate = Arc::new(Gate::new(subsystem.clone()));
        let served = Served::new(
            gate.clone(),
            epoch,
            None,
            subsystem.nqn(),
            Some(roster),
            Arc::new(()),
        );
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let server = Server::start(address, Arc::new(served), None, Limits::default())
            .map_err(BenchError::failed)?;

        let asked = server.address().to_string();
        let (stop, stopped) = channel();
        let thread = std::thread::Builder::new()
            .name("watcher".into())
            .spawn(move || {
                while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(EVERY) {
                    for path in &paths {
                        // A service too busy to answer is part of the measurement.
                        let _ = client::ask(&asked, path, None, None, PATIENCE);
                    }
                }
            })
            .map_err(BenchError::failed)?;

        Ok(Some(Self {
            gate,
            server: Some(server),
            stop: Some(stop),
            thread: Some(thread),
        }))
    }
}

impl Drop for Watchers {
    fn drop(&mut self) {
        drop(self.stop.take());
        let _ = self.thread.take().map(JoinHandle::join);
        self.gate.close();
        drop(self.server.take());
    }
}
