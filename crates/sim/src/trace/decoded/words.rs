//! The stored form of requests: a writer, a reader, and the file for long traces.
//!
//! A request is its time and its head: a tag, the index of its device and its bytes, in the layout
//! of the constants below. The following words depend on the tag. Invariants: the reader takes
//! exactly the words written. Absent: the meaning of requests.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::super::cut;
use super::super::expand::{Item, Op};
use super::super::record::{Moved, RequestKind};
use rustc_hash::FxHashMap;

/// Words written or read at a time.
const PIECE_WORDS: usize = 64 << 10;

#[derive(Clone, Debug)]
pub(super) enum Words {
    Memory(Arc<Vec<u64>>),
    File(Arc<File>, u64),
}

/// The tag in a request's second word, which also holds the index of its device and its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tag {
    Read = 0,
    Trim,
    /// Consecutive contents, of which the words have the first.
    Write,
    /// A write with a list of contents.
    WriteListed,
    Copy,
    Move,
    CopyAtomic,
    MoveAtomic,
    Flush,
}

const TAGS: [Tag; 9] = [
    Tag::Read,
    Tag::Trim,
    Tag::Write,
    Tag::WriteListed,
    Tag::Copy,
    Tag::Move,
    Tag::CopyAtomic,
    Tag::MoveAtomic,
    Tag::Flush,
];

/// Bits of a request's length in bytes: the longest deallocation is 2^32.
const LEN_BITS: u32 = 36;
const DEVICE_BITS: u32 = 22;
const TAG_SHIFT: u32 = LEN_BITS + DEVICE_BITS;

#[derive(Default)]
pub(super) struct Keeper {
    memory_words: usize,
    words: Vec<u64>,
    /// Words that did not fit into memory.
    file: Option<File>,
    written: u64,
    devices: Vec<u64>,
    numbers: FxHashMap<u64, u64>,
    last: Option<(u64, u64)>,
}

impl Keeper {
    pub(super) fn within(memory_words: usize) -> Self {
        Self {
            memory_words,
            ..Self::default()
        }
    }

    #[inline]
    pub(super) fn keep(&mut self, item: &Item) -> io::Result<()> {
        // Once there is a file, memory holds one piece of it.
        let limit = if self.file.is_some() {
            PIECE_WORDS
        } else {
            self.memory_words
        };

        if self.words.len() >= limit {
            self.write_out()?;
        }

        let head =
            |tag: Tag, device: u64, len: u64| (tag as u64) << TAG_SHIFT | device << LEN_BITS | len;

        match item.op {
            Op::Extent {
                device,
                verb,
                offset,
                len,
            } => {
                let device = self.number(device)?;
                // Most writes have consecutive contents: the first one is enough.
                let follow = item.contents.windows(2).all(|pair| pair[0] + 1 == pair[1]);

                let tag = match verb {
                    RequestKind::Read => Tag::Read,
                    RequestKind::Trim => Tag::Trim,
                    RequestKind::Write if follow => Tag::Write,
                    RequestKind::Write => Tag::WriteListed,
                };

                self.words
                    .extend_from_slice(&[item.at_ns, head(tag, device, len), offset]);

                match tag {
                    Tag::Write => self.words.push(item.contents[0]),
                    Tag::WriteListed => self.words.extend_from_slice(&item.contents),
                    _ => {}
                }
            }
            Op::Moved(Moved {
                target,
                source,
                count,
                relocate,
                atomic,
                ..
            }) => {
                let tag = match (relocate, atomic) {
                    (false, false) => Tag::Copy,
                    (true, false) => Tag::Move,
                    (false, true) => Tag::CopyAtomic,
                    (true, true) => Tag::MoveAtomic,
                };

                self.words
                    .extend_from_slice(&[item.at_ns, head(tag, 0, 0), target, source, count]);
            }
            Op::Flush => self
                .words
                .extend_from_slice(&[item.at_ns, head(Tag::Flush, 0, 0)]),
        }

        Ok(())
    }

    /// Returns a small number for a device.
    #[inline]
    fn number(&mut self, device: u64) -> io::Result<u64> {
        // Requests of one device come in runs.
        if let Some((last, number)) = self.last
            && last == device
        {
            return Ok(number);
        }
        let next = self.devices.len() as u64;
        let number = *self.numbers.entry(device).or_insert(next);
        if number == next {
            // A larger number would overlap the tag.
            if next >= 1 << DEVICE_BITS {
                return Err(io::Error::other("more than four million devices"));
            }
            self.devices.push(device);
        }
        self.last = Some((device, number));
        Ok(number)
    }

    fn write_out(&mut self) -> io::Result<()> {
        let file = match &mut self.file {
            // Unnamed, so that no file is left however the process ends.
            Some(file) => file,
            none => none.insert(tempfile::tempfile()?),
        };
        let mut bytes = Vec::with_capacity(8 * PIECE_WORDS);
        for piece in self.words.chunks(PIECE_WORDS) {
            bytes.clear();
            bytes.extend(piece.iter().flat_map(|word| word.to_le_bytes()));
            file.write_all(&bytes)?;
        }
        self.written += self.words.len() as u64;
        self.words.clear();

        // Memory holds one piece from now on.
        self.words.shrink_to(2 * PIECE_WORDS);
        Ok(())
    }

