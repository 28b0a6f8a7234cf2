//! A volume on a served device and the processes of several lock domains: the device grants it to
//! one of them, regardless of their files.

use remap_ssd_device::{Device, DeviceConfig};
use remap_ssd_ftl::SchemeKind;
use remap_ssd_nvme::controller::Subsystem;
use remap_ssd_nvme::tcp::client::{Client, Options};
use remap_ssd_nvme::tcp::server::{ConnectionLabel, Log, Server, Stopper};
use remap_ssd_nvme::tcp::target::{Allowed, Port};
use remap_ssd_store::{
    Create, LockFiles, NewVolume, OpenOptions, Processes, Store, StoreError, Volume,
};
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;

struct Silent;

impl Log for Silent {
    fn connection(&self, _: &ConnectionLabel<'_>, _: &str) {}
    fn server(&self, _: &str) {}
}

/// A served device with a volume, and two lock domains.
struct Rig {
    subsystem: Arc<Subsystem>,
    address: SocketAddr,
    stopper: Stopper,
    thread: Option<JoinHandle<()>>,
    _dir: tempfile::TempDir,
    here: Processes,
    there: Processes,
}

impl Rig {
    fn new() -> Self {
        let config =
            DeviceConfig::for_service(16 << 20, SchemeKind::RemapSsd, false).expect("possible");
        let device = Device::in_memory(config).expect("room for it");
        let nqn = "nqn.2026-11.test:tenancies";
        let subsystem = Subsystem::new(device, nqn, &[]);
        let subsystem = Arc::new(subsystem.expect("possible"));
        let allowed = Allowed {
            anybody: true,
            ..Allowed::default()
        };
        let port = Port::new(Arc::clone(&subsystem), allowed);
        let any = "127.0.0.1:0".parse().expect("an address");
        let server = Server::bind(any, port, Box::new(Silent)).expect("a free port");
        let (address, stopper) = (server.address(), server.stopper());
        let dir = tempfile::tempdir().expect("a folder");
        let domain = |name: &str| Processes::Several(dir.path().join(name));
        let rig = Self {
            subsystem,
            address: address.expect("bound"),
            stopper: stopper.expect("bound"),
            here: domain("here"),
            there: domain("there"),
            _dir: dir,
            thread: Some(std::thread::spawn(|| {
                server.run().expect("the device works")
            })),
        };
        let new = NewVolume {
            files_max: 16,
            ..NewVolume::default()
        };
        Volume::create(rig.disk(), &rig.here, &new, &mut |_, _| {}).expect("it is blank");
        rig
    }

    fn disk(&self) -> Client {
        Client::connect(self.address, Options::default()).expect("it serves")
    }

    fn open(&self, processes: &Processes) -> Result<Volume<Client>, StoreError> {
        Volume::open(self.disk(), processes)
    }

