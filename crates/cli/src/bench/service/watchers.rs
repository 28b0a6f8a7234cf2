//! Who looks at a device while it is measured: a scraper of metrics, and an open page.
//!
//! Both ask a server of the device's own, over HTTP on the loopback, as often as Prometheus with a
//! short interval and as the page do. Invariant: they have ended before the device does. Absent: a
//! browser, which takes time of its own.

use crate::failure::Failure;
use crate::service::log::LogLevel;
use crate::watch::served::Served;
use remap_ssd_http::{Limits, Server, client};
use remap_ssd_nvme::controller::{Gate, Subsystem};
use remap_ssd_nvme::tcp::roster::Roster;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Between two times of asking: the page's, and a short one for a scraper.
const EVERY: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(5);

/// Who looks at the device: a scraper of metrics, an open page, both or nobody.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watching {
    /// Whether `/metrics` is asked for, once in `EVERY`.
    pub metrics: bool,
    /// The live page is open.
    pub page: bool,
}

impl Watching {
    /// The paths that are asked for, one after the other.
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

/// Those who look, until this is dropped.
pub struct Watchers {
    gate: Arc<Gate>,
    server: Option<Server>,
    /// Dropped when they are to end.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watchers {
    /// Begins to look; `None` if nothing is to be looked at.
    ///
    /// # Errors
    /// There is no port, or no thread.
    pub fn start(
        watching: Watching,
        subsystem: &Arc<Subsystem>,
        roster: Arc<Roster>,
        epoch: Instant,
    ) -> Result<Option<Self>, Failure> {
        let paths = watching.paths();
        if paths.is_empty() {
            return Ok(None);
        }

        let gate = Arc::new(Gate::new(subsystem.clone()));
        let log = LogLevel::unheard();
        let served = Served::new(
            gate.clone(),
            epoch,
            None,
            subsystem.nqn(),
            Some(roster),
            log,
        );
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let server = Server::start(address, Arc::new(served), None, Limits::default())
            .map_err(Failure::failed)?;

        let asked = server.address().to_string();
        let (stop, stopped) = channel();
        let thread = std::thread::Builder::new()
            .name("watcher".into())
            .spawn(move || {
                while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(EVERY) {
                    for path in &paths {
                        // A service that is too busy to answer is part of what is measured.
                        let _ = client::ask(&asked, path, None, None, PATIENCE);
                    }
                }
            })
            .map_err(Failure::failed)?;

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
