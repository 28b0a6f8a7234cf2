//! Files of a volume: copies, and snapshots of one, several or all files, by sharing pages.
//!
//! A snapshot NAME of the files A and B consists of the files `A@NAME` and `B@NAME`, and a
//! *manifest*, whose name is the state:
//!
//! ```text
//! @NAME            the snapshot is complete
//! @NAME!part       it is being made or deleted: not a snapshot
//! @NAME!rollback   it is complete, and its files are being rolled back to it
//! ```
//!
//! A rename writes one page (`Volume`), so each change of state is atomic:
//!
//! *Create*: 1. manifest `!part`, synced  2. the copies  3. sync of all  4. rename to `@NAME`. Cut
//! before the end of 1: nothing, or an invalid manifest and no copy. Cut before 4: `!part`; the
//! next create or delete removes the files that it lists. None of these existed before 1, so no
//! other file is removed. Cut in 4: `!part`, or complete; the copies are durable because of 3.
//!
//! *Delete*: 1. rename to `!part`  2. the copies are deleted  3. the manifest is. Cut before the
//! end of 1: complete. Later: no snapshot, and the next delete continues with 2.
//!
//! *Roll back*: 1. rename to `!rollback`  2. the files share the copies' pages and get their
//! sizes  3. sync of all  4. rename to `@NAME`. Cut before the end of 1: the files are unchanged.
//! Cut before the end of 4: each page is old or the snapshot's, and the manifest says so; the
//! copies have not changed, so the rollback can be repeated. Until it is, no snapshot can be made.
//!
//! *Copy* of a file: 1. the pages, under `TARGET@!copy`  2. sync  3. rename to TARGET. Cut before
//! 3: no TARGET, and the next copy removes the leftover.
//!
//! Invariants: a snapshot's files are those that its manifest lists; a rollback changes no other
//! file. If the volume is open exclusively, a snapshot is a point in the order of all processes'
//! operations. Absent: opening the volume.

use remap_ssd_store::{Create, FileId, OpenOptions, Share, Store, StoreError};
use serde::{Deserialize, Serialize};

/// A snapshot of files, complete or interrupted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSnapshot {
    /// Name of the snapshot, without the marks of its manifest.
    pub name: String,
    /// Time of creation: seconds since 1970.
    pub made_at: u64,
    /// State of the snapshot.
    pub state: FileState,
    /// The files in the snapshot, and their sizes.
    pub files: Vec<FileInSnapshot>,
}

/// A file in a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileInSnapshot {
    /// Name of the original file.
    pub name: String,
    /// Its size in bytes when the snapshot was made.
    pub bytes: u64,
}

/// State of a snapshot, encoded in its manifest's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileState {
    /// The snapshot is complete and can be used.
    Complete,
    /// It is being made or deleted: not a snapshot.
    Part,
    /// It is complete, and its files are being rolled back to it.
    RollingBack,
}

impl FileSnapshot {
    /// Bytes of all its files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// The snapshot as JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::json!({
            "name": self.name, "made_at": self.made_at, "state": self.state.described(), "bytes": self.bytes(),
            "usable": self.state != FileState::Part, "files": self.files,
        })
    }
}

impl FileState {
    /// The state in words.
    pub fn described(self) -> &'static str {
        match self {
            Self::Complete => "whole",
            Self::Part => "interrupted while it was made or deleted",
            Self::RollingBack => "rollback interrupted",
        }
    }

    const ALL: [Self; 3] = [Self::Complete, Self::Part, Self::RollingBack];

    fn manifest(self, name: &str) -> String {
        match self {
            Self::Complete => format!("@{name}"),
            Self::Part => format!("@{name}!part"),
            Self::RollingBack => format!("@{name}!rollback"),
        }
    }
}

/// Why an operation on files failed. Each message is a sentence.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// The store refused or failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The request is invalid, regardless of the files.
    #[error("{0}")]
    Usage(String),
    /// The current state does not allow the request.
    #[error("{0}")]
    Refused(String),
}

#[derive(Serialize, Deserialize)]
struct Manifest {
    version: u32,
    made_at: u64,
    files: Vec<FileInSnapshot>,
}

const VERSION: u32 = 1;
/// Largest manifest: 65,536 files with names of 255 bytes.
const MANIFEST_BYTES_MAX: u64 = 64 << 20;