    /// Names of the domain's files.
    fn names(&self, processes: &Processes) -> Vec<String> {
        let entries = fs::read_dir(folder(processes)).expect("it is there");
        let names = entries.map(|entry| entry.expect("readable").file_name());
        names
            .map(|name| name.to_string_lossy().into_owned())
            .collect()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.stopper.stop();
        self.thread.take().map(JoinHandle::join);
    }
}

fn folder(processes: &Processes) -> &Path {
    let Processes::Several(folder) = processes else {
        panic!("a domain has a folder")
    };
    folder
}

fn refusal<R>(result: Result<R, StoreError>) -> String {
    match result {
        Err(error @ (StoreError::Held(_) | StoreError::Removed(_) | StoreError::FileInUse(_))) => {
            error.to_string()
        }
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it was not refused"),
    }
}

const NEW: OpenOptions = OpenOptions {
    create: Create::IfAbsent,
    open_end: false,
    written_next: false,
};

/// Appends bytes, without a sync.
fn append(volume: &Volume<Client>, bytes: usize) {
    let file = volume.open("a", NEW).expect("possible");
    let at = volume.size(file).expect("it is there");
    volume
        .write(file, at, &vec![7; bytes])
        .expect("there is room");
}

fn size(volume: &Volume<Client>) -> u64 {
    let file = volume
        .open("a", OpenOptions::default())
        .expect("it is there");
    volume.size(file).expect("it is there")
}

#[test]
fn another_domain_is_refused_until_the_last_process_of_the_first_one_has_left() {
    let rig = Rig::new();
    let first = rig.open(&rig.here).expect("it is free");
    let second = rig.open(&rig.here).expect("the same domain");
    append(&first, 5000);
    assert_eq!(size(&second), 5000);
    let sentence = refusal(rig.open(&rig.there));
    assert!(sentence.contains("in use by other processes"), "{sentence}");
    assert!(sentence.contains("2 processes"), "{sentence}");
    refusal(Volume::open(rig.disk(), &Processes::One));
    let new = NewVolume {
        force: true,
        ..NewVolume::default()
    };
    refusal(Volume::create(rig.disk(), &rig.there, &new, &mut |_, _| {}));

    drop(first);
    refusal(rig.open(&rig.there));
    append(&second, 1);
    drop(second);

    // The size was in no record before: there was no sync.
    let other = rig.open(&rig.there).expect("it is free");
    assert_eq!(size(&other), 5001);
    refusal(rig.open(&rig.here));
    append(&other, 1);
    drop(other);
    assert_eq!(
        size(&rig.open(&rig.here).expect("it is free")),
        5002,
        "the words of before count no more"
    );

    let left = rig.subsystem.reservations_of(1);
    assert!(left.registrants.is_empty() && !left.persists, "{left:?}");
    let names = [&rig.here, &rig.there].map(|domain| rig.names(domain));
    assert_eq!(
        names,
        [const { Vec::<String>::new() }; 2],
        "nothing is left"
    );
}

#[test]
fn who_has_the_volume_open_goes_on_when_all_files_are_removed_and_nobody_else_gets_in() {
    let rig = Rig::new();
    let first = rig.open(&rig.here).expect("it is free");
    let second = rig.open(&rig.here).expect("the same domain");
    append(&first, 5000);
    fs::remove_dir_all(folder(&rig.here)).expect("it is ours");

    // A new process finds no other users here, but the device does.
    refusal(rig.open(&rig.here));
    append(&second, 5000);
    append(&first, 1);
    assert_eq!(size(&second), 10_001);
    refusal(second.hold_file("a", false));

    drop((first, second));
    assert_eq!(size(&rig.open(&rig.here).expect("it is free")), 10_001);
}

/// Those who come after the locks were removed make locks of their own, and have not asked the device
/// yet when the process leaves that holds it.
#[test]
fn a_process_that_leaves_does_not_remove_the_locks_that_others_have_made_in_place_of_its_own() {
    let rig = Rig::new();
    let first = rig.open(&rig.here).expect("it is free");
    let mut locks = rig.names(&rig.here);
    locks.retain(|name| name.ends_with(".join") || name.ends_with(".use"));
    locks.sort_unstable();
    assert_eq!(locks.len(), 2, "{locks:?}");

    for lock in locks.iter().map(|name| folder(&rig.here).join(name)) {
        fs::remove_file(&lock).expect("it is ours");
        fs::File::create_new(&lock).expect("it was removed");
    }

    drop(first);
    let mut left = rig.names(&rig.here);
    left.sort_unstable();
    assert_eq!(left, locks);
    drop(rig.open(&rig.here).expect("it is free"));
    assert_eq!(rig.names(&rig.here), Vec::<String>::new());
}

#[test]
fn nothing_is_made_anew_for_a_tenancy_of_which_a_part_was_removed() {
    let rig = Rig::new();
    let first = rig.open(&rig.here).expect("it is free");
    append(&first, 5000);
    let own = first.folder().expect("it is one of several");
    fs::remove_file(own.join("words")).expect("it is there");
    let sentence = refusal(rig.open(&rig.here));
    assert!(sentence.contains("was removed"), "{sentence}");
    fs::remove_dir_all(&own).expect("it is there");
    refusal(rig.open(&rig.here));
    append(&first, 1);
    drop(first);
    assert_eq!(size(&rig.open(&rig.here).expect("it is free")), 5001);
}

#[test]
fn locks_of_host_software_that_were_removed_and_made_anew_are_refused() {
    let rig = Rig::new();
    let [first, second] = [(); 2].map(|()| rig.open(&rig.here).expect("the same domain"));
    append(&first, 1);
    let file = first
        .open("a", OpenOptions::default())
        .expect("it is there");
    let locks = |locks, memory| LockFiles { locks, memory };
    first
        .note_lock_files(file, locks(11, 0))
        .expect("none is noted");
    second
        .note_lock_files(file, locks(11, 12))
        .expect("the same");
    first.note_lock_files(file, locks(0, 12)).expect("the same");
    refusal(first.note_lock_files(file, locks(13, 0)));
    refusal(second.note_lock_files(file, locks(0, 13)));
    refusal(second.note_lock_files(file, locks(u64::MAX, 0)));

    // A new file in its place has locks of its own.
    first.delete("a").expect("it is there");
    append(&first, 1);
    let file = first
        .open("a", OpenOptions::default())
        .expect("it is there");
    first
        .note_lock_files(file, locks(13, 0))
        .expect("none is noted");
}

#[test]
fn a_file_that_is_open_cannot_be_had_alone_nor_opened_meanwhile() {
    let rig = Rig::new();
    let [first, second] = [(); 2].map(|()| rig.open(&rig.here).expect("the same domain"));
    let open = [&first, &second].map(|volume| volume.hold_file("a/%b", false).expect("shared"));
    let sentence = refusal(second.hold_file("a/%b", true));
    assert!(
        sentence.contains("a/%b is open in another process"),
        "{sentence}"
    );
    second.hold_file("b", true).expect("it is another one");
    drop(open);
    let alone = second.hold_file("a/%b", true).expect("it is free");
    refusal(first.hold_file("a/%b", false));
    drop(alone);
    first.hold_file("a/%b", false).expect("it is free");
}

#[test]
fn a_volume_whose_reservation_an_operator_took_away_is_lost_for_good() {
    let rig = Rig::new();
    let volume = rig.open(&rig.here).expect("it is free");
    append(&volume, 5000);
    rig.subsystem.release_reservations(1).expect("it is there");
    let file = volume
        .open("a", OpenOptions::default())
        .expect("it is remembered");
    let lost = || {
        volume
            .write(file, 0, &[1])
            .expect_err("it is lost")
            .to_string()
    };
    assert!(lost().contains("close what is open"));
    refusal(rig.open(&rig.here));

    // Another tenancy holds it, and leaves: nothing changes.
    drop(rig.open(&rig.there).expect("it is free"));
    assert!(lost().contains("close what is open"));
    assert!(volume.still_held().is_err());
    drop(volume);
    rig.open(&rig.here).expect("it is free");
}

/// How often each process opens and closes the volume, while others do.
const COMINGS: u64 = 100;

/// Opens the volume, appends a byte to a file of its own and closes the volume, again and again.
#[test]
#[ignore = "another test starts this one, in a process of its own"]
fn process_that_comes_and_goes() {
    let part = std::env::var("TENANCIES_PART").expect("another test starts this one");
    let [address, folder, name] = part.split(' ').collect::<Vec<_>>()[..] else {
        panic!("an address, a folder and a name");
    };
    for round in 0..COMINGS {
        let disk = Client::connect(address, Options::default()).expect("it serves");
        let volume = Volume::open(disk, &Processes::Several(folder.into()));
        let volume = volume.unwrap_or_else(|error| panic!("round {round}: {error}"));
        let file = volume.open(name, NEW).expect("possible");
        assert_eq!(volume.size(file).expect("it is there"), round);
        volume.write(file, round, &[7]).expect("there is room");
    }
}

/// The locks are removed each time that the last of them leaves, while others come.
#[test]
fn processes_that_come_while_the_last_one_leaves_are_never_refused() {
    let rig = Rig::new();
    let binary = std::env::current_exe().expect("it runs");
    let names = ["one", "two", "three", "four"];
    let processes: Vec<_> = names
        .iter()
        .map(|name| {
            let part = format!("{} {} {name}", rig.address, folder(&rig.here).display());
            Command::new(&binary)
                .args([
                    "--exact",
                    "tenancies::process_that_comes_and_goes",
                    "--ignored",
                ])
                .env("TENANCIES_PART", part)
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("it starts")
        })
        .collect();
    for process in processes {
        let output = process.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}");
    }

