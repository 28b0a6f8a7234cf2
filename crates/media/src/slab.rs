//! Flat arrays of plain values on huge pages.
//!
//! Random accesses to arrays of tens of megabytes miss the TLB on every step; 2 MiB pages account
//! for a quarter to a third of the simulator's speed. Small arrays stay on the heap. Invariant: the
//! memory is zero when new, and every bit pattern of `T` is a value.

use std::ops::{Deref, DerefMut};
use zerocopy::{FromBytes, IntoBytes};

/// Arrays below this size are ordinary vectors.
const HUGE_FROM_BYTES: usize = 1 << 20;

/// Bytes of a huge page.
const HUGE_BYTES: usize = 2 << 20;

/// Bytes of a cache line.
pub(crate) const LINE_BYTES: usize = 64;

/// A fixed-length array of plain values.
pub struct Slab<T> {
    data: *mut T,
    len: usize,
    /// The mapping that holds the memory, or `None` for a boxed slice that `drop` frees.
    map: Option<memmap2::MmapMut>,
}

impl<T: FromBytes + IntoBytes + Copy> Slab<T> {
    /// A slab of `len` zeroes, on huge pages if it is large.
    pub fn zeroed(len: usize) -> Self {
        let bytes = len * size_of::<T>();

        if bytes >= HUGE_FROM_BYTES
            && let Ok(mut map) = memmap2::MmapMut::map_anon(huge_bytes(bytes) + HUGE_BYTES)
        {
            // Best effort: without huge pages everything works, only slower.
            #[cfg(target_os = "linux")]
            let _ = map.advise(memmap2::Advice::HugePage);
            // Only aligned pieces become huge pages. The address space before the first one, and
            // after the last value, is never touched.
            let start = map.as_ptr().align_offset(HUGE_BYTES);
            let data = map[start..start + bytes].as_mut_ptr().cast();
            assert!(align_of::<T>() <= HUGE_BYTES);

            return Self {
                data,
                len,
                map: Some(map),
            };
        }

        let heap = Box::into_raw(vec![T::new_zeroed(); len].into_boxed_slice());
        Self {
            data: heap.cast(),
            len,
            map: None,
        }
    }
}

/// Size of the mapping for this many bytes: extended to the end of a huge page if at least half of
/// that page is used, so that the array's end is also on a huge page.
fn huge_bytes(bytes: usize) -> usize {
    match bytes % HUGE_BYTES {
        rest if rest >= HUGE_BYTES / 2 => bytes.next_multiple_of(HUGE_BYTES),
        _ => bytes,
    }
}

impl<T> Drop for Slab<T> {
    fn drop(&mut self) {
        if self.map.is_none() {
            // SAFETY: without a mapping, `data` and `len` came from `Box::into_raw` in `zeroed`,
            // and are given back exactly once, here.
            drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(self.data, self.len)) });
        }
    }
}

impl<T> Deref for Slab<T> {
    type Target = [T];
    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: `data` points to `len` initialised values in memory that `self` owns (a mapping
        // or a boxed slice), that is never reallocated, and that is reached through `self` alone.
        unsafe { std::slice::from_raw_parts(self.data, self.len) }
    }
}

impl<T> DerefMut for Slab<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`, and `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.data, self.len) }
    }
}

impl<T: FromBytes + IntoBytes + Copy> Clone for Slab<T> {
    fn clone(&self) -> Self {
        let mut copy = Self::zeroed(self.len);
        copy.copy_from_slice(self);
        copy
    }
}

// SAFETY: a `Slab` owns its memory exclusively, like a box or the mapping inside it; `T` is plain
// data.
unsafe impl<T: Send> Send for Slab<T> {}
// SAFETY: shared access only reads.
unsafe impl<T: Sync> Sync for Slab<T> {}

/// Prefetches the cache line of `slice[index]`; out of range does nothing.
#[inline(always)]
pub fn prefetch<T>(slice: &[T], index: usize) {
    if let Some(value) = slice.get(index) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch of a valid address has no effect that a program can observe; SSE is
        // part of the x86_64 baseline.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(value).cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = value;
    }
}
