//! Power cuts at every step of a deletion and of a format with another block size; then the service
//! starts again from the saved state.
//!
//! The steps: the list is saved (save 0), pages are deallocated (in halves here, by a fault in the
//! middle), the list is saved again (save 1). The result is the namespace unchanged, or the
//! complete change; never anything in between, and no page of it in another namespace.

use crate::namespaces::host::{Host, PAGE, Store, blocks_of, device, subsystem};
use remap_ssd_device::{Device, DeviceConfig};
use remap_ssd_ftl::SchemeKind;
use remap_ssd_nvme::controller::{
    BlockAccess, CACHE_BYTES_MIN, FaultInjector, NewContent, Observer, Subsystem, Ticket,
};
use remap_ssd_nvme::spec::command::CopyRange;
use remap_ssd_nvme::spec::opcode::io;
use remap_ssd_nvme::spec::status::Status;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Barrier, OnceLock, Weak};
use std::time::Duration;
use zerocopy::IntoBytes;

const PAGES: u32 = 300;

/// Refuses deallocations once armed.
#[derive(Default)]
struct NoDeallocation(AtomicBool);

impl FaultInjector for NoDeallocation {
    fn delay(&self) -> Duration {
        Duration::ZERO
    }
    fn access(&self, access: BlockAccess, _: Range<u64>) -> Result<(), Status> {
        if matches!(access, BlockAccess::Deallocate) && self.0.load(Relaxed) {
            Err(Status::WRITE_FAULT)
        } else {
            Ok(())
        }
    }
    fn is_read_only(&self) -> bool {
        false
    }
}

/// Where the change is interrupted.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Cut {
    /// Before the list is saved for the first time.
    BeforeFirstSave,
    /// After that, before a page is deallocated.
    BeforeDeallocation,
    /// When all is deallocated, before that is saved.
    BeforeSecondSave,
    /// After the end.
    AtTheEnd,
}

struct Started {
    subsystem: Arc<Subsystem>,
    host: Host,
    faults: Arc<NoDeallocation>,
}

fn start(device: Device, store: &Store, cache: bool) -> Started {
    let faults = Arc::new(NoDeallocation::default());
    let mut made = subsystem(device, store).with_faults(faults.clone());
    if cache {
        made = made.with_cache(1024 * CACHE_BYTES_MIN);
    }
    let subsystem = Arc::new(made);
    subsystem.finish_clearing().expect("the device works");
    let host = Host::of(&subsystem, "a");
    Started {
        subsystem,
        host,
        faults,
    }
}

/// Cuts the power and ends the service; returns the device.
fn end(started: Started, seed: u64) -> Device {
    let Started {
        subsystem, host, ..
    } = started;
    subsystem.power_cut(seed).expect("it recovers");
    drop(host);
    let subsystem = Arc::into_inner(subsystem).expect("the only reference");
    subsystem.into_device().expect("no thread panicked")
}

/// Two namespaces full of their numbers, durably.
fn filled(cache: bool) -> (Started, Store) {
    let store = Store::default();
    let started = start(device(16 << 20), &store, cache);
    for nsid in 1..=2 {
        assert_eq!(started.host.create(PAGES, 0), Ok(nsid));
        let host = &started.host;
        host.attach(nsid, &[host], true).expect("it is there");
        for slba in 0..u64::from(PAGES) {
            let page = [nsid as u8; PAGE];
            host.write(nsid, slba, 1, &page).expect("served");
        }
    }
    started.host.flush(1).expect("served");
    (started, store)
}

fn is_full_of(host: &Host, nsid: u32, number: u8) -> bool {
    let blocks = host.namespace(nsid).expect("it is seen").nsze;
    (0..blocks).all(|slba| {
        let block = host.read(nsid, slba, 1).expect("served");
        block.iter().all(|byte| *byte == number)
    })
}

fn cut_at(cut: Cut, cache: bool, seed: u64, change: impl Fn(&Host) -> Result<(), Status>) -> Host {
    let (started, store) = filled(cache);
    let fail_save = |after: usize| {
        let mut saved = store.0.lock().expect("nothing fails here");
        saved.fails_at = Some(saved.count + after);
    };
    let expected = match cut {
        Cut::BeforeFirstSave => {
            fail_save(0);
            Err(Status::INTERNAL)
        }
        Cut::BeforeDeallocation => {
            started.faults.0.store(true, Relaxed);
            Err(Status::WRITE_FAULT)
        }
        Cut::BeforeSecondSave => {
            fail_save(1);
            Err(Status::INTERNAL)
        }
        Cut::AtTheEnd => Ok(()),
    };
    assert_eq!(change(&started.host), expected, "{cut:?}");

    store.0.lock().expect("nothing fails here").fails_at = None;
    let device = end(started, seed);
    let Started {
        subsystem, host, ..
    } = start(device, &store, cache);
    subsystem.device().ftl().check().expect("consistent");
    let at = format!("{cut:?}, cache {cache}, seed {seed}");
    assert!(is_full_of(&host, 2, 2), "{at}");
    host
}

