//! A device served inside a program: with no arguments, signals or printing.

use remap_ssd_nvme::tcp::client::{Client, Options};
use remap_ssd_service::{Service, ServiceError, Shape, Spec, image};

#[test]
fn a_program_serves_an_image_stops_it_and_serves_it_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let shape = Shape {
        size: Some(64 << 20),
        ..Shape::default()
    };
    let (_, file) = image::create(folder.path(), &shape).expect("an image");

    for round in 0..2u8 {
        let spec = Spec {
            listen: vec!["127.0.0.1:0".parse().expect("an address")],
            ..Spec::image(folder.path())
        };
        let service = Service::open(spec).expect("it opens");
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
fn a_mistake_in_the_description_is_told_from_a_failure() {
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
