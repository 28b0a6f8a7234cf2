//! A device served inside a program: with no arguments, signals or printing.

use remap_ssd_device::{Device, DeviceConfig, Lpn};
use remap_ssd_http::{Refused, Watched};
use remap_ssd_media::Payload;
use remap_ssd_nvme::controller::{Gate, Subsystem};
use remap_ssd_nvme::tcp::client::{Client, Options};
use remap_ssd_service::{
    Advertised, Played, PlayedOptions, SchemeKind, Served, Service, ServiceError, Shape, Spec,
    image,
};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A shape of 64 MiB.
fn small() -> Shape {
    Shape {
        size: Some(64 << 20),
        ..Shape::default()
    }
}

/// An image in a new folder.
fn made() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    image::create(folder.path(), &small()).expect("an image");
    folder
}

/// Serves the image on the loopback, at a free port.
fn on_loopback(dir: &Path) -> Spec {
    Spec {
        listen: vec!["127.0.0.1:0".parse().expect("an address")],
        ..Spec::image(dir)
    }
}

/// What the image keeps of its last service; null if it was never served.
fn kept(dir: &Path) -> serde_json::Value {
    let text = std::fs::read_to_string(dir.join("health.json")).unwrap_or_else(|_| "null".into());
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn a_program_serves_an_image_stops_it_and_serves_it_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_, file) = image::create(folder.path(), &small()).expect("an image");

    for round in 0..2u8 {
        let service = Service::open(on_loopback(folder.path())).expect("it opens");
        assert_eq!(service.nqn(), file.nqn);
        let (address, handle) = (service.addresses()[0], service.handle());
        let served = std::thread::spawn(|| service.serve());

        let mut host = Client::connect(address, Options::default()).expect("a connection");
        let before = host.read(0, 1).expect("it is read");
        assert_eq!(before, [round; 4096], "what the round before wrote");
        host.write(0, &[round + 1; 4096]).expect("it is written");

        handle.stop();
        let served = served.join().expect("no panic");
        assert_eq!(served, Ok(()));
    }
    let found = image::check(folder.path()).expect("it is checked");
    assert!(found.is_clean(), "{:?}", found.damage);
}

#[test]
fn a_mistake_in_the_description_is_distinguished_from_a_failure() {
    let none = Service::open(Spec {
        shape: Shape {
            namespaces: Some(0),
            ..Shape::default()
        },
        ..Spec::memory(64 << 20)
    });
    assert!(matches!(none.err(), Some(ServiceError::Usage(_))));

    let elsewhere = Service::open(Spec {
        listen: vec!["0.0.0.0:0".parse().expect("an address")],
        ..Spec::memory(64 << 20)
    });
    assert!(matches!(elsewhere.err(), Some(ServiceError::Usage(_))));

    let folder = tempfile::tempdir().expect("a folder");
    let missing = Service::open(Spec::image(folder.path().join("none")));
    assert!(matches!(missing.err(), Some(ServiceError::Failed(_))));
}

