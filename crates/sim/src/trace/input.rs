//! Bytes of a trace file: decompressed, split into lines or records, numbered for messages.
//!
//! The first bytes determine the compression (gzip, xz, zstd or none), never the name; files made
//! of several concatenated compressed streams read as one. A UTF-8 byte order mark is skipped.
//! Invariants: memory is bounded for any file (a line has at most about `LINE_BYTES_MAX`); `number`
//! is that of the line or record returned last, from 1.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::Path;

use super::gzip::GzipStreams;
use crate::source::SourceError;

/// Longest line accepted; a request of 100 MiB with a digest per 4 KiB still fits.
const LINE_BYTES_MAX: usize = 1 << 20;
/// Size of the sample at the beginning from which a format is guessed.
const SAMPLE_BYTES: u64 = 64 << 10;
const MAGIC_BYTES: u64 = 6;
/// Initial size of the buffer.
const FIRST_BYTES: usize = 8 << 10;
/// Bytes read at a time.
const BUFFER_BYTES: usize = 256 << 10;

type Bytes = Box<dyn Read + Send>;
/// A reader whose first bytes were read and put back.
type Unread<R> = io::Chain<Cursor<Vec<u8>>, R>;

/// A trace file being read from front to back.
pub(super) struct Input {
    file: String,
    compression: Option<&'static str>,
    reader: Bytes,
    number: u64,
    /// Bytes read and not returned yet are `buffer[begin..end]`; lines are returned in place.
    buffer: Vec<u8>,
    begin: usize,
    end: usize,
    /// The line returned last had no end.
    unended: bool,
}

/// One line, without its terminator.
#[derive(Clone, Copy)]
pub(super) struct Text<'a> {
    pub line: &'a [u8],
    /// Line number, from 1.
    pub number: u64,
    /// The file ends within this line.
    pub is_unended: bool,
}

