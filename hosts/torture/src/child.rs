//! A command of the user: run by `sh -c`, in a process group of its own, for a limited time.
//!
//! Invariants: when `run` returns, every process of its group has ended or been killed; what it
//! wrote is kept in a file, so that a process left behind cannot block us. Absent: what it is for.

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

/// How much of its output is kept.
const OUTPUT_BYTES: u64 = 64 << 10;
/// Time between SIGTERM and SIGKILL for a workload whose time is over.
const GRACE: Duration = Duration::from_secs(2);

/// Variables that a command has besides those of this process.
pub type Environment = Vec<(&'static str, OsString)>;

/// The variables that commands have where the disk is a file.
pub fn disk_environment(dir: &Path, file: &Path, marks: &Path) -> Environment {
    let variables = [("DIR", dir), ("FILE", file), ("MARKS", marks)];
    variables.map(|(name, path)| (name, path.into())).into()
}

/// A command, and what it may know.
pub struct Task<'a> {
    /// The command, which a shell is given.
    pub command: &'a str,
    /// Variables added to its environment.
    pub environment: Environment,
    /// How long it may take.
    pub limit: Option<Duration>,
}

/// How a command came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// By itself, with exit code 0.
    Well,
    /// By itself, with an exit code that is not 0.
    Code(i32),
    /// By a signal that nobody here sent it.
    Signal(i32),
    /// It was ended after its time limit.
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
    /// Runs it to its end: how it ended, and the end of what it wrote; if it took too long, also
    /// what its processes waited for.
    ///
    /// # Errors
    /// It could not be started, or `stop` was set meanwhile.
    pub fn run(&self, stop: &AtomicBool) -> Result<(Ending, String), TortureError> {
        let mut output = tempfile::tempfile()?;
        // By the shell, as the user has typed it.
        let mut command = Command::new("sh");
        command
            .arg("-c")
            .arg(self.command)
            .envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output.try_clone()?)
            // A group of its own, so that all its processes can be ended.
            .process_group(0);
        let mut group = Group {
            leader: command.spawn()?,
            reaped: false,
            waiting: None,
        };

        let ending = group.wait(self.limit, stop);
        let waiting = group.waiting.take();

        // Ends the group, also if waiting has failed.
        drop(group);
        Ok((ending?, tail(&mut output)? + &waiting.unwrap_or_default()))
    }
}

/// A process and what it has started; dropping it ends them all.
struct Group {
    leader: Child,
    reaped: bool,
    /// What they were waiting for when their time was over.
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

            // Asked often: an interrupted campaign must end at once.
            if stop.load(Ordering::Relaxed) {
                return Err(TortureError::Interrupted);
            }
            if limit.is_some_and(|limit| began.elapsed() > limit) {
                // What its processes wait for explains why it is late.
                self.waiting = Some(waiting(self.id()));
                self.end();
                return Ok(Ending::Late);
            }
            std::thread::sleep(pause);

            // Short at first: many checks take some milliseconds.
            pause = (pause * 2).min(Duration::from_millis(20));
        }
    }

    /// Asks it to end, and waits a little.
    fn end(&mut self) {
        self.signal(Signal::TERM);
        let began = Instant::now();
        while began.elapsed() < GRACE && matches!(self.has_ended(), Ok(false)) {
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The number of the group, which is that of its first process.
    fn id(&self) -> Pid {
        Pid::from_child(&self.leader)
    }

    /// Has the first process ended? It is not reaped by this.
    fn has_ended(&self) -> io::Result<bool> {
        // Not reaped here: until then its number, which is the group's, cannot be another
        // process's.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        Ok(waitid(WaitId::Pid(self.id()), options)?.is_some())
    }

    fn signal(&self, signal: Signal) {
        // Until the first process is reaped, the group's number is nobody else's.
        if !self.reaped {
            let _ = kill_process_group(self.id(), signal);
        }
    }

    /// Kills what is left of the group, then waits for its first process.
    fn reap(&mut self) -> io::Result<ExitStatus> {
        // What it has started may live on, and must not write to the next disk.
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

/// A line about the processes of a group that have not ended: name, state, and the function of the
/// kernel in which each waits.
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

/// A process, if it is one of the group's.
fn process(folder: &Path, group: Pid) -> Option<String> {
    // `PID (NAME) STATE PARENT GROUP ...`; the name may hold blanks and brackets.
    let stat = std::fs::read_to_string(folder.join("stat")).ok()?;
    let (left, right) = stat.rsplit_once(") ")?;
    let name = left.split_once('(')?.1;
    let mut fields = right.split(' ');
    let state = fields.next()?;
    if fields.nth(1)?.parse() != Ok(group.as_raw_pid()) {
        return None;
    }

    // Readable for root alone; 0 while the process runs.
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

/// Runs a tool of the system; its words are the error if it fails. It is not of the terminal's
/// group: what Ctrl-C ends is us, and not a mount, which would look as if the file system could not
/// be mounted.
///
/// # Errors
/// It is not there, or has failed.
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

/// Why a tool did not do it.
#[derive(Debug)]
pub(crate) enum ToolError {
    /// The program is not installed.
    NotThere,
    /// It failed; what it printed.
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
