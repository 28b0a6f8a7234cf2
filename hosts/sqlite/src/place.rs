//! Location of a database: on a served device, on a device in a folder, or among the files of the
//! operating system.
//!
//! ```text
//! device=HOST:PORT   a volume on a served device; nqn= and nsid= select the namespace, if there are several;
//!                    hostnqn= and secret= identify this host
//! image=FOLDER       a volume on a device in a folder, for this process alone; nsid= as above
//! memory=SIZE        a volume on a device in the memory of this process (`made`)
//! store=NAME         a store that this process has registered under that name (`mount`)
//! none of them       files of the operating system, in their folder
//! ```
//!
//! Defaults for a URI come from the environment: `REMAP_SSD_DEVICE`, `REMAP_SSD_IMAGE`, or
//! `REMAP_SSD_FOLDER=1` for files; and `REMAP_SSD_CACHE_MIB`, the memory limit for a volume's
//! pages. A relative name without any of these is in the volume that this process opened last, if
//! that is still open: `ATTACH 'other.db'` and `VACUUM INTO 'copy.db'` stay where the database is.
//!
//! Invariants: a volume is opened once in a process and shared by its connections; it is closed
//! with its last file, which frees an image for other processes. A name in a volume is
//! `/UUID/name`, so that super-journals, which hold names without parameters, lead to the right
//! volume even if folder and port have changed.
//!
//! Absent: SQLite.

use crate::forked::{PerProcess, take_inherited};
use crate::image;
use crate::journal::NeverSynced;
use crate::made::{InMemory, MadeError};
use crate::memory;
use crate::page_places::PagePlaces;
use crate::served;
use remap_ssd_device::Disk;
use remap_ssd_nvme::auth::HostKeys;
use remap_ssd_nvme::process::Process;
use remap_ssd_nvme::tcp::client::Options;
use remap_ssd_store::{OsStore, Processes, Store, StoreError, Volume, local_name, uuid_text};
use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, Weak};

/// A location, as given by a URI or the environment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Spec {
    /// A volume on a served device.
    Device {
        /// Address of the server, as HOST:PORT.
        address: String,
        /// Number of the namespace that the volume is in.
        nsid: u32,
        /// Subsystem, if there are several.
        nqn: Option<String>,
        /// This host's name, where only known hosts are served.
        hostnqn: Option<String>,
        /// File with its secret, where hosts must authenticate.
        secret: Option<String>,
    },
    /// A volume on a device in a folder.
    Image {
        /// Folder that the image is in.
        folder: PathBuf,
        /// Number of the namespace that the volume is in.
        nsid: u32,
    },
    /// A volume on a device in the memory of this process, by its size in bytes.
    Memory(u64),
    /// A store that the program has registered.
    Mounted(String),
    /// Files of the operating system.
    Files,
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device { address, nsid, .. } => write!(f, "namespace {nsid} of {address}"),
            Self::Image { folder, nsid } => write!(f, "namespace {nsid} of {}", folder.display()),
            Self::Memory(bytes) => write!(f, "memory={bytes}"),
            Self::Mounted(name) => write!(f, "store={name}"),
            Self::Files => f.write_str("a folder"),
        }
    }
}

/// An error of a location.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// The store refused or failed.
    #[error("{place}: {error}")]
    Store {
        /// Address or folder of the store.
        place: String,
        /// The store's error.
        error: StoreError,
    },
    /// The system refused an operation.
    #[error("{place}: {error}")]
    System {
        /// The path of the operation.
        place: String,
        /// The system's error, with its number.
        error: std::io::Error,
    },
    /// A volume that this process has not opened.
    #[error("{0} names a volume that this process has not opened: open a database on it first")]
    NotOpen(String),
    /// A copy of a volume that this process has open: names in both are the same.
    #[error(
        "{0} has a copy of a volume that this process has open already: use another process, or close that one"
    )]
    Copy(String),
    /// An invalid parameter.
    #[error("{0}")]
    Parameter(String),
}

impl From<MadeError> for PlaceError {
    fn from(MadeError(why): MadeError) -> Self {
        Self::Parameter(why)
    }
}

/// The places of devices in memory, kept with their locks: a volume refuses files whose locks are not those of before.
static IN_MEMORY: InMemory<StorePlace> = InMemory::new();

/// A store, and the folder with its locks.
pub(crate) struct StorePlace {
    /// The store that holds the files.
    pub store: Arc<dyn Store>,
    /// Places of pages read earlier.
    pub page_places: Arc<PagePlaces>,
    /// The last journal that was closed without a sync: usually it is deleted next.
    pub never_synced: Arc<NeverSynced>,
    /// Prefix of a file's full name: `/UUID/`, or the folder.
    prefix: String,
    /// Tells copies of a volume apart: they have the same UUID.
    copy: Option<String>,
    /// The folder of lock files; `None` if they are beside the databases.
    locks: Option<LockFolder>,
    /// The process that opened it.
    process: Process,
}

