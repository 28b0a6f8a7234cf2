//! `image`, `serve` and `io` as users see them: processes, ports and files.

mod hosts;

use crate::kit::{Words, file, path, run};
use crate::served::serve;

#[test]
fn a_device_in_a_folder_serves_copies_without_programs_and_survives_the_end_of_its_server() {
    let dir = tempfile::tempdir().expect("a folder");
    let image = path(dir.path(), "disk");
    let image = image.as_str();
    let made = run(&format!(
        "image create {image} --size 64MiB --dedup off --json"
    ))
    .ok()
    .json();
    assert_eq!(made["dedup"], false);
    run(&["image", "create", image, "--size", "64MiB"]).fails_in_one_line(1, &["not empty"]);
    let data: Vec<u8> = (0..300 * 4096u32)
        .map(|byte| (byte / 4096 + byte) as u8)
        .collect();
    let (source, back) = (
        file(dir.path(), "data", &data),
        file(dir.path(), "back", b""),
    );
    let served = serve(&["--image", image]);
    run(&["serve", "--image", image, "--listen", "127.0.0.1:0"]).fails_in_one_line(1, &["in use"]);
    served.io(&["write", "--lba", "10", "--file", &source]).ok();
    let before = served.stat("flash_pages");
    served.io("copy --from 10 --to 5000 --blocks 300").ok();
    served
        .io("remap --from 5000 --to 9000 --blocks 300 --relocate --atomic")
        .fails(1, &["atomic"]);
    let relocated = served
        .io("remap --from 5000 --to 9000 --blocks 200 --relocate")
        .ok();
    assert_eq!(relocated.out, "0 pages copied instead\n");
    assert_eq!(served.stat("flash_pages"), before, "nothing was programmed");

    let onto = |target: u32| {
        let target = target.to_string();
        let args = ["remap", "--from", "10", "--to", &target];
        served.io(&args).ok().out
    };
    let said: Vec<String> = (12_000..12_014).map(onto).collect();
    assert_eq!(
        said.last().map(String::as_str),
        Some("1 page copied instead: reference counter full\n")
    );
    served.kill();
    let served = serve(&["--image", image]);
    let read = |lba: &str, blocks: &str| {
        served
            .io(&["read", "--lba", lba, "--blocks", blocks, "--file", &back])
            .ok();
        std::fs::read(&back).expect("written")
    };
    assert!(read("10", "300") == data);
    assert!(read("9000", "200") == data[..200 * 4096]);
    assert!(
        read("5000", "200").iter().all(|byte| *byte == 0),
        "relocated"
    );
    assert!(read("5200", "100") == data[200 * 4096..]);
    served.io("trim --lba 10 --blocks 300").ok();
    served.io("flush").ok();
    assert!(read("10", "300").iter().all(|byte| *byte == 0));
    served
        .io("read --lba 16384")
        .fails_in_one_line(1, &["out of range"]);
    // Two Copies of 16 MiB, which is the limit, and another of a page.
    assert_eq!(served.io("id --json").ok().json()["copy_blocks_max"], 4096);
    let long: Vec<u8> = (0..8193 * 1024u32)
        .flat_map(|number| (number / 1000).to_le_bytes())
        .collect();
    let written = file(dir.path(), "long", &long);
    served.io(&["write", "--lba", "0", "--file", &written]).ok();
    let before = served.stat("flash_pages");
    served.io("copy --from 0 --to 8191 --blocks 8193").ok();
    assert_eq!(served.stat("flash_pages"), before, "nothing was programmed");
    assert!(read("8191", "8193") == long, "over two pages of the source");
    served.io("trim --lba 0 --blocks 16384").ok();
    let smart = served.io("stat --json").ok().json();
    assert_eq!(
        (
            &smart["smart"]["power_cycles"],
            &smart["smart"]["unsafe_shutdowns"]
        ),
        (&2.into(), &1.into())
    );
    served.stop();
    run(&["inspect", image, "--json"]).ok().json();
    let served = serve(&["--image", image]);
    assert_eq!(served.stat("remaps"), 0, "counters are since power-on");
    served.stop();
}