    let volume = rig.open(&rig.here).expect("it is free");
    for name in names {
        let file = volume.open(name, OpenOptions::default());
        let size = volume.size(file.expect("it is there"));
        assert_eq!(size.expect("it is there"), COMINGS, "{name}");
    }
    drop(volume);
    assert_eq!(rig.names(&rig.here), Vec::<String>::new());
}

/// Opens the volume in a domain, appends and dies.
#[test]
#[ignore = "another test starts this one, in a process of its own"]
fn process_that_dies() {
    let part = std::env::var("TENANCIES_PART").expect("another test starts this one");
    let (address, folder) = part.split_once(' ').expect("an address and a folder");
    let disk = Client::connect(address, Options::default()).expect("it serves");
    let volume = Volume::open(disk, &Processes::Several(folder.into())).expect("the domain has it");
    append(&volume, 5000);
    let file = volume.open("a", NEW).expect("it is there");
    let locks = LockFiles {
        locks: std::process::id().into(),
        memory: 0,
    };
    volume
        .note_lock_files(file, locks)
        .expect("no running process has noted any");
    std::process::abort();
}

fn die(rig: &Rig, processes: &Processes) {
    let binary = std::env::current_exe().expect("it runs");
    let status = Command::new(binary)
        .args(["--exact", "tenancies::process_that_dies", "--ignored"])
        .env(
            "TENANCIES_PART",
            format!("{} {}", rig.address, folder(processes).display()),
        )
        .output()
        .expect("it starts")
        .status;
    assert!(!status.success(), "it was aborted");
}