const CUTS: [Cut; 4] = [
    Cut::BeforeFirstSave,
    Cut::BeforeDeallocation,
    Cut::BeforeSecondSave,
    Cut::AtTheEnd,
];

#[test]
fn a_deletion_that_is_cut_is_none_or_whole() {
    for cache in [false, true] {
        for (cut, seed) in CUTS.into_iter().flat_map(|cut| [(cut, 1), (cut, 2)]) {
            let host = cut_at(cut, cache, seed, |host| host.delete(1));
            let at = format!("{cut:?}, cache {cache}, seed {seed}");
            if cut == Cut::BeforeFirstSave {
                assert!(is_full_of(&host, 1, 1), "{at}");
                continue;
            }
            assert_eq!(host.seen(), [2], "{at}");

            // The next owners of its pages find them empty.
            let rest = (host.free_bytes() / PAGE as u64) as u32;
            assert_eq!(host.create(PAGES, 0), Ok(1), "{at}");
            assert_eq!(host.create(rest - PAGES, 0), Ok(3), "{at}");
            for nsid in [1, 3] {
                host.attach(nsid, &[&host], true).expect("it is there");
                assert!(is_full_of(&host, nsid, 0), "{at}");
            }
        }
    }
}

#[test]
fn a_format_with_other_blocks_that_is_cut_is_none_or_whole() {
    for cache in [false, true] {
        for (cut, seed) in CUTS.into_iter().flat_map(|cut| [(cut, 1), (cut, 2)]) {
            let host = cut_at(cut, cache, seed, |host| host.format(1, 1));
            let at = format!("{cut:?}, cache {cache}, seed {seed}");
            let about = host.namespace(1).expect("it is seen");
            if cut == Cut::BeforeFirstSave {
                assert!(is_full_of(&host, 1, 1) && about.flbas == 0, "{at}");
            } else {
                assert!(is_full_of(&host, 1, 0) && about.flbas == 1, "{at}");
            }
        }
    }
}

/// On a device that cannot deallocate for a while: repeating the command finishes it, and the
/// namespace is not usable before.
#[test]
fn what_failed_halfway_can_be_asked_for_again() {
    let (started, _) = filled(false);
    let Started { host, faults, .. } = &started;
    faults.0.store(true, Relaxed);
    assert_eq!(host.format(1, 1), Err(Status::WRITE_FAULT));
    assert_eq!(host.read(1, 0, 1), Err(Status::FORMAT_IN_PROGRESS));
    let mut copy = blocks_of(io::COPY, 2, 0, 1);
    copy.cdw12 = 2 << 8;
    let range = CopyRange::new(0, 0).of_namespace(1);
    host.enable_copy_across();
    let copied = host.io(&copy, range.as_bytes());
    assert_eq!(copied, Err(Status::FORMAT_IN_PROGRESS));
    faults.0.store(false, Relaxed);
    assert_eq!(host.format(1, 1), Ok(()));
    assert!(is_full_of(host, 1, 0));

    faults.0.store(true, Relaxed);
    assert_eq!(host.delete(2), Err(Status::WRITE_FAULT));
    assert_eq!(host.seen(), [1]);
    // A new one could not be emptied, and leaves nothing.
    assert_eq!(host.create(8, 0), Err(Status::WRITE_FAULT));
    faults.0.store(false, Relaxed);
    // Number and pages of the half-deleted one are not free yet.
    assert_eq!(host.create(8, 0), Ok(3));
    assert_eq!(host.delete(2), Ok(()));
    assert_eq!(host.create(8, 0), Ok(2));
}

/// Cuts the power at the next flush, before it is executed.
#[derive(Default)]
struct CutAtFlush {
    subsystem: OnceLock<Weak<Subsystem>>,
    is_armed: AtomicBool,
}

/// An observer that makes the cut.
struct CuttingObserver(Arc<CutAtFlush>);

impl Observer for CuttingObserver {
    fn begun(&self) -> Ticket {
        let subsystem = self.0.subsystem.get().and_then(Weak::upgrade);
        if let Some(subsystem) = subsystem.filter(|_| self.0.is_armed.swap(false, Relaxed)) {
            subsystem.power_cut(7).expect("it recovers");
        }
        Ticket(0)
    }
    fn changed(&self, _: u64, _: NewContent<'_>, _: bool) -> Ticket {
        Ticket(0)
    }
    fn ended(&self, _: Ticket) {}
}

