//! The program as a server: started, asked by its own clients, and ended in each possible way.

use crate::kit::{Ran, Words, private, run};
use remap_ssd_http::{Token, client};
use remap_ssd_nvme::tcp::client::{Client, Options};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const TOKEN: &str = "correct-horse-battery";

/// A running server; a failed test leaves no process.
pub struct Served {
    child: Child,
    /// Address of NVMe/TCP.
    pub nvme: String,
    /// Address of HTTP, if it is served.
    pub http: String,
    /// Lines of the log before it served.
    pub opening: Vec<String>,
    /// Lines of the log since then.
    log: Arc<Mutex<Vec<String>>>,
    /// The file of the token, in a folder of its own.
    pub token: Option<(tempfile::TempDir, String)>,
}

/// Starts a server on a free port and waits until it serves.
pub fn serve<W: Words + ?Sized>(args: &W) -> Served {
    Served::start(command(args), false)
}

/// The same with HTTP, without a token.
pub fn serve_openly<W: Words + ?Sized>(args: &W) -> Served {
    let mut command = command(args);
    command.args(["--http", "127.0.0.1:0"]);
    Served::start(command, true)
}

/// The same with HTTP, whose verbs require a token.
pub fn serve_http<W: Words + ?Sized>(args: &W) -> Served {
    let dir = tempfile::tempdir().expect("a folder");
    let token = private(dir.path(), "token", TOKEN);
    let mut command = command(args);
    command.args(["--http", "127.0.0.1:0", "--http-token", &token]);
    let mut served = Served::start(command, true);
    served.token = Some((dir, token));
    served
}

/// Starts a server and kills it a moment later, in any state.
pub fn serve_and_kill<W: Words + ?Sized>(args: &W, after: Duration) {
    let mut child = command(args).spawn().expect("the program starts");
    drop(child.stderr.take());
    std::thread::sleep(after);
    child.kill().expect("ours");
    child.wait().expect("it ends");
}

fn command<W: Words + ?Sized>(args: &W) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_remap-ssd"));
    command.arg("serve").args(args.words());
    command.args(["--listen", "127.0.0.1:0", "--json-log"]);
    command.stderr(Stdio::piped());
    command
}

impl Served {
    /// Starts a command that ends as a server with a log as JSON, and waits for its addresses.
    pub fn start(mut command: Command, with_http: bool) -> Self {
        let child = command.stderr(Stdio::piped()).spawn();
        let mut child = child.expect("the program starts");
        let lines = BufReader::new(child.stderr.take().expect("piped")).lines();
        let mut lines = lines.map_while(Result::ok);

        let (mut nvme, mut http, mut opening) = (None, None, Vec::new());
        while nvme.is_none() || (with_http && http.is_none()) {
            let Some(line) = lines.next() else {
                panic!("it does not serve: {}", opening.join("\n"));
            };
            let value: Value = serde_json::from_str(&line).unwrap_or_default();
            let field = |name: &str| value["fields"][name].as_str();
            let url = field("http").map(|url| url.trim_start_matches("http://"));
            http = http.or(url.map(|url| url.trim_end_matches('/').to_owned()));
            nvme = nvme.or(field("address").map(str::to_owned));
            opening.push(line);
        }

        // The pipe must be drained.
        let log = Arc::<Mutex<Vec<String>>>::default();
        let drained = log.clone();
        let keep = move |line| drained.lock().expect("nothing fails here").push(line);
        std::thread::spawn(move || lines.for_each(keep));
        Self {
            child,
            nvme: nvme.expect("found above"),
            http: http.unwrap_or_default(),
            opening,
            log,
            token: None,
        }
    }

    pub fn address(&self) -> SocketAddr {
        self.nvme.parse().expect("an address and a port")
    }

