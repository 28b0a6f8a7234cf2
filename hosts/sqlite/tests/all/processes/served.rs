//! A device in memory with a volume, served by a separate process.

use remap_ssd_device::{Device, DeviceConfig};
use remap_ssd_ftl::SchemeKind;
use remap_ssd_nvme::controller::{Health, Latency, Subsystem};
use remap_ssd_nvme::tcp::client::{Client, Options};
use remap_ssd_nvme::tcp::server::{ConnectionLabel, Log, Server as TcpServer};
use remap_ssd_nvme::tcp::target::{Allowed, Port};
use remap_ssd_store::{NewVolume, Processes, Volume};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

/// A process's role and arguments.
const PART: &str = "SQLITE_PROCESSES_PART";

/// Starts this binary in a role.
pub fn spawn(part: &str) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("it runs"));
    command
        .args(["--exact", "processes::process", "--ignored", "--nocapture"])
        .env(PART, part)
        .stdin(Stdio::null());
    if part.starts_with("server") {
        command.stdout(Stdio::piped());
    }
    command.spawn().expect("it starts")
}

/// The role of this process.
pub fn part() -> (String, String) {
    let part = std::env::var(PART).expect("another test starts this one");
    let (part, argument) = part.split_once(' ').expect("a part has an argument");
    (part.into(), argument.into())
}

struct Quiet;

impl Log for Quiet {
    fn connection(&self, _: &ConnectionLabel<'_>, _: &str) {}
    fn server(&self, _: &str) {}
}

/// Serves until it is killed.
pub fn serve(address: &str) {
    let config =
        DeviceConfig::for_service(64 << 20, SchemeKind::RemapSsd, false).expect("possible");
    let device = Device::in_memory(config).expect("room for it");
    // Processes that use volumes would take devices of the same name for one.
    let nqn = &format!(
        "nqn.2026-11.test:remap-ssd-processes:{}",
        std::process::id()
    );
    let subsystem =
        Subsystem::new(device, nqn, &[], Latency::None, true, Health::default()).expect("possible");
    let allowed = Allowed {
        anybody: true,
        ..Allowed::default()
    };
    // Other tests' devices have the same name, and are served by other processes.
    let subsystem = subsystem.of_incarnation(std::process::id().into());
    let port = Port::new(Arc::new(subsystem), allowed);
    let address = address.parse().expect("an address");
    let server = TcpServer::bind(address, port, Box::new(Quiet)).expect("a free port");
    println!("\nserves {}", server.address().expect("it is bound"));
    server.run().expect("the device works");
}

/// The serving process, killed on drop.
pub struct Server {
    child: Child,
    pub address: String,
}

impl Server {
    pub fn start() -> Self {
        let mut child = spawn("server 127.0.0.1:0");
        let mut lines = BufReader::new(child.stdout.take().expect("piped"))
            .lines()
            .map_while(Result::ok);
        let address = lines
            .find_map(|line| line.strip_prefix("serves ").map(str::to_owned))
            .expect("it serves");
        // The test's runtime may print more, and must not meet a closed pipe.
        std::thread::spawn(move || lines.for_each(drop));

        let disk = Client::connect(address.as_str(), Options::default()).expect("it serves");
        let new = NewVolume::default();
        Volume::create(disk, &Processes::local(), &new, &mut |_, _| {}).expect("it is blank");
        Self { child, address }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by a bug, which the test has detected.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
