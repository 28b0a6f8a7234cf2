//! The socket: who may connect to it, and what becomes of messages that make no sense. A file of
//! its own, since it looks at what the whole process writes when it panics.

use remap_ssd_device::{Device, DeviceConfig};
use remap_ssd_ftl::SchemeKind;
use remap_ssd_nvme::controller::Subsystem;
use remap_ssd_vfio::Service;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

static PANICS: AtomicUsize = AtomicUsize::new(0);

#[test]
fn its_owner_alone_may_connect_and_nonsense_is_a_few_lines_of_the_log() {
    std::panic::set_hook(Box::new(|_| {
        PANICS.fetch_add(1, Ordering::SeqCst);
    }));
    // Whatever the process lets others do with its files.
    rustix::process::umask(rustix::fs::Mode::empty());
    let config =
        DeviceConfig::for_service(32 << 20, SchemeKind::RemapSsd, false).expect("possible");
    let device = Device::format(config).expect("possible");
    let nqn = "nqn.2026-11.test:remap-ssd";
    let subsystem = Subsystem::new(device, nqn, &[]).expect("possible");
    let subsystem = Arc::new(subsystem);
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("socket");
    let lines = Arc::new(Mutex::new(Vec::new()));
    let log = lines.clone();
    let log = Box::new(move |line: &str| {
        log.lock()
            .expect("nothing fails here")
            .push(line.to_owned())
    });
    let service = Service::start(&subsystem, &path, Instant::now(), log).expect("possible");

    let mode = std::fs::metadata(&path)
        .expect("there")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600, "its owner alone");

    // Version, of fewer bytes than its header has; then of bytes that are no text.
    for round in 0..60u8 {
        let mut stream = UnixStream::connect(&path).expect("it listens");
        stream
            .set_read_timeout(Some(Duration::from_secs(5)))
            .expect("a time");
        let size: u32 = if round % 2 == 0 { 3 } else { 24 };
        let mut message = Vec::new();
        message.extend(1u16.to_ne_bytes());
        message.extend(1u16.to_ne_bytes());
        message.extend(size.to_ne_bytes());
        message.extend([0; 8]);
        message.extend([round; 8]);
        stream.write_all(&message).expect("taken");
        let mut answer = Vec::new();
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.read_to_end(&mut answer);
    }
    service.close().expect("nothing failed");
    let lines = lines.lock().expect("nothing fails here").clone();
    assert!((1..30).contains(&lines.len()), "{} lines", lines.len());
    assert!(
        lines.iter().any(|line| line.contains("malformed")),
        "{lines:#?}"
    );
    assert!(
        lines.iter().any(|line| line.contains("not logged")) || lines.len() < 20,
        "{lines:#?}"
    );
    assert_eq!(PANICS.load(Ordering::SeqCst), 0, "panics were written");
}
