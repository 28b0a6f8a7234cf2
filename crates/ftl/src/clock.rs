//! Sequence numbers: the device's virtual time (FAST'21 §4.3). Every write, remap and deallocation
//! takes one.
//!
//! Invariant: numbers are handed out once, in ascending order, and all are below `WSN_END`.

/// Sequence numbers have 42 bits, as in FAST'21's Table 2: all are below this.
pub const WSN_END: u64 = 1 << 42;

/// From this number on the device is read-only. The rest is reserved for internal work: a command
/// admitted just before, the garbage collection that it waits for, and one recovery. Each takes at
/// most a few numbers per page that it moves; the reserve is 32 for each page of the largest
/// possible device.
pub const WSN_READ_ONLY: u64 = WSN_END - (1 << 36);

/// Advances the counter and returns the next write/remap sequence number.
#[inline]
pub fn next_number(wsn: &mut u64) -> u64 {
    *wsn += 1;
    assert!(
        *wsn < WSN_END,
        "nothing takes numbers once they are used up"
    );
    *wsn
}
