//! A device in memory with a volume, served by a separate process.

use crate::kit::served::Served;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

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

/// Serves until it is killed.
pub fn serve(address: &str) {
    let served = Served::with_volume(address);
    println!("\nserves {}", served.address);
    loop {
        std::thread::park();
    }
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
