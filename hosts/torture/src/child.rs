//! Runs a user's command with `sh -c`, in its own process group, for a limited time.
//!
//! Invariants: when `run` returns, every process of its group has ended or been killed; output goes
//! to a file, so that a leftover process cannot block us. Absent: the purpose of the command.

use crate::error::TortureError;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Maximum output kept.
const OUTPUT_BYTES: u64 = 64 << 10;
/// Time between SIGTERM and SIGKILL for a workload past its limit.
const GRACE: Duration = Duration::from_secs(2);

/// Environment variables added for a command.
pub(crate) type Environment = Vec<(&'static str, OsString)>;

/// Environment variables of commands when the disk is a file.
pub(crate) fn disk_environment(dir: &Path, file: &Path, marks: &Path) -> Environment {
    let variables = [("DIR", dir), ("FILE", file), ("MARKS", marks)];
    variables.map(|(name, path)| (name, path.into())).into()
}

/// A command and its environment.
pub(crate) struct Task<'a> {
    /// The command, run by a shell.
    pub command: &'a str,
    /// Variables added to its environment.
    pub environment: Environment,
    /// Maximum run time; none: as long as it takes.
    pub limit: Option<Duration>,
}

/// End of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Exit code 0.
    Well,
    /// A nonzero exit code.
    Code(i32),
    /// A signal that we did not send.
    Signal(i32),
    /// It exceeded its time limit and was ended.
    Late,
}

impl Ending {
    fn of(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(0), _) => Self::Well,
            (Some(code), _) => Self::Code(code),
            (None, signal) => Self::Signal(signal.unwrap_or(0)),
        }
    }
}

impl std::fmt::Display for Ending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Well => f.write_str("ended well"),
            Self::Code(code) => write!(f, "ended with exit code {code}"),
            Self::Signal(signal) => write!(f, "ended by signal {signal}"),
            Self::Late => f.write_str("did not end in time"),
        }
    }
}

impl Task<'_> {
    /// Runs the command to its end. Returns how it ended and the end of its output; after a
    /// timeout, also the kernel functions in which its processes waited.
    ///
    /// # Errors
    /// It could not be started, or `stop` was set.
    pub(crate) fn run(&self, stop: &AtomicBool) -> Result<(Ending, String), TortureError> {
        let mut output = tempfile::tempfile()?;
        // Through the shell, as the user typed it.
        let mut command = Command::new("sh");
        command
            .arg("-c")
            .arg(self.command)
            .envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output.try_clone()?)
            // Its own group, so that all its processes can be ended.
            .process_group(0);
        let mut group = Group {
            leader: command.spawn()?,
            reaped: false,
            waiting: None,
        };

        let ending = group.wait(self.limit, stop);
        let waiting = group.waiting.take();

        // Ends the group, even if waiting failed.
        drop(group);
        Ok((ending?, tail(&mut output)? + &waiting.unwrap_or_default()))
    }
}

/// A process and its descendants; dropping it ends them all.
struct Group {
    leader: Child,
    reaped: bool,
    /// Wait channels of its processes at the timeout.
    waiting: Option<String>,
}

impl Group {
    fn wait(&mut self, limit: Option<Duration>, stop: &AtomicBool) -> Result<Ending, TortureError> {
        let began = Instant::now();
        let mut pause = Duration::from_millis(1);
        loop {
            if self.has_ended()? {
                return Ok(Ending::of(self.reap()?));
            }

            // Polled often: an interrupted campaign must end at once.
            if stop.load(Ordering::Relaxed) {
                return Err(TortureError::Interrupted);
            }
            if limit.is_some_and(|limit| began.elapsed() > limit) {
                // The processes' wait channels explain the timeout.
                self.waiting = Some(waiting(self.id()));
                self.end();
                return Ok(Ending::Late);
            }
            std::thread::sleep(pause);

            // Short at first: many checks take some milliseconds.
            pause = (pause * 2).min(Duration::from_millis(20));
        }
    }

