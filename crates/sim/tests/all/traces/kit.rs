//! Small traces, files of them, and their replays.

use remap_ssd_sim::source::Lpn;
use std::io::{Read, Write};

use remap_ssd_sim::source::{HostPage, PageKind, Source, SourceError};
use remap_ssd_sim::trace::{Format, TraceOptions, TraceReader};

pub const BLKPARSE: &str = "
  8,0    3        1     0.000000000   697  A   W 223490 + 8 <- (8,1) 223427
  8,0    3        2     0.000001829   697  Q  WS 223488 + 8 [kjournald]
  8,0    3        3     0.000005000   697  G  WS 223488 + 8 [kjournald]
  8,0    3        4     0.000005500   697  P   N [kjournald]
  8,0    3        5     0.000006000   697  I  WS 223488 + 8 [kjournald]
  8,0    3        6     0.000007000   697  D  WS 223488 + 8 [kjournald]
  8,0    3        7     0.000009000   697  Q  RA 16 + 8 [kworker/0:1 x]
  8,0    3        8     0.000010000   697  Q FWS [jbd2/sda1-8]
  8,0    3        9     0.000011000   697  Q FWFS 24 + 1 [jbd2/sda1-8]
  8,0    3       10     0.000012000   697  Q   D 4 + 28 [fstrim]
  8,0    3       11     0.100000000     0  C  WS 223488 + 8 [0]
  8,0    3       12     0.2             0  m   N cfq697S / alloced
CPU3 (sda):
 Reads Queued:           1,        4KiB\t Writes Queued:           2,        8KiB
Total (8,0):
Throughput (R/W): 40KiB/s / 80KiB/s
Events (sda): 12 entries
Skips: 0 forward (0 -   0.0%)
";

pub fn page(at_ns: u64, content: u64, lpn: u32, kind: PageKind, last: bool) -> HostPage {
    HostPage {
        at_ns,
        content,
        lpn: Lpn(lpn).into(),
        kind,
        last,
    }
}

pub fn file_of(bytes: &[u8]) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    file
}

pub fn drain(reader: &mut TraceReader) -> Result<Vec<HostPage>, SourceError> {
    let mut pages = Vec::new();
    while reader.fill(&mut pages, 1000)? {}
    Ok(pages)
}

pub fn replay(
    bytes: &[u8],
    format: Option<Format>,
    options: TraceOptions,
) -> Result<Vec<HostPage>, SourceError> {
    let file = file_of(bytes);
    drain(&mut TraceReader::open(file.path(), format, options)?)
}

/// Operation code, first sector, bytes, microseconds.
pub type VscsiCommand = (u16, u64, u32, u64);

pub fn vscsi_v1((opcode, lba, len, at_us): VscsiCommand) -> Vec<u8> {
    let mut record = Vec::new();
    for word in [1u32, len, 1] {
        record.extend(word.to_le_bytes());
    }
    record.extend(opcode.to_le_bytes());
    record.extend([0, 1]);
    record.extend(lba.to_le_bytes());
    record.extend(at_us.to_le_bytes());
    record
}

pub fn vscsi_v2((opcode, lba, len, at_us): VscsiCommand) -> Vec<u8> {
    let mut record = Vec::new();
    record.extend(opcode.to_le_bytes());
    record.extend([0, 2]);
    for word in [1u32, len, 1] {
        record.extend(word.to_le_bytes());
    }
    for long in [lba, at_us, 99] {
        record.extend(long.to_le_bytes());
    }
    record
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = Vec::new();
    flate2::bufread::GzEncoder::new(bytes, flate2::Compression::fast())
        .read_to_end(&mut packed)
        .unwrap();
    packed
}

pub fn xz(bytes: &[u8]) -> Vec<u8> {
    let mut packed = Vec::new();
    liblzma::bufread::XzEncoder::new(bytes, 1)
        .read_to_end(&mut packed)
        .unwrap();
    packed
}

pub fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 1).unwrap()
}

pub fn options() -> TraceOptions {
    TraceOptions::new(1 << 20)
}

/// Reads everything, with the format detected.
pub fn told(bytes: &[u8]) -> TraceReader {
    read_as(bytes, None, options()).unwrap_or_else(|error| panic!("{error}"))
}

pub fn read_as(
    bytes: &[u8],
    format: Option<Format>,
    options: TraceOptions,
) -> Result<TraceReader, SourceError> {
    let file = file_of(bytes);
    let mut reader = TraceReader::open(file.path(), format, options)?;
    drain(&mut reader)?;
    Ok(reader)
}

pub fn refusal(bytes: &[u8], format: Option<Format>) -> String {
    match read_as(bytes, format, options()) {
        Err(error) => error.to_string(),
        Ok(reader) => panic!("read as {}", reader.format()),
    }
}