/// Encodes a manifest: a line of JSON, and a line with its CRC-32C.
fn encode(manifest: &Manifest) -> String {
    let text = serde_json::to_string(manifest).unwrap_or_default();
    let crc = crc32c::crc32c(text.as_bytes());
    format!("{text}\n{crc:08x}\n")
}

/// Decodes a manifest; `None` if it is invalid.
fn decode(bytes: &[u8]) -> Option<Manifest> {
    let (text, crc) = std::str::from_utf8(bytes).ok()?.split_once('\n')?;
    if crc.trim_end() != format!("{:08x}", crc32c::crc32c(text.as_bytes())) {
        return None;
    }
    serde_json::from_str(text)
        .ok()
        // A later version may give other meanings to the same fields, so its manifests are not
        // read.
        .filter(|manifest: &Manifest| manifest.version == VERSION)
}

fn copy_name(file: &str, snapshot: &str) -> String {
    format!("{file}@{snapshot}")
}

fn read_all(store: &dyn Store, name: &str) -> Result<Vec<u8>, StoreError> {
    let file = store.open(name, OpenOptions::default())?;
    // Any file may begin with `@`: a file that is no manifest must not be read into memory as a
    // whole.
    let mut bytes = vec![0; store.size(file)?.min(MANIFEST_BYTES_MAX) as usize];
    let read = store.read(file, 0, &mut bytes)?;
    bytes.truncate(read);
    Ok(bytes)
}

