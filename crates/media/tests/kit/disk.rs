//! The disk of a folder: a model of its files after a crash of the machine.
//!
//! In a test program with this module, `fdatasync`, `fsync` and `msync` of the C library are
//! replaced by the ones below: they write nothing, but record which bytes the caller may rely on.
//! After a crash, each sector may have any of its contents since it was last made durable,
//! independently; a file whose name was not made durable may be missing, and one that was renamed
//! over another one may still have its old name. So a missing call is detected in any code.
//!
//! One folder per thread. Absent: failing reads, and disks that lie.

#![allow(dead_code)]

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const SECTOR: usize = 512;
/// Page size of memory, the unit of `msync`.
const PAGE: usize = 4096;
/// Flag of `msync`: return when the pages are written.
const MS_SYNC: c_int = 4;

/// The possible contents of each sector, the newest last.
type Sectors = Vec<Vec<Box<[u8]>>>;

#[derive(Clone)]
struct Disk {
    dir: PathBuf,
    files: BTreeMap<String, Sectors>,
    /// Files replaced under their names, where no sync has made that durable.
    replaced: BTreeMap<String, Sectors>,
    /// By inode, since files are renamed.
    names: BTreeMap<u64, String>,
    named: BTreeSet<String>,
    syncs: u64,
    fails: bool,
    /// Number of syncs until it fails; never by default.
    fails_after: u64,
}

/// The possible contents of the disk at one instant.
pub struct Moment(Disk);

thread_local! {
    static DISK: RefCell<Option<Disk>> = const { RefCell::new(None) };
    /// The disk right before each sync, while recording.
    static MOMENTS: RefCell<Option<Vec<Moment>>> = const { RefCell::new(None) };
}

/// Every instant at which `work` was about to make something durable, and the one at its end.
pub fn moments(work: impl FnOnce()) -> Vec<Moment> {
    MOMENTS.set(Some(Vec::new()));
    work();
    look();
    let mut moments = MOMENTS.take().expect("they were recorded");
    moments.push(Moment(
        DISK.with_borrow(|disk| disk.as_ref().expect("attached").clone()),
    ));
    moments
}

impl Moment {
    /// Crashes the machine at this moment, like `crash`.
    pub fn crash(&self, to: &Path, below: impl FnMut(u64) -> u64) {
        self.0.crash(to, below);
    }
}

/// Makes a folder this thread's; its contents are durable.
pub fn attach(dir: &Path) {
    let dir = dir.canonicalize().expect("the folder is there");
    let mut disk = Disk {
        dir,
        files: BTreeMap::new(),
        replaced: BTreeMap::new(),
        names: BTreeMap::new(),
        named: BTreeSet::new(),
        syncs: 0,
        fails: false,
        fails_after: u64::MAX,
    };
    disk.look();
    disk.named = disk.files.keys().cloned().collect();
    let names: Vec<String> = disk.files.keys().cloned().collect();
    names
        .iter()
        .for_each(|name| disk.is_durable(name, 0..usize::MAX));
    DISK.set(Some(disk));
}

/// Records the present contents of the files. Between two calls a sector should change once at
/// most.
pub fn look() {
    DISK.with_borrow_mut(|disk| disk.as_mut().expect("attached").look());
}

/// Number of syncs so far.
pub fn syncs() -> u64 {
    DISK.with_borrow(|disk| disk.as_ref().expect("attached").syncs)
}

/// Makes the disk fail all syncs, or work again.
pub fn fail(fails: bool) {
    DISK.with_borrow_mut(|disk| disk.as_mut().expect("attached").fails = fails);
}

/// Makes the disk fail after this many more syncs.
pub fn fail_after(syncs: u64) {
    DISK.with_borrow_mut(|disk| disk.as_mut().expect("attached").fails_after = syncs);
}

/// Crashes the machine now: copies the surviving files to another folder. `below(n)` draws a number
/// below n.
pub fn crash(to: &Path, below: impl FnMut(u64) -> u64) {
    look();
    DISK.with_borrow(|disk| disk.as_ref().expect("attached").crash(to, below));
}

impl Disk {
    fn crash(&self, to: &Path, mut below: impl FnMut(u64) -> u64) {
        for (name, sectors) in &self.files {
            if !self.named.contains(name) && below(2) == 0 {
                continue;
            }
            let replaced = self.replaced.get(name).filter(|_| below(2) == 0);
            let mut left = Vec::with_capacity(sectors.len() * SECTOR);
            for held in replaced.unwrap_or(sectors) {
                left.extend_from_slice(&held[below(held.len() as u64) as usize]);
            }
            std::fs::write(to.join(name), left).expect("there is room");
        }
    }

