//! A server process with HTTP, and clients of it.

use remap_ssd_http::{Token, client};
use remap_ssd_nvme::tcp::client::{Client, Options};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub const TOKEN: &str = "correct-horse-battery";

pub struct Served {
    child: Child,
    /// Addresses of NVMe/TCP and of HTTP.
    pub nvme: String,
    pub http: String,
    token: PathBuf,
    /// Lines of the log since it serves.
    log: Arc<Mutex<Vec<String>>>,
    _dir: tempfile::TempDir,
}

/// Result of a program: its exit code and its output.
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Ran {
    #[track_caller]
    pub fn ok(&self) -> Value {
        assert_eq!(self.code, 0, "{}{}", self.out, self.err);
        serde_json::from_str(&self.out).unwrap_or(Value::Null)
    }

    /// It failed with this code and one line that contains this text.
    #[track_caller]
    pub fn fails(&self, code: i32, words: &str) {
        assert_eq!(self.code, code, "{}{}", self.out, self.err);
        assert!(
            self.err.contains(words),
            "`{words}` is not in: {}",
            self.err
        );
        assert_eq!(self.err.trim_end().lines().count(), 1, "{}", self.err);
    }
}

pub fn run(args: &[&str]) -> Ran {
    let output = Command::new(env!("CARGO_BIN_EXE_remap-ssd"))
        .args(args)
        .output()
        .expect("the program starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("the program writes UTF-8");
    Ran {
        code: output.status.code().unwrap_or(-1),
        out: text(output.stdout),
        err: text(output.stderr),
    }
}

/// Serves with these arguments, and a token.
pub fn serve(args: &[&str]) -> Served {
    let dir = tempfile::tempdir().expect("a folder");
    let token = dir.path().join("token");
    std::fs::write(&token, TOKEN).expect("room");
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o600)).expect("ours");
    let token_text = token.to_str().expect("text").to_owned();
    start(&[args, &["--http-token", &token_text]].concat(), token, dir)
}

/// Serves without a token.
pub fn serve_openly(args: &[&str]) -> Served {
    start(args, PathBuf::new(), tempfile::tempdir().expect("a folder"))
}

fn start(args: &[&str], token: PathBuf, dir: tempfile::TempDir) -> Served {
    let mut child = Command::new(env!("CARGO_BIN_EXE_remap-ssd"))
        .arg("serve")
        .args(args)
        .args([
            "--listen",
            "127.0.0.1:0",
            "--http",
            "127.0.0.1:0",
            "--json-log",
        ])
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
    let (mut nvme, mut http, mut said) = (None, None, String::new());
    for line in lines.by_ref().map_while(Result::ok) {
        said.push_str(&line);
        let value: Value = serde_json::from_str(&line).unwrap_or_default();
        let field = |name: &str| value["fields"][name].as_str().map(str::to_owned);
        http = http.or_else(|| {
            let url = field("http")?;
            Some(
                url.trim_start_matches("http://")
                    .trim_end_matches('/')
                    .to_owned(),
            )
        });
        nvme = nvme.or_else(|| field("address"));
        if nvme.is_some() && http.is_some() {
            break;
        }
    }
    // The pipe must be drained.
    let log = Arc::<Mutex<Vec<String>>>::default();
    let drained = log.clone();
    let keep = move |line| drained.lock().expect("nothing fails here").push(line);
    std::thread::spawn(move || lines.map_while(Result::ok).for_each(keep));
    Served {
        child,
        nvme: nvme.unwrap_or_else(|| panic!("it does not serve: {said}")),
        http: http.unwrap_or_else(|| panic!("it does not serve HTTP: {said}")),
        token,
        log,
        _dir: dir,
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Served {
    /// SIGTERM; it must shut down cleanly.
    pub fn stop(mut self) {
        let pid = self.child.id().to_string();
        Command::new("kill").arg(pid).status().expect("kill");
        assert!(self.child.wait().expect("it ends").success());
    }

    /// SIGHUP: it reloads its keys.
    pub fn hang_up(&self) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-HUP", &pid]).status();
        assert!(sent.expect("kill").success());
    }

    pub fn io(&self, args: &[&str]) -> Ran {
        run(&[&["io", "--connect", &self.nvme], args].concat())
    }

    /// A counter, from `io stat`.
    pub fn stat(&self, name: &str) -> u64 {
        let value = self.io(&["stat", "--json"]).ok();
        value[name]
            .as_u64()
            .unwrap_or_else(|| panic!("no {name} in {value}"))
    }

    pub fn ctl(&self, args: &[&str]) -> Ran {
        let token = self.token.to_str().expect("text");
        run(&[
            &["ctl", "--json", "--connect", &self.http, "--token", token],
            args,
        ]
        .concat())
    }

    /// Waits for a line of the log with these words; returns all lines since the start.
    pub fn logged(&self, words: &str) -> Vec<String> {
        for _ in 0..600 {
            let lines = self.log.lock().expect("nothing fails here").clone();
            if lines.iter().any(|line| line.contains(words)) {
                return lines;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("no line of the log has `{words}`");
    }

    pub fn token(&self) -> Token {
        Token::new(TOKEN).expect("a token")
    }

    pub fn get(&self, path: &str) -> (u16, String) {
        self.ask(path, None)
    }

    /// Executes a verb without arguments; returns the status of the response, and its text.
    pub fn post(&self, verb: &str) -> (u16, String) {
        self.ask(&format!("/api/ctl/{verb}"), Some(b""))
    }

    fn ask(&self, path: &str, body: Option<&[u8]>) -> (u16, String) {
        let token = self.token();
        let answer = client::ask(
            &self.http,
            path,
            body,
            Some(&token),
            Duration::from_secs(60),
        );
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

    /// A host that stays connected.
    pub fn host(&self) -> Client {
        Client::connect(self.nvme.as_str(), Options::default()).expect("it connects")
    }
}

pub fn file(dir: &Path, name: &str, bytes: &[u8]) -> String {
    let path = dir.join(name);
    std::fs::write(&path, bytes).expect("room for it");
    path.to_str().expect("text").to_owned()
}
