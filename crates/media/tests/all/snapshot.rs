//! A snapshot costs a handle per piece, and a later change copies the piece it touches: allocated
//! bytes are counted.

use remap_ssd_media::Outcome::{Absent, Whole};
use remap_ssd_media::geometry::Shape;
use remap_ssd_media::{
    After, ContentMode, Geometry, Image, Lpn, Media, Oob, Ppn, Purpose, StoredPage,
};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, counting each thread's allocations.
struct Counting;

thread_local!(static ASKED: Cell<usize> = const { Cell::new(0) });

// SAFETY: every call is passed on unchanged; counting touches a thread-local cell without a
// destructor, which does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ASKED.with(|asked| asked.set(asked.get() + layout.size()));
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

fn bytes_asked_by<T>(act: impl FnOnce() -> T) -> (usize, T) {
    let before = ASKED.with(Cell::get);
    let value = act();
    (ASKED.with(Cell::get) - before, value)
}

// 64 superblocks of 8192 pages: 9 MiB of cells (144 KiB per superblock), and 8 MiB of NVRAM.
#[test]
fn a_snapshot_shares_what_has_not_changed() {
    let shape = Shape {
        channels: 1,
        dies: 8,
        superblocks: 64,
        pages_per_block: 1024,
    };
    let geometry = Geometry::new(shape).expect("valid");
    let words = 1 << 20;
    let mut media = Media::blank(geometry, ContentMode::Identity, words);
    media.attach_rail();
    let handles = (64 + words / 64) * size_of::<usize>();

    let (asked, image) = bytes_asked_by(|| media.cut(|| Whole));
    assert!(
        asked < handles + 4096,
        "a snapshot of an idle device asked for {asked} bytes"
    );

    media
        .program(
            Ppn(5),
            Oob::new(Lpn(1), 1, 1),
            StoredPage::Identity(1),
            Purpose::Host,
            After::NOTHING,
        )
        .expect("no fault");
    media.store(70, 1, Purpose::Host, After::NOTHING);
    let (asked, _changed): (usize, Image) = bytes_asked_by(|| media.cut(|| Whole));
    let superblock = 8192 * (10 + 8) + 8192 / 8;
    assert!(
        asked < handles + superblock + 512 + 4096,
        "one page and one word changed: {asked} bytes asked for"
    );

    let (asked, same) = bytes_asked_by(|| media.cut(|| Absent));
    assert!(
        asked < handles + 4096,
        "nothing of it landed: {asked} bytes asked for"
    );
    assert_eq!(same.digest(), image.digest());
}