    fn look(&mut self) {
        let mut inodes = BTreeSet::new();
        for entry in std::fs::read_dir(&self.dir).expect("the folder is there") {
            let entry = entry.expect("it can be read");
            let name = entry.file_name().into_string().expect("our names");
            if name == "lock" || !entry.file_type().expect("it has one").is_file() {
                continue;
            }
            let inode = entry.metadata().expect("it has some").ino();
            inodes.insert(inode);
            if let Some(before) = self
                .names
                .insert(inode, name.clone())
                .filter(|before| *before != name)
                && let Some(sectors) = self.files.remove(&before)
                && let Some(replaced) = self.files.insert(name.clone(), sectors)
            {
                // Keeps the oldest one, whose name is durable.
                self.replaced.entry(name.clone()).or_insert(replaced);
            }
            let bytes = std::fs::read(entry.path()).expect("it can be read");
            let sectors = self.files.entry(name).or_default();
            sectors.truncate(bytes.len().div_ceil(SECTOR));
            for (at, sector) in bytes.chunks(SECTOR).enumerate() {
                match sectors.get_mut(at) {
                    // A file that has just been extended is zeroes.
                    None => sectors.push(if sector.iter().all(|byte| *byte == 0) {
                        vec![sector.into()]
                    } else {
                        vec![vec![0; sector.len()].into(), sector.into()]
                    }),
                    Some(held) if **held.last().expect("never empty") != *sector => {
                        held.push(sector.into())
                    }
                    Some(_) => {}
                }
            }
        }

        let exists = |name: &String| self.dir.join(name).exists();
        self.files.retain(|name, _| exists(name));
        // The next file may get the inode of a deleted one.
        self.names.retain(|inode, _| inodes.contains(inode));
    }

    fn is_durable(&mut self, name: &str, bytes: Range<usize>) {
        let Some(sectors) = self.files.get_mut(name) else {
            return;
        };
        let end = bytes.end.div_ceil(SECTOR).min(sectors.len());
        for held in &mut sectors[(bytes.start / SECTOR).min(end)..end] {
            held.drain(..held.len() - 1);
        }
    }

    /// The name of a file of the folder; empty for the folder itself.
    fn name_of(&self, path: &Path) -> Option<String> {
        if path == self.dir {
            return Some(String::new());
        }
        let name = path.strip_prefix(&self.dir).ok()?;
        Some(name.to_str()?.to_owned())
    }

    fn sync(&mut self, path: &Path, bytes: Range<usize>) -> c_int {
        let Some(name) = self.name_of(path) else {
            return 0;
        };
        if self.fails || self.fails_after == 0 {
            return -1;
        }
        self.fails_after -= 1;
        self.syncs += 1;
        self.look();
        MOMENTS.with_borrow_mut(|moments| {
            if let Some(moments) = moments {
                moments.push(Moment(self.clone()));
            }
        });
        if name.is_empty() {
            self.named = self.files.keys().cloned().collect();
            self.replaced.clear();
        } else {
            self.is_durable(&name, bytes);
        }
        0
    }
}

/// Does nothing without an attached folder: tests do not survive a crash of the machine.
fn sync(path: Option<PathBuf>, bytes: Range<usize>) -> c_int {
    let (Some(path), Ok(is_attached)) = (path, DISK.try_with(|disk| disk.borrow().is_some()))
    else {
        return 0;
    };
    if is_attached {
        DISK.with_borrow_mut(|disk| disk.as_mut().map_or(0, |disk| disk.sync(&path, bytes)))
    } else {
        0
    }
}

/// The file mapped at an address, and the offset in the file.
fn mapped_at(address: usize) -> Option<(PathBuf, usize)> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines().find_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let (begin, end) = fields.next()?.split_once('-')?;
        let number = |text: &str| usize::from_str_radix(text, 16).ok();
        let (begin, end, offset) = (number(begin)?, number(end)?, number(fields.nth(1)?)?);
        let path = fields.nth(2)?;
        (begin..end)
            .contains(&address)
            .then(|| (PathBuf::from(path), address - begin + offset))
    })
}

fn file_of(fd: c_int) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{fd}")).ok()
}

// SAFETY: these replace the C library's functions of the same names and types for the whole
// program. They read no memory of the caller's, and guarantee less than the originals where no
// folder is attached, which no test relies on.
#[unsafe(no_mangle)]
extern "C" fn fdatasync(fd: c_int) -> c_int {
    sync(file_of(fd), 0..usize::MAX)
}

// SAFETY: as above.
#[unsafe(no_mangle)]
extern "C" fn fsync(fd: c_int) -> c_int {
    sync(file_of(fd), 0..usize::MAX)
}

// SAFETY: as above; the address is looked up and not dereferenced.
#[unsafe(no_mangle)]
extern "C" fn msync(address: *mut c_void, len: usize, flags: c_int) -> c_int {
    match mapped_at(address.addr()) {
        Some((path, at)) if flags & MS_SYNC != 0 => sync(
            Some(path),
            at / PAGE * PAGE..(at + len).next_multiple_of(PAGE),
        ),
        _ => 0,
    }
}
