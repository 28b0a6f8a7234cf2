//! Relative frequency of each kind of command in a script.
//!
//! Absent: LPNs and contents of the commands (`CommandGenerator`).

/// Relative frequency of each kind of command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix {
    /// Writes of new or repeated contents.
    pub write: u32,
    /// Writes that repeat the LPN's content.
    pub rewrite: u32,
    /// Remaps that keep the source.
    pub copy: u32,
    /// Remaps that deallocate the source.
    pub relocate: u32,
    /// Deallocations, rarely of the whole device.
    pub deallocate: u32,
    /// Flushes, which wait for all earlier commands.
    pub flush: u32,
    /// Garbage collection while the host is idle.
    pub background: u32,
    /// Streams of writes to consecutive LPNs: new contents, then the same contents elsewhere. If
    /// there are any, remaps are longer too.
    pub run: u32,
    /// Pages of files; a reset for every 24 of them.
    pub files: u32,
}

impl Mix {
    /// All kinds of commands about equally often.
    pub(crate) const EVEN: Self = Self {
        write: 40,
        rewrite: 6,
        copy: 24,
        relocate: 14,
        deallocate: 10,
        flush: 2,
        background: 6,
        run: 0,
        files: 0,
    };
    /// Mostly remaps: most metadata per page.
    pub(crate) const REMAPS: Self = Self {
        write: 14,
        rewrite: 3,
        copy: 52,
        relocate: 20,
        deallocate: 5,
        flush: 1,
        background: 6,
        run: 0,
        files: 0,
    };
    /// Mostly writes: most garbage collection.
    pub(crate) const WRITES: Self = Self {
        write: 74,
        rewrite: 4,
        copy: 8,
        relocate: 5,
        deallocate: 4,
        flush: 1,
        background: 10,
        run: 0,
        files: 0,
    };
    /// Mostly deallocations: their log turns over.
    pub(crate) const TRIMS: Self = Self {
        write: 40,
        rewrite: 2,
        copy: 10,
        relocate: 14,
        deallocate: 28,
        flush: 2,
        background: 6,
        run: 0,
        files: 0,
    };
    /// A journal: written once, then moved home.
    pub(crate) const MOVES: Self = Self {
        write: 30,
        rewrite: 2,
        copy: 6,
        relocate: 48,
        deallocate: 8,
        flush: 1,
        background: 6,
        run: 0,
        files: 0,
    };

    /// Files: written and copied in runs.
    pub(crate) const RUNS: Self = Self {
        write: 14,
        rewrite: 2,
        copy: 26,
        relocate: 12,
        deallocate: 5,
        flush: 1,
        background: 6,
        run: 12,
        files: 0,
    };

    /// Commands as a log-structured file system issues them.
    pub(crate) const FILES: Self = Self {
        write: 16,
        rewrite: 2,
        copy: 8,
        relocate: 8,
        deallocate: 4,
        flush: 1,
        background: 6,
        run: 0,
        files: 48,
    };

    pub(super) fn total(&self) -> u32 {
        let remaps = self.copy + self.relocate;
        self.write
            + self.rewrite
            + remaps
            + self.deallocate
            + self.flush
            + self.background
            + self.run
            + self.files
    }
}