#[test]
fn hosts_guests_and_operators_that_connect_early_wait_until_the_image_is_marked_as_in_use() {
    let (folder, sockets) = (made(), tempfile::tempdir().expect("a folder"));
    let socket = sockets.path().join("vfio");
    let service = Service::open(Spec {
        vfio_user: Some(socket.clone()),
        http: Some("127.0.0.1:0".parse().expect("an address")),
        ..on_loopback(folder.path())
    })
    .expect("it opens");
    let (address, handle) = (service.addresses()[0], service.handle());

    // A request for the state, and a message of vfio-user.
    let http = service.http_address().expect("it listens");
    let mut operator = TcpStream::connect(http).expect("a connection");
    operator
        .write_all(format!("GET /readyz HTTP/1.1\r\nHost: {http}\r\n\r\n").as_bytes())
        .expect("it is sent");
    let mut guest = UnixStream::connect(&socket).expect("a connection");
    guest
        .write_all(&[1, 0, 1, 0, 3, 0, 0, 0])
        .expect("it is sent");
    guest.write_all(&[0; 8]).expect("it is sent");
    let host = std::thread::spawn(move || Client::connect(address, Options::default()));

    // No answer may ever come: waiting longer would not change the verdict.
    let moment = Some(Duration::from_millis(300));
    operator.set_read_timeout(moment).expect("a time limit");
    guest.set_read_timeout(moment).expect("a time limit");
    let early = |read: std::io::Result<usize>| read.map_err(|error| error.kind());
    assert_eq!(early(operator.read(&mut [0])), Err(ErrorKind::WouldBlock));
    assert_eq!(early(guest.read(&mut [0])), Err(ErrorKind::WouldBlock));
    assert!(kept(folder.path()).is_null(), "it was not served yet");

    let served = std::thread::spawn(|| service.serve());
    operator.set_read_timeout(None).expect("no time limit");
    let mut answer = String::new();
    operator
        .read_to_string(&mut answer)
        .expect("it is answered");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(kept(folder.path())["clean"], false);
    assert_eq!(kept(folder.path())["health"]["power_cycles"], 1);

    drop(guest);
    let mut host = host.join().expect("no panic").expect("a connection");
    host.write(0, &[1; 4096]).expect("it is written");
    drop(host);
    handle.stop();
    assert_eq!(served.join().expect("no panic"), Ok(()));
    assert_eq!(kept(folder.path())["clean"], true);
    assert!(!socket.exists(), "the socket is removed");
}

#[test]
fn a_service_that_is_dropped_before_it_serves_leaves_an_image_that_opens_and_no_recording() {
    let (folder, files) = (made(), tempfile::tempdir().expect("a folder"));
    let spec = Spec {
        vfio_user: Some(files.path().join("vfio")),
        record: Some(files.path().join("trace")),
        http: Some("127.0.0.1:0".parse().expect("an address")),
        ..on_loopback(folder.path())
    };

    for _ in 0..2 {
        let service = Service::open(spec.clone()).expect("it opens");
        let http = service.http_address().expect("it listens");
        let mut operator = TcpStream::connect(http).expect("a connection");
        drop(service);
        assert!(is_closed(&mut operator), "nothing listens");
        let left = std::fs::read_dir(files.path()).expect("a folder").count();
        assert_eq!(left, 0, "neither a recording nor a socket is left");
    }

    // A stop that comes first ends the service when it begins, and its recording is kept.
    let service = Service::open(spec).expect("it opens");
    service.handle().stop();
    assert_eq!(service.serve(), Ok(()));
    assert!(files.path().join("trace").exists());
    assert_eq!(kept(folder.path())["clean"], true);
}

#[test]
fn a_service_that_cannot_begin_closes_everything_and_counts_no_unsafe_shutdown() {
    let (folder, files) = (made(), tempfile::tempdir().expect("a folder"));
    let service = Service::open(Spec {
        vfio_user: Some(files.path().join("vfio")),
        record: Some(files.path().join("trace")),
        fuse: Some(files.path().join("missing")),
        http: Some("127.0.0.1:0".parse().expect("an address")),
        ..on_loopback(folder.path())
    })
    .expect("it opens");
    let (address, http) = (service.addresses()[0], service.http_address());

    let peers = [address, http.expect("it listens")].map(TcpStream::connect);

    assert!(matches!(service.serve(), Err(ServiceError::Failed(_))));
    for peer in peers {
        assert!(
            is_closed(&mut peer.expect("a connection")),
            "nothing listens"
        );
    }
    let left = std::fs::read_dir(files.path()).expect("a folder").count();
    assert_eq!(left, 0, "neither a recording nor a socket is left");

    assert_eq!(kept(folder.path())["clean"], true);
    let service = Service::open(on_loopback(folder.path())).expect("it opens");
    service.handle().stop();
    assert_eq!(service.serve(), Ok(()));
    assert_eq!(kept(folder.path())["health"]["unsafe_shutdowns"], 0);
}

