//! The shape of a device for service: its size, scheme, namespaces and name, for a new device and
//! for comparison with an image.
//!
//! Invariant: a shape never changes an image; a difference is an error that names the option.
//! Absent: folders (`image`), and a device in memory (`service`).

use crate::error::ServiceError;
use crate::kept::ServiceFile;
use crate::nqn::{is_nqn, new_nqn, no_nqn};
use remap_ssd_device::{DeviceConfig, Setting};
use remap_ssd_ftl::SchemeKind;
use remap_ssd_sim::report::format::bytes;
use std::collections::BTreeSet;

const PAGE_BYTES: u64 = 4096;
/// Flash in units of the usual amount, from which on it is noted.
const SPARE_NOTED: f64 = 1.5;
/// Maximum number of namespaces.
const NAMESPACES_MAX: u32 = remap_ssd_nvme::controller::NSID_MAX;

/// Shape of a device for service; what is not given has a default, or the image's value.
#[derive(Clone, Debug, Default)]
pub struct Shape {
    /// Size of the device in bytes, as hosts see it.
    pub size: Option<u64>,
    /// Remapping scheme; by default `SchemeKind::default()`.
    pub scheme: Option<SchemeKind>,
    /// Deduplicate writes in the device; by default not.
    pub dedup: Option<bool>,
    /// Any other settings of a new device; none for an image.
    pub set: Vec<Setting>,
    /// Size in bytes of NVRAM, or of the log on flash, for remaps; by default 0.5 % of the
    /// device's size.
    pub log_size: Option<u64>,
    /// Maximum number of files in the file map; by default there is no file map.
    pub fs_files: Option<u32>,
    /// Maximum number of pages in all lists of the file map.
    pub fs_blocks: Option<u32>,
    /// Logical block size in bytes, 512 or 4096; by default 4096.
    pub block: Option<u32>,
    /// Number of namespaces, of equal size; by default 1.
    pub namespaces: Option<u32>,
    /// Number of additional namespaces for snapshots of the others; by default none. They add to
    /// the size.
    pub snapshots: Option<u32>,
    /// Numbers of namespaces whose pages are never shared.
    pub unshared: Vec<u32>,
    /// NVMe qualified name; by default a new unique name.
    pub nqn: Option<String>,
}

impl Shape {
    /// Configuration of a device of `size` bytes.
    ///
    /// # Errors
    /// Invalid device configuration.
    pub(crate) fn config(&self, size: u64) -> Result<DeviceConfig, ServiceError> {
        let (scheme, dedup) = (self.scheme.unwrap_or_default(), self.dedup.unwrap_or(false));
        let (namespaces, snapshots) = (self.namespaces.unwrap_or(1), self.snapshots.unwrap_or(0));
        if namespaces == 0 {
            return Err(ServiceError::usage(
                "--namespaces: a device has at least one",
            ));
        }
        if namespaces.saturating_add(snapshots) > NAMESPACES_MAX {
            return Err(ServiceError::usage(format_args!(
                "{namespaces} namespaces and {snapshots} for snapshots: at most {NAMESPACES_MAX} are possible"
            )));
        }

        // Units for snapshots are added, so that `--size` is the size available to hosts.
        let pages = size.div_ceil(PAGE_BYTES);
        let units = pages.div_ceil(self.asked_unit());
        let for_snapshots = u64::from(snapshots) * (units / u64::from(namespaces) + 1);
        let size = if snapshots > 0 {
            (units + for_snapshots).saturating_mul(self.asked_unit() * PAGE_BYTES)
        } else {
            size
        };
        let config = DeviceConfig::for_service_with_log(size, scheme, dedup, self.log_size);
        let mut config = config.map_err(ServiceError::usage)?;
        let firmware = &mut config.firmware;
        (firmware.fs_files, firmware.fs_blocks) =
            (self.fs_files.unwrap_or(0), self.fs_blocks.unwrap_or(0));
        let config = config
            // `--set` comes last: it may override other options.
            .with(&self.set)
            .map_err(ServiceError::usage)?;
        config.check().map_err(ServiceError::usage)?;
        let unit = u64::from(config.geometry.host_pages());
        if self.size.is_some() && !pages.is_multiple_of(unit) {
            return Err(ServiceError::usage(format_args!(
                "--size: a multiple of the {} bytes of an indirection unit is possible",
                unit * PAGE_BYTES
            )));
        }

        // An unshared namespace that does not exist is a mistake.
        let exists = |nsid: &u32| (1..=namespaces).contains(nsid);
        if let Some(nsid) = self.unshared.iter().find(|nsid| !exists(nsid)) {
            return Err(ServiceError::usage(format_args!(
                "--unshared {nsid}: there are {namespaces} namespaces (--namespaces)"
            )));
        }
        Ok(config)
    }

