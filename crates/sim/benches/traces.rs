//! Speed of reading traces: records per second of processor time, on one core.
//!
//! ```sh
//! cargo bench -p remap-ssd-sim --bench traces                  # samples of each format, repeated; half a minute
//! cargo bench -p remap-ssd-sim --bench traces -- FILE ...      # these files, repeated up to two million records
//! ```
//! *Reading* is the work of a comparison on a trace before its first run: bytes to records, digests
//! to identities, counts, and the stored form of the requests. *Replaying* expands the stored
//! requests to one run's pages. The median of seven times, and the fastest, which other processes
//! disturb least. Figures only: no bound fails here.

use remap_ssd_sim::source::HostLpn;
use remap_ssd_sim::source::{HostPage, PageKind, Source};
use remap_ssd_sim::study::WHOLE_DISK;
use remap_ssd_sim::trace::{Decoded, Format, TraceOptions, TraceWriter};
use rustix::time::{ClockId, clock_gettime};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

const RECORDS: u64 = 2_000_000;
const ROUNDS: usize = 7;
const PAGES: u32 = 8 << 20;

fn main() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    // Arguments added by cargo begin with dashes.
    let given: Vec<PathBuf> = std::env::args_os()
        .skip(1)
        .filter(|argument| !argument.to_string_lossy().starts_with("--"))
        .map(PathBuf::from)
        .collect();

    println!(
        "{:34} {:>12} {:>12} {:>12} {:>14}",
        "trace", "records", "read, M/s", "fastest", "replayed, M/s"
    );

    if given.is_empty() {
        for format in Format::WRITTEN {
            let path = folder.path().join(format.to_string());
            written(format, &path);
            measure(&path);
        }
        let path = folder.path().join("fiu, 8 digests a page");
        digests_of_sectors(&path);
        measure(&path);
    }

    for file in given {
        measure(&repeated(&file, folder.path()));
    }
}

/// Requests of one page: three of four are writes, half of these with a content written before.
fn written(format: Format, path: &Path) {
    let file = std::fs::File::create(path).expect("there is room");
    let mut writer = TraceWriter::new(format, BufWriter::new(file));
    let mut state = 1u64;

    for sequence in 1..=RECORDS {
        state = state
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        let random = state >> 32;

        let (kind, content) = match random % 4 {
            0 => (PageKind::Read, 0),
            1 => (PageKind::Write, sequence),
            _ => (PageKind::Write, 1 + random % sequence),
        };
        let page = HostPage {
            at_ns: 0,
            content,
            lpn: HostLpn::new(((state >> 20) as u32 % PAGES).into()),
            kind,
            last: true,
        };
        writer.request(&[page]).expect("there is room");
    }
    writer.sink().flush().expect("there is room");
}

/// Lines as in the traces of homes: a digest per sector.
fn digests_of_sectors(path: &Path) {
    let mut file = BufWriter::new(std::fs::File::create(path).expect("there is room"));
    let mut state = 1u64;

    for sequence in 0..RECORDS / 4 {
        state = state
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        let content = state % (1 + sequence / 2);
        let lba = (state >> 24) % 100_000_000 * 8;

        write!(
            file,
            "{} 4892 syslogd {lba} 8 W 6 0 ",
            89_967_404_191_360 + 1000 * sequence
        )
        .expect("there is room");
        for sector in 0..8u64 {
            let digest = content
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .rotate_left(8 * sector as u32);
            write!(file, "{digest:016x}{content:016x}").expect("there is room");
        }
        file.write_all(b"\n").expect("there is room");
    }
    file.flush().expect("there is room");
}

/// Concatenates a file to about two million lines; a compressed or binary file is unchanged.
fn repeated(path: &Path, folder: &Path) -> PathBuf {
    let bytes = std::fs::read(path).expect("the file is there");
    let lines = bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
    if std::str::from_utf8(&bytes).is_err() || lines == 0 || lines > RECORDS / 2 {
        return path.into();
    }

    let copy = folder.join(path.file_name().expect("a file has a name"));
    let mut file = std::fs::File::create(&copy).expect("there is room");
    for _ in 0..RECORDS / lines {
        file.write_all(&bytes).expect("there is room");
    }
    copy
}

fn measure(path: &Path) {
    let options = TraceOptions {
        skip_bad: true,
        ..TraceOptions::new(WHOLE_DISK)
    };

    let (mut reading, mut replaying) = (Vec::new(), Vec::new());
    let (mut records, mut requests) = (0, 0);
    for _ in 0..ROUNDS {
        let began = processor_s();
        let trace = Decoded::read(path, None, options).expect("it is a trace");
        reading.push(processor_s() - began);

        let stat = trace.stat();
        (records, requests) = (stat.requests + stat.skipped + stat.ignored, stat.requests);

        let mut replay = trace.replay(TraceOptions::new(PAGES.into()), 1);
        let mut pages = Vec::with_capacity(2048);
        let began = processor_s();
        while replay.fill(&mut pages, 1024).expect("it was read") {
            pages.clear();
        }
        replaying.push(processor_s() - began);
    }

    reading.sort_by(f64::total_cmp);
    replaying.sort_by(f64::total_cmp);
    let millions_a_second = |count: u64, seconds: f64| count as f64 / seconds / 1e6;

    println!(
        "{:34} {records:>12} {:>12.2} {:>12.2} {:>14.2}",
        path.file_name()
            .expect("a file has a name")
            .to_string_lossy(),
        millions_a_second(records, reading[ROUNDS / 2]),
        millions_a_second(records, reading[0]),
        millions_a_second(requests, replaying[ROUNDS / 2]),
    );
}

/// Processor time of this process, seconds.
fn processor_s() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}