    /// SIGKILL.
    pub fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }

    /// SIGTERM; it must shut down cleanly.
    pub fn stop(self) {
        self.stop_with("TERM");
    }

    /// A signal that ends it; it must shut down cleanly.
    pub fn stop_with(self, signal: &str) {
        self.signal(signal);
        let log = self.log.clone();
        assert!(self.ended().success(), "SIG{signal}: {:?}", log.lock());
    }

    /// Waits for its end.
    pub fn ended(mut self) -> ExitStatus {
        self.child.wait().expect("it ends")
    }

    pub fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill")
            .args([&format!("-{signal}"), &pid])
            .status();
        assert!(sent.expect("kill").success());
    }

    /// Lines of the log since it serves.
    pub fn log(&self) -> Vec<String> {
        self.log.lock().expect("nothing fails here").clone()
    }

    /// Waits for a line of the log with these words, before it served or after; returns the lines
    /// since it serves.
    pub fn logged(&self, words: &str) -> Vec<String> {
        for _ in 0..6000 {
            let log = self.log();
            let mut lines = self.opening.iter().chain(&log);
            if lines.any(|line| line.contains(words)) {
                return log;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("no line of the log has `{words}`: {:#?}", self.log());
    }

    pub fn io<W: Words + ?Sized>(&self, args: &W) -> Ran {
        run(&["io", "--connect", &self.nvme].and(args))
    }

    /// A counter, from `io stat`.
    pub fn stat(&self, name: &str) -> u64 {
        let value = self.io("stat --json").ok().json();
        value[name]
            .as_u64()
            .unwrap_or_else(|| panic!("no {name} in {value}"))
    }

    /// A host that stays connected.
    pub fn host(&self) -> Client {
        Client::connect(self.nvme.as_str(), Options::default()).expect("it connects")
    }
}

/// Operators' questions and verbs, by HTTP.
impl Served {
    pub fn ctl<W: Words + ?Sized>(&self, args: &W) -> Ran {
        let (_, token) = self.token.as_ref().expect("served with a token");
        let place = ["ctl", "--json", "--connect", &self.http, "--token", token];
        run(&place.and(args))
    }

    pub fn get(&self, path: &str) -> (u16, String) {
        self.ask(path, None)
    }

    /// Executes a verb without arguments; returns the status of the response, and its text.
    pub fn post(&self, verb: &str) -> (u16, String) {
        self.ask(&format!("/api/ctl/{verb}"), Some(b""))
    }

    fn ask(&self, path: &str, body: Option<&[u8]>) -> (u16, String) {
        let token = Token::new(TOKEN).expect("a token");
        let patience = Duration::from_secs(60);
        let answer = client::ask(&self.http, path, body, Some(&token), patience);
        let answer = answer.expect("an answer");
        (answer.status, String::from_utf8(answer.body).expect("text"))
    }

    pub fn json(&self, path: &str) -> Value {
        let (status, text) = self.get(path);
        assert_eq!(status, 200, "{path}: {text}");
        serde_json::from_str(&text).expect("JSON")
    }

    /// Names and numbers of all connections.
    pub fn numbers(&self) -> Vec<(String, u64)> {
        let hosts = self.json("/api/hosts");
        let each = hosts.as_array().expect("a list").iter();
        each.map(|host| {
            let number = host["connection"].as_u64().expect("a number");
            (host["hostnqn"].as_str().expect("a name").to_owned(), number)
        })
        .collect()
    }

    /// Numbers of a host's connections.
    pub fn connections(&self, host: &str) -> Vec<u64> {
        let all = self.numbers().into_iter();
        all.filter(|(name, _)| name == host)
            .map(|(_, number)| number)
            .collect()
    }

    /// Waits until these connections are gone; `false` if they stay.
    pub fn left(&self, connections: &[u64]) -> bool {
        (0..500).any(|_| {
            std::thread::sleep(Duration::from_millis(20));
            let numbers = self.numbers();
            !numbers
                .iter()
                .any(|(_, number)| connections.contains(number))
        })
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
