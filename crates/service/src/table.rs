//! State of a device, read in short stretches: counters, superblocks, wear.
//!
//! Invariant: one stretch reads at most `STRETCH` superblocks, each at a cost independent of the
//! device's size. Absent: locking the device.

use remap_ssd_device::Device;
use remap_ssd_ftl::{Ftl, Stream, SuperblockState};
use remap_ssd_http::status::{Nvram, Status, Superblocks, Wear, WriteBuffer};
use remap_ssd_http::{Cells, CommandStatistics};
use remap_ssd_media::SbId;
use remap_ssd_nvme::controller::statistics;
use remap_ssd_nvme::controller::telemetry::{CommandKind, Telemetry};

/// Superblocks per stretch: some tens of microseconds.
pub(crate) const STRETCH: u32 = 256;

/// A superblock at its last reading.
#[derive(Clone, Copy, Debug)]
struct SuperblockRow {
    state: SuperblockState,
    stream: Stream,
    valid: u32,
    remapped: u32,
    garbage: u32,
    erases_min: u32,
    erases_max: u32,
    erases_sum: u64,
    dies: u32,
    segments: u32,
}

/// Superblocks and counters of a device, each as old as the stretch that read it.
#[derive(Default)]
pub(crate) struct SuperblockTable {
    entries: Vec<Option<SuperblockRow>>,
    counters: Vec<(&'static str, u64)>,
    nvram: Nvram,
    write_buffer: WriteBuffer,
    read_only: bool,
    gc_start: u32,
    pages_per_superblock: u32,
    scheme: String,
}

impl SuperblockTable {
    /// Reads the counters. Required before superblocks are read.
    pub(crate) fn count(&mut self, device: &Device) {
        let ftl = device.ftl();
        let (geometry, usage) = (ftl.media().geometry(), ftl.usage());

        // None until it is read: the table fills stretch by stretch.
        self.entries.resize(geometry.superblocks() as usize, None);
        self.pages_per_superblock = geometry.pages_per_superblock();
        self.counters = statistics::NAMES
            .into_iter()
            .zip(statistics::read(device))
            .collect();
        self.nvram = Nvram {
            capacity_bytes: usage.capacity_bytes,
            used_bytes: usage.used_bytes,
            valid_bytes: usage.valid_bytes,
            largest_group_bytes: usage.largest_group_bytes,
        };
        self.write_buffer = WriteBuffer {
            capacity_bytes: ftl.config().write_buffer_bytes,
            used_bytes: u64::from(ftl.buffered_pages()) * geometry.page_bytes() as u64,
            volatile: ftl.config().has_volatile_buffer(),
        };
        self.read_only = ftl.is_read_only();
        self.gc_start = ftl.gc_start();
        self.scheme = ftl.config().scheme.to_string();
    }

    /// Number of superblocks.
    pub(crate) fn superblocks(&self) -> u32 {
        self.entries.len() as u32
    }

    /// Reads one stretch of superblocks; returns their number.
    pub(crate) fn look(&mut self, device: &Device, first: u32) -> u32 {
        let end = first.saturating_add(STRETCH).min(self.superblocks());
        for sb in first..end {
            self.entries[sb as usize] = Some(entry(device.ftl(), SbId(sb)));
        }
        end.saturating_sub(first)
    }

    /// Reads all superblocks, of a device that serves no hosts.
    pub(crate) fn look_at_all(&mut self, device: &Device) {
        self.count(device);
        let mut first = 0;
        while first < self.superblocks() {
            first += self.look(device, first);
        }
    }

