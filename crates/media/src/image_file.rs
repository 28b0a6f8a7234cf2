//! Images in files: a header, then all persistent state as one compressed stream with its hash.
//!
//! ```text
//! header   40 bytes, `ImageHeader`
//! body     zstd: configuration, superblocks, NVRAM words; then the BLAKE3 hash of all that
//! ```
//! Invariants: a file is replaced completely or not at all (written aside, synced, renamed);
//! loading any bytes ends in an image or an error, and allocates no more than it has read. Absent:
//! the meaning of the bytes.

use crate::array::{NandArray, PageContents};
use crate::content::ContentMode;
use crate::geometry::{Geometry, PAGE_BYTES, Ppn, Shape};
use crate::image::{Image, LINE_WORDS, single};
use crate::oob::{OOB_BYTES, SecondOwner};
use crate::word_line::WordLine;
use std::fs::{File, TryLockError};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::Path;
use std::sync::Arc;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Version of the file format.
pub(crate) const VERSION: u32 = 1;
/// The number of groups less one is above the channels.
const GROUPS_SHIFT: u32 = 16;
/// The code of the word line is above the dies.
const WORD_LINE_SHIFT: u32 = 16;
const MAGIC: [u8; 8] = *b"RMPSSD\r\n";
/// A configuration is text of a few kilobytes.
const CONFIG_BYTES_MAX: u32 = 1 << 20;
/// Zstd's default level: images of aged devices shrink to about a third.
const LEVEL: i32 = 3;

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct ImageHeader {
    magic: [u8; 8],
    version: u32,
    mode: u32,
    channels: u32,
    dies: u32,
    superblocks: u32,
    pages_per_block: u32,
    nvram_words: u64,
}

const _: () = assert!(size_of::<ImageHeader>() == 40);

/// Why an image cannot be loaded or saved.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// An I/O operation failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The file is no image.
    #[error("not a device image (its first bytes are wrong)")]
    NotAnImage,
    /// A folder without its configuration file.
    #[error("not a device image (it has no {0})")]
    NoConfig(&'static str),
    /// The file has another version of the format.
    #[error("image version {0}, this program reads version {VERSION}")]
    Version(u32),
    /// A folder written by another version.
    #[error("image version {0}, this program reads versions 1 and 2")]
    FolderVersion(u32),
    /// A sparse file cannot be filled because the disk is full.
    #[error(
        "{file}: not all of its space is reserved, as after a sparse copy, and it cannot be: {error}"
    )]
    NoRoom {
        /// Name of the sparse file within the image's folder.
        file: String,
        /// The operating system's error.
        error: io::Error,
    },
    /// Another process has it open.
    #[error("the image is in use by another process")]
    InUse,
    /// The bytes are inconsistent, or do not match their hash.
    #[error("the image is damaged: {0}")]
    Damaged(String),
    /// The image exceeds the caller's limit.
    #[error("the image unpacks to more than {0} bytes")]
    TooLarge(u64),
}

fn damaged(reason: impl Into<String>) -> ImageError {
    ImageError::Damaged(reason.into())
}

/// A lock on an image file, held while its device is in use.
#[derive(Debug)]
pub struct ImageLock {
    _file: File,
}

/// Locks an image file against other processes.
///
/// # Errors
/// `InUse`, or an I/O error.
pub fn lock(path: &Path) -> Result<ImageLock, ImageError> {
    let file = File::open(path)?;
    match file.try_lock() {
        Ok(()) => Ok(ImageLock { _file: file }),
        Err(TryLockError::WouldBlock) => Err(ImageError::InUse),
        Err(TryLockError::Error(error)) => Err(error.into()),
    }
}

