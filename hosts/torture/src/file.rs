//! A recording in a file, for exact replay.
//!
//! ```text
//! header    24 bytes, `Header`
//! body      zstd: a length and the description as JSON; events, 24 bytes each; numbers of contents, 4 bytes each;
//!           contents, a block each; then the BLAKE3 hash of header and all that
//! ```
//! Numbers are little-endian. Invariants: a file is replaced atomically (written to a temporary
//! file, synced, renamed); for any bytes in a file, loading returns a recording or a reason, and
//! allocates no more than it has read. Absent: the file's path.

use crate::array::DiskGeometry;
use crate::contents::Contents;
use crate::error::TortureError;
use crate::record::{About, Event, Recording};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::Path;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

// Ends in CR and LF, as PNG's signature does: a transfer that changes line ends is detected.
const MAGIC: [u8; 8] = *b"RMPCUT\r\n";
const VERSION: u32 = 1;
// zstd's own default.
const LEVEL: i32 = 3;
/// More blocks than a terabyte has at 4 KiB.
const BLOCKS_MAX: u64 = 1 << 28;
/// Digits of the hash that name a recording.
const ID_DIGITS: usize = 8;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Header {
    magic: [u8; 8],
    version: u32,
    block_bytes: u32,
    blocks: u64,
}
const _: () = assert!(size_of::<Header>() == 24);

impl Header {
    fn of(
        DiskGeometry {
            block_bytes,
            blocks,
        }: DiskGeometry,
    ) -> Self {
        Self {
            magic: MAGIC,
            version: VERSION,
            block_bytes,
            blocks,
        }
    }
}

/// Starts the hash of header and body.
fn hash_of(header: &Header) -> blake3::Hasher {
    let mut hash = blake3::Hasher::new();
    hash.update(header.as_bytes());
    hash
}

/// An event. `count` is a number of blocks; `argument` is the FUA flag of a write, the index of a
/// completed request, or unused.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Entry {
    kind: u32,
    argument: u32,
    block: u64,
    count: u64,
}
const _: () = assert!(size_of::<Entry>() == 24);

#[derive(serde::Serialize, serde::Deserialize)]
struct Description {
    about: About,
    marks: Vec<String>,
    events: u64,
    words: u64,
    contents: u32,
}

const WRITE: u32 = 1;
const ZERO: u32 = 2;
const FLUSH: u32 = 3;
const DONE: u32 = 4;
const MARK: u32 = 5;
const START: u32 = 6;
const END: u32 = 7;

impl Entry {
    fn of(event: &Event) -> Self {
        let entry = |kind, argument, block, count| Self {
            kind,
            argument,
            block,
            count,
        };

        match event {
            Event::Write {
                block,
                words,
                through,
            } => entry(WRITE, u32::from(*through), *block, words.len() as u64),
            Event::Zero { block, count } => entry(ZERO, 0, *block, *count),
            Event::Flush => entry(FLUSH, 0, 0, 0),
            Event::Done(request) => entry(DONE, *request, 0, 0),
            Event::Mark(_) => entry(MARK, 0, 0, 0),
            Event::Start => entry(START, 0, 0, 0),
            Event::End => entry(END, 0, 0, 0),
        }
    }
}

struct Hashed<W> {
    inner: W,
    hash: blake3::Hasher,
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hash.update(&bytes[..written]);
        Ok(written)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(into)?;
        self.hash.update(&into[..read]);
        Ok(read)
    }
}

/// Name of a recording in replay codes: equal for equal recordings, and almost always distinct for
/// others.
///
/// # Errors
/// The contents cannot be read.
pub fn id(recording: &Recording) -> io::Result<String> {
    let mut hashed = Hashed {
        inner: io::sink(),
        hash: hash_of(&Header::of(recording.shape)),
    };
    write_body(recording, &mut hashed)?;
    Ok(hashed.hash.finalize().to_hex()[..ID_DIGITS].to_owned())
}

/// Saves a recording.
///
/// # Errors
/// The system's reason.
pub fn save(recording: &Recording, path: &Path) -> io::Result<()> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));

    // Written to a temporary file and renamed, so that the file is complete or absent.
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    let header = Header::of(recording.shape);
    file.write_all(header.as_bytes())?;

    // The hash covers the uncompressed data, so it does not depend on the compression.
    let mut stream = zstd::Encoder::new(BufWriter::new(&mut file), LEVEL)?;
    let mut hashed = Hashed {
        inner: &mut stream,
        hash: hash_of(&header),
    };
    write_body(recording, &mut hashed)?;
    let hash = hashed.hash.finalize();
    stream.write_all(hash.as_bytes())?;
    stream.finish()?.flush()?;

    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    // The file name is in the folder, which the file's sync does not cover.
    File::open(folder)?.sync_all()
}

fn write_body(recording: &Recording, out: &mut impl Write) -> io::Result<()> {
    let Recording {
        about,
        events,
        words,
        marks,
        contents,
        ..
    } = recording;
    let description = Description {
        about: about.clone(),
        marks: marks.clone(),
        events: events.len() as u64,
        words: words.len() as u64,
        contents: contents.count(),
    };

    let text = serde_json::to_vec(&description)?;
    out.write_all(&(text.len() as u64).to_le_bytes())?;
    out.write_all(&text)?;
    events
        .iter()
        .try_for_each(|event| out.write_all(Entry::of(event).as_bytes()))?;
    out.write_all(words.as_bytes())?;

    let mut block = vec![0; recording.shape.block_bytes as usize];
    for id in 1..=contents.count() {
        contents.get(id, &mut block)?;
        out.write_all(&block)?;
    }
    Ok(())
}