    /// A note if the settings give a device far more flash than its size needs.
    pub fn note(&self, config: &DeviceConfig) -> Option<String> {
        let size = u64::from(config.host_lpns()) * PAGE_BYTES;
        let (scheme, firmware) = (config.firmware.scheme, &config.firmware);
        let usual = DeviceConfig::for_service_with_log(size, scheme, firmware.dedup, self.log_size);
        let (pages, usual) = (config.flash_pages(), usual.ok()?.flash_pages());
        let more = pages as f64 / usual as f64;
        (more >= SPARE_NOTED).then(|| {
            let [size, flash] = [size, pages * PAGE_BYTES].map(bytes);
            format!(
                "the settings give {flash} of flash to {size} for hosts, {more:.1} times the default: --size changes \
                 what hosts see"
            )
        })
    }

    /// Pages of the indirection unit that the settings ask for.
    fn asked_unit(&self) -> u64 {
        let mut set = self.set.iter().rev();
        let unit = set.find(|one| one.key.path == "geometry.indirection_bytes");
        let bytes = unit.and_then(|one| one.value.as_u64());
        (bytes.unwrap_or(PAGE_BYTES) / PAGE_BYTES).max(1)
    }

    /// Name and namespaces of the new device.
    ///
    /// # Errors
    /// Invalid name or namespaces: an image with them could not be opened.
    pub(crate) fn service(&self, config: &DeviceConfig) -> Result<ServiceFile, ServiceError> {
        if let Some(block) = self.block.filter(|block| ![512, 4096].contains(block)) {
            return Err(ServiceError::usage(format_args!(
                "--block {block}: 512 or 4096 bytes are possible"
            )));
        }
        let nqn = self.nqn.clone().unwrap_or_else(new_nqn);
        if !is_nqn(&nqn) {
            return Err(no_nqn(&nqn));
        }

        let (namespaces, snapshots) = (self.namespaces.unwrap_or(1), self.snapshots.unwrap_or(0));
        let unit = config.geometry.host_pages();
        let units = units_without_snapshots(config.firmware.lpns, namespaces, snapshots);
        let file = ServiceFile::new(
            nqn,
            units * unit,
            (namespaces, self.block.unwrap_or(4096)),
            &self.unshared,
            unit,
        )
        .with_snapshots(snapshots, unit);

        file.check(config.host_lpns())
            .map_err(ServiceError::usage)?;
        Ok(file)
    }