/// Writes an image and its configuration.
///
/// # Errors
/// An I/O error; the old file, if any, is then unchanged.
pub fn save(path: &Path, image: &Image, config: &[u8]) -> Result<(), ImageError> {
    let _in_use = match lock(path) {
        Ok(lock) => Some(lock),
        Err(ImageError::Io(error)) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };

    // 1. the whole file aside, synced  2. the rename. Cut before 2: the old file. The lock on the
    //    old one excludes a device that is using it.
    let mut aside = path.as_os_str().to_owned();
    aside.push(".part");
    let aside = Path::new(&aside);
    let written = write_whole(aside, image, config);
    if let Err(error) = written.and_then(|()| Ok(std::fs::rename(aside, path)?)) {
        let _ = std::fs::remove_file(aside);
        return Err(error);
    }
    Ok(())
}

fn write_whole(path: &Path, image: &Image, config: &[u8]) -> Result<(), ImageError> {
    let mut file = BufWriter::new(File::create(path)?);
    write(&mut file, image, config)?;
    // Synced before the rename, which could otherwise name an empty file after a crash.
    file.into_inner()
        .map_err(io::IntoInnerError::into_error)?
        .sync_all()?;
    Ok(())
}

/// Writes an image to any sink.
///
/// # Errors
/// The sink fails.
pub fn write(sink: &mut impl Write, image: &Image, config: &[u8]) -> Result<(), ImageError> {
    let shape = image.geometry().shape();
    let header = ImageHeader {
        magic: MAGIC,
        version: VERSION,
        mode: image.mode() as u32,
        channels: shape.channels | (image.geometry().groups() - 1) << GROUPS_SHIFT,
        dies: shape.dies | image.geometry().word_line().to_code() << WORD_LINE_SHIFT,
        superblocks: shape.superblocks,
        pages_per_block: shape.pages_per_block,
        nvram_words: image.nvram_words as u64,
    };

    sink.write_all(header.as_bytes())?;
    let mut body = HashingStream {
        inner: zstd::Encoder::new(sink, LEVEL)?,
        hash: blake3::Hasher::new(),
    };

    // The header is outside the compressed stream, but included in the hash: a changed shape must
    // not match an unchanged body.
    body.hash.update(header.as_bytes());
    body.write_all(&(config.len() as u32).to_le_bytes())?;
    body.write_all(config)?;
    for sb in &image.superblocks {
        write_superblock(&mut body, sb)?;
    }
    for line in &image.nvram {
        body.write_all(line[..].as_bytes())?;
    }

    let hash = body.hash.finalize();
    let mut encoder = body.inner;
    encoder.write_all(hash.as_bytes())?;
    encoder.finish()?;
    Ok(())
}

fn write_superblock(body: &mut impl Write, sb: &NandArray) -> io::Result<()> {
    for block in 0..sb.geometry.blocks() as usize {
        let spoiled = u32::from(sb.spoiled.contains(&(block as u32)));
        body.write_all([sb.next_row[block], sb.erase_counts[block], spoiled].as_bytes())?;
    }

    // Only programmed pages: an image of a new device is almost empty.
    for page in (0..sb.geometry.pages()).filter(|page| sb.is_programmed(Ppn(*page))) {
        let at = page as usize;
        let meta = sb.meta.get(&page);
        let second = sb.seconds.get(at).filter(|second| **second != 0);
        let kind = u8::from(sb.torn.contains(&page))
            | u8::from(meta.is_some()) << 1
            | u8::from(second.is_some()) << 2;
        body.write_all(&[kind])?;
        body.write_all(&sb.oob[at])?;

        if let Some(second) = second {
            body.write_all(&second.to_le_bytes())?;
        }
        if let Some(bytes) = meta {
            body.write_all(&(bytes.len() as u32).to_le_bytes())?;
            body.write_all(bytes)?;
        }

        match &sb.contents {
            PageContents::None => {}
            PageContents::Identity(cells) => body.write_all(&cells.get(at).to_le_bytes())?,
            PageContents::Bytes(cells) => match &cells[at] {
                None => body.write_all(&[0])?,
                Some(bytes) => {
                    body.write_all(&[1])?;
                    body.write_all(&bytes[..])?;
                }
            },
            PageContents::Mapped(_) => unreachable!("an image is a copy in memory"),
        }
    }

    Ok(())
}