/// An operator cuts the power of a volatile cache between the deallocation of a namespace's pages
/// and the flush: the pages have their old content again.
#[test]
fn deallocations_that_a_power_cut_has_taken_back_are_repeated() {
    let cut = Arc::new(CutAtFlush::default());
    let made = subsystem(device(16 << 20), &Store::default());
    let made = made.with_cache(4096 * CACHE_BYTES_MIN);
    let subsystem = Arc::new(made.observed(Box::new(CuttingObserver(cut.clone()))));
    let is_first = cut.subsystem.set(Arc::downgrade(&subsystem)).is_ok();
    assert!(is_first);

    let host = Host::of(&subsystem, "a");
    host.create(PAGES, 0).expect("there is room");
    host.attach(1, &[&host], true).expect("it is there");
    for slba in 0..u64::from(PAGES) {
        host.write(1, slba, 1, &[9; PAGE]).expect("served");
    }
    host.flush(1).expect("served");

    cut.is_armed.store(true, Relaxed);
    host.delete(1).expect("it is there");
    assert_eq!(subsystem.power_cuts(), 1);
    assert_eq!(host.create(PAGES, 0), Ok(1));
    host.attach(1, &[&host], true).expect("it is there");
    assert!(is_full_of(&host, 1, 0));
}

/// An operator cuts the power while a large namespace with pages in the volatile write buffer is deleted.
#[test]
fn a_deletion_goes_on_after_power_cuts() {
    let mut config =
        DeviceConfig::for_service(128 << 20, SchemeKind::RemapSsd, false).expect("possible");
    config.firmware.write_buffer_bytes = 1 << 20;
    config.firmware.power_loss_protection = false;
    let pages = 30_000;
    let device = Device::in_memory(config).expect("possible");
    let subsystem = Arc::new(subsystem(device, &Store::default()));
    let host = Host::of(&subsystem, "a");

    for _ in 0..8 {
        let nsid = host.create(pages, 0).expect("there is room");
        host.attach(nsid, &[&host], true).expect("it is there");
        for slba in (0..u64::from(pages)).step_by(8) {
            host.write(nsid, slba, 1, &[9; PAGE]).expect("served");
        }
        // Several, so that one waits for the device when a slice of the deallocation ends.
        let together = Barrier::new(4);
        let cut = || {
            together.wait();
            for _ in 0..4 {
                subsystem.power_cut(7).expect("it recovers");
            }
        };
        std::thread::scope(|scope| {
            (0..3).for_each(|_| drop(scope.spawn(cut)));
            together.wait();
            assert_eq!(host.delete(nsid), Ok(()));
        });
    }
}

#[test]
fn a_creation_that_is_cut_is_none_or_whole() {
    for cut in CUTS {
        let (started, store) = filled(false);
        let fail_save = |after: usize| {
            let mut saved = store.0.lock().expect("nothing fails here");
            saved.fails_at = Some(saved.count + after);
        };
        match cut {
            Cut::BeforeFirstSave => fail_save(0),
            Cut::BeforeDeallocation => started.faults.0.store(true, Relaxed),
            // Undoing it fails too: the next start does that.
            Cut::BeforeSecondSave => fail_save(1),
            Cut::AtTheEnd => {}
        }
        let made = started.host.create(PAGES, 0);
        assert_eq!(made.is_ok(), cut == Cut::AtTheEnd, "{cut:?}: {made:?}");

        store.0.lock().expect("nothing fails here").fails_at = None;
        let device = end(started, 3);
        let Started { host, .. } = start(device, &store, false);
        assert!(
            is_full_of(&host, 1, 1) && is_full_of(&host, 2, 2),
            "{cut:?}"
        );
        let next = if cut == Cut::AtTheEnd { 4 } else { 3 };
        assert_eq!(host.create(8, 0), Ok(next), "{cut:?}");
    }
}

/// The list is older than the namespaces, as if an operator had restored it and accepted that:
/// their pages count as free, but still have their content.
#[test]
fn a_new_namespace_reads_nothing_of_what_its_pages_held() {
    for cache in [false, true] {
        let (started, _) = filled(cache);
        let device = end(started, 1);
        let older = Store::default();
        let Started { host, .. } = start(device, &older, cache);
        let pages = (host.free_bytes() / PAGE as u64) as u32;
        assert_eq!(host.create(pages, 0), Ok(1));
        host.attach(1, &[&host], true).expect("it is there");
        assert!(is_full_of(&host, 1, 0));
    }
}