#[test]
fn an_image_that_could_not_be_opened_is_not_created() {
    let shape = |change: fn(&mut Shape)| {
        let mut shape = small();
        change(&mut shape);
        shape
    };
    let wrong = [
        shape(|shape| shape.block = Some(1024)),
        shape(|shape| shape.block = Some(1000)),
        shape(|shape| shape.nqn = Some("disk".into())),
        shape(|shape| shape.nqn = Some(format!("nqn.{}", "x".repeat(220)))),
        shape(|shape| shape.unshared = vec![0]),
        shape(|shape| shape.unshared = vec![2]),
    ];

    let folder = tempfile::tempdir().expect("a folder");
    for shape in wrong {
        let dir = folder.path().join("image");
        let made = image::create(&dir, &shape);
        assert!(
            matches!(made, Err(ServiceError::Usage(_))),
            "{made:?} of {shape:?}"
        );
        assert!(!dir.exists(), "nothing is left of {shape:?}");
    }
}

#[test]
fn a_field_that_would_have_no_effect_is_refused() {
    let folder = made();
    let spec = |change: fn(&mut Spec)| {
        let mut spec = on_loopback(folder.path());
        change(&mut spec);
        spec
    };
    const ELSEWHERE: Advertised = Advertised {
        address: IpAddr::V4(Ipv4Addr::LOCALHOST),
        port: None,
    };
    // Only guests, which neither use discovery nor authenticate.
    let without_tcp = |change: fn(&mut Spec)| {
        let mut spec = Spec::image(folder.path());
        spec.vfio_user = Some(folder.path().join("vfio"));
        change(&mut spec);
        spec
    };
    let wrong = [
        spec(|spec| spec.cut_seed = Some(1)),
        spec(|spec| spec.memory_limit = 4096),
        spec(|spec| spec.volatile_cache = Some(4096)),
        spec(|spec| spec.http_token = Some("token".into())),
        spec(|spec| (spec.insecure, spec.keys) = (true, Some("keys".into()))),
        spec(|spec| spec.shape.set = vec!["firmware.gc_free=0.2".parse().expect("a setting")]),
        spec(|spec| spec.shape.size = Some(u64::MAX)),
        without_tcp(|spec| spec.advertise = Some(ELSEWHERE)),
        without_tcp(|spec| spec.keys = Some("keys".into())),
        without_tcp(|spec| spec.allow = vec!["127.0.0.1".into()]),
        without_tcp(|spec| spec.insecure = true),
    ];
    for (at, spec) in wrong.into_iter().enumerate() {
        let opened = Service::open(spec).err();
        assert!(
            matches!(opened, Some(ServiceError::Usage(_))),
            "{at}: {opened:?}"
        );
    }
    // Settings are checked for the image: without them it opens.
    Service::open(on_loopback(folder.path())).expect("it opens");
}