#[test]
fn a_name_to_listen_on_is_all_its_addresses() {
    use std::net::{TcpListener, ToSocketAddrs};
    let found = "localhost:0".to_socket_addrs().expect("it has an address");
    let mut addresses: Vec<_> = found.map(|one| one.ip()).collect();
    addresses.sort_unstable();
    addresses.dedup();
    // Only those that this machine can listen on.
    if addresses
        .iter()
        .any(|one| TcpListener::bind((*one, 0)).is_err())
    {
        addresses.retain(std::net::IpAddr::is_ipv4);
        eprintln!("this machine has no IPv6: one address is tried");
    }

    let name = if addresses.len() > 1 {
        "localhost:0"
    } else {
        "127.0.0.1:0"
    };
    let served = serve(&format!(
        "--memory 32MiB --listen {name} --listen 127.0.0.2:0"
    ));
    served.logged("127.0.0.2:");
    let said = served.log();
    let listening: Vec<String> = served
        .opening
        .iter()
        .chain(&said)
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter_map(|line| Some(line["fields"]["address"].as_str()?.to_owned()))
        .collect();
    // `serve` appends an address of its own.
    for address in addresses
        .iter()
        .map(ToString::to_string)
        .chain(["127.0.0.2".into()])
    {
        let at = listening
            .iter()
            .find(|one| one.trim_start_matches('[').starts_with(&address));
        let at = at.unwrap_or_else(|| panic!("{address} in {listening:?}"));
        run(&["io", "--connect", at, "id"]).ok();
    }
    served.stop();
}

#[test]
fn mistakes_in_service_are_sentences() {
    run("serve").fails(2, &["--image"]);
    run("serve --memory 32MiB --listen 0.0.0.0:4420")
        .fails_in_one_line(2, &["--keys", "--insecure"]);
    run("serve --memory 32MiB --listen 0.0.0.0:4420 --insecure").fails_in_one_line(2, &["--allow"]);
    for host in ["192.168.1.7/24", "no*such*host", ""] {
        run(&["serve", "--memory", "32MiB", "--allow", host]).fails_in_one_line(2, &["no network"]);
    }
    // One address that others can reach is enough.
    let both = ["--listen", "127.0.0.1:0", "--listen", "0.0.0.0:0"];
    run(&"serve --memory 32MiB".and(&both))
        .fails_in_one_line(2, &["0.0.0.0:0 can be reached", "--keys"]);
    for (host, why) in [
        (
            "nqn.a until=2027-06-30",
            "only this may follow: namespaces=",
        ),
        ("nqn.a namespaces=1", "namespaces: a list like 1:rw,2:ro"),
        (
            "nqn.a namespaces=1:rw namespaces=2:rw",
            "only this may follow",
        ),
    ] {
        run(&["serve", "--memory", "32MiB", "--allow", host]).fails_in_one_line(2, &[why, host]);
    }
    for (flag, value) in [
        ("--listen", "disk1.invalid:0"),
        ("--allow", "disk1.invalid"),
    ] {
        run(&["serve", "--memory", "32MiB", flag, value])
            .fails_in_one_line(2, &[&format!("{flag} disk1.invalid: "), "name"]);
    }
    for wrong in [
        "127.0.0.1",
        "::1:4420",
        "disk:",
        "disk:70000",
        "a b:1",
        ":1",
    ] {
        run(&["serve", "--memory", "32MiB", "--listen", wrong])
            .fails(2, &["[2001:db8::1]:4420, or a name and a port"]);
    }
    run("serve --memory 32MiB --listen 192.0.2.1:0 --allow nqn.a --insecure")
        .fails_in_one_line(1, &["192.0.2.1:0: ", "no address of this machine"]);
    run("io --connect 127.0.0.1:1 id").fails_in_one_line(1, &["127.0.0.1:1"]);
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().to_str().expect("text");
    run(&["serve", "--image", path]).fails_in_one_line(1, &["not a device image"]);
    let small = dir.path().join("x");
    run(&format!("image create {path} --size 16MiB --dedup perhaps")).fails(2, &["on or off"]);
    run("serve --memory 32MiB --advertise here")
        .fails(2, &["an address, or an address and a port"]);
    run(&[
        "image",
        "create",
        small.to_str().expect("text"),
        "--size",
        "1MiB",
    ])
    .fails_in_one_line(2, &["16 MiB"]);
    let file = file(dir.path(), "file", b"not a socket");
    run(&["serve", "--memory", "32MiB", "--vfio-user", &file])
        .fails_in_one_line(1, &[&file, "not a socket"]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("bound").to_string();
    run(&["serve", "--memory", "32MiB", "--listen", &address])
        .fails_in_one_line(1, &["in use", "--listen"]);
}

/// Connections wait in system calls that a stop (SIGSTOP) interrupts.
#[test]
fn a_service_that_is_stopped_and_goes_on_keeps_its_connections() {
    let served = serve("--memory 32MiB");
    let mut host = served.host();
    for round in 0..20 {
        served.signal("STOP");
        served.signal("CONT");
        host.read(round, 1).expect("the connection is there");
        host.keep_alive().expect("the connection is there");
    }
    served.stop();
}
