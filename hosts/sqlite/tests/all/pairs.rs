//! Two processes and one database on a served device, where the second does not see the files of
//! the first: another /tmp, another user, or an emptied /tmp; and holders that are killed, stopped,
//! or return. Everything acknowledged by SQLite is there, and a process whose hold was revoked
//! cannot continue.
//!
//! Processes are this binary, run again. Another user and another /tmp need root; without it those
//! tests report that and end. `PAIRS_ROUNDS` is the number of rounds of each pair (2 if not set).

use crate::kit::disks::{count, image};
use crate::kit::engine::{Db, start_with_vfs};
use crate::kit::served::{ANY_PORT, Served};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// A process's role and arguments; it gets nothing else from its parent.
const PART: &str = "SQLITE_PAIRS_PART";
/// Number of transactions per process.
const COMMITS: u64 = 40;
const MODES: [&str; 2] = ["WAL", "DELETE"];

/// A served device with a volume and a database.
struct Rig(Served);

impl Rig {
    fn new(mode: &str) -> Self {
        start_with_vfs();
        let rig = Self(Served::with_volume(ANY_PORT));
        let db = rig.open();
        db.run(&format!("PRAGMA journal_mode={mode}"))
            .expect("possible");
        db.run("CREATE TABLE t(who, number)").expect("possible");
        rig
    }

    /// Opens the database, once the server has detected that killed processes are gone.
    fn open(&self) -> Db {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            match self.0.open() {
                Ok(db) => return db,
                Err(error) => assert!(error.is_busy() && Instant::now() < until, "{error}"),
            }
            std::thread::yield_now();
        }
    }

    /// Checks that the database is whole, and has the acknowledged transactions.
    fn must_have(&self, who: &str, acknowledged: u64) {
        let db = self.open();
        let whole = db.value("PRAGMA integrity_check").expect("readable");
        assert_eq!(whole.text(), "ok");
        let sql = format!("SELECT count(*) FROM t WHERE who = '{who}'");
        let rows = db.value(&sql).expect("readable").integer();
        assert_eq!(rows, acknowledged as i64, "rows of {who}");
        db.run(&format!("DELETE FROM t WHERE who = '{who}'"))
            .expect("possible");
    }
}

/// Environment of a process.
enum Place<'a> {
    Here,
    OtherUser,
    OtherTmp,
    /// With the /tmp of this process.
    With(&'a Process),
}

/// A process that executes write commands.
struct Process {
    child: Child,
    into: ChildStdin,
    from: Lines<BufReader<ChildStdout>>,
}

impl Process {
    fn start(rig: &Rig, who: &str, place: &Place<'_>) -> Self {
        Self::start_on(&rig.0.uri(), who, place)
    }

