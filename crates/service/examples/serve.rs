//! Serves a device in memory over NVMe/TCP until a line is read from standard input.
//!
//! cargo run -p remap-ssd-service --example serve

use remap_ssd_service::{Service, Spec};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let service = Service::open(Spec {
        listen: vec!["127.0.0.1:0".parse()?],
        ..Spec::memory(64 << 20)
    })?;
    println!("{} at {:?}", service.nqn(), service.addresses());

    let handle = service.handle();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_line(&mut String::new());
        handle.stop();
    });
    Ok(service.serve()?)
}