/// Returns true if the other side has closed the connection.
fn is_closed(stream: &mut TcpStream) -> bool {
    // Closed by the system at once; the limit ends a test that would fail.
    let limit = Some(Duration::from_secs(60));
    stream.set_read_timeout(limit).expect("a time limit");
    match stream.read(&mut [0]) {
        Ok(read) => read == 0,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

fn device() -> Device {
    let config =
        DeviceConfig::for_service(32 << 20, SchemeKind::default(), false).expect("possible");
    Device::in_memory(config).expect("possible")
}

#[test]
fn an_impossible_speed_is_refused() {
    for speed in [f64::NAN, f64::INFINITY, -1.0, 1e7] {
        let options = PlayedOptions {
            queue_depth: 1,
            pages_total: 1,
            speed,
        };
        let played = Played::new("a workload".into(), device(), options);
        assert!(matches!(played.err(), Some(ServiceError::Usage(_))));
    }
}

#[test]
fn a_log_level_that_cannot_be_changed_is_not_reported_as_changed() {
    let nqn = "nqn.2026-11.test:remap-ssd";
    let subsystem = Subsystem::new(device(), nqn, &[]);
    let gate = Arc::new(Gate::new(Arc::new(subsystem.expect("possible"))));
    let served = Served::new(gate, Instant::now(), None, nqn, None, Arc::new(()));

    let level = |level: &str| served.act("log", &serde_json::json!({ "level": level }));
    assert!(matches!(level("debug"), Err(Refused::Failed(_))));
    assert!(matches!(level("loud"), Err(Refused::Usage(_))));
}

/// A shape of 64 MiB with these settings.
fn shaped(settings: &[&str]) -> Shape {
    let set = settings.iter().map(|one| one.parse().expect("valid"));
    Shape {
        set: set.collect(),
        ..small()
    }
}

// Programs in SLC mode fill word lines in another order than rows; the copy is made while the last word lines are not full.
#[test]
fn a_copy_of_a_served_image_with_an_slc_cache_has_all_pages() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path().join("disk");
    let shape = shaped(&[
        "timing.engine=nand",
        "background.lookup_stalls_dies=false",
        "geometry.cell_bits=3",
        "geometry.pages_per_block=192",
        "firmware.slc_share=0.1",
    ]);
    image::create(&dir, &shape).expect("an image");
    let (device, _) = Device::open_in_folder(&dir).expect("an image");

    let nqn = "nqn.2026-11.test:remap-ssd";
    let subsystem = Subsystem::new(device, nqn, &[]);
    let subsystem = Arc::new(subsystem.expect("possible"));
    let gate = Arc::new(Gate::new(Arc::clone(&subsystem)));
    let served = Served::new(
        Arc::clone(&gate),
        Instant::now(),
        Some(&dir),
        nqn,
        None,
        Arc::new(()),
    );

    for (round, pages) in [1, 7, 50, 333].into_iter().enumerate() {
        for lpn in 0..pages {
            let bytes = [(1 + lpn % 250) as u8; 4096];
            let written = subsystem
                .device()
                .write(0, Lpn(lpn), &Payload::Bytes(&bytes));
            written.result.expect("there is room");
        }
        let to = folder.path().join(format!("copy-{round}"));
        let to_text = serde_json::json!({ "to": to.to_str().expect("text") });
        served.act("snapshot", &to_text).expect("room for it");

        let found = image::check(&to).expect("it is checked");
        assert!(found.is_clean(), "{:?} {:?}", found.damage, found.beyond);
        assert_eq!(found.mapped, u64::from(pages));
    }
}

// A host may make a namespace that ends inside a unit. The rest of the unit cannot be written, so no page of it is lost.
#[test]
fn the_rest_of_a_namespaces_last_unit_is_not_reported_as_mapped_pages_outside() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path().join("disk");
    let shape = shaped(&[
        "geometry.page_bytes=16384",
        "geometry.indirection_bytes=16384",
        "geometry.pages_per_block=256",
    ]);
    image::create(&dir, &shape).expect("an image");
    let (mut device, _) = Device::open_in_folder(&dir).expect("an image");
    for lpn in (0..8).map(Lpn) {
        let written = device.write(0, lpn, &Payload::Bytes(&[9; 4096]));
        written.result.expect("there is room");
    }
    drop(device.close().expect("the disk works"));

    for (pages, outside) in [(8, 0), (5, 0), (4, 4), (3, 4)] {
        let list = serde_json::json!({
            "nqn": "nqn.2026-11.test:small", "namespaces": [{"pages": pages, "block_bytes": 4096}],
        });
        std::fs::write(dir.join("service.json"), list.to_string()).expect("room for it");
        image::repair(&dir).expect("accepted");
        let found = image::check(&dir).expect("it is checked");
        assert_eq!(found.mapped, 8);
        assert_eq!(
            image::mapped_outside(&dir, &found),
            outside,
            "{pages} pages"
        );
    }
}
