//! Concatenated gzip streams, followed by padding as accepted by `gzip -d`.
//!
//! Tapes and some tools pad the last block of a file with zeros. Invariants: a file that ends
//! within a stream is an error, and so is anything but zeros after the last one. Absent: the
//! contents of the streams.

use std::io::{self, BufRead, Read};

use flate2::bufread::GzDecoder;

/// Reads the streams as one.
pub(super) struct GzipStreams<R: BufRead> {
    /// `None` once the last stream has ended.
    stream: Option<GzDecoder<R>>,
}

impl<R: BufRead> GzipStreams<R> {
    pub(super) fn new(compressed: R) -> Self {
        Self {
            stream: Some(GzDecoder::new(compressed)),
        }
    }
}

impl<R: BufRead> Read for GzipStreams<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(stream) = &mut self.stream {
            let count = stream.read(buffer)?;
            if count > 0 || buffer.is_empty() {
                return Ok(count);
            }

            // The end of a stream: followed by another one, by zeros, or by nothing.
            let mut rest = self.stream.take().map(GzDecoder::into_inner);
            let next = rest.as_mut().map(next_after_zeros).transpose()?.flatten();
            match next {
                None => {}
                Some(MAGIC) => self.stream = rest.map(GzDecoder::new),
                Some(_) => {
                    let what = "what follows a stream is neither another one nor zeros";
                    return Err(io::Error::new(io::ErrorKind::InvalidData, what));
                }
            }
        }
        Ok(0)
    }
}

/// First byte of a stream.
const MAGIC: u8 = 0x1f;

/// Skips zeros; the byte after them is not consumed.
fn next_after_zeros(reader: &mut impl BufRead) -> io::Result<Option<u8>> {
    loop {
        let bytes = match reader.fill_buf() {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if bytes.is_empty() {
            return Ok(None);
        }
        let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
        let next = bytes.get(zeros).copied();
        reader.consume(zeros);
        if next.is_some() {
            return Ok(next);
        }
    }
}
