//! Bytes of a trace file: decompressed on the way, cut into lines or records, counted for messages.
//!
//! The compression (gzip, xz, zstd or none) is told by the first bytes, never by the name; files made
//! of several compressed streams one after the other read as one.
//! Invariants: memory is bounded whatever the file holds (a line has at most `LINE_BYTES_MAX`);
//! `number` is that of the line or record returned last, from 1.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::Path;

use crate::source::SourceError;

/// Longest line believed; a request of 100 MiB with a digest per 4 KiB still fits.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// How much of the beginning is looked at to guess a format.
const SAMPLE_BYTES: u64 = 64 << 10;
const MAGIC_BYTES: u64 = 6;

type Bytes = Box<dyn Read + Send>;
/// A reader whose first bytes were looked at and put back.
type Unread<R> = io::Chain<Cursor<Vec<u8>>, R>;

/// A trace file being read from front to back.
pub(super) struct Input {
    file: String,
    compression: Option<&'static str>,
    reader: BufReader<Bytes>,
    number: u64,
    line: Vec<u8>,
}

/// One line, without its end; or why there is none to look at.
pub(super) enum Line<'a> {
    Text(&'a str),
    Unreadable(&'static str),
    End,
}

impl Input {
    /// Opens `path` and returns with it a copy of the first bytes, decompressed.
    pub fn open(path: &Path) -> Result<(Self, Vec<u8>), SourceError> {
        let file = path.display().to_string();
        match File::open(path) {
            Ok(bytes) => Self::of(file, bytes),
            Err(source) => Err(SourceError::Io { file, source }),
        }
    }

    /// The same of bytes that are here already.
    pub fn of(
        file: String,
        bytes: impl Read + Send + 'static,
    ) -> Result<(Self, Vec<u8>), SourceError> {
        let io = |source| SourceError::Io {
            file: file.clone(),
            source,
        };
        let (magic, raw) = peek(bytes, MAGIC_BYTES).map_err(io)?;
        let (compression, plain) = decompress(&magic, BufReader::new(raw)).map_err(io)?;
        let empty: Bytes = Box::new(io::empty());
        let reader = BufReader::new(empty);
        let mut input = Self {
            file,
            compression,
            reader,
            number: 0,
            line: Vec::new(),
        };
        let (sample, whole) = peek(plain, SAMPLE_BYTES).map_err(|e| input.io_error(e))?;
        input.reader = BufReader::with_capacity(SAMPLE_BYTES as usize, Box::new(whole));
        Ok((input, sample))
    }

    /// The next line, up to `\n`, `\r\n` or the end of the file.
    pub fn line(&mut self) -> Result<Line<'_>, SourceError> {
        self.line.clear();
        let mut bounded = self.reader.by_ref().take(LINE_BYTES_MAX);
        let read = bounded.read_until(b'\n', &mut self.line);
        if read.map_err(|e| self.io_error(e))? == 0 {
            return Ok(Line::End);
        }
        self.number += 1;
        let ended = self.line.last() == Some(&b'\n');
        if !ended && self.line.len() as u64 == LINE_BYTES_MAX {
            self.reader
                .skip_until(b'\n')
                .map_err(|e| self.io_error(e))?;
            return Ok(Line::Unreadable("the line is longer than 1 MiB"));
        }
        Ok(match std::str::from_utf8(&self.line) {
            Ok(text) => Line::Text(text.trim_end_matches(['\r', '\n'])),
            Err(_) => Line::Unreadable("the line is not UTF-8 text"),
        })
    }

    /// Fills `record` with the next bytes; fewer than its length only at the end of the file.
    pub fn record<'a>(&mut self, record: &'a mut [u8]) -> Result<&'a [u8], SourceError> {
        let mut filled = 0;
        while filled < record.len() {
            match self.reader.read(&mut record[filled..]) {
                Ok(0) => break,
                Ok(more) => filled += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.io_error(error)),
            }
        }
        if filled > 0 {
            self.number += 1;
        }
        Ok(&record[..filled])
    }

    /// An error at the line or record returned last.
    pub fn malformed(&self, reason: impl Into<String>) -> SourceError {
        let (file, line) = (self.file.clone(), self.number);
        SourceError::Malformed {
            file,
            line,
            reason: reason.into(),
        }
    }

    /// An error of the file as a whole.
    pub fn unusable(&self, reason: impl Into<String>) -> SourceError {
        SourceError::Unusable {
            file: self.file.clone(),
            reason: reason.into(),
        }
    }

    /// A failed read; one that no system call made is the decompressor's complaint.
    fn io_error(&self, error: io::Error) -> SourceError {
        let source = match self.compression {
            Some(name) if error.raw_os_error().is_none() => {
                let text = format!("the {name} stream is damaged or cut ({error})");
                io::Error::new(error.kind(), text)
            }
            _ => error,
        };
        SourceError::Io {
            file: self.file.clone(),
            source,
        }
    }
}

/// The first `count` bytes (fewer if there are no more), and a reader that still begins with them.
fn peek<R: Read>(mut reader: R, count: u64) -> io::Result<(Vec<u8>, Unread<R>)> {
    let mut first = Vec::new();
    reader.by_ref().take(count).read_to_end(&mut first)?;
    Ok((first.clone(), Cursor::new(first).chain(reader)))
}

fn decompress(
    magic: &[u8],
    raw: impl BufRead + Send + 'static,
) -> io::Result<(Option<&'static str>, Bytes)> {
    Ok(match magic {
        [0x1f, 0x8b, ..] => (
            Some("gzip"),
            Box::new(flate2::bufread::MultiGzDecoder::new(raw)),
        ),
        [0xfd, b'7', b'z', b'X', b'Z', 0] => (
            Some("xz"),
            Box::new(liblzma::bufread::XzDecoder::new_multi_decoder(raw)),
        ),
        // The second is a frame of metadata, which may stand before the first frame of data.
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => (
            Some("zstd"),
            Box::new(zstd::stream::read::Decoder::with_buffer(raw)?),
        ),
        _ => (None, Box::new(raw)),
    })
}
