//! A crash test of a custom log: an append-only file whose records are acknowledged after
//! `fdatasync`.
//!
//!     cargo run -p remap-ssd-torture --example own_log                # every cut must pass
//!     cargo run -p remap-ssd-torture --example own_log -- --no-sync   # a loss must be found
//!
//! The program runs itself as workload and as check, on the raw disk (`$FILE`), so that it needs
//! FUSE but not root. A record is 512 bytes: its number, and a checksum over it. Each
//! acknowledgement is a mark.

use remap_ssd_torture::{
    Campaign, Code, DiskGeometry, Recording, RecordingSpec, TortureError, id, record,
};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

const RECORDS: u64 = 60;
const RECORD_BYTES: usize = 512;
const CUTS: u64 = 200;

fn record_of(number: u64) -> [u8; RECORD_BYTES] {
    let mut bytes = [0; RECORD_BYTES];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    let sum = blake3::hash(&bytes[..8]);
    bytes[8..40].copy_from_slice(sum.as_bytes());
    bytes
}

/// The program under test: a log. With `sync` it acknowledges only durable records.
fn append(sync: bool) -> std::io::Result<()> {
    let log = OpenOptions::new().write(true).open(variable("FILE"))?;
    let mut marks = OpenOptions::new().write(true).open(variable("MARKS"))?;
    for number in 1..=RECORDS {
        log.write_all_at(&record_of(number), (number - 1) * RECORD_BYTES as u64)?;
        if sync {
            log.sync_data()?;
        }
        marks.write_all(format!("{number}\n").as_bytes())?;
    }
    Ok(())
}

/// Invariant after a cut: each acknowledged record is present and intact.
fn check() -> std::io::Result<bool> {
    let acknowledged = std::fs::read_to_string(variable("MARKS"))?;
    let log = File::open(variable("FILE"))?;
    let mut bytes = [0; RECORD_BYTES];
    for number in acknowledged.lines().filter_map(|line| line.parse().ok()) {
        log.read_exact_at(&mut bytes, (number - 1) * RECORD_BYTES as u64)?;
        if bytes != record_of(number) {
            println!("record {number} is lost");
            return Ok(false);
        }
    }
    Ok(true)
}

fn variable(name: &str) -> String {
    std::env::var(name).expect("torture sets it")
}

/// Records a run of this program.
fn recorded(arguments: &str, stop: &AtomicBool) -> Result<Recording, TortureError> {
    let program = std::env::current_exe()?;
    let run = RecordingSpec {
        // Blocks of 512 bytes, so that pages tear.
        shape: DiskGeometry {
            block_bytes: 512,
            blocks: 2048,
        },
        fs: None,
        nvme_tcp: false,
        workload: format!("'{}' append {arguments}", program.display()),
        limit: None,
        writeback: None,
        seed: 1,
        faults: Vec::new(),
    };
    record(&run, &format!("'{}' check", program.display()), stop)
}

/// Cuts until a check fails; returns the code of that cut.
fn first_failure(recording: &Recording, stop: &AtomicBool) -> Result<Option<Code>, TortureError> {
    let limit = Duration::from_secs(60);
    let mut campaign = Campaign::new(recording, &recording.about.check, limit, stop)?;
    for round in 0..CUTS {
        let cut = campaign.cut(1, round);
        let verdict = campaign.try_cut(&cut)?;
        if !verdict.passed() {
            println!("{}: {}", verdict.finding, verdict.output.trim_end());
            return Ok(Some(Code {
                atomic: None,
                recording: id(recording)?,
                cut,
                firmware: None,
            }));
        }
    }
    Ok(None)
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let sync = !arguments.iter().any(|argument| argument == "--no-sync");
    match arguments.first().map(String::as_str) {
        Some("append") => return append(sync).map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS),
        Some("check") => return ExitCode::from(u8::from(!check().unwrap_or(false))),
        _ => {}
    }

    let stop = AtomicBool::new(false);
    let flag = if sync { "" } else { "--no-sync" };
    let failure = recorded(flag, &stop).and_then(|recording| first_failure(&recording, &stop));
    match failure {
        Err(TortureError::Missing(what)) => println!("skipped: {what}"),
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
        Ok(None) => println!("{CUTS} power cuts: nothing that was acknowledged is lost"),
        Ok(Some(code)) => {
            println!("the cut {code} loses what was acknowledged");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
