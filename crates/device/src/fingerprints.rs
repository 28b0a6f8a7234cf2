//! Keeps the fingerprint store across shutdowns, and rebuilds missing fingerprints from the pages.
//!
//! ```text
//! header   32 bytes
//! records  36 bytes each: flash page (4), digest of its contents (32)
//! hash     32 bytes: BLAKE3 of all before
//! ```
//! The file `fingerprints` is written at a clean shutdown, after the state it belongs to, and names
//! that state's generation. Opening a folder begins a new generation before anything changes, and
//! removes the file.
//!
//! Order: 1. the last state, durable  2. the file under a temporary name, durable  3. its rename  4.
//! the device is opened: a state of the next generation, durable  5. anything changes. Cut before 3:
//! there is no file of this generation, and any other is ignored. Between 3 and 4: state and file
//! match. After 4: no state has the file's generation any more, so a file that was not removed is
//! ignored.
//!
//! A file with the right generation may still not match the contents (a folder assembled from two
//! copies). So the firmware compares a page with its saved digest at the first hit, before it maps
//! anything to the page.
//!
//! Invariant: the file affects only how many duplicates are found. Absent: when pages are read, and
//! by which thread (the service).

use crate::device::Device;
use crate::fingerprint_outcome::{Fingerprints, SavedFingerprints};
use remap_ssd_ftl::{FingerprintKind, UnknownPage};
use remap_ssd_media::Ppn;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, little_endian as le};

const NAME: &str = "fingerprints";
const MAGIC: [u8; 8] = *b"RMPFPRNT";
const VERSION: u32 = 1;
const BUFFER_BYTES: usize = 1 << 20;
/// Pages of 4 KiB listed, read and entered at a time: the device waits for tens of microseconds.
const SLICE: u32 = 256;
/// Maximum number of passes over the device: garbage collection may move pages to places that a
/// pass has already covered; the next pass finds them.
const PASSES: u32 = 8;

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct FingerprintsHeader {
    magic: [u8; 8],
    version: le::U32,
    kind: le::U32,
    /// Generation of the state that the file belongs to.
    generation: le::U64,
    records: le::U64,
}

const _: () = assert!(size_of::<FingerprintsHeader>() == 32);

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct FingerprintRecord {
    page: le::U32,
    digest: [u8; 32],
}

const _: () = assert!(size_of::<FingerprintRecord>() == 36);

fn number(kind: FingerprintKind) -> u32 {
    // These numbers are persisted, so they must not change.
    match kind {
        FingerprintKind::Blake3 => 0,
        FingerprintKind::Murmur3 => 1,
    }
}

impl Device {
    /// Reads the fingerprints saved with the state of this generation. Removes the file in any
    /// case.
    pub(crate) fn recall_fingerprints(&mut self, dir: &Path, generation: Option<u64>) {
        if self.ftl().deduplicates() {
            self.fingerprints = match self.recall_from(&dir.join(NAME), generation) {
                Ok(pages) => Fingerprints::Recalled(pages),
                Err(why) => Fingerprints::Ignored(why),
            };
        }
        // Not needed for safety: after power-on no state has the file's generation.
        let _ = std::fs::remove_file(dir.join(NAME));
        let _ = std::fs::remove_file(aside(dir));
    }

    fn recall_from(&mut self, path: &Path, generation: Option<u64>) -> Result<u64, String> {
        let file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err("the last shutdown has not saved them".into());
            }
            file => file.map_err(|error| error.to_string())?,
        };
        let mut source = BufReader::with_capacity(BUFFER_BYTES, file);
        let header: FingerprintsHeader = read(&mut source).map_err(|error| error.to_string())?;
        if header.magic != MAGIC || header.version != VERSION {
            return Err("the file holds none of this version".into());
        }
        // A state of another generation may have other pages at these places.
        if generation != Some(header.generation.get()) {
            return Err("the file belongs to an earlier state of the device".into());
        }
        if header.kind != number(self.config().firmware.fingerprint) {
            return Err("the file holds digests of another kind".into());
        }

        // Read twice, so that nothing from a damaged file is used.
        if !is_whole(&mut source, &header).map_err(|error| error.to_string())? {
            return Err("the file does not have its hash".into());
        }
        let mut source = source.into_inner();
        io::Seek::rewind(&mut source).map_err(|error| error.to_string())?;
        let mut source = BufReader::with_capacity(BUFFER_BYTES, source);
        let header: FingerprintsHeader = read(&mut source).map_err(|error| error.to_string())?;
        let mut recalled = 0;
        for _ in 0..header.records.get() {
            let record: FingerprintRecord = read(&mut source).map_err(|error| error.to_string())?;
            recalled +=
                u64::from(self.untimed(|ftl| ftl.recall(Ppn(record.page.get()), record.digest)));
        }
        Ok(recalled)
    }

    /// Saves all known fingerprints. The state on disk must be current.
    pub(crate) fn save_fingerprints(&self) -> SavedFingerprints {
        let (Some(dir), Some(generation)) = (&self.dir, self.ftl().media().generation()) else {
            return SavedFingerprints::None;
        };
        if !self.ftl().deduplicates() {
            return SavedFingerprints::None;
        }
        let aside = aside(dir);
        match self.write_fingerprints(dir, &aside, generation) {
            Ok(pages) => SavedFingerprints::Saved(pages),
            Err(error) => {
                // An incomplete file is useless, and takes space.
                let _ = std::fs::remove_file(aside);
                SavedFingerprints::Failed(error)
            }
        }
    }

    fn write_fingerprints(&self, dir: &Path, aside: &Path, generation: u64) -> io::Result<u64> {
        // Counted first, since the header precedes the records.
        let records = self.ftl().known_digests().count() as u64;
        let kind = number(self.config().firmware.fingerprint).into();
        let header = FingerprintsHeader {
            magic: MAGIC,
            version: VERSION.into(),
            kind,
            generation: generation.into(),
            records: records.into(),
        };

        let mut hash = blake3::Hasher::new();
        let mut sink = BufWriter::with_capacity(BUFFER_BYTES, File::create(aside)?);
        let mut put = |sink: &mut BufWriter<File>, bytes: &[u8]| {
            hash.update(bytes);
            sink.write_all(bytes)
        };

        put(&mut sink, header.as_bytes())?;
        for (ppn, digest) in self.ftl().known_digests() {
            put(
                &mut sink,
                FingerprintRecord {
                    page: ppn.0.into(),
                    digest: *digest,
                }
                .as_bytes(),
            )?;
        }

        sink.write_all(hash.finalize().as_bytes())?;
        sink.into_inner()
            .map_err(io::IntoInnerError::into_error)?
            .sync_all()?;

        // The rename comes last, so a file of this name is complete.
        std::fs::rename(aside, dir.join(NAME))?;

        // A name is durable only once its folder is synced.
        File::open(dir)?.sync_all()?;
        Ok(records)
    }
}