/// Reads an image and its configuration.
///
/// # Errors
/// The file is no valid image.
pub fn load(path: &Path) -> Result<(Image, Vec<u8>), ImageError> {
    read(BufReader::new(File::open(path)?), u64::MAX)
}

/// Reads an image from any source, unpacking at most `limit` bytes.
///
/// # Errors
/// The bytes are no valid image.
pub fn read(mut source: impl Read, limit: u64) -> Result<(Image, Vec<u8>), ImageError> {
    let mut bytes = [0; size_of::<ImageHeader>()];
    source
        .read_exact(&mut bytes)
        .map_err(|_| ImageError::NotAnImage)?;
    let header = ImageHeader::read_from_bytes(&bytes).map_err(|_| ImageError::NotAnImage)?;
    let (geometry, mode) = header.check()?;

    // OOB and identity of every page, independent of the body.
    if u64::from(geometry.pages()) * (OOB_BYTES as u64 + 8) > limit
        || header.nvram_words.saturating_mul(8) > limit
    {
        return Err(ImageError::TooLarge(limit));
    }

    let decoder = zstd::Decoder::new(source).map_err(|error| damaged(error.to_string()))?;
    let mut body = ImageBody {
        inner: HashingStream {
            inner: decoder,
            hash: blake3::Hasher::new(),
        },
        left: limit,
        limit,
    };

    body.inner.hash.update(header.as_bytes());
    // Sizes are checked before any allocation: the bytes are untrusted.
    let config_bytes = body.u32()?;
    if config_bytes > CONFIG_BYTES_MAX {
        return Err(damaged(format!("a configuration of {config_bytes} bytes")));
    }

    let config = body.bytes(config_bytes as usize)?;
    let mut image = Image::blank(geometry, mode, 0);
    for superblock in &mut image.superblocks {
        *superblock = Arc::new(read_superblock(&mut body, geometry, mode)?);
    }

    // Lines are appended as they are read, so that a false NVRAM size ends at the end of the file,
    // and not in a huge allocation.
    image.nvram.clear();
    let words = usize::try_from(header.nvram_words).map_err(|_| damaged("NVRAM size"))?;
    for _ in 0..words.div_ceil(LINE_WORDS) {
        let mut line = [0u64; LINE_WORDS];
        body.exact(line.as_mut_bytes())?;
        image.nvram.push(Arc::new(line));
    }
    image.nvram_words = words;

    body.check_hash()?;
    Ok((image, config))
}

impl ImageHeader {
    /// Checks the header of an untrusted file, and returns the shape and mode of the pages.
    fn check(&self) -> Result<(Geometry, ContentMode), ImageError> {
        if self.magic != MAGIC {
            return Err(ImageError::NotAnImage);
        }
        if self.version != VERSION {
            return Err(ImageError::Version(self.version));
        }

        let mode = match self.mode {
            0 => ContentMode::None,
            1 => ContentMode::Identity,
            2 => ContentMode::Bytes,
            other => return Err(damaged(format!("content mode {other}"))),
        };

        let shape = Shape {
            channels: self.channels & ((1 << GROUPS_SHIFT) - 1),
            dies: self.dies & ((1 << WORD_LINE_SHIFT) - 1),
            superblocks: self.superblocks,
            pages_per_block: self.pages_per_block,
        };
        let groups = (self.channels >> GROUPS_SHIFT) + 1;
        let word_line = WordLine::from_code(self.dies >> WORD_LINE_SHIFT)
            .ok_or_else(|| damaged("unknown word lines"))?;
        let geometry = Geometry::grouped(shape, groups)
            .and_then(|geometry| geometry.with_word_line(word_line))
            .map_err(|error| damaged(error.to_string()))?;
        Ok((geometry, mode))
    }
}

