//! The program as a process: started, killed, stopped.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const PROGRAM: &str = env!("CARGO_BIN_EXE_remap-ssd");

/// A running server.
pub struct Server {
    child: Child,
    pub address: SocketAddr,
}

/// `image create`.
pub fn create(dir: &Path, options: &[&str]) {
    let output = Command::new(PROGRAM)
        .args(["image", "create"])
        .arg(dir)
        .args(options)
        .output()
        .expect("it starts");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Copies an image that is not in use.
pub fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).expect("a new folder");
    for file in std::fs::read_dir(from).expect("a folder") {
        let file = file.expect("a file");
        std::fs::copy(file.path(), to.join(file.file_name())).expect("there is room");
    }
}

fn spawn(image: &str) -> Child {
    Command::new(PROGRAM)
        .args([
            "serve",
            "--image",
            image,
            "--listen",
            "127.0.0.1:0",
            "--json-log",
        ])
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts")
}

fn end(mut child: Child) {
    child.kill().expect("it runs");
    child.wait().expect("it ends");
}

impl Server {
    /// Starts a server and waits until it has recovered and listens.
    pub fn start(image: &str) -> Self {
        let mut child = spawn(image);
        let mut said = Vec::new();
        let mut lines = BufReader::new(child.stderr.take().expect("piped"))
            .lines()
            .map_while(Result::ok);
        let address = lines
            .by_ref()
            .inspect(|line| said.push(line.clone()))
            .find_map(|line| {
                serde_json::from_str::<serde_json::Value>(&line).ok()?["fields"]["address"]
                    .as_str()?
                    .parse()
                    .ok()
            });
        // The pipe must be drained.
        std::thread::spawn(move || lines.for_each(drop));
        let address = address.unwrap_or_else(|| panic!("it does not serve: {}", said.join("\n")));
        Self { child, address }
    }

    /// Starts a server and kills it a moment later, in any state.
    pub fn start_and_kill(image: &str, after: Duration) {
        let mut child = spawn(image);
        drop(child.stderr.take());
        std::thread::sleep(after);
        end(child);
    }

    /// SIGKILL.
    pub fn kill(self) {
        end(self.child);
    }

    /// SIGTERM: it shuts down cleanly.
    pub fn stop(self) {
        self.signal("-TERM");
    }

    /// SIGUSR2: the power is cut.
    pub fn cut(self) {
        self.signal("-USR2");
    }

    fn signal(mut self, signal: &str) {
        let pid = self.child.id().to_string();
        assert!(
            Command::new("kill")
                .args([signal, &pid])
                .status()
                .expect("kill")
                .success()
        );
        assert!(
            self.child.wait().expect("it ends").success(),
            "it ended badly"
        );
    }
}