fn aside(dir: &Path) -> PathBuf {
    dir.join(format!("{NAME}.part"))
}

fn read<T: FromBytes + IntoBytes>(source: &mut impl Read) -> io::Result<T> {
    let mut value = T::new_zeroed();
    source.read_exact(value.as_mut_bytes())?;
    Ok(value)
}

/// Returns true if the file ends with the hash of everything before it.
fn is_whole(source: &mut impl Read, header: &FingerprintsHeader) -> io::Result<bool> {
    let mut hash = blake3::Hasher::new();
    hash.update(header.as_bytes());

    // A damaged header may claim any number of records.
    let Some(bytes) = header
        .records
        .get()
        .checked_mul(size_of::<FingerprintRecord>() as u64)
    else {
        return Ok(false);
    };
    io::copy(&mut source.take(bytes), &mut hash)?;
    let mut kept = [0; 32];
    source.read_exact(&mut kept)?;
    Ok(hash.finalize() == kept)
}

/// Reads and hashes the pages with unknown fingerprints of a device in a folder, in slices, while
/// the device is in use: `list` and `enter` hold the device for some tens of microseconds each, and
/// `read` does not need it.
pub struct Relearner {
    contents: File,
    kind: FingerprintKind,
    /// Bytes of a flash page: of the indirection unit.
    page_bytes: usize,
    from: Ppn,
    passes: u32,
    entered_in_pass: u64,
    entered: u64,
}

impl Relearner {
    /// Starts relearning the device in this folder.
    ///
    /// # Errors
    /// The system's reason.
    pub fn new(dir: &Path, device: &Device) -> io::Result<Self> {
        let (contents, kind) = (
            Device::contents_file(dir)?,
            device.config().firmware.fingerprint,
        );
        Ok(Self {
            contents,
            kind,
            page_bytes: device.config().geometry.page_bytes(),
            from: Ppn(0),
            passes: 0,
            entered_in_pass: 0,
            entered: 0,
        })
    }

    /// Pages entered in the fingerprint store so far.
    pub fn entered(&self) -> u64 {
        self.entered
    }

    /// The pages of the next slice, possibly none; `None` when all are done.
    pub fn list(&mut self, device: &Device) -> Option<Vec<UnknownPage>> {
        if self.passes == PASSES {
            return None;
        }
        let slice = SLICE / device.config().geometry.host_pages();
        let (pages, next) = device.ftl().unknown_pages(self.from, slice as usize);
        self.from = next.unwrap_or(Ppn(0));
        if next.is_none() {
            // A whole pass that lists and enters nothing ends the job: no page is unknown any more.
            self.passes = if self.entered_in_pass == 0 && pages.is_empty() {
                PASSES
            } else {
                self.passes + 1
            };
            self.entered_in_pass = 0;
        }
        Some(pages)
    }

    /// Reads and hashes pages. Their contents do not change until their superblock is erased, which
    /// `enter` detects.
    ///
    /// # Errors
    /// The system's reason.
    pub fn read(&self, pages: &[UnknownPage]) -> io::Result<Vec<(UnknownPage, [u8; 32])>> {
        let mut bytes = vec![0; self.page_bytes];
        let digest = |page: &UnknownPage| {
            let offset = u64::from(page.ppn.0) * self.page_bytes as u64;
            self.contents.read_exact_at(&mut bytes, offset)?;
            Ok((*page, self.kind.digest(&bytes)))
        };
        pages.iter().map(digest).collect()
    }

    /// Enters the digests of a slice.
    pub fn enter(&mut self, device: &mut Device, digests: Vec<(UnknownPage, [u8; 32])>) {
        let entered = device.untimed(|ftl| {
            let enter =
                |(page, digest): (UnknownPage, [u8; 32])| u64::from(ftl.learn_page(page, digest));
            digests.into_iter().map(enter).sum::<u64>()
        });
        self.entered_in_pass += entered;
        self.entered += entered;
    }
}
