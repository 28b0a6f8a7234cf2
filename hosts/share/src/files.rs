//! Files of a volume: copies, and snapshots of one, several or all of them, by sharing.
//!
//! A snapshot NAME of the files A and B is the files `A@NAME` and `B@NAME`, and a *manifest*, whose
//! name says what it is worth:
//!
//! ```text
//! @NAME            the snapshot is whole
//! @NAME!part       it is being made or deleted: it is no snapshot
//! @NAME!rollback   it is whole, and its files are being made the same as in it
//! ```
//!
//! Names change by one page written (`Volume`), so each change of state happens or not:
//!
//! *Create*: 1. manifest `!part`, synced  2. the copies  3. sync of all  4. rename to `@NAME`. Cut
//! before the end of 1: nothing, or a manifest that cannot be believed, beside which there is no
//! copy. Cut before 4: `!part`; the next create or delete removes what it lists. None of these was
//! there before 1, so no other file is removed. Cut in 4: `!part`, or whole; the copies are durable
//! because of 3.
//!
//! *Delete*: 1. rename to `!part`  2. the copies are deleted  3. the manifest is. Cut before the
//! end of 1: whole. Later: no snapshot, and the next delete goes on with 2.
//!
//! *Roll back*: 1. rename to `!rollback`  2. the files share the copies' pages and get their sizes  3. sync of all  4. rename to
//! `@NAME`. Cut before the end of 1: the files are as they were. Cut before the end of 4: each page is old or the snapshot's,
//! and the manifest says so; the copies have not changed, so the same can be done again. Meanwhile no snapshot can
//! be made.
//!
//! *Copy* of a file: 1. the pages, under `TARGET@!copy`  2. sync  3. rename to TARGET. Cut before
//! 3: no TARGET, and what is there is removed by the next copy.
//!
//! Invariants: a snapshot's files are those that its manifest lists; a rollback changes no other
//! file. The instant is one point in the order of what all processes did, if the volume has been
//! opened alone. Absent: opening it.

use remap_ssd_store::{Create, FileId, OpenOptions, Share, Store, StoreError};
use serde::{Deserialize, Serialize};

/// A snapshot of files, or what is left of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSnapshot {
    /// Name of the snapshot, without what marks its manifest.
    pub name: String,
    /// When it was made: seconds since 1970.
    pub made_at: u64,
    /// Whole, or what is under way.
    pub state: FileState,
    /// The files that are in it, and their sizes.
    pub files: Vec<FileInSnapshot>,
}

/// A file of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileInSnapshot {
    /// The name of the file that it is of.
    pub name: String,
    /// Its size in bytes when the snapshot was made.
    pub bytes: u64,
}

/// What a manifest's name says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileState {
    /// The snapshot is whole and can be used.
    Complete,
    /// It is being made or deleted: no snapshot.
    Part,
    /// It is whole, and the files are being made the same.
    RollingBack,
}

impl FileState {
    const ALL: [Self; 3] = [Self::Complete, Self::Part, Self::RollingBack];

    fn manifest(self, name: &str) -> String {
        match self {
            Self::Complete => format!("@{name}"),
            Self::Part => format!("@{name}!part"),
            Self::RollingBack => format!("@{name}!rollback"),
        }
    }
}

/// Why something was not done with files: each a sentence.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// The store refused or failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What was asked for cannot be, whatever the files are.
    #[error("{0}")]
    Usage(String),
    /// Something that is not so now.
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

/// A line of JSON, and a line with its CRC-32C.
fn encode(manifest: &Manifest) -> String {
    let text = serde_json::to_string(manifest).unwrap_or_default();
    let crc = crc32c::crc32c(text.as_bytes());
    format!("{text}\n{crc:08x}\n")
}

/// The manifest, if it is one.
fn decode(bytes: &[u8]) -> Option<Manifest> {
    let (text, crc) = std::str::from_utf8(bytes).ok()?.split_once('\n')?;
    if crc.trim_end() != format!("{:08x}", crc32c::crc32c(text.as_bytes())) {
        return None;
    }
    serde_json::from_str(text)
        .ok()
        // A later version may mean something else by the same words, so it is no manifest to this
        // one.
        .filter(|manifest: &Manifest| manifest.version == VERSION)
}

fn copy_name(file: &str, snapshot: &str) -> String {
    format!("{file}@{snapshot}")
}

fn read_all(store: &dyn Store, name: &str) -> Result<Vec<u8>, StoreError> {
    let file = store.open(name, OpenOptions::default())?;
    // Any file may begin with `@`: one that is no manifest must not be read into memory whole.
    let mut bytes = vec![0; store.size(file)?.min(MANIFEST_BYTES_MAX) as usize];
    let read = store.read(file, 0, &mut bytes)?;
    bytes.truncate(read);
    Ok(bytes)
}

/// Deletes a file if it is there.
fn remove(store: &dyn Store, name: &str) -> Result<(), StoreError> {
    match store.delete(name) {
        Err(StoreError::NotFound(_)) | Ok(()) => Ok(()),
        Err(error) => Err(error),
    }
}