    /// All counters, each with its name.
    pub(crate) fn counters(&self) -> &[(&'static str, u64)] {
        &self.counters
    }

    /// Fills in the device's part of a status.
    pub(crate) fn fill(&self, status: &mut Status) {
        status.counters = self.counters.iter().copied().collect();
        status.nvram = self.nvram;
        status.write_buffer = self.write_buffer;
        status.read_only = self.read_only;
        status.scheme.clone_from(&self.scheme);

        // Superblocks not read yet are left out.
        let entries = || self.entries.iter().flatten();
        let count =
            |state: SuperblockState| entries().filter(|entry| entry.state == state).count() as u64;
        status.superblocks = Superblocks {
            free: count(SuperblockState::Free),
            open: count(SuperblockState::Open),
            closed: count(SuperblockState::Closed),
            retired: count(SuperblockState::Retired),
            gc_start: self.gc_start.into(),
        };

        let blocks: u64 = entries().map(|entry| u64::from(entry.dies)).sum();
        let erases: u64 = entries().map(|entry| entry.erases_sum).sum();
        status.wear = Wear {
            min: entries().map(|entry| entry.erases_min).min().unwrap_or(0),
            mean: erases as f64 / blocks.max(1) as f64,
            max: entries().map(|entry| entry.erases_max).max().unwrap_or(0),
        };
    }

    /// The superblocks in at most `cells_max` cells.
    pub(crate) fn cells(&self, cells_max: usize) -> Cells {
        // Rounded up, so that there are at most `cells_max` cells.
        let per_cell = self.entries.len().div_ceil(cells_max.max(1)).max(1);

        let mut cells = Cells {
            superblocks: self.superblocks(),
            per_cell: per_cell as u32,
            pages_per_superblock: self.pages_per_superblock,
            ..Cells::default()
        };

        for entries in self.entries.chunks(per_cell) {
            let known = || entries.iter().flatten();
            // Sums of a large device's cells may exceed 32 bits.
            let sum = |of: fn(&SuperblockRow) -> u32| known().map(of).fold(0, u32::saturating_add);

            cells.state.push(letter(known()));
            cells.valid.push(sum(|entry| entry.valid));
            cells.remapped.push(sum(|entry| entry.remapped));
            cells.garbage.push(sum(|entry| entry.garbage));
            cells.segments.push(sum(|entry| entry.segments));

            let erases: u64 = known().map(|entry| entry.erases_sum).sum();
            let blocks: u64 = known().map(|entry| u64::from(entry.dies)).sum();
            cells.erases.push((erases / blocks.max(1)) as u32);
        }

        cells
    }
}

fn entry(ftl: &Ftl, sb: SbId) -> SuperblockRow {
    let (media, superblock) = (ftl.media(), ftl.superblock(sb));
    let geometry = media.geometry();
    let owners = ftl.owners(sb);
    let mut entry = SuperblockRow {
        state: superblock.state,
        stream: superblock.stream,
        valid: owners.live,
        remapped: owners.remapped,
        garbage: 0,
        erases_min: u32::MAX,
        erases_max: 0,
        erases_sum: 0,
        dies: geometry.dies(),
        segments: ftl.group(sb).map_or(0, |group| group.segments.len() as u32),
    };

    let mut written = 0;
    for die in 0..geometry.dies() {
        let block = geometry.block(sb, die);
        let erases = media.erase_count(block);
        entry.erases_min = entry.erases_min.min(erases);
        entry.erases_max = entry.erases_max.max(erases);
        entry.erases_sum += u64::from(erases);
        written += media.next_row(block);
    }
    // The head page is no garbage, and the tail's place holds no data.
    let held = written.saturating_sub(1).min(superblock.capacity);
    entry.garbage = match superblock.state {
        SuperblockState::Open | SuperblockState::Closed => held.saturating_sub(owners.live),
        SuperblockState::Free | SuperblockState::Retired => 0,
    };
    entry
}

/// One letter for a group of superblocks: the open one's, else the most frequent.
fn letter<'a>(entries: impl Iterator<Item = &'a SuperblockRow>) -> char {
    let mut counts = [0u32; 3];
    for entry in entries {
        match (entry.state, entry.stream) {
            (SuperblockState::Open, Stream::Host) => return 'h',
            (SuperblockState::Open, _) => return 'g',
            (SuperblockState::Free, _) => counts[0] += 1,
            (SuperblockState::Closed, _) => counts[1] += 1,
            (SuperblockState::Retired, _) => counts[2] += 1,
        }
    }

    // Reversed, so that in a tie the first kind wins.
    let most = (0..3).rev().max_by_key(|at| counts[*at]).unwrap_or(0);
    ['f', 'c', 'r'][most]
}

/// Statistics of all kinds of commands, for a status.
pub(crate) fn commands(telemetry: &Telemetry) -> Vec<CommandStatistics> {
    let kinds = telemetry.read();
    CommandKind::NAMES
        .into_iter()
        .zip(kinds)
        .map(|(name, kind)| CommandStatistics {
            name,
            buckets: kind.buckets.to_vec(),
            sum_ns: kind.sum_ns,
            failed: kind.failed,
        })
        .collect()
}