/// Loads a recording.
///
/// # Errors
/// The file is not a recording, or the system's reason.
pub fn load(path: &Path) -> Result<Recording, TortureError> {
    let mut file = BufReader::new(File::open(path)?);
    // The header is validated before use.
    let header = Header::read_from_io(&mut file).map_err(|_| not("it is too short"))?;
    if header.magic != MAGIC {
        return Err(not("it begins otherwise"));
    }
    if header.version != VERSION {
        return Err(not(&format!(
            "it has version {}, and this program reads {VERSION}",
            header.version
        )));
    }
    let shape = DiskGeometry {
        block_bytes: header.block_bytes,
        blocks: header.blocks,
    };

    // Sizes determine later allocations.
    if !DiskGeometry::is_block(shape.block_bytes) || !(1..=BLOCKS_MAX).contains(&shape.blocks) {
        return Err(not("its disk has a size that cannot be"));
    }

    let mut body = Hashed {
        inner: zstd::Decoder::with_buffer(file)?,
        hash: hash_of(&header),
    };
    let recording = read_body(shape, &mut body).map_err(|error| match error {
        TortureError::Io(error) => not(&error.to_string()),
        other => other,
    })?;

    // Finished before the stored hash is read.
    let expected = body.hash.finalize();
    let mut hash = [0; 32];
    body.read_exact(&mut hash)
        .map_err(|_| not("it ends early"))?;
    if expected != hash {
        return Err(not("it is damaged"));
    }
    Ok(recording)
}

fn not(reason: &str) -> TortureError {
    TortureError::NotARecording(reason.into())
}

fn read_body(shape: DiskGeometry, from: &mut impl Read) -> Result<Recording, TortureError> {
    let mut len = [0; 8];
    from.read_exact(&mut len)?;
    let len = u64::from_le_bytes(len);
    let mut text = Vec::new();

    // Limited by the file: an excessive length ends with it.
    from.take(len).read_to_end(&mut text)?;
    let description: Description =
        serde_json::from_slice(&text).map_err(|error| not(&error.to_string()))?;

    let entries = (0..description.events).map(|_| Entry::read_from_io(&mut *from));
    let entries = entries.collect::<io::Result<Vec<Entry>>>()?;
    let events = events(shape, &entries, &description)?;

    let mut words = Vec::new();
    let mut word = [0; 4];
    for _ in 0..description.words {
        from.read_exact(&mut word)?;
        words.push(u32::from_le_bytes(word));
    }

    // A number beyond the contents would have no content.
    if words.iter().any(|id| *id > description.contents) {
        return Err(not("it names a content that it does not have"));
    }

    let contents = Contents::new(shape.block_bytes as usize)?;
    let mut block = vec![0; shape.block_bytes as usize];
    for id in 1..=description.contents {
        from.read_exact(&mut block)?;
        // Contents are numbered in the order of the file. A duplicate would get the first one's
        // number.
        if contents.put(&block)? != id {
            return Err(not("it has a content twice"));
        }
    }
    let Description { about, marks, .. } = description;
    Ok(Recording {
        shape,
        about,
        events,
        words,
        marks,
        contents,
    })
}

/// Decodes entries into events, and validates them.
fn events(
    shape: DiskGeometry,
    entries: &[Entry],
    description: &Description,
) -> Result<Vec<Event>, TortureError> {
    let (mut events, mut words, mut marks) = (Vec::new(), 0usize, 0u32);
    let mut open = BTreeSet::new();
    let count_of = |kind| entries.iter().filter(|entry| entry.kind == kind).count();

    // A recording has one start and one end, between which it can be cut.
    if u32::try_from(entries.len()).is_err() || count_of(START) != 1 || count_of(END) != 1 {
        return Err(not("it has no start and end, or several"));
    }

    for (index, entry) in (0..).zip(entries) {
        let Entry {
            block,
            count,
            argument,
            ..
        } = *entry;
        let inside = block
            .checked_add(count)
            .is_some_and(|end| count > 0 && end <= shape.blocks);
        if matches!(entry.kind, WRITE | ZERO) && !inside {
            return Err(not("a write lies outside of its disk"));
        }

        if matches!(entry.kind, WRITE | ZERO | FLUSH) {
            open.insert(index);
        }

        events.push(match entry.kind {
            WRITE => {
                let start = words;
                words += count as usize;
                Event::Write {
                    block,
                    words: start..words,
                    through: argument != 0,
                }
            }
            ZERO => Event::Zero { block, count },
            FLUSH => Event::Flush,
            // A completion belongs to a request in progress.
            DONE if open.remove(&argument) => Event::Done(argument),
            DONE => return Err(not("something is completed that was not submitted")),
            MARK => {
                marks += 1;
                Event::Mark(marks - 1)
            }
            START => Event::Start,
            END => Event::End,
            _ => return Err(not("it has an entry of an unknown kind")),
        });
    }

    let position = |kind| entries.iter().position(|entry| entry.kind == kind);
    if words as u64 != description.words
        || marks as usize != description.marks.len()
        || position(START) > position(END)
    {
        return Err(not("its numbers do not fit together"));
    }
    Ok(events)
}