/// All snapshots of files in a volume, by name.
///
/// # Errors
/// The disk.
pub fn list(store: &dyn Store) -> Result<Vec<FileSnapshot>, FilesError> {
    let mut found = Vec::new();

    // Names say what a snapshot is worth, so listing needs no other record.
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
            // It was cut off before it was synced: there are no copies yet. Another file of such a
            // name is no manifest.
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

    // By name, so that two listings can be compared.
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

/// Makes a snapshot of files, or of all that belong to no snapshot.
///
/// # Errors
/// There is one of this name, a file is missing, no room for names, the disk. There is no snapshot
/// then; but there may be one if the disk failed, and then it is whole.
pub fn create(
    store: &dyn Store,
    name: &str,
    wanted: &[String],
    now: u64,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<FileSnapshot, FilesError> {
    crate::record::check_name(name).map_err(FilesError::Usage)?;
    let known = list(store)?;

    // A rollback that was interrupted must be finished first: its files are of two times.
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

    // All names are looked for before the first file is copied.
    let files = chosen(store, &known, wanted)?;
    for file in &files {
        let copy = copy_name(&file.name, name);
        match store.open(&copy, OpenOptions::default()) {
            Ok(_) => return Err(StoreError::Exists(copy).into()),
            Err(StoreError::NotFound(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }

    // What "create" above says.
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
        // If this fails too, the manifest says that it is no snapshot; the first reason is the one
        // to report.
        let _ = remove_part(store, &snapshot);
        return Err(error);
    }

    // If this fails, nobody knows which of the two names is there. Each is true: the copies stay.
    store.rename(&part, &FileState::Complete.manifest(name))?;
    Ok(FileSnapshot {
        state: FileState::Complete,
        ..snapshot
    })
}

/// The files that are to be in a snapshot.
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

    // The size of now: what is written later is not part of the snapshot.
    let in_snapshot = |info: &remap_ssd_store::FileInfo| FileInSnapshot {
        name: info.name.clone(),
        bytes: info.bytes,
    };

    // Without names all files that are not of a snapshot themselves.
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
        // A name that is given twice is one file: it has one copy.
        if !files.iter().any(|file| file.name == *name) {
            files.push(in_snapshot(info));
        }
    }
    Ok(files)
}

/// Writes the manifest of a snapshot that is going to be made.
fn begin(store: &dyn Store, part: &str, snapshot: &FileSnapshot) -> Result<(), FilesError> {
    // Before the first copy, so that a copy without a manifest cannot be.
    let FileSnapshot { made_at, files, .. } = snapshot.clone();

    let file = store.open(
        part,
        OpenOptions {
            create: Create::New,
            open_end: false,
        },
    )?;

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

/// From the files to the copies, or back.
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
    // Progress is by bytes, since files differ in size by orders of magnitude.
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

/// Makes a file what the first `bytes` of another one are; it is made if there is none. Not durable
/// yet.
fn share_whole(store: &dyn Store, from: &str, to: &str, bytes: u64) -> Result<FileId, FilesError> {
    let source = store.open(from, OpenOptions::default())?;

    let target = store.open(
        to,
        OpenOptions {
            create: Create::IfAbsent,
            open_end: false,
        },
    )?;

    // Cut off first, so that no page has its beginning from one and its end from the other.
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

/// Removes what the manifest `!part` lists, and then the manifest.
fn remove_part(store: &dyn Store, snapshot: &FileSnapshot) -> Result<(), FilesError> {
    // The manifest goes last: without it nobody would know which files are the snapshot's.
    for file in &snapshot.files {
        remove(store, &copy_name(&file.name, &snapshot.name))?;
    }
    Ok(remove(store, &FileState::Part.manifest(&snapshot.name))?)
}

/// Deletes a snapshot, or what is left of one.
///
/// # Errors
/// There is none of this name, its files are being rolled back to it, or the disk.
pub fn delete(store: &dyn Store, name: &str) -> Result<FileSnapshot, FilesError> {
    let known = list(store)?;
    let snapshot = find(&known, name)?;

    // Renamed first: from then on it is no snapshot, whatever is left of it.
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

/// Makes the files of a snapshot what they were when it was made; also goes on with a rollback that
/// was interrupted. Other files stay as they are.
///
/// # Errors
/// There is no such snapshot, no room, or the disk. If it had begun, the manifest says so, and the
/// same call finishes it.
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

    // The manifest says what is under way before the first file changes.
    match snapshot.state {
        FileState::Part => {
            return Err(FilesError::Refused(format!(
                "snapshot {name} is not whole: it was interrupted while it was made or deleted; delete it"
            )));
        }
        FileState::Complete => {
            // Files may be in several snapshots; two rollbacks at once would mix their contents.
            unfinished(&known)?;
            store.rename(&whole, &under_way)?;
        }
        FileState::RollingBack => {}
    }

    // What "roll back" above says.
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
/// There is no such file, or one of the new name, no room, or the disk. There is no new file then.
pub fn copy(store: &dyn Store, from: &str, to: &str) -> Result<u64, FilesError> {
    // Looked for first, so that a name that is missing makes no file.
    let source = store.open(from, OpenOptions::default())?;
    match store.open(to, OpenOptions::default()) {
        Ok(_) => return Err(StoreError::Exists(to.into()).into()),
        Err(StoreError::NotFound(_)) => {}
        Err(error) => return Err(error.into()),
    }

    // What "copy" above says.
    // `!` cannot be in a snapshot's name, so no snapshot's copy has this one.
    let aside = copy_name(to, "!copy");
    remove(store, &aside)?;
    let bytes = store.size(source)?;
    let copied = share_whole(store, from, &aside, bytes)
        .and_then(|target| Ok(store.sync(target)?))
        .and_then(|()| Ok(store.rename(&aside, to)?));
    if copied.is_err() {
        // If this fails too, the next copy to this name removes it; the first reason is the one to
        // report.
        let _ = remove(store, &aside);
    }
    copied.map(|()| bytes)
}
