//! The service under a supervisor: notifications to systemd, and the socket that it passes.
//!
//! The test is the supervisor: it has the notification socket and the listening socket, and starts
//! the program as systemd does.

use crate::kill::host::{Cache, Contents, Host};
use crate::kit::{Words, path, private, run};
use remap_ssd_nvme::tcp::client::{Client, Options};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_remap-ssd");
/// Generous: it only guards against hanging.
const PATIENCE: Duration = Duration::from_secs(60);

/// The supervisor's part of a service.
struct Unit {
    dir: tempfile::TempDir,
    notified: UnixDatagram,
    socket: Option<TcpListener>,
    variables: Vec<(&'static str, &'static str)>,
}

impl Unit {
    fn new(socket: Option<TcpListener>) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let notified = UnixDatagram::bind(dir.path().join("notify")).expect("a new name");
        notified.set_read_timeout(Some(PATIENCE)).expect("a time");
        Self {
            dir,
            notified,
            socket,
            variables: Vec::new(),
        }
    }

    fn write_keys(&self, text: &str) -> String {
        private(self.dir.path(), "keys", text)
    }

    /// Starts a program as this unit. The socket is its standard input first; the shell moves it to
    /// descriptor 3, and knows the PID.
    fn start(&self, program: &Path, args: &[&str]) -> Running {
        let mut command = Command::new("sh");
        let script = match &self.socket {
            Some(socket) => {
                let socket = socket.try_clone().expect("a descriptor");
                command.stdin(OwnedFd::from(socket));
                "exec 3<&0 </dev/null; LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=nvme exec \"$@\""
            }
            None => {
                command.stdin(Stdio::null());
                "exec \"$@\""
            }
        };
        command.args(["-c", script, "sh"]).arg(program).arg("serve");
        let notify = self.dir.path().join("notify");
        command.args(args).env("NOTIFY_SOCKET", notify);
        command.envs(self.variables.iter().copied());
        let child = command.stderr(Stdio::piped()).spawn();
        Running(Some(child.expect("it starts")))
    }

    /// The next message, without times.
    fn next(&self) -> String {
        let mut message = [0; 512];
        let len = self.notified.recv(&mut message).expect("it says something");
        let text = std::str::from_utf8(&message[..len]).expect("text");
        let lines = text.lines().filter(|line| !line.starts_with("MONOTONIC"));
        lines.collect::<Vec<_>>().join(" ")
    }
}

/// A running service; a failing test leaves none.
struct Running(Option<Child>);

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Ends the threads, also if the test fails.
struct EndsThreads<'a>(&'a AtomicBool);

impl Drop for EndsThreads<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn signal(child: &Running, name: &str) {
    let pid = child.0.as_ref().expect("it runs").id().to_string();
    let sent = Command::new("kill").args(["-s", name, &pid]).status();
    assert!(sent.expect("kill").success());
}

/// Waits for a service that must end on its own.
fn ends(mut running: Running) -> Output {
    let until = Instant::now() + PATIENCE;
    let child = running.0.as_mut().expect("it runs");
    while child.try_wait().expect("ours").is_none() {
        assert!(Instant::now() < until, "it goes on");
        std::thread::sleep(Duration::from_millis(10));
    }
    let child = running.0.take().expect("it has run");
    child.wait_with_output().expect("it has ended")
}

/// Ends a service; returns its output.
fn stop(child: Running) -> String {
    signal(&child, "TERM");
    let output = ends(child);
    let said = String::from_utf8(output.stderr).expect("text");
    assert!(output.status.success(), "{said}");
    said
}

#[test]
fn a_supervisor_learns_when_hosts_can_connect_of_reloads_and_of_the_end() {
    let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = free.local_addr().expect("bound").to_string();
    drop(free);

    let unit = Unit::new(None);
    let args = ["--memory", "32MiB", "--listen", &address];
    let child = unit.start(Path::new(PROGRAM), &args);
    assert_eq!(unit.next(), "READY=1");
    Client::connect(&*address, Options::default()).expect("it was ready");

    // A reload without anything to reload does not end the service.
    signal(&child, "HUP");
    assert_eq!(unit.next(), "RELOADING=1");
    assert_eq!(unit.next(), "READY=1");

    let said = stop(child);
    assert_eq!(unit.next(), "STOPPING=1");
    assert!(said.contains("neither keys nor a list"), "{said}");
}

#[test]
fn a_reload_is_reported_once_the_keys_are_in_use() {
    let one = "AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyAl7OaH:";
    let unit = Unit::new(Some(TcpListener::bind("127.0.0.1:0").expect("a free port")));
    let keys = unit.write_keys(&format!("nqn.a DHHC-1:00:{one}\n"));
    let child = unit.start(Path::new(PROGRAM), &["--memory", "32MiB", "--keys", &keys]);
    assert_eq!(unit.next(), "READY=1");

    unit.write_keys("nqn.a nonsense\n");
    signal(&child, "HUP");
    assert_eq!(unit.next(), "RELOADING=1");
    // The previous keys stay in use, and the service continues.
    assert_eq!(unit.next(), "READY=1");
    unit.write_keys(&format!("nqn.a DHHC-1:00:{one}\nnqn.b DHHC-1:00:{one}\n"));
    signal(&child, "HUP");
    assert_eq!(unit.next(), "RELOADING=1");
    assert_eq!(unit.next(), "READY=1");

    let said = stop(child);
    assert!(
        said.contains("what was loaded before stays in use"),
        "{said}"
    );
    assert!(said.contains("keys loaded again"), "{said}");
}

