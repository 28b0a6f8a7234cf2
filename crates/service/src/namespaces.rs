//! The namespaces of a device in a folder, as hosts change them and as the device uses them.
//!
//! They are contiguous and numbered from 1, until a host creates, deletes, formats, attaches or
//! detaches one. From then on each has its position and its hosts in the file. Absent: the file
//! itself (`kept`), and the order of steps (`remap_ssd_nvme::controller`, `namespaces::change`).

use crate::kept::ServiceFile;
use crate::share::{Begun, Place, Share};
use remap_ssd_device::Device;
use remap_ssd_nvme::controller::{KeptNamespace, KeptNamespaces, NamespaceStore};
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

impl ServiceFile {
    /// Replaces the namespaces; fields that hosts cannot set are kept.
    fn set_namespaces(&mut self, all: &KeptNamespaces) {
        let before: Vec<(u32, u32, Share)> = self
            .numbered()
            .map(|(one, share)| (one.nsid, one.serial, share.clone()))
            .collect();

        let share = |one: &KeptNamespace| {
            let same = before
                .iter()
                .find(|(nsid, serial, _)| (*nsid, *serial) == (one.nsid, one.serial));
            let flag = |of: fn(&Share) -> bool| same.is_some_and(|(_, _, share)| of(share));
            Share {
                pages: one.pages,
                block_bytes: 1 << one.lba_shift,
                unshared: flag(|share| share.unshared),
                snapshots: flag(|share| share.snapshots),
                place: Some(Place {
                    nsid: one.nsid,
                    first_page: one.first_lpn.0,
                    serial: one.serial,
                    clearing: one.clearing.map(Begun::from),
                    attached: one.attachment.others,
                    except: one.attachment.except.clone(),
                }),
            }
        };
        self.namespaces = all.list.iter().map(share).collect();
        self.created = Some(all.made);
    }

    /// Each with its position.
    fn numbered(&self) -> impl Iterator<Item = (KeptNamespace, &Share)> {
        // Validated when it was read, or made here.
        let all = self.kept_namespaces().unwrap_or_default();
        all.list.into_iter().zip(&self.namespaces)
    }

    /// Numbers of the namespaces whose pages are never shared.
    pub(crate) fn unshared(&self) -> Vec<u32> {
        self.numbered()
            .filter(|(_, share)| share.unshared)
            .map(|(one, _)| one.nsid)
            .collect()
    }

    /// Tells the device which pages not to share. Required at each start.
    pub(crate) fn keep_apart(&self, device: &mut Device) {
        for (one, _) in self.numbered().filter(|(_, share)| share.unshared) {
            device.keep_apart(one.first_lpn..one.first_lpn.offset(one.pages));
        }
    }
}

/// Stores the namespaces of the image in a folder.
pub(crate) struct NamespaceFolder {
    dir: PathBuf,
    service: Mutex<ServiceFile>,
}

impl NamespaceFolder {
    /// For an image whose file is `service`.
    pub(crate) fn new(dir: PathBuf, service: ServiceFile) -> Self {
        Self {
            dir,
            service: Mutex::new(service),
        }
    }
}

impl NamespaceStore for NamespaceFolder {
    fn save(&self, all: &KeptNamespaces) -> io::Result<()> {
        let mut kept = self.service.lock().unwrap_or_else(PoisonError::into_inner);
        let mut service = kept.clone();
        service.set_namespaces(all);

        service.save(&self.dir).map_err(|failure| {
            tracing::error!("{failure}; the host is told that its namespaces were not changed");
            io::Error::other(failure.to_string())
        })?;
        *kept = service;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remap_ssd_device::Lpn;
    use remap_ssd_nvme::controller::{Attachment, Clearing};
    use std::collections::BTreeSet;
    use std::path::Path;

    /// A folder with a file of two namespaces, the second of which is unshared.
    fn made() -> (tempfile::TempDir, ServiceFile) {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("contents"), []).expect("a file");
        let service = ServiceFile::new("nqn.2026-11.test:a".into(), 200, (2, 4096), &[2], 1);
        service.save(folder.path()).expect("it is written");
        (folder, service)
    }

    fn text(dir: &Path) -> String {
        std::fs::read_to_string(dir.join("service.json")).expect("a file")
    }

    #[test]
    fn a_file_is_as_before_until_a_host_changes_something() {
        let (folder, service) = made();
        let before = text(folder.path());
        assert!(!before.contains("place") && !before.contains("created"));
        let read = ServiceFile::read(folder.path(), 200).expect("whole");
        let all = read.kept_namespaces().expect("possible");
        assert_eq!((all.list[1].first_lpn, all.list[1].nsid), (Lpn(100), 2));

        // The first one is deleted, and a new one has its number and a part of its range.
        let store = NamespaceFolder::new(folder.path().into(), service);
        let mut changed = all.clone();
        changed.made = 1;
        changed.list[0].serial = 1;
        changed.list[0].pages = 7;
        changed.list[0].clearing = Some(Clearing::ThenDelete);
        changed.list[0].attachment = Attachment {
            others: false,
            except: BTreeSet::from(["nqn.2026-11.test:host".into()]),
        };
        store.save(&changed).expect("it is written");
        let read = ServiceFile::read(folder.path(), 200).expect("whole");
        assert_eq!(read.kept_namespaces(), Ok(changed.clone()));
        assert_eq!(read.unshared(), [2]);

        // All are deleted: no default takes their place.
        changed.list.clear();
        store.save(&changed).expect("it is written");
        let read = ServiceFile::read(folder.path(), 200).expect("whole");
        assert_eq!(read.kept_namespaces(), Ok(changed));
    }

    #[test]
    fn places_that_cannot_be_are_refused() {
        let (folder, service) = made();
        let all = service.kept_namespaces().expect("possible");
        type Wrong = (&'static str, fn(&mut KeptNamespaces));
        let wrong: [Wrong; 6] = [
            ("overlaps", |all| all.list[1].first_lpn = Lpn(99)),
            ("does not fit", |all| all.list[1].first_lpn = Lpn(101)),
            ("not above", |all| all.list[1].nsid = 1),
            ("1 to 128", |all| all.list[1].nsid = 129),
            ("512 or 4096", |all| all.list[1].lba_shift = 13),
            ("younger", |all| all.list[1].serial = 1),
        ];
        for (why, change) in wrong {
            let mut changed = all.clone();
            change(&mut changed);
            let mut file = service.clone();
            file.set_namespaces(&changed);
            file.save(folder.path()).expect("it is written");
            let error = ServiceFile::read(folder.path(), 200)
                .expect_err(why)
                .to_string();
            assert!(error.contains(why), "{error}");
        }

        let mut file = service.clone();
        file.set_namespaces(&all);
        file.namespaces[1].place = None;
        file.save(folder.path()).expect("it is written");
        let error = ServiceFile::read(folder.path(), 200).expect_err("no place");
        assert!(error.to_string().contains("no place"));
    }
}