impl Drop for StorePlace {
    fn drop(&mut self) {
        // Closing the store would access its device, which is the parent's.
        if !self.process.is_current() {
            std::mem::forget(Arc::clone(&self.store));
            std::mem::forget(self.locks.take());
        }
    }
}

/// The folder of a volume's locks.
enum LockFolder {
    /// Shared by all processes that use the volume.
    Common(PathBuf),
    /// This process is the only one.
    Own(OwnFolder),
}

impl LockFolder {
    fn path(&self) -> &Path {
        match self {
            Self::Common(path) => path,
            Self::Own(own) => &own.path,
        }
    }
}

/// A folder removed together with its place.
struct OwnFolder {
    path: PathBuf,
    /// Locked against cleaning by other processes.
    _open: fs::File,
}

impl Drop for OwnFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

impl StorePlace {
    /// The full name of a file.
    pub(crate) fn full_name(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// Converts a program's name of a file to the name in this store. The program may use the full
    /// name, as `sqlite3_db_filename` returns it.
    ///
    /// # Errors
    /// The full name is of a file in another volume.
    pub(crate) fn name_here<'a>(&self, given: &'a str) -> Result<&'a str, PlaceError> {
        match volume_prefix(given) {
            Some((prefix, name)) if prefix == self.prefix => Ok(name),
            Some(_) => Err(PlaceError::Parameter(format!(
                "{given} is in another volume than the one that is named beside it"
            ))),
            // A volume has no directories: `./a`, `/a` and `a` are one file.
            None => Ok(given.trim_start_matches("./").trim_start_matches('/')),
        }
    }

    /// Path of a file, if it is an ordinary one.
    pub(crate) fn ordinary(&self, name: &str) -> Option<PathBuf> {
        self.locks
            .is_none()
            .then(|| PathBuf::from(self.full_name(name)))
    }

    /// Path of the lock file of a database.
    pub(crate) fn lock_path(&self, name: &str) -> PathBuf {
        match &self.locks {
            Some(folder) => folder.path().join(local_name(name)),
            None => PathBuf::from(format!("{}{name}-lock", self.prefix)),
        }
    }
}

/// The places that are open in this process.
#[derive(Default)]
struct Places {
    by_prefix: HashMap<String, Weak<StorePlace>>,
    by_spec: HashMap<Spec, Weak<StorePlace>>,
    /// The volume opened last.
    last: Option<Weak<StorePlace>>,
}

thread_local! {
    /// Keeps a place open between the call for a file's full name and the one that opens it, which
    /// come from one thread.
    static HELD: RefCell<Option<Arc<StorePlace>>> = const { RefCell::new(None) };
}

fn keep(place: Option<Arc<StorePlace>>) {
    // Closing an image takes time: the cell must not be borrowed then.
    let before = HELD.with_borrow_mut(|held| std::mem::replace(held, place));
    drop(before);
}

impl Places {
    fn forget_closed(&mut self) {
        self.by_spec.retain(|_, place| place.strong_count() > 0);
        self.by_prefix.retain(|_, place| place.strong_count() > 0);
    }

    fn add(&mut self, spec: Spec, place: &Arc<StorePlace>) {
        self.by_spec.insert(spec, Arc::downgrade(place));
        self.by_prefix
            .insert(place.prefix.clone(), Arc::downgrade(place));
    }
}

/// Reset in a child of `fork`.
static PLACES: PerProcess<Mutex<Places>> = PerProcess::new();

fn places() -> MutexGuard<'static, Places> {
    PLACES.get().lock().unwrap_or_else(PoisonError::into_inner)
}

/// Closes the descriptors inherited from the parent, which is not affected.
pub(crate) fn close_inherited() {
    for mutex in PLACES.inherited() {
        let places = take_inherited(mutex);
        for place in places.by_prefix.values().filter_map(Weak::upgrade) {
            place.store.close_inherited();
        }
    }
}

/// Opens the place of a specification, unless it is open, and keeps it open until `release`.
///
/// # Errors
/// It cannot be reached, or has no volume.
pub(crate) fn hold(spec: &Spec) -> Result<Arc<StorePlace>, PlaceError> {
    // Locked until the place is open, so that two threads do not open one image.
    let mut places = places();
    let known = places.by_spec.get(spec).and_then(Weak::upgrade);
    let place = match known {
        Some(place) => place,
        None => {
            // A place held earlier is not needed any more; an image may have to be closed first.
            keep(None);
            let place = open(spec)?;
            places.forget_closed();

            // Two specifications of one volume are one place: two would not see each other's locks.
            // A copy has other data.
            let place = match places.by_prefix.get(&place.prefix).and_then(Weak::upgrade) {
                Some(open) if open.copy != place.copy => {
                    return Err(PlaceError::Copy(spec.to_string()));
                }
                Some(open) => open,
                None => place,
            };
            places.add(spec.clone(), &place);
            place
        }
    };
    places.last = Some(Arc::downgrade(&place));
    keep(Some(Arc::clone(&place)));
    Ok(place)
}

