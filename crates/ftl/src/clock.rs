//! Sequence numbers: the device's virtual time (FAST'21 §4.3). Every write, remap and deallocation
//! takes one.
//!
//! Invariant: each number is issued once, in ascending order, and all are below `WSN_END`.

/// Upper bound of sequence numbers: they have 42 bits, as in FAST'21's Table 2.
pub(crate) const WSN_END: u64 = 1 << 42;

/// From this number on the device is read-only. The rest is reserved for internal work: a command
/// admitted just before, the garbage collection that it waits for, and one recovery. Each takes at
/// most a few numbers per page that it moves; the reserve is 32 numbers per page of the largest
/// possible device.
pub(crate) const WSN_READ_ONLY: u64 = WSN_END - (1 << 36);

/// The counter.
#[derive(Default)]
pub(crate) struct WsnClock {
    /// The last number issued.
    now: u64,
    /// The largest number that power-on found.
    resumed: u64,
}

impl WsnClock {
    /// Last number issued: the present in virtual time.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        self.now
    }

    /// Issues the next number.
    #[inline]
    pub(crate) fn tick(&mut self) -> u64 {
        self.now += 1;
        assert!(
            self.now < WSN_END,
            "nothing takes numbers once they are used up"
        );
        self.now
    }

    /// Passes over numbers that nothing will have.
    pub(crate) fn skip(&mut self, numbers: u64) {
        self.now += numbers;
    }

    /// After power-on: prevents the reuse of numbers up to this one.
    pub(crate) fn resume_after(&mut self, wsn: u64) {
        self.now = self.now.max(wsn);
        self.resumed = self.now;
    }

    /// The number after which it has resumed; 0 on a new device.
    pub(crate) fn resumed(&self) -> u64 {
        self.resumed
    }

    /// Returns true if the numbers are used up and the device is read-only. Internal work that
    /// takes numbers must check this first.
    #[inline(always)]
    pub(crate) fn is_used_up(&self) -> bool {
        self.now >= WSN_READ_ONLY
    }
}