fn read_superblock<R: Read>(
    body: &mut ImageBody<R>,
    geometry: Geometry,
    mode: ContentMode,
) -> Result<NandArray, ImageError> {
    let geometry = single(geometry);
    // Rows first, in a separate vector: the array of pages is allocated only after these bytes have
    // been read.
    let mut rows = Vec::new();
    for block in 0..geometry.blocks() {
        let (next_row, erases, spoiled) = (body.u32()?, body.u32()?, body.u32()?);
        if next_row > geometry.pages_per_block() || spoiled > 1 {
            return Err(damaged(format!(
                "block {block} has {next_row} rows programmed"
            )));
        }
        rows.push((next_row, erases, spoiled));
    }

    let mut sb = NandArray::new(geometry, mode);
    for (block, (next_row, erases, spoiled)) in rows.into_iter().enumerate() {
        sb.next_row[block] = next_row;
        sb.erase_counts[block] = erases;
        if spoiled == 1 {
            sb.spoiled.insert(block as u32);
        }
    }

    for page in 0..geometry.pages() {
        if !sb.is_programmed(Ppn(page)) {
            continue;
        }

        let at = page as usize;
        let kind = body.byte()?;
        if kind > 7 {
            return Err(damaged(format!("page kind {kind}")));
        }

        let mut oob = [0; OOB_BYTES];
        body.exact(&mut oob)?;
        sb.oob[at] = oob;
        if kind & 4 != 0 {
            sb.put_second(at, SecondOwner::from_bits(body.u32()?));
        }
        if kind & 1 != 0 {
            sb.torn.insert(page);
        }

        if kind & 2 != 0 {
            let len = body.u32()? as usize;
            if len > PAGE_BYTES {
                return Err(damaged(format!("a metadata page of {len} bytes")));
            }
            sb.adopt_meta(page, body.bytes(len)?.into());
        }

        match &mut sb.contents {
            PageContents::None => {}
            PageContents::Mapped(_) => unreachable!("an image is a copy in memory"),
            PageContents::Identity(cells) => {
                let mut identity = [0; 8];
                body.exact(&mut identity)?;
                cells.set(at, u64::from_le_bytes(identity));
            }
            PageContents::Bytes(cells) => {
                if body.byte()? == 1 {
                    cells[at] = Some(body.bytes(geometry.page_bytes())?.into());
                }
            }
        }
    }

    Ok(sb)
}

/// A stream with a running hash of its bytes.
pub(crate) struct HashingStream<T> {
    pub(crate) inner: T,
    pub(crate) hash: blake3::Hasher,
}

impl<T: Read> Read for HashingStream<T> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(bytes)?;
        self.hash.update(&bytes[..read]);
        Ok(read)
    }
}

impl<T: Write> Write for HashingStream<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hash.update(&bytes[..written]);
        Ok(written)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

struct ImageBody<R> {
    inner: HashingStream<R>,
    left: u64,
    limit: u64,
}

impl<R: Read> ImageBody<R> {
    fn exact(&mut self, out: &mut [u8]) -> Result<(), ImageError> {
        // Counted before reading: a compressed stream can unpack to any size.
        self.left = self
            .left
            .checked_sub(out.len() as u64)
            .ok_or(ImageError::TooLarge(self.limit))?;
        self.inner
            .inner
            .read_exact(out)
            .map_err(|error| damaged(format!("it cannot be unpacked ({error})")))?;
        self.inner.hash.update(out);
        Ok(())
    }

    /// Compares the stream's hash, which follows the last byte, with that of the bytes read.
    fn check_hash(mut self) -> Result<(), ImageError> {
        let expected = self.inner.hash.finalize();
        let mut found = [0; 32];
        self.inner
            .inner
            .read_exact(&mut found)
            .map_err(|_| damaged("it ends before its hash"))?;
        if found != *expected.as_bytes() {
            return Err(damaged("its hash does not match"));
        }
        Ok(())
    }

    fn byte(&mut self) -> Result<u8, ImageError> {
        let mut byte = [0];
        self.exact(&mut byte)?;
        Ok(byte[0])
    }
    fn u32(&mut self) -> Result<u32, ImageError> {
        let mut bytes = [0; 4];
        self.exact(&mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }
    fn bytes(&mut self, len: usize) -> Result<Vec<u8>, ImageError> {
        let mut bytes = vec![0; len];
        self.exact(&mut bytes)?;
        Ok(bytes)
    }
}
