//! The engine `nand` allocates nothing for a request once its queues have grown: allocations are counted.
//!
//! A program of its own, since the allocator is that of the whole process.

use remap_ssd_device::nand::Nand;
use remap_ssd_device::{
    CommandRecord, Device, DeviceConfig, Lpn, PageCommand, PageKind, Setting, TimingHalf,
};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, counting each thread's allocations.
struct Counting;

thread_local!(static COUNT: Cell<u64> = const { Cell::new(0) });

// SAFETY: every call is passed on unchanged; counting touches a thread-local cell without a
// destructor, which does not allocate. `realloc` is that of the trait, which allocates here.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the contract of `alloc`, which is that of the system's.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: memory returned by `alloc` came from the system's allocator.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A host with a fixed number of requests in flight, which reads and writes up to four pages at random.
struct Host {
    device: Device,
    state: u64,
    /// Requests that may be submitted, and when.
    free: Vec<(u64, u32)>,
}

impl Host {
    fn new(settings: &[&str]) -> Self {
        let common = [
            "background.lookup_stalls_dies=false",
            "timing.engine=nand",
            "firmware.scheme=none",
            "firmware.dedup=false",
            "firmware.lpns=5_000_000",
        ];
        let settings = common.iter().chain(settings);
        let settings: Vec<Setting> = settings.map(|text| text.parse().unwrap()).collect();
        let config = DeviceConfig::preset("fast21-32g").unwrap().with(&settings);
        let config = config.unwrap().scale(1.0 / 64.0).unwrap();
        Self {
            device: Device::format(config).unwrap(),
            state: 7,
            free: (0..32).map(|request| (0, request)).collect(),
        }
    }

    /// Performs this number of requests; returns the number of allocations by the engine.
    fn run(&mut self, requests: u32) -> u64 {
        let lpns = self.device.config().firmware.lpns;
        let (mut firmware, mut timing) = self.device.halves().unwrap();
        let mut record = CommandRecord::default();
        let mut below = |end: u32| {
            self.state = self
                .state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            ((self.state >> 33) % u64::from(end)) as u32
        };

        let mut count = 0;
        for number in 0..requests {
            let (now, request) = self.free.pop().unwrap_or_else(|| {
                let end = counted(&mut count, || nand(&mut timing).next_end());
                end.map(|end| (end.at, end.request)).unwrap()
            });
            let kind = match below(2) {
                0 => PageKind::Read,
                _ => PageKind::Write,
            };
            let (pages, first) = (1 + below(4), below(lpns - 4));
            counted(&mut count, || nand(&mut timing).open(request));

            for page in 0..pages {
                let command = PageCommand {
                    content: number.into(),
                    lpn: Lpn(first + page).into(),
                    kind,
                };
                // The firmware allocates, for the superblocks that it opens and closes.
                let done = firmware.submit(&command, page + 1 < pages, &mut record);
                done.unwrap();
                counted(&mut count, || {
                    for _ in 0..record.steps() {
                        timing.submit(request, now, &mut record);
                    }
                });
                record.clear();
            }
            counted(&mut count, || nand(&mut timing).close(request));
        }
        count
    }
}

fn nand<'a>(timing: &'a mut TimingHalf<'_>) -> &'a mut Nand {
    timing.nand().unwrap()
}

/// Adds the allocations of an act to `count`.
fn counted<T>(count: &mut u64, act: impl FnOnce() -> T) -> T {
    let before = COUNT.with(Cell::get);
    let value = act();
    *count += COUNT.with(Cell::get) - before;
    value
}

#[test]
fn nothing_is_allocated_for_a_request_once_queues_have_grown() {
    let word_lines = [
        "geometry.planes=2",
        "geometry.page_bytes=16384",
        "geometry.cell_bits=3",
        "geometry.pages_per_block=1536",
        "flash.transfer_ns=5us",
        "timing.suspensions=4",
        "timing.suspend_ns=20us",
        "timing.cache_read=true",
        "timing.whole_reads=true",
    ];
    for settings in [&[][..], &word_lines] {
        let mut host = Host::new(settings);
        let grown = host.run(400_000);
        let moved = host.device.ftl().stats().gc_programs;
        assert!(grown > 0 && moved > 1000, "{grown} {moved}");
        // A queue may still double. These requests erase more than a thousand superblocks.
        let later = host.run(200_000);
        assert!(later < 50, "{later} allocations for 200,000 requests");
    }
}