/// The volume opened last, if it is still open.
pub(crate) fn last() -> Option<Arc<StorePlace>> {
    let place = places().last.as_ref().and_then(Weak::upgrade)?;
    keep(Some(Arc::clone(&place)));
    Some(place)
}

/// Ends the hold: the file keeps its place itself, or could not be opened.
pub(crate) fn release() {
    keep(None);
}

/// Keeps a store registered with the VFS. After it is dropped, open databases stay usable until
/// they are closed.
pub struct Mounted(Arc<StorePlace>);

impl Mounted {
    /// The store that holds the files.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.0.store
    }
}

/// Registers a store of the program under a name: `file:app.db?vfs=remap&store=NAME` is then a
/// database in it. So a program can have databases on a volume on any `Disk`.
///
/// # Errors
/// The name is taken, the volume is already open, or the store consists of the system's files,
/// which need no name.
pub fn mount(name: &str, store: Arc<dyn Store>) -> Result<Mounted, PlaceError> {
    let spec = Spec::Mounted(name.into());
    let refused = |why: &str| PlaceError::Parameter(format!("store={name}: {why}"));
    let place = place_of(store, None).map_err(|error| refused(&error.to_string()))?;

    let mut places = places();
    places.forget_closed();
    if places.by_spec.contains_key(&spec) {
        return Err(refused("this process has a store of that name already"));
    }
    // Two places of one volume would not see each other's changes.
    if places.by_prefix.contains_key(&place.prefix) {
        return Err(refused("this process has the volume open already"));
    }
    places.add(spec, &place);
    Ok(Mounted(place))
}

/// Finds the place of a full name, and the name in it.
///
/// # Errors
/// It is on a volume that is not open, or in a folder that does not exist.
pub(crate) fn of_full_name(full: &str) -> Result<(Arc<StorePlace>, String), PlaceError> {
    if let Some((prefix, name)) = volume_prefix(full) {
        let place = places().by_prefix.get(prefix).and_then(Weak::upgrade);
        return match place {
            Some(place) => Ok((place, name.into())),
            None => Err(PlaceError::NotOpen(full.into())),
        };
    }

    let (folder, name) = full.rsplit_once('/').unwrap_or((".", full));
    let prefix = format!("{folder}/");
    let mut places = places();
    if let Some(place) = places.by_prefix.get(&prefix).and_then(Weak::upgrade) {
        return Ok((place, name.into()));
    }
    let store = OsStore::open(Path::new(&prefix)).map_err(|error| PlaceError::Store {
        place: prefix.clone(),
        error,
    })?;
    let place = Arc::new(StorePlace {
        store: Arc::new(store),
        page_places: Arc::default(),
        never_synced: Arc::default(),
        prefix: prefix.clone(),
        copy: None,
        locks: None,
        process: Process::current(),
    });
    places.by_prefix.insert(prefix, Arc::downgrade(&place));
    Ok((place, name.into()))
}

fn volume_prefix(full: &str) -> Option<(&str, &str)> {
    const UUID_CHARS: usize = 36;
    let (prefix, name) = full.split_at_checked(UUID_CHARS + 2)?;
    let uuid = prefix.strip_prefix('/')?.strip_suffix('/')?;
    let dashes = [8, 13, 18, 23];
    let is_uuid = uuid.bytes().enumerate().all(|(at, byte)| {
        if dashes.contains(&at) {
            byte == b'-'
        } else {
            byte.is_ascii_hexdigit()
        }
    });
    is_uuid.then_some((prefix, name))
}

/// Returns true if a full name is of a file in a volume.
pub(crate) fn is_in_volume(full: &str) -> bool {
    volume_prefix(full).is_some()
}

/// Returns true if a name is absolute: in an open volume, or in a folder of the system.
pub(crate) fn is_full(name: &str) -> bool {
    match volume_prefix(name) {
        Some((prefix, _)) => places()
            .by_prefix
            .get(prefix)
            .is_some_and(|place| place.strong_count() > 0),
        None => name.starts_with('/'),
    }
}