#[test]
fn a_watchdog_hears_of_the_service_as_often_as_it_asks_and_never_unasked() {
    let args = ["--memory", "32MiB", "--listen", "127.0.0.1:0"];
    let mut unit = Unit::new(None);
    unit.variables = vec![("WATCHDOG_USEC", "200000")];
    let child = unit.start(Path::new(PROGRAM), &args);
    assert_eq!(unit.next(), "READY=1");
    let began = Instant::now();
    for _ in 0..5 {
        assert_eq!(unit.next(), "WATCHDOG=1");
    }
    assert!(
        began.elapsed() >= Duration::from_millis(4 * 100),
        "not more often"
    );
    stop(child);

    let unit = Unit::new(None);
    let child = unit.start(Path::new(PROGRAM), &args);
    assert_eq!(unit.next(), "READY=1");
    std::thread::sleep(Duration::from_millis(1500));
    stop(child);
    assert_eq!(unit.next(), "STOPPING=1");
}

#[test]
fn a_passed_socket_has_the_protection_that_an_address_has() {
    let refuses = |socket: &str, args: &[&str], code: i32, words: &str| {
        let unit = Unit::new(Some(TcpListener::bind(socket).expect("a free port")));
        let args = "--memory 32MiB".and(args);
        let output = ends(unit.start(Path::new(PROGRAM), &args));
        let said = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(words), "{said}");
        assert_eq!(said.trim_end().lines().count(), 1, "{said}");
    };

    refuses("0.0.0.0:0", &[], 2, "can be reached from elsewhere");
    refuses("[::]:0", &["--insecure"], 2, "say who may connect");
    let both = ["--listen", "127.0.0.1:0"];
    refuses("127.0.0.1:0", &both, 2, "a socket was passed");

    // A socket that does not listen is refused.
    let unit = Unit::new(None);
    let (one, _other) = std::os::unix::net::UnixStream::pair().expect("sockets");
    let script = "exec 3<&0 </dev/null; LISTEN_PID=$$ LISTEN_FDS=1 exec \"$@\"";
    let output = Command::new("sh")
        .args(["-c", script, "sh", PROGRAM, "serve", "--memory", "32MiB"])
        .env("NOTIFY_SOCKET", unit.dir.path().join("notify"))
        .stdin(OwnedFd::from(one))
        .output()
        .expect("it ends");
    let said = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("the socket that was passed"), "{said}");
}

/// The serving program is replaced under a host that writes, as in a package upgrade.
#[test]
fn an_upgrade_keeps_the_port_open_and_a_host_loses_nothing() {
    let socket = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = socket.local_addr().expect("bound");
    let unit = Unit::new(Some(socket));
    let image = path(unit.dir.path(), "disk");
    run(&["image", "create", &image, "--size", "64MiB"]).ok();

    let installed = unit.dir.path().join("remap-ssd");
    std::fs::copy(PROGRAM, &installed).expect("room");
    let mut child = unit.start(&installed, &["--image", &image]);
    assert_eq!(unit.next(), "READY=1");

    let is_over = AtomicBool::new(false);
    // Of commands: one starts only when the previous one was acknowledged, or is in doubt.
    let (begun, refused) = (AtomicU64::new(0), AtomicU64::new(0));
    let child = std::thread::scope(|scope| {
        let ends_threads = EndsThreads(&is_over);
        // A host that records acknowledged data and compares them after each interruption.
        let host = scope.spawn(|| {
            let mut host = Host::new(0..4096, Contents::New, Cache::Absent, 11);
            let may_go_on = || {
                begun.fetch_add(1, Ordering::Relaxed);
                !is_over.load(Ordering::Relaxed)
            };
            while !is_over.load(Ordering::Relaxed) {
                host.work_while(address, may_go_on);
                compare(&mut host, address);
            }
        });
        // Another client checks all the time that the port is open.
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                if TcpStream::connect(address).is_err() {
                    refused.fetch_add(1, Ordering::Relaxed);
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        });

        for _ in 0..4 {
            std::thread::sleep(Duration::from_millis(300));
            // The new program is beside the old one until it is renamed.
            let new = unit.dir.path().join("remap-ssd.new");
            std::fs::copy(PROGRAM, &new).expect("room");
            std::fs::rename(&new, &installed).expect("the same folder");
            let said = stop(child);
            assert!(said.contains("shut down cleanly"), "{said}");
            assert_eq!(unit.next(), "STOPPING=1");

            child = unit.start(&installed, &["--image", &image]);
            assert_eq!(unit.next(), "READY=1");
            let (before, until) = (begun.load(Ordering::Relaxed), Instant::now() + PATIENCE);
            while begun.load(Ordering::Relaxed) < before + 10 && !host.is_finished() {
                assert!(Instant::now() < until, "the host does not come back");
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        drop(ends_threads);
        child
    });

    assert_eq!(refused.into_inner(), 0, "the port was closed meanwhile");
    stop(child);
}

/// All pages hold the last acknowledged data.
fn compare(host: &mut Host, address: SocketAddr) {
    let until = Instant::now() + PATIENCE;
    let mut client = loop {
        match Client::connect(address, Options::default()) {
            Ok(client) => break client,
            Err(error) => assert!(Instant::now() < until, "{error}"),
        }
    };
    let wrong = host.compare(&mut client);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
