//! Location of LevelDB's files.
//!
//! ```text
//! REMAP_SSD_DEVICE=HOST:PORT    a volume on a served device (REMAP_SSD_NSID selects the namespace, 1 if not set)
//! REMAP_SSD_MEMORY=MIB          a new volume on a device in this process, which ends with it
//! ```
//!
//! Absent: keys of hosts, and devices in folders: `remap-ssd serve` has them.

use crate::Files;
use remap_ssd_device::{Device, DeviceConfig, LocalDisk, SchemeKind};
use remap_ssd_nvme::tcp::client::{Client, Options};
use remap_ssd_store::{NewVolume, Processes, Store, StoreError, Volume, new_holder};
use std::error::Error;
use std::sync::Arc;

/// Maximum number of files of a volume in memory.
const FILES_MAX: u32 = 4096;

/// A location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A volume on a served device.
    Device {
        /// Its address, as HOST:PORT.
        address: String,
        /// Number of its namespace.
        nsid: u32,
    },
    /// A new device in this process, of this many MiB.
    Memory(u64),
}

/// Why files cannot be opened there.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// An invalid variable.
    #[error("{0}")]
    Variable(String),
    /// The device or the volume.
    #[error("{place}: {error}")]
    Store {
        /// Address of the device, or "memory".
        place: String,
        /// Its error.
        error: Box<dyn Error + Send + Sync>,
    },
}

impl Place {
    /// The location that environment variables name, read by `variable`; `None` if there is none.
    ///
    /// # Errors
    /// A variable that is no number, or both locations.
    pub fn from_variables(
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, PlaceError> {
        let wrong = |text: &str| PlaceError::Variable(text.to_owned());
        let given = |name: &str| variable(name).filter(|text| !text.is_empty());
        match (given("REMAP_SSD_DEVICE"), given("REMAP_SSD_MEMORY")) {
            (Some(_), Some(_)) => Err(wrong(
                "REMAP_SSD_DEVICE and REMAP_SSD_MEMORY: say one of them",
            )),
            (Some(address), None) => {
                let nsid = given("REMAP_SSD_NSID").unwrap_or_else(|| "1".into());
                let nsid = nsid
                    .parse()
                    .map_err(|_| wrong("REMAP_SSD_NSID: say the number of a namespace"))?;
                Ok(Some(Self::Device { address, nsid }))
            }
            (None, Some(mib)) => mib
                .parse()
                .map(|mib| Some(Self::Memory(mib)))
                .map_err(|_| wrong("REMAP_SSD_MEMORY: say a number of MiB")),
            (None, None) => Ok(None),
        }
    }

    /// Opens the files there.
    ///
    /// # Errors
    /// The device cannot be reached or made, or has no volume.
    pub fn open(&self) -> Result<Files, PlaceError> {
        let (place, store) = match self {
            Self::Device { address, nsid } => (address.clone(), served(address, *nsid)),
            Self::Memory(mib) => ("memory".to_owned(), in_memory(*mib)),
        };
        let opened = store.and_then(|store| Ok(Files::open(store)?));
        opened.map_err(|error| PlaceError::Store { place, error })
    }
}

type Opened = Result<Arc<dyn Store>, Box<dyn Error + Send + Sync>>;

fn served(address: &str, nsid: u32) -> Opened {
    let options = Options {
        nsid,
        holder: Some(new_holder()),
        ..Options::default()
    };
    let disk = Client::connect(address, options)?;
    Ok(Arc::new(Volume::open(disk, &Processes::local())?))
}

fn in_memory(mib: u64) -> Opened {
    let config = DeviceConfig::for_service(mib << 20, SchemeKind::default(), false)?;
    let disk = LocalDisk::new(Device::in_memory(config)?);
    let new = NewVolume {
        files_max: FILES_MAX,
        ..NewVolume::default()
    };
    let volume = Volume::create(disk, &Processes::One, &new, &mut |_, _| {});
    Ok(Arc::new(volume.map_err(|error: StoreError| error)?))
}