// Independent of the server's detection: the domain knows that they are dead.
#[test]
fn after_processes_that_died_their_domain_goes_on_at_once_with_what_they_had_written() {
    let rig = Rig::new();
    for round in 1..=5 {
        die(&rig, &rig.here);
        let volume = rig.open(&rig.here).expect("its process has ended");
        assert_eq!(size(&volume), 5000 * round, "no sync was needed");
        if round % 2 == 0 {
            std::mem::drop(volume);
        } else {
            // Surviving processes keep it.
            let second = rig.open(&rig.here).expect("the same domain");
            drop(volume);
            refusal(rig.open(&rig.there));
            drop(second);
        }
    }
    assert_eq!(
        rig.names(&rig.here),
        Vec::<String>::new(),
        "nothing is left"
    );
}

// The server detects that they are gone, without any of their files.
#[test]
fn after_processes_that_died_another_domain_gets_the_volume() {
    let rig = Rig::new();
    for _ in 0..3 {
        die(&rig, &rig.here);
        let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
        let volume = loop {
            match rig.open(&rig.there) {
                Ok(volume) => break volume,
                Err(error) => assert!(std::time::Instant::now() < until, "{error}"),
            }
        };
        append(&volume, 1);
        let before = size(&volume);
        drop(volume);
        assert_eq!(
            size(&rig.open(&rig.here).expect("it is free")),
            before,
            "older words do not count"
        );
    }
}
