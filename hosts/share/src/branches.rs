//! Branches of files of a volume: writable copies that know where they come from.
//!
//! A database is more than one file: the branch of a file whose log (`FILE-wal`) or journal
//! (`FILE-journal`) has something has its own copy of it, under its own name. The log and the
//! journal come first in the list, so that no branch is without them.
//!
//! Invariants: a branch is made of one instant, since the volume is open exclusively; what a cut
//! leaves of one that was being made (a log without its file) is removed by the next with that name.
//! Absent: how a branch is made and merged (`remap_ssd_store`).

use crate::files::FilesError;
use crate::volume::Files;
use remap_ssd_store::{
    BranchInfo, FileId, FileInfo, FileSpace, NewBranch, OpenOptions, PageRun, Store, StoreError,
};

/// What host software appends to the name of a database for the files that belong to it.
const BESIDE: [&str; 2] = ["-wal", "-journal"];
/// Bytes at the beginning of a log or a journal; without any there, nothing is in it.
const HEADER_BYTES: usize = 4096;

/// A branch, as listed.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Branch {
    /// Its name.
    pub name: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// Where it comes from.
    #[serde(flatten)]
    pub origin: BranchInfo,
    /// Its pages on flash; `None` if the device cannot say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub space: Option<FileSpace>,
}

/// The difference between two files.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Difference {
    /// The file that was compared.
    pub file: String,
    /// The file it was compared with.
    pub with: String,
    /// Runs of the pages that they do not share.
    pub runs: Vec<PageRun>,
}

impl Difference {
    /// Number of pages that differ.
    pub fn pages(&self) -> u64 {
        self.runs.iter().map(|run| run.pages).sum()
    }
}

fn open(store: &dyn Store, name: &str) -> Result<FileId, StoreError> {
    store.open(name, OpenOptions::default())
}

/// The files of a volume that belong to the file `name` and have something.
fn beside(store: &dyn Store, name: &str) -> Result<Vec<String>, StoreError> {
    let mut found = Vec::new();
    for suffix in BESIDE {
        let other = format!("{name}{suffix}");
        let file = match open(store, &other) {
            Err(StoreError::NotFound(_)) => continue,
            file => file?,
        };
        let mut header = [0; HEADER_BYTES];
        let read = store.read(file, 0, &mut header)?;
        if header[..read].iter().any(|byte| *byte != 0) {
            found.push(suffix.to_owned());
        }
    }
    Ok(found)
}

/// Makes branches of a file, one of each name.
///
/// # Errors
/// There is no such file, a name is taken, there is no room, or the disk failed. Branches of earlier
/// names may have been made.
pub fn create(
    store: &dyn Store,
    from: &str,
    names: &[String],
    now: u64,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), FilesError> {
    let suffixes = beside(store, from)?;
    let total = names.len() as u64;
    for (name, done) in names.iter().zip(1..) {
        remove_leftover(store, from, name)?;

        // The log or journal first: a cut leaves no branch without it.
        let with: Vec<[String; 2]> = suffixes
            .iter()
            .map(|suffix| [from, name].map(|file| format!("{file}{suffix}")))
            .collect();
        let mut list: Vec<NewBranch<'_>> = with
            .iter()
            .map(|[from, to]| NewBranch { from, to })
            .collect();
        list.push(NewBranch { from, to: name });

        store.branch(&list, now)?;
        progress(done, total);
    }
    Ok(())
}

/// Removes the log and the journal of a branch that a cut kept from being made; an error if the name
/// is taken.
fn remove_leftover(store: &dyn Store, from: &str, name: &str) -> Result<(), StoreError> {
    match open(store, name) {
        Ok(_) => return Err(StoreError::Exists(name.to_owned())),
        Err(StoreError::NotFound(_)) => {}
        Err(error) => return Err(error),
    }
    for info in store.list()? {
        let is_beside = |suffix: &&&str| info.name == format!("{name}{suffix}");
        let Some(suffix) = BESIDE.iter().find(is_beside) else {
            continue;
        };
        let parent = info.branch.and_then(|branch| branch.parent);
        if parent == Some(format!("{from}{suffix}")) {
            store.delete(&info.name)?;
        }
    }
    Ok(())
}

/// The record of a branch; an error if the file is not one.
fn find(store: &dyn Store, name: &str) -> Result<(FileInfo, BranchInfo), FilesError> {
    let info = store.list()?.into_iter().find(|info| info.name == name);
    let info = info.ok_or_else(|| StoreError::NotFound(name.to_owned()))?;
    let origin = info.branch.clone();
    let origin =
        origin.ok_or_else(|| FilesError::Refused(format!("{name} is a file, not a branch")))?;
    Ok((info, origin))
}

/// Lists all branches, by name.
///
/// # Errors
/// A disk error.
pub fn list(volume: &dyn Files) -> Result<Vec<Branch>, FilesError> {
    let mut branches = Vec::new();
    for info in volume.list()? {
        let Some(origin) = info.branch else {
            continue;
        };
        let space = match volume.space(open(volume.as_store(), &info.name)?) {
            Err(StoreError::Unsupported(_)) => None,
            space => Some(space?),
        };
        branches.push(Branch {
            name: info.name,
            bytes: info.bytes,
            origin,
            space,
        });
    }
    Ok(branches)
}

/// The pages at which a branch differs from its parent, or any file from another one. None is read.
///
/// # Errors
/// There is no such file or parent, or the device cannot say.
pub fn diff(volume: &dyn Files, name: &str, with: Option<&str>) -> Result<Difference, FilesError> {
    let with = match with {
        Some(with) => with.to_owned(),
        None => find(volume.as_store(), name)?.1.parent.ok_or_else(|| {
            let why = format!("the file that {name} is a branch of is gone: name another one");
            FilesError::Refused(why)
        })?,
    };
    let store = volume.as_store();
    let (file, other) = (open(store, name)?, open(store, &with)?);
    let runs = volume.differing(file, other)?;
    Ok(Difference {
        file: name.to_owned(),
        with,
        runs,
    })
}

/// Merges a branch into its parent, and returns the parent's name. With `force`, changes of the
/// parent since the branch was made are lost.
///
/// # Errors
/// It is not a branch, its parent is gone or has changed, one of them has a log or a journal, or the
/// disk failed.
pub fn merge(volume: &dyn Files, name: &str, force: bool) -> Result<String, FilesError> {
    let store = volume.as_store();
    let (_, origin) = find(store, name)?;
    for file in [Some(name), origin.parent.as_deref()].into_iter().flatten() {
        if let Some(suffix) = beside(store, file)?.first() {
            return Err(FilesError::Refused(format!(
                "{file} has changes in {file}{suffix}: open it, `PRAGMA wal_checkpoint(TRUNCATE)`, close it"
            )));
        }
    }
    let parent = volume.merge(name, force)?;
    delete_beside(store, name)?;
    Ok(parent)
}

/// Deletes a branch. Branches of it live on.
///
/// # Errors
/// It is not a branch, or the disk failed.
pub fn delete(store: &dyn Store, name: &str) -> Result<(), FilesError> {
    find(store, name)?;
    // 1. the branch  2. its log and journal. Cut between: files that belong to nothing, which a
    // database of this name would ignore. In the opposite order: a branch without its changes.
    store.delete(name)?;
    Ok(delete_beside(store, name)?)
}

fn delete_beside(store: &dyn Store, name: &str) -> Result<(), StoreError> {
    for suffix in BESIDE {
        match store.delete(&format!("{name}{suffix}")) {
            Err(StoreError::NotFound(_)) | Ok(()) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
