//! What a device in a folder is besides flash: its name, its namespaces, and what SMART has counted.
//!
//! Invariant: a file is replaced whole or not at all. A machine that dies may lose what was counted in the last seconds,
//! never a power cycle.

use crate::failure::Failure;
use remap_ssd_nvme::controller::{Health, NamespaceSpec};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::Write;
use std::path::Path;

const SERVICE: &str = "service.json";
const HEALTH: &str = "health.json";

/// Name and namespaces; does not change.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Service {
    /// NVMe qualified name.
    pub nqn: String,
    /// Pages and block sizes.
    pub namespaces: Vec<Share>,
}

/// One namespace.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Share {
    /// Flash pages.
    pub pages: u32,
    /// Bytes of a logical block.
    pub block_bytes: u32,
}

/// What was counted, and whether the last power-off was in good order.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Kept {
    /// Counters.
    pub health: Health,
    /// In good order?
    pub clean: bool,
}

impl Service {
    /// `count` namespaces of equal size over `pages`.
    pub fn new(nqn: String, pages: u32, count: u32, block_bytes: u32) -> Self {
        let each = pages / count;
        Self { nqn, namespaces: vec![Share { pages: each, block_bytes }; count as usize] }
    }

    /// As the controller wants them.
    pub fn specs(&self) -> Vec<NamespaceSpec> {
        let spec = |share: &Share| NamespaceSpec { pages: share.pages, lba_shift: share.block_bytes.ilog2() as u8 };
        self.namespaces.iter().filter(|share| share.block_bytes > 0).map(spec).collect()
    }

    /// Writes it.
    ///
    /// # Errors
    /// The system's reason.
    pub fn save(&self, dir: &Path) -> Result<(), Failure> {
        save(dir, SERVICE, self)
    }

    /// Reads it.
    ///
    /// # Errors
    /// It is not there, or not what was written.
    pub fn load(dir: &Path) -> Result<Self, Failure> {
        load(&dir.join(SERVICE))
    }
}

impl Kept {
    /// Writes it.
    ///
    /// # Errors
    /// The system's reason.
    pub fn save(&self, dir: &Path) -> Result<(), Failure> {
        save(dir, HEALTH, self)
    }

    /// Reads it; nothing was counted yet if there is none.
    ///
    /// # Errors
    /// It is not what was written.
    pub fn load(dir: &Path) -> Result<Self, Failure> {
        let path = dir.join(HEALTH);
        if path.exists() { load(&path) } else { Ok(Self { clean: true, ..Self::default() }) }
    }
}

fn load<T: for<'a> Deserialize<'a>>(path: &Path) -> Result<T, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| Failure::about(path.display(), error))?;
    serde_json::from_str(&text).map_err(|error| Failure::about(path.display(), error))
}

fn save(dir: &Path, name: &str, value: &impl Serialize) -> Result<(), Failure> {
    let (path, aside) = (dir.join(name), dir.join(format!("{name}.part")));
    let text = serde_json::to_string_pretty(value).map_err(Failure::failed)?;
    let written = File::create(&aside)
        .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
        .and_then(|()| std::fs::rename(&aside, &path))
        .and_then(|()| File::open(dir)?.sync_all());
    written.map_err(|error| Failure::about(path.display(), error))
}