    /// Sends SIGTERM and waits briefly.
    fn end(&mut self) {
        self.signal(Signal::TERM);
        let began = Instant::now();
        while began.elapsed() < GRACE && matches!(self.has_ended(), Ok(false)) {
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Process group ID, which is the PID of its first process.
    fn id(&self) -> Pid {
        Pid::from_child(&self.leader)
    }

    /// Returns true if the first process has ended, without reaping it.
    fn has_ended(&self) -> io::Result<bool> {
        // Until it is reaped its PID, which is the group ID, is not reused.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        Ok(waitid(WaitId::Pid(self.id()), options)?.is_some())
    }

    fn signal(&self, signal: Signal) {
        // Until the first process is reaped, the group ID is not reused.
        if !self.reaped {
            let _ = kill_process_group(self.id(), signal);
        }
    }

    /// Kills the remaining processes of the group, then waits for the first process.
    fn reap(&mut self) -> io::Result<ExitStatus> {
        // Its children may live on, and must not write to the next disk.
        self.signal(Signal::KILL);
        self.reaped = true;
        self.leader.wait()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = self.reap();
    }
}

/// Describes the processes of a group that have not ended: name, state, and the kernel function in
/// which each waits.
fn waiting(group: Pid) -> String {
    let Ok(folders) = std::fs::read_dir("/proc") else {
        return String::new();
    };
    let processes: Vec<String> = folders
        .flatten()
        .filter_map(|folder| process(&folder.path(), group))
        .collect();
    format!("not ended: {}\n", processes.join(", "))
}

/// Describes a process, if it belongs to the group.
fn process(folder: &Path, group: Pid) -> Option<String> {
    // `PID (NAME) STATE PARENT GROUP ...`; the name may contain spaces and parentheses.
    let stat = std::fs::read_to_string(folder.join("stat")).ok()?;
    let (left, right) = stat.rsplit_once(") ")?;
    let name = left.split_once('(')?.1;
    let mut fields = right.split(' ');
    let state = fields.next()?;
    if fields.nth(1)?.parse() != Ok(group.as_raw_pid()) {
        return None;
    }

    // Readable only by root; 0 while the process runs.
    match std::fs::read_to_string(folder.join("wchan"))
        .unwrap_or_default()
        .as_str()
    {
        "" | "0" => Some(format!("{name} ({state})")),
        function => Some(format!("{name} ({state}, {function})")),
    }
}

/// The end of a file.
fn tail(file: &mut File) -> io::Result<String> {
    let len = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(len.saturating_sub(OUTPUT_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(OUTPUT_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Runs a system tool; if it fails its output is the error. It is outside the terminal's process
/// group: Ctrl-C must interrupt us, not a mount, which would look like a file system that cannot be
/// mounted.
///
/// # Errors
/// It is not installed, or it failed.
pub(crate) fn tool(program: &str, arguments: &[&str]) -> Result<String, ToolError> {
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .process_group(0)
        .output();
    let output = output.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => ToolError::NotThere,
        _ => ToolError::Failed(error.to_string()),
    })?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    } else {
        Err(ToolError::Failed(
            String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        ))
    }
}

/// Why a tool failed.
#[derive(Debug)]
pub(crate) enum ToolError {
    /// The program is not installed.
    NotThere,
    /// It failed with this output.
    Failed(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(command: &str, limit: Option<Duration>) -> (Ending, String) {
        Task {
            command,
            environment: Vec::new(),
            limit,
        }
        .run(&AtomicBool::new(false))
        .unwrap()
    }

    #[test]
    fn a_command_says_how_it_ended_and_what_it_wrote() {
        assert_eq!(
            run("echo out; echo err >&2", None),
            (Ending::Well, "out\nerr\n".into())
        );
        assert_eq!(run("exit 3", None).0, Ending::Code(3));
        assert_eq!(run("kill -9 $$", None).0, Ending::Signal(9));
    }

    #[test]
    fn a_command_that_hangs_is_ended_with_what_it_started() {
        let (ending, output) = run(
            "sleep 1000 & echo $!; wait",
            Some(Duration::from_millis(200)),
        );
        assert_eq!(ending, Ending::Late);
        let (sleeper, rest) = output.split_once('\n').unwrap();
        assert!(
            rest.starts_with("not ended: ") && rest.contains("sleep (S"),
            "{rest}"
        );
        let sleeper = Path::new("/proc").join(sleeper).join("cmdline");
        let alive = || std::fs::read(&sleeper).is_ok_and(|line| !line.is_empty());
        (0..200)
            .take_while(|_| alive())
            .for_each(|_| std::thread::sleep(Duration::from_millis(10)));
        assert!(!alive(), "what it had started is gone");
    }

    #[test]
    fn whoever_wants_it_to_end_need_not_wait() {
        let task = Task {
            command: "sleep 1000",
            environment: Vec::new(),
            limit: None,
        };
        assert!(matches!(
            task.run(&AtomicBool::new(true)),
            Err(TortureError::Interrupted)
        ));
    }
}