/// One line, or the reason that there is none.
pub(super) enum TraceLine<'a> {
    Text(Text<'a>),
    Unreadable(&'static str),
    End,
}

impl Input {
    /// Opens `path`. Also returns a copy of its first bytes, decompressed.
    pub(super) fn open(path: &Path) -> Result<(Self, Vec<u8>), SourceError> {
        let file = path.display().to_string();
        match File::open(path) {
            Ok(bytes) => Self::of(file, bytes),
            Err(source) => Err(SourceError::Io { file, source }),
        }
    }

    /// Like `open`, for bytes already opened.
    pub(super) fn of(
        file: String,
        bytes: impl Read + Send + 'static,
    ) -> Result<(Self, Vec<u8>), SourceError> {
        let io = |source| SourceError::Io {
            file: file.clone(),
            source,
        };

        let (magic, raw) = peek(bytes, MAGIC_BYTES).map_err(io)?;
        // Detected by the first bytes, never by the name.
        let (compression, plain) = decompress(&magic, BufReader::new(raw)).map_err(io)?;

        let mut input = Self {
            file,
            compression,
            reader: Box::new(io::empty()),
            number: 0,
            buffer: vec![0; FIRST_BYTES],
            begin: 0,
            end: 0,
            unended: false,
        };

        // The sample is a copy: its bytes are still to be read.
        let (mut sample, mut whole) = peek(plain, SAMPLE_BYTES).map_err(|e| input.io_error(e))?;
        if is_marked_text(&sample) {
            sample.drain(..UTF8_MARK.len());
            let mark = whole.by_ref().take(UTF8_MARK.len() as u64);
            io::copy(&mut { mark }, &mut io::sink()).map_err(|e| input.io_error(e))?;
        }
        input.reader = Box::new(whole);
        Ok((input, sample))
    }

    /// Returns the next line, up to `\n`, `\r\n` or the end of the file.
    pub(super) fn line(&mut self) -> Result<TraceLine<'_>, SourceError> {
        // Bytes searched before are not searched again when more have arrived.
        let mut looked_at = 0;
        let length = loop {
            let unread = &self.buffer[self.begin + looked_at..self.end];
            if let Some(length) = memchr::memchr(b'\n', unread) {
                break Some(looked_at + length);
            }
            looked_at = self.end - self.begin;

            // A file without newlines would otherwise be read into memory whole.
            if looked_at >= LINE_BYTES_MAX {
                self.number += 1;
                self.skip_line()?;
                return Ok(TraceLine::Unreadable("the line is longer than 1 MiB"));
            }
            if !self.read_more()? {
                break None;
            }
        };

        let begin = self.begin;
        let end = match length {
            Some(length) => {
                self.begin += length + 1;
                begin + length
            }
            // Nothing after the last newline is the usual end.
            None if begin == self.end => return Ok(TraceLine::End),
            None => {
                (self.begin, self.unended) = (self.end, true);
                self.end
            }
        };
        self.number += 1;

        // Files from Windows have one of these at the end, or several.
        let mut line = &self.buffer[begin..end];
        while let Some((b'\r', before)) = line.split_last() {
            line = before;
        }
        Ok(TraceLine::Text(Text {
            line,
            number: self.number,
            is_unended: self.unended,
        }))
    }

    /// The number of the line returned last, if the file ends before its terminator.
    pub(super) fn unended(&self) -> Option<u64> {
        self.unended.then_some(self.number)
    }

    /// Drops the rest of a line that is too long.
    fn skip_line(&mut self) -> Result<(), SourceError> {
        loop {
            let unread = &self.buffer[self.begin..self.end];
            if let Some(length) = memchr::memchr(b'\n', unread) {
                self.begin += length + 1;
                return Ok(());
            }
            self.begin = self.end;
            if !self.read_more()? {
                return Ok(());
            }
        }
    }

    /// Reads more bytes after the existing ones; `false` at the end of the file.
    fn read_more(&mut self) -> Result<bool, SourceError> {
        // Unread bytes move to the front, so that the buffer need not grow for them.
        if self.begin > 0 {
            self.buffer.copy_within(self.begin..self.end, 0);
            (self.begin, self.end) = (0, self.end - self.begin);
        }

        // Most files are short.
        if self.end == self.buffer.len() || (self.number > 100 && self.buffer.len() < BUFFER_BYTES)
        {
            let longer = (2 * self.buffer.len()).max(BUFFER_BYTES);
            self.buffer.resize(longer, 0);
        }

        // An interrupted read is not the end of the file.
        loop {
            match self.reader.read(&mut self.buffer[self.end..]) {
                Ok(more) => {
                    self.end += more;
                    return Ok(more > 0);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.io_error(error)),
            }
        }
    }

    /// Returns the next `len` bytes; fewer only at the end of the file.
    pub(super) fn record(&mut self, len: usize) -> Result<&[u8], SourceError> {
        while self.end - self.begin < len && self.read_more()? {}
        let begin = self.begin;
        self.begin = (begin + len).min(self.end);
        if self.begin > begin {
            self.number += 1;
        }
        Ok(&self.buffer[begin..self.begin])
    }

    /// Skips bytes of the record returned last; `false` if the file is too short.
    pub(super) fn skip(&mut self, len: usize) -> Result<bool, SourceError> {
        while self.end - self.begin < len && self.read_more()? {}
        let begin = self.begin;
        self.begin = (begin + len).min(self.end);
        Ok(self.begin - begin == len)
    }

    /// An error at the line or record returned last.
    pub(super) fn malformed(&self, reason: impl Into<String>) -> SourceError {
        let (file, line) = (self.file.clone(), self.number);
        SourceError::Malformed {
            file,
            line,
            reason: reason.into(),
        }
    }

    /// An error of the file as a whole.
    pub(super) fn unusable(&self, reason: impl Into<String>) -> SourceError {
        SourceError::Unusable {
            file: self.file.clone(),
            reason: reason.into(),
        }
    }

    /// A failed read; an error without an OS code is the decompressor's.
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

/// Returns the first `count` bytes (fewer if there are no more), and a reader that still begins
/// with them.
fn peek<R: Read>(mut reader: R, count: u64) -> io::Result<(Vec<u8>, Unread<R>)> {
    let mut first = Vec::new();
    reader.by_ref().take(count).read_to_end(&mut first)?;
    Ok((first.clone(), Cursor::new(first).chain(reader)))
}

/// The UTF-8 byte order mark.
const UTF8_MARK: &[u8] = b"\xef\xbb\xbf";

/// Returns true if a file begins with that mark, followed by text.
fn is_marked_text(sample: &[u8]) -> bool {
    const LOOKED_AT: usize = 64;
    let text = sample.strip_prefix(UTF8_MARK);
    text.is_some_and(|text| !text.iter().take(LOOKED_AT).any(|byte| *byte == 0))
}

fn decompress(
    magic: &[u8],
    raw: impl BufRead + Send + 'static,
) -> io::Result<(Option<&'static str>, Bytes)> {
    Ok(match magic {
        [0x1f, 0x8b, ..] => (Some("gzip"), Box::new(GzipStreams::new(raw))),
        [0xfd, b'7', b'z', b'X', b'Z', 0] => (
            Some("xz"),
            Box::new(liblzma::bufread::XzDecoder::new_multi_decoder(raw)),
        ),
        // The second is a metadata frame, which may precede the first data frame.
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(raw)?;
            // The window of `zstd --long=31`: 2 GiB, allocated as used.
            decoder.window_log_max(31)?;
            (Some("zstd"), Box::new(decoder))
        }
        _ => (None, Box::new(raw)),
    })
}