    /// Checks that the options match the image's parameters at creation; none of them can change
    /// later.
    ///
    /// # Errors
    /// An option differs; the message has the value of the image.
    pub(crate) fn must_be(
        &self,
        config: &DeviceConfig,
        service: &ServiceFile,
    ) -> Result<(), ServiceError> {
        if !self.set.is_empty() {
            return Err(ServiceError::usage(
                "--set: the settings of an image cannot be changed; omit the option, or create another image",
            ));
        }

        let firmware = &config.firmware;
        let (snapshots, snapshot_pages) = service.snapshots();

        // As hosts see it: without the pages reserved for snapshots.
        let namespaces = service.namespaces.len() as u32 - snapshots;
        let size = u64::from(config.host_lpns().saturating_sub(snapshot_pages)) * 4096;
        let block = service
            .namespaces
            .first()
            .map_or(4096, |share| share.block_bytes);
        let unshared = service.unshared();
        let on = |on: bool| if on { "on" } else { "off" }.to_owned();

        // Options not given agree.
        let size_agrees = |asked: u64| asked.checked_next_multiple_of(4096) == Some(size);
        let asked = [
            ("--size", self.size.map(size_agrees), bytes(size)),
            compared("--scheme", self.scheme, firmware.scheme),
            (
                "--dedup",
                self.dedup.map(|asked| asked == firmware.dedup),
                on(firmware.dedup),
            ),
            (
                "--log-size",
                self.log_size.map(|asked| asked == firmware.log_bytes),
                bytes(firmware.log_bytes),
            ),
            compared("--fs-files", self.fs_files, firmware.fs_files),
            compared("--fs-blocks", self.fs_blocks, firmware.fs_blocks),
            compared("--block", self.block, block),
            compared("--namespaces", self.namespaces, namespaces),
            compared("--snapshots", self.snapshots, snapshots),
            (
                "--unshared",
                has_unshared(&self.unshared, &unshared),
                numbers_of(&unshared),
            ),
            compared("--nqn", self.nqn.as_ref(), &service.nqn),
        ];

        // Hosts have changed the values that these options set.
        let outdated = [
            "--size",
            "--block",
            "--namespaces",
            "--snapshots",
            "--unshared",
        ];
        let holds = |option: &str| service.created.is_none() || !outdated.contains(&option);

        let mut asked = asked.iter().filter(|(option, ..)| holds(option));
        match asked.find(|(_, is_so, _)| *is_so == Some(false)) {
            None => Ok(()),
            Some((option, _, is)) => Err(ServiceError::usage(format_args!(
                "{option}: the image was created with {is}, which cannot be changed; omit the option, or create another image"
            ))),
        }
    }
}

/// An option, true if it agrees with the image (`None` if it is absent), and the image's value.
fn compared<T: PartialEq + ToString>(
    option: &'static str,
    asked: Option<T>,
    is: T,
) -> (&'static str, Option<bool>, String) {
    (option, asked.map(|asked| asked == is), is.to_string())
}

/// Units of all namespaces except those for snapshots, each of which has one unit more than one of
/// the others.
fn units_without_snapshots(lpns: u32, namespaces: u32, snapshots: u32) -> u32 {
    let all = |units: u64| units + u64::from(snapshots) * (units / u64::from(namespaces) + 1);
    // Solved for the units of the others, then rounded up as long as it fits.
    let share = u64::from(lpns.saturating_sub(snapshots)) * u64::from(namespaces)
        / u64::from(namespaces + snapshots);
    // Rounding may have left a few.
    let units = (share..=u64::from(lpns))
        .take_while(|units| all(*units) <= u64::from(lpns))
        .last();
    units.unwrap_or(0) as u32
}

/// Compares with the unshared namespaces of an image; `None` if the option is absent.
fn has_unshared(asked: &[u32], unshared: &[u32]) -> Option<bool> {
    let asked: BTreeSet<u32> = asked.iter().copied().collect();
    (!asked.is_empty()).then(|| asked.iter().eq(unshared))
}

fn numbers_of(unshared: &[u32]) -> String {
    let numbers: Vec<String> = unshared.iter().map(u32::to_string).collect();
    if numbers.is_empty() {
        "none".into()
    } else {
        numbers.join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::Shape;

    // What was created with a size, namespaces and snapshots opens with the same options.
    #[test]
    fn a_device_for_snapshots_agrees_with_its_own_options() {
        for unit in [4096, 16384, 65536] {
            for (namespaces, snapshots) in [(1, 0), (1, 1), (1, 2), (3, 2), (5, 7)] {
                let keys = ["page_bytes", "indirection_bytes"];
                let unit = keys.map(|key| format!("geometry.{key}={unit}"));
                let blocks = "geometry.pages_per_block=256".to_owned();
                let set = unit.iter().chain([&blocks]);
                let asked = Shape {
                    size: Some(63 << 20),
                    namespaces: Some(namespaces),
                    snapshots: Some(snapshots),
                    ..Shape::default()
                };
                let new = Shape {
                    set: set.map(|one| one.parse().expect("valid")).collect(),
                    ..asked.clone()
                };

                let config = new.config(63 << 20).expect("possible");
                let file = new.service(&config).expect("possible");
                assert_eq!(file.snapshots().0, snapshots);
                let agrees = asked.must_be(&config, &file);
                assert!(
                    agrees.is_ok(),
                    "{unit:?}, {namespaces}, {snapshots}: {agrees:?}"
                );
            }
        }
    }
}