/// Deletes a file if it exists.
fn remove(store: &dyn Store, name: &str) -> Result<(), StoreError> {
    match store.delete(name) {
        Err(StoreError::NotFound(_)) | Ok(()) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Lists all snapshots of files in a volume, by name.
///
/// # Errors
/// A disk error.
pub fn list(store: &dyn Store) -> Result<Vec<FileSnapshot>, FilesError> {
    let mut found = Vec::new();

    // Names encode the state, so listing needs no other record.
    for info in store.list()? {
        let Some(rest) = info.name.strip_prefix('@') else {
            continue;
        };

        let (name, state) = match rest.split_once('!') {
            None => (rest, FileState::Complete),
            Some((name, "part")) => (name, FileState::Part),
            Some((name, "rollback")) => (name, FileState::RollingBack),
            Some(_) => continue,
        };

        let manifest = decode(&read_all(store, &info.name)?);
        match manifest {
            Some(Manifest { made_at, files, .. }) => {
                found.push(FileSnapshot {
                    name: name.to_owned(),
                    made_at,
                    state,
                    files,
                });
            }
            // The manifest was cut off before its sync: there are no copies yet. In any other
            // state, a file with such a name is no manifest.
            None if state == FileState::Part => {
                found.push(FileSnapshot {
                    name: name.to_owned(),
                    made_at: 0,
                    state,
                    files: Vec::new(),
                });
            }
            None => {}
        }
    }

    // Sorted by name, so that two listings can be compared.
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

fn unfinished(snapshots: &[FileSnapshot]) -> Result<(), FilesError> {
    match snapshots
        .iter()
        .find(|one| one.state == FileState::RollingBack)
    {
        None => Ok(()),
        Some(FileSnapshot { name, .. }) => Err(FilesError::Refused(format!(
            "a rollback to snapshot {name} was interrupted: first finish it with `share snapshot rollback {name}`"
        ))),
    }
}

fn find<'a>(snapshots: &'a [FileSnapshot], name: &str) -> Result<&'a FileSnapshot, FilesError> {
    // A name has one snapshot: its manifest is renamed from state to state, never copied.
    let found = snapshots.iter().find(|one| one.name == name);
    found.ok_or_else(|| FilesError::Refused(format!("there is no snapshot {name} in the volume")))
}

/// Makes a snapshot of the given files, or of all files that belong to no snapshot.
///
/// # Errors
/// The name is taken, a file is missing, there is no room for names, or the disk failed. Then there
/// is no snapshot; but after a disk error there may be one, which is complete.
pub fn create(
    store: &dyn Store,
    name: &str,
    wanted: &[String],
    now: u64,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<FileSnapshot, FilesError> {
    crate::record::check_name(name).map_err(FilesError::Usage)?;
    let known = list(store)?;

    // An interrupted rollback must be finished first: its files mix two points in time.
    unfinished(&known)?;
    match known.iter().find(|one| one.name == name) {
        Some(part) if part.state == FileState::Part => remove_part(store, part)?,
        Some(_) => {
            return Err(FilesError::Refused(format!(
                "there is a snapshot {name} already: choose another name, or delete it"
            )));
        }
        None => {}
    }

    // All names are checked before the first file is copied.
    let files = chosen(store, &known, wanted)?;
    for file in &files {
        let copy = copy_name(&file.name, name);
        match store.open(&copy, OpenOptions::default()) {
            Ok(_) => return Err(StoreError::Exists(copy).into()),
            Err(StoreError::NotFound(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }

    // Steps of "Create", above.
    let part = FileState::Part.manifest(name);
    let snapshot = FileSnapshot {
        name: name.to_owned(),
        made_at: now,
        state: FileState::Part,
        files,
    };
    let made = begin(store, &part, &snapshot)
        .and_then(|()| copy_all(store, &snapshot, Direction::Save, progress))
        .and_then(|()| Ok(store.sync_all()?));
    if let Err(error) = made {
        // If this fails too, the manifest says that it is no snapshot. The first error is reported.
        let _ = remove_part(store, &snapshot);
        return Err(error);
    }

    // If this fails, either name may be on disk. Both are correct: the copies stay.
    store.rename(&part, &FileState::Complete.manifest(name))?;
    Ok(FileSnapshot {
        state: FileState::Complete,
        ..snapshot
    })
}

/// Chooses the files for a snapshot.
fn chosen(
    store: &dyn Store,
    known: &[FileSnapshot],
    wanted: &[String],
) -> Result<Vec<FileInSnapshot>, FilesError> {
    let all = store.list()?;
    let belongs = |name: &str| {
        let copies = known.iter().flat_map(|one| {
            one.files
                .iter()
                .map(|file| copy_name(&file.name, &one.name))
        });
        let manifests = known
            .iter()
            .flat_map(|one| FileState::ALL.map(|state| state.manifest(&one.name)));
        copies.chain(manifests).any(|other| other == name)
    };

    // The current size: later appends are not part of the snapshot.
    let in_snapshot = |info: &remap_ssd_store::FileInfo| FileInSnapshot {
        name: info.name.clone(),
        bytes: info.bytes,
    };

    // Without names: all files that do not belong to a snapshot.
    if wanted.is_empty() {
        let files: Vec<FileInSnapshot> = all
            .iter()
            .filter(|info| !belongs(&info.name))
            .map(in_snapshot)
            .collect();
        return if files.is_empty() {
            Err(FilesError::Refused(
                "there are no files in the volume to make a snapshot of".into(),
            ))
        } else {
            Ok(files)
        };
    }

    let mut files: Vec<FileInSnapshot> = Vec::new();
    for name in wanted {
        let info = all
            .iter()
            .find(|info| info.name == *name)
            .ok_or_else(|| StoreError::NotFound(name.clone()))?;
        // A name given twice is one file, with one copy.
        if !files.iter().any(|file| file.name == *name) {
            files.push(in_snapshot(info));
        }
    }
    Ok(files)
}

/// Writes the manifest of a snapshot about to be made.
fn begin(store: &dyn Store, part: &str, snapshot: &FileSnapshot) -> Result<(), FilesError> {
    // Written before the first copy, so that no copy exists without a manifest.
    let FileSnapshot { made_at, files, .. } = snapshot.clone();

    let file = store.open(part, Create::New.into())?;

    store.write(
        file,
        0,
        encode(&Manifest {
            version: VERSION,
            made_at,
            files,
        })
        .as_bytes(),
    )?;

    Ok(store.sync(file)?)
}

/// Direction of a copy: from files to snapshot, or back.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Save,
    Restore,
}

fn copy_all(
    store: &dyn Store,
    snapshot: &FileSnapshot,
    direction: Direction,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), FilesError> {
    // Progress counts bytes, since file sizes differ by orders of magnitude.
    let total = snapshot.files.iter().map(|file| file.bytes).sum();
    let mut done = 0;

    for file in &snapshot.files {
        let copy = copy_name(&file.name, &snapshot.name);
        match direction {
            Direction::Save => share_whole(store, &file.name, &copy, file.bytes)?,
            Direction::Restore => share_whole(store, &copy, &file.name, file.bytes)?,
        };
        done += file.bytes;
        progress(done, total);
    }
    Ok(())
}

/// Makes a file equal to the first `bytes` bytes of another; creates it if missing. Not durable
/// yet.
fn share_whole(store: &dyn Store, from: &str, to: &str, bytes: u64) -> Result<FileId, FilesError> {
    let source = store.open(from, OpenOptions::default())?;

    let target = store.open(to, Create::IfAbsent.into())?;

    // Truncated first, so that no page mixes the two files.
    if store.size(target)? > bytes {
        store.set_size(target, bytes)?;
    }

    store.share(&Share {
        from: source,
        from_offset: 0,
        to: target,
        to_offset: 0,
        bytes,
    })?;

    Ok(target)
}

/// Removes the files listed by a `!part` manifest, then the manifest.
fn remove_part(store: &dyn Store, snapshot: &FileSnapshot) -> Result<(), FilesError> {
    // The manifest goes last: without it the snapshot's files could not be identified.
    for file in &snapshot.files {
        remove(store, &copy_name(&file.name, &snapshot.name))?;
    }
    Ok(remove(store, &FileState::Part.manifest(&snapshot.name))?)
}

/// Deletes a snapshot, complete or interrupted.
///
/// # Errors
/// No such snapshot, an unfinished rollback to it, or a disk error.
pub fn delete(store: &dyn Store, name: &str) -> Result<FileSnapshot, FilesError> {
    let known = list(store)?;
    let snapshot = find(&known, name)?;

    // Renamed first: from then on it is no snapshot, however many of its files remain.
    match snapshot.state {
        FileState::RollingBack => unfinished(&known)?,
        FileState::Complete => store.rename(
            &FileState::Complete.manifest(name),
            &FileState::Part.manifest(name),
        )?,
        FileState::Part => {}
    }
    remove_part(store, snapshot)?;
    Ok(snapshot.clone())
}

/// Rolls the files of a snapshot back to it; also continues an interrupted rollback. Other files
/// are unchanged.
///
/// # Errors
/// No such snapshot, no room, or a disk error. If the rollback had begun, the manifest says so, and
/// the same call finishes it.
pub fn rollback(
    store: &dyn Store,
    name: &str,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<FileSnapshot, FilesError> {
    let known = list(store)?;
    let snapshot = find(&known, name)?;
    let (whole, under_way) = (
        FileState::Complete.manifest(name),
        FileState::RollingBack.manifest(name),
    );

    // The manifest announces the rollback before the first file changes.
    match snapshot.state {
        FileState::Part => {
            return Err(FilesError::Refused(format!(
                "snapshot {name} is not whole: it was interrupted while it was made or deleted; delete it"
            )));
        }
        FileState::Complete => {
            // A file may be in several snapshots; two concurrent rollbacks would mix their
            // contents.
            unfinished(&known)?;
            store.rename(&whole, &under_way)?;
        }
        FileState::RollingBack => {}
    }

    // Steps of "Roll back", above.
    copy_all(store, snapshot, Direction::Restore, progress)?;
    store.sync_all()?;
    store.rename(&under_way, &whole)?;
    Ok(FileSnapshot {
        state: FileState::Complete,
        ..snapshot.clone()
    })
}

/// Copies a file to a new one.
///
/// # Errors
/// The source is missing, the target exists, there is no room, or the disk failed. Then there is no
/// new file.
pub fn copy(store: &dyn Store, from: &str, to: &str) -> Result<u64, FilesError> {
    // Checked first, so that a missing source creates no file.
    let source = store.open(from, OpenOptions::default())?;
    match store.open(to, OpenOptions::default()) {
        Ok(_) => return Err(StoreError::Exists(to.into()).into()),
        Err(StoreError::NotFound(_)) => {}
        Err(error) => return Err(error.into()),
    }

    // Steps of "Copy", above. `!` cannot be in a snapshot's name, so no snapshot's copy has this
    // name.
    let aside = copy_name(to, "!copy");
    remove(store, &aside)?;
    let bytes = store.size(source)?;
    let copied = share_whole(store, from, &aside, bytes)
        .and_then(|target| Ok(store.sync(target)?))
        .and_then(|()| Ok(store.rename(&aside, to)?));
    if copied.is_err() {
        // If this fails too, the next copy to this name removes it. The first error is reported.
        let _ = remove(store, &aside);
    }
    copied.map(|()| bytes)
}