fn open(spec: &Spec) -> Result<Arc<StorePlace>, PlaceError> {
    match spec {
        Spec::Device {
            address,
            nsid,
            nqn,
            hostnqn,
            secret,
        } => {
            let failed = |error| PlaceError::Store {
                place: address.clone(),
                error,
            };
            let keys = secret.as_ref().map(|file| HostKeys::load(Path::new(file)));
            let keys = keys
                .transpose()
                .map_err(|error| failed(StoreError::Disk(Box::new(error))))?;

            let mut options = Options {
                subnqn: nqn.clone(),
                nsid: *nsid,
                ..Options::default()
            }
            .with_keys(keys.unwrap_or_default());
            options.hostnqn = hostnqn.clone().unwrap_or(options.hostnqn);

            let disk = served::connect(address, options)
                .map_err(|error| failed(StoreError::Disk(Box::new(error))))?;

            // A copy of a volume is in another namespace, but has the same UUID.
            let copy = disk.identity().map(|identity| uuid_text(&identity));

            let processes = Processes::local();
            let volume = Volume::open(disk, &processes)
                .map_err(failed)?
                .with_cache(cache_bytes()?);
            place_of(Arc::new(volume), copy)
        }
        Spec::Image { folder, nsid } => {
            let place = || folder.display().to_string();
            let volume = image::open(folder, *nsid, cache_bytes()?).map_err(|error| {
                let place = place();
                PlaceError::Store { place, error }
            })?;

            // The folder tells copies of an image apart.
            let metadata = fs::metadata(folder).map_err(|error| {
                let place = place();
                PlaceError::System { place, error }
            })?;
            place_of(
                Arc::new(volume),
                Some(format!("{}-{}", metadata.dev(), metadata.ino())),
            )
        }
        Spec::Memory(bytes) => {
            IN_MEMORY.of_size(*bytes, cache_bytes()?, |store| place_of(store, None))
        }
        Spec::Mounted(name) => Err(PlaceError::Parameter(format!(
            "store={name}: this process has no store of that name"
        ))),
        Spec::Files => Err(PlaceError::Parameter(
            "files of the operating system have no volume".into(),
        )),
    }
}

/// Memory limit for a volume's pages, in bytes.
fn cache_bytes() -> Result<u64, PlaceError> {
    let Some(text) = std::env::var("REMAP_SSD_CACHE_MIB")
        .ok()
        .filter(|text| !text.is_empty())
    else {
        return Ok(memory::cache_bytes());
    };
    let mebibytes = text.parse::<u32>();
    let why = || {
        PlaceError::Parameter(format!(
            "REMAP_SSD_CACHE_MIB={text}: say a number of MiB, or 0 for none"
        ))
    };
    mebibytes
        .map(|mebibytes| u64::from(mebibytes) << 20)
        .map_err(|_| why())
}

/// Creates the place of a volume. `copy` tells copies of a volume apart, which have the same UUID.
fn place_of(store: Arc<dyn Store>, copy: Option<String>) -> Result<Arc<StorePlace>, PlaceError> {
    let no_volume =
        || PlaceError::Parameter("files of the operating system are opened by their paths".into());
    let uuid = uuid_text(&store.identity().ok_or_else(no_volume)?);
    let locks = match store.folder() {
        Some(folder) => LockFolder::Common(folder),
        None => LockFolder::Own(own_folder()?),
    };

    Ok(Arc::new(StorePlace {
        store,
        page_places: Arc::default(),
        never_synced: Arc::default(),
        prefix: format!("/{uuid}/"),
        copy,
        locks: Some(locks),
        process: Process::current(),
    }))
}

/// Creates a folder for the locks of a volume that no other process has open.
fn own_folder() -> Result<OwnFolder, PlaceError> {
    let Processes::Several(domain) = Processes::local() else {
        unreachable!("processes of this user are several")
    };
    let failed = |error: std::io::Error| PlaceError::System {
        place: domain.display().to_string(),
        error,
    };
    // Other users must not be able to hold locks here.
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder.create(&domain).map_err(failed)?;
    static LOOKED: Once = Once::new();
    LOOKED.call_once(|| remove_left_folders(&domain));

    builder.recursive(false);
    loop {
        let random = RandomState::new().build_hasher().finish();
        let path = domain.join(format!("{OWN}{random:016x}"));
        builder.create(&path).map_err(failed)?;
        // Where folders cannot be locked, they are merely not protected from cleaning.
        let open = fs::File::open(&path).map_err(failed)?;
        let _ = open.lock_shared();
        if path.is_dir() {
            return Ok(OwnFolder { path, _open: open });
        }
    }
}

/// Removes the folders of killed processes: those not locked.
fn remove_left_folders(domain: &Path) {
    let Ok(entries) = fs::read_dir(domain) else {
        return;
    };
    let is_own = |entry: &fs::DirEntry| {
        entry
            .file_name()
            .as_encoded_bytes()
            .starts_with(OWN.as_bytes())
    };
    for entry in entries.flatten().filter(is_own) {
        let Ok(open) = fs::File::open(entry.path()) else {
            continue;
        };
        if open.try_lock().is_ok() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Prefix of such a folder's name.
const OWN: &str = "alone-";