    fn start_on(uri: &str, who: &str, place: &Place<'_>) -> Self {
        let binary = std::env::current_exe().expect("it runs");
        let mut command = match place {
            Place::Here => Command::new(&binary),
            Place::OtherUser => {
                let mut command = Command::new("setpriv");
                command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
                command.arg(&binary);
                command
            }
            Place::OtherTmp => {
                let script = "mount -t tmpfs none /tmp && exec \"$@\"";
                let mut command = Command::new("unshare");
                command.args(["-m", "sh", "-c", script, "sh"]).arg(&binary);
                command
            }
            Place::With(other) => {
                let mut command = Command::new("nsenter");
                command.arg(format!("--mount=/proc/{}/ns/mnt", other.child.id()));
                command.arg(&binary);
                command
            }
        };
        let mut child = command
            .args(["--exact", "pairs::process", "--ignored", "--nocapture"])
            .env(PART, format!("{who} {uri}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let into = child.stdin.take().expect("piped");
        let from = BufReader::new(child.stdout.take().expect("piped")).lines();
        Self { child, into, from }
    }

    /// The next line printed by the role, not by the test's runtime.
    fn heard(&mut self) -> String {
        let said = |line: String| line.strip_prefix("part: ").map(str::to_owned);
        let mut lines = self.from.by_ref().map_while(Result::ok);
        lines.find_map(said).unwrap_or_else(|| "nothing".into())
    }

    fn tell(&mut self, what: &str) -> String {
        writeln!(self.into, "{what}").expect("it listens");
        self.heard()
    }

    fn must_be_open(mut self) -> Self {
        assert_eq!(self.heard(), "open");
        self
    }

    fn must_be_refused(self) {
        self.must_hear("in use by other processes");
    }

    fn must_hear(mut self, why: &str) {
        let heard = self.heard();
        assert!(heard.starts_with("busy"), "{heard}");
        assert!(heard.contains(why), "{heard}");
        self.child.wait().expect("it ends");
    }

    fn end(mut self) {
        assert_eq!(self.tell("close"), "closed");
        self.child.wait().expect("it ends");
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id() as i32).expect("it runs");
        kill_process(pid, signal).expect("it is ours");
    }

    /// Runs all its transactions; returns the number acknowledged.
    fn writes(&mut self) -> u64 {
        assert_eq!(self.tell("write"), format!("acknowledged {COMMITS}"));
        COMMITS
    }
}

/// A role, run in a separate process.
#[test]
#[ignore = "another test starts this one, in a process of its own"]
fn process() {
    let part = std::env::var(PART).expect("another test starts this one");
    let (who, uri) = part.split_once(' ').expect("two words");
    start_with_vfs();
    let say = |line: &str| {
        let mut out = std::io::stdout().lock();
        let _ = writeln!(out, "\npart: {line}").and_then(|()| out.flush());
    };
    let db = match Db::open(uri) {
        Ok(db) => db,
        Err(error) if error.is_busy() => return say(&format!("busy {error}")),
        Err(error) => return say(&format!("refused {error}")),
    };
    db.wait_for_locks();
    say("open");

    let mut db = Some(db);
    for line in std::io::stdin().lines().map_while(Result::ok) {
        match line.as_str() {
            "write" => {
                let db = db.as_ref().expect("it is open");
                let insert = |number: &u64| {
                    let sql = format!("INSERT INTO t VALUES('{who}', {number})");
                    db.run(&sql)
                };
                let done: Result<Vec<()>, _> = (0..COMMITS).map(|number| insert(&number)).collect();
                match done {
                    Ok(done) => say(&format!("acknowledged {}", done.len())),
                    Err(error) => say(&format!("failed {error}")),
                }
            }
            "read" => {
                let db = db.as_ref().expect("it is open");
                match db.value("SELECT count(*) FROM t") {
                    Ok(count) => say(&format!("{count:?}")),
                    Err(error) => say(&format!("failed {error}")),
                }
            }
            "again" => match Db::open(uri).and_then(|db| db.value("SELECT count(*) FROM t")) {
                Ok(_) => say("open"),
                Err(error) => say(&format!("refused {error}")),
            },
            "sweep" => {
                for entry in std::fs::read_dir("/tmp").expect("it is there").flatten() {
                    let _ = std::fs::remove_dir_all(entry.path());
                }
                say("swept");
            }
            _ => {
                drop(db.take());
                return say("closed");
            }
        }
    }
}

fn rounds() -> usize {
    let rounds = std::env::var("PAIRS_ROUNDS").ok();
    rounds.map_or(2, |rounds| rounds.parse().expect("a number"))
}

/// Returns true if other users and other mounts are available here.
fn is_possible() -> bool {
    let mounts = Command::new("unshare").args(["-m", "true"]).status();
    let possible = geteuid().is_root() && mounts.is_ok_and(|status| status.success());
    if !possible {
        println!("left out: another user and another /tmp need root, setpriv and unshare");
    }
    possible
}

#[test]
fn two_processes_of_one_user_write_one_database() {
    for mode in MODES {
        let rig = Rig::new(mode);
        for _ in 0..rounds() {
            let mut pair =
                ["A", "B"].map(|who| Process::start(&rig, who, &Place::Here).must_be_open());
            for one in &mut pair {
                writeln!(one.into, "write").expect("it listens");
            }
            for one in &mut pair {
                assert_eq!(one.heard(), format!("acknowledged {COMMITS}"));
            }
            pair.into_iter().for_each(Process::end);
            rig.must_have("A", COMMITS);
            rig.must_have("B", COMMITS);
        }
    }
}

/// While one has the database the other is refused, in either order, and nothing is lost.
fn excluded(other: &Place<'_>) {
    for mode in MODES {
        let rig = Rig::new(mode);
        for round in 0..rounds() {
            let (one, two) = (&Place::Here, other);
            let (first, second) = if round % 2 == 0 {
                (one, two)
            } else {
                (two, one)
            };
            let mut holder = Process::start(&rig, "A", first).must_be_open();
            Process::start(&rig, "B", second).must_be_refused();
            let mut acknowledged = holder.writes();
            Process::start(&rig, "B", second).must_be_refused();
            acknowledged += holder.writes();
            holder.end();

            let mut next = Process::start(&rig, "B", second).must_be_open();
            assert_eq!(next.tell("read"), format!("Integer({acknowledged})"));
            next.writes();
            next.end();
            rig.must_have("A", acknowledged);
            rig.must_have("B", COMMITS);
        }
    }
}

#[test]
fn a_process_with_another_tmp_is_refused_while_the_database_is_open() {
    if is_possible() {
        excluded(&Place::OtherTmp);
    }
}

// The locks of an image are in its folder, which both see.
#[test]
fn a_process_with_another_tmp_is_refused_while_the_database_on_an_image_is_open() {
    if !is_possible() {
        return;
    }
    start_with_vfs();
    for mode in MODES {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
        let folder = dir.path().join("disk");
        let uri = format!("file:app.db?vfs=remap&image={}", folder.display());
        image(&folder);
        let db = Db::open(&uri).expect("possible");
        db.run(&format!("PRAGMA journal_mode={mode}"))
            .expect("possible");
        db.run("CREATE TABLE t(who, number)").expect("possible");
        drop(db);

        let mut acknowledged = 0;
        for round in 0..rounds() {
            let (one, two) = (&Place::Here, &Place::OtherTmp);
            let (first, second) = if round % 2 == 0 {
                (one, two)
            } else {
                (two, one)
            };
            let mut holder = Process::start_on(&uri, "A", first).must_be_open();
            Process::start_on(&uri, "B", second).must_hear("has the image");
            acknowledged += holder.writes();
            Process::start_on(&uri, "B", second).must_hear("has the image");
            acknowledged += holder.writes();
            holder.end();

            let mut next = Process::start_on(&uri, "B", second).must_be_open();
            assert_eq!(next.tell("read"), format!("Integer({acknowledged})"));
            acknowledged += next.writes();
            next.end();
        }
        let db = Db::open(&uri).expect("possible");
        assert_eq!(count(&db), acknowledged as i64);
    }
}

#[test]
fn a_process_of_another_user_is_refused_while_the_database_is_open() {
    if is_possible() {
        excluded(&Place::OtherUser);
    }
}

#[test]
fn who_has_the_database_open_goes_on_when_tmp_is_emptied_and_nobody_else_gets_it() {
    if !is_possible() {
        return;
    }
    for mode in MODES {
        let rig = Rig::new(mode);
        for _ in 0..rounds() {
            let mut first = Process::start(&rig, "A", &Place::OtherTmp).must_be_open();
            let mut second = Process::start(&rig, "B", &Place::With(&first)).must_be_open();
            first.writes();
            assert_eq!(second.tell("read"), format!("Integer({COMMITS})"));
            assert_eq!(first.tell("sweep"), "swept");

            // The earlier processes share locks whose names are gone.
            first.writes();
            second.writes();
            Process::start(&rig, "C", &Place::With(&first)).must_be_refused();
            let again = first.tell("again");
            assert!(again.starts_with("refused"), "{again}");
            first.end();
            second.writes();
            second.end();
            rig.must_have("A", 2 * COMMITS);
            rig.must_have("B", 2 * COMMITS);
        }
    }
}

#[test]
fn after_a_holder_that_was_killed_others_get_the_database() {
    if !is_possible() {
        return;
    }
    for mode in MODES {
        let rig = Rig::new(mode);
        for _ in 0..rounds() {
            let mut first = Process::start(&rig, "A", &Place::OtherTmp).must_be_open();
            let acknowledged = first.writes();
            first.signal(Signal::KILL);
            first.child.wait().expect("it ends");
            rig.must_have("A", acknowledged);
        }
    }
}

// Stopped, it still has its connections. They end while it is stopped, another process uses the
// database in between, and it continues with its cached state.
#[test]
fn a_holder_that_returns_after_another_one_had_the_database_reads_and_writes_nothing() {
    if !is_possible() {
        return;
    }
    for mode in MODES {
        let rig = Rig::new(mode);
        for round in 0..rounds() {
            let mut first = Process::start(&rig, "A", &Place::OtherTmp).must_be_open();
            let acknowledged = first.writes();
            let present = first.tell("read");
            assert_eq!(present, format!("Integer({acknowledged})"));
            first.signal(Signal::STOP);
            Process::start(&rig, "B", &Place::Here).must_be_refused();

            assert!(rig.0.roster().drop_hosts(None) > 0);
            let db = rig.open();
            db.run("INSERT INTO t VALUES('B', 0)").expect("possible");
            // It makes no difference if the other one is still there.
            let db = (round % 2 == 0).then_some(db);
            first.signal(Signal::CONT);
            for what in ["read", "write", "read"] {
                let heard = first.tell(what);
                assert!(heard.starts_with("failed"), "{what}: {heard}");
            }
            drop(db);
            first.end();
            rig.must_have("A", acknowledged);
            rig.must_have("B", 1);
        }
    }
}
