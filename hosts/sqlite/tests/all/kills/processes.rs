//! This binary run again as separate processes: a server, and programs that write.

use crate::kills::programs::{Job, write};
use remap_ssd_device::{Device, DeviceConfig};
use remap_ssd_ftl::SchemeKind;
use remap_ssd_nvme::controller::{AllReservations, ReservationStore, Subsystem};
use remap_ssd_nvme::tcp::server::{ConnectionLabel, Log, Server as TcpServer};
use remap_ssd_nvme::tcp::target::{Allowed, Port};
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// A process's role and arguments; it gets nothing else from its parent.
const PART: &str = "SQLITE_KILLS_PART";

/// Starts this binary in a role.
fn spawn(part: &str) -> Child {
    let binary = std::env::current_exe().expect("it runs");
    let mut command = Command::new(binary);
    command
        .args(["--exact", "kills::process", "--ignored", "--nocapture"])
        .env(PART, part);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts")
}

/// Runs the role that this process was started for.
pub fn play() {
    let part = std::env::var(PART).expect("another test starts this one");
    let mut words = part.split(' ');
    let mut next = || words.next().expect("a whole part").to_owned();
    match next().as_str() {
        "server" => {
            let address = next().parse().expect("an address");
            serve(Path::new(&next()), address);
        }
        _ => write(&Job::from_words(next), &extension()),
    }
}

/// The extension, built by cargo together with this test.
fn extension() -> String {
    let folder = PathBuf::from(
        std::env::current_exe()
            .expect("it runs")
            .parent()
            .expect("it is in a folder"),
    );
    folder.join("libremap_ssd_sqlite.so").display().to_string()
}

/// Prints a line for the parent, without interleaving.
pub fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // If the parent is gone, this process is killed, or about to be.
    let _ = out
        .write_all(format!("\n{line}\n").as_bytes())
        .and_then(|()| out.flush());
}

struct Quiet;

impl Log for Quiet {
    fn connection(&self, _: &ConnectionLabel<'_>, _: &str) {}
    fn server(&self, _: &str) {}
}

/// Persistent reservations, in a file beside the device, as `serve` keeps them.
struct Kept(PathBuf);

impl Kept {
    fn load(&self) -> AllReservations {
        let text = std::fs::read(&self.0);
        text.map_or_else(
            |_| AllReservations::new(),
            |text| serde_json::from_slice(&text).expect("whole"),
        )
    }
}

impl ReservationStore for Kept {
    fn save(&self, all: &AllReservations) -> std::io::Result<()> {
        let new = self.0.with_extension("new");
        std::fs::write(&new, serde_json::to_vec(all)?)?;
        std::fs::rename(&new, &self.0)
    }
}

fn serve(folder: &Path, address: SocketAddr) {
    let (device, _) = Device::open_in_folder(folder).expect("recoverable");
    // Devices of several tests have different names, which stay the same after a restart.
    let folder_name = folder.display().to_string().replace('/', "-");
    let nqn = format!("nqn.2026-11.test:remap-ssd-sqlite:{folder_name}");
    let subsystem = Subsystem::new(device, &nqn, &[]).expect("possible");
    let kept = Kept(folder.with_extension("reservations"));
    let subsystem = subsystem.with_reservations(kept.load(), Box::new(kept));
    let port = Port::new(
        Arc::new(subsystem),
        Allowed {
            anybody: true,
            ..Allowed::default()
        },
    );
    let server = TcpServer::bind(address, port, Box::new(Quiet)).expect("a free port");
    say(&format!(
        "serves {}",
        server.address().expect("it is bound")
    ));
    server.run().expect("the device works");
}

fn end(mut child: Child) {
    child.kill().expect("it runs");
    child.wait().expect("it ends");
}

/// A process that serves a device in a folder.
pub struct Server {
    child: Child,
    pub address: SocketAddr,
}

impl Server {
    /// Creates a device of 64 MiB in a folder.
    pub fn create(folder: &Path) {
        let config =
            DeviceConfig::for_service(64 << 20, SchemeKind::RemapSsd, false).expect("possible");
        Device::create_in_folder(folder, config, None)
            .expect("room for it")
            .close()
            .expect("possible");
    }

    /// Starts it and waits until it serves.
    pub fn start(folder: &Path, address: Option<SocketAddr>) -> Self {
        let address = address.unwrap_or_else(|| "127.0.0.1:0".parse().expect("an address"));
        let mut child = spawn(&format!("server {address} {}", folder.display()));
        let mut lines = BufReader::new(child.stdout.take().expect("piped"))
            .lines()
            .map_while(Result::ok);
        let address = lines
            .find_map(|line| line.strip_prefix("serves ")?.parse().ok())
            .expect("it serves");

        // After a minute the test's runtime reports that it still runs, and dies if the pipe is
        // closed.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, address }
    }

    /// Starts it and kills it a moment later, at any point of its work.
    pub fn start_and_kill(folder: &Path, address: SocketAddr, after: Duration) {
        let child = spawn(&format!("server {address} {}", folder.display()));
        std::thread::sleep(after);
        end(child);
    }

    /// Kills the process with SIGKILL.
    pub fn kill(self) {
        end(self.child);
    }
}

/// The reports of a writer until it was killed.
pub struct Ended {
    /// Its last transaction acknowledged by SQLite.
    pub acknowledged: u64,
    /// Number of reconnections.
    pub connected_again: u64,
}

/// A process that writes until it is killed.
pub struct Writer {
    child: Child,
    acknowledged: Arc<AtomicU64>,
    reader: JoinHandle<u64>,
}

impl Writer {
    pub fn start(job: &Job) -> Self {
        let mut child = spawn(&format!("writer {}", job.words()));
        let out = child.stdout.take().expect("piped");
        let acknowledged = Arc::new(AtomicU64::new(0));
        let into = Arc::clone(&acknowledged);
        let reader = std::thread::spawn(move || listen(out, &into));
        Self {
            child,
            acknowledged,
            reader,
        }
    }

    /// The last transaction that it has reported as acknowledged.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::SeqCst)
    }

    /// SIGKILL. Everything reported before counts.
    pub fn kill(self) -> Ended {
        end(self.child);
        let connected_again = self.reader.join().expect("a writer says what is so");
        Ended {
            acknowledged: self.acknowledged.load(Ordering::SeqCst),
            connected_again,
        }
    }
}

/// Reads a writer's reports until its end.
fn listen(out: ChildStdout, acknowledged: &AtomicU64) -> u64 {
    let mut connected_again = 0;
    let mut lines = BufReader::new(out).lines().map_while(Result::ok);
    for line in lines.by_ref() {
        if let Some(number) = line
            .strip_prefix("acknowledged ")
            .and_then(|number| number.parse().ok())
        {
            acknowledged.fetch_max(number, Ordering::SeqCst);
        }
        assert!(!line.starts_with("wrong"), "{line}");
        connected_again += u64::from(line == "connected again");
    }
    connected_again
}