    pub(super) fn finish(mut self) -> io::Result<(Words, Vec<u64>)> {
        // The words still in memory are the end of the file.
        if self.file.is_some() {
            self.write_out()?;
        }
        let words = match self.file {
            Some(file) => Words::File(Arc::new(file), self.written),
            None => Words::Memory(Arc::new(self.words)),
        };
        Ok((words, self.devices))
    }
}

/// Reads words, one request after the other.
pub(super) struct Cursor {
    words: Words,
    at: u64,
    /// The words of a file from `piece_at` on.
    piece: Vec<u64>,
    piece_at: u64,
}

impl Cursor {
    /// Begins at the first request.
    pub(super) fn over(words: Words) -> Self {
        Self {
            words,
            at: 0,
            piece: Vec::new(),
            piece_at: 0,
        }
    }

    fn len(&self) -> u64 {
        match &self.words {
            Words::Memory(words) => words.len() as u64,
            Words::File(_, len) => *len,
        }
    }

    #[inline]
    fn take(&mut self, count: usize) -> io::Result<&[u64]> {
        let at = self.at;
        self.at += count as u64;

        match &self.words {
            Words::Memory(words) => Ok(&words[at as usize..at as usize + count]),
            Words::File(file, len) => {
                let end = self.piece_at + self.piece.len() as u64;

                if at < self.piece_at || at + count as u64 > end {
                    // A piece from here on; read again only when reading has left it.
                    let wanted = (count.max(PIECE_WORDS) as u64).min(len - at) as usize;
                    let mut bytes = vec![0; 8 * wanted];
                    file.read_exact_at(&mut bytes, 8 * at)?;

                    self.piece.clear();
                    let (words, _) = bytes.as_chunks::<8>();
                    self.piece
                        .extend(words.iter().map(|word| u64::from_le_bytes(*word)));
                    self.piece_at = at;
                }

                let from = (at - self.piece_at) as usize;
                Ok(&self.piece[from..from + count])
            }
        }
    }

    /// Reads the next request; `false` at the end.
    pub(super) fn next(&mut self, devices: &[u64], item: &mut Item) -> io::Result<bool> {
        if self.at >= self.len() {
            return Ok(false);
        }

        let &[at_ns, head] = self.take(2)? else {
            unreachable!("two words were asked for")
        };

        item.at_ns = at_ns;
        item.contents.clear();

        let tag = TAGS[(head >> TAG_SHIFT) as usize];
        match tag {
            Tag::Read | Tag::Trim | Tag::Write | Tag::WriteListed => {
                let len = head & ((1 << LEN_BITS) - 1);
                let device = devices[(head >> LEN_BITS & ((1 << DEVICE_BITS) - 1)) as usize];
                let offset = self.take(1)?[0];

                // A write has a content for each page that it touches.
                let pages = cut(offset, len).size_hint().0;

                let verb = match tag {
                    Tag::Read => RequestKind::Read,
                    Tag::Trim => RequestKind::Trim,
                    _ => RequestKind::Write,
                };

                match tag {
                    Tag::Write => {
                        let first = self.take(1)?[0];
                        item.contents.extend(first..first + pages as u64);
                    }
                    Tag::WriteListed => item.contents.extend_from_slice(self.take(pages)?),
                    _ => {}
                }

                item.op = Op::Extent {
                    device,
                    verb,
                    offset,
                    len,
                };
            }
            Tag::Copy | Tag::Move | Tag::CopyAtomic | Tag::MoveAtomic => {
                let &[target, source, count] = self.take(3)? else {
                    unreachable!("three words were asked for")
                };

                item.op = Op::Moved(Moved {
                    at_ns,
                    target,
                    source,
                    count,
                    relocate: matches!(tag, Tag::Move | Tag::MoveAtomic),
                    atomic: matches!(tag, Tag::CopyAtomic | Tag::MoveAtomic),
                });
            }
            Tag::Flush => item.op = Op::Flush,
        }

        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_in_a_file_are_read_in_order_however_many_are_asked_for_at_a_time() {
        let all: Vec<u64> = (0..2 * PIECE_WORDS as u64 + 77)
            .map(|word| word.wrapping_mul(0x9e37_79b9_7f4a_7c15))
            .collect();
        let bytes: Vec<u8> = all.iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        let words = Words::File(Arc::new(file), all.len() as u64);

        // The lengths do not divide a piece, so that some straddle its end.
        let (mut cursor, mut read) = (Cursor::over(words.clone()), Vec::new());
        for count in [2, 3, 1_001].into_iter().cycle() {
            let left = all.len() - read.len();
            if left == 0 {
                break;
            }
            read.extend_from_slice(cursor.take(count.min(left)).unwrap());
        }
        assert!(read == all);

        let longer = PIECE_WORDS + 5;
        assert!(Cursor::over(words).take(longer).unwrap() == &all[..longer]);
    }
}
