//! Lanes that are used in turn, and what stands between the host and the flash: the link, the cores that
//! execute the firmware, and the unit that computes fingerprints.
//!
//! Invariant: turns are taken in the order of calls. Absent: flash and NVRAM.

use crate::config::{Controller, Latencies};

/// A resource that is used in turn.
#[derive(Clone, Copy, Default)]
pub(crate) struct SerialResource {
    free: u64,
}

impl SerialResource {
    /// Takes the next turn after `asked`; returns its beginning.
    #[inline(always)]
    pub(crate) fn turn(&mut self, asked: u64, length: u64) -> u64 {
        // The turn is taken at the request, not when data is ready: late data never blocks a lane.
        let begin = self.free.max(asked);
        self.free = begin + length;
        begin
    }

    /// For how long it will be busy from `now` on.
    pub(crate) fn ahead(&self, now: u64) -> u64 {
        self.free.saturating_sub(now)
    }

    /// Takes the next turn for data that is ready at `ready`; returns the end of the transfer.
    #[inline(always)]
    pub(crate) fn pass(&mut self, asked: u64, length: u64, ready: u64) -> u64 {
        self.turn(asked, length).max(ready) + length
    }
}

/// Link, cores and hash unit, each with the time until which it is busy.
pub(crate) struct FrontEnd {
    page_ns: u64,
    command_ns: u64,
    write_ns: u64,
    hash_ns: u64,
    hash_interval_ns: u64,
    controller: Controller,
    hash: SerialResource,
    /// Cores that execute the firmware.
    cores: Vec<SerialResource>,
    /// The core that executes the latest command.
    core: usize,
    link_in: SerialResource,
    link_out: SerialResource,
    /// How long the cores have been busy, all together.
    core_ns: u64,
}

impl FrontEnd {
    pub(crate) fn new(latencies: &Latencies) -> Self {
        Self {
            page_ns: latencies.link_page_ns,
            command_ns: latencies.link_command_ns,
            write_ns: latencies.link_write_ns,
            hash_ns: latencies.hash_ns,
            hash_interval_ns: latencies.hash_interval_ns,
            controller: latencies.controller,
            hash: SerialResource::default(),
            cores: vec![SerialResource::default(); latencies.controller.cores.max(1) as usize],
            core: 0,
            link_in: SerialResource::default(),
            link_out: SerialResource::default(),
            core_ns: 0,
        }
    }

    /// Number of cores, and how long they have been busy, all together.
    pub(crate) fn core_times(&self) -> (u64, u64) {
        (self.cores.len() as u64, self.core_ns)
    }

    /// Arrival in the controller of a command without data, submitted at `now`.
    #[inline]
    pub(crate) fn arrive(&self, now: u64) -> u64 {
        now + self.command_ns
    }

    /// Arrival in the controller of pages of 4 KiB sent with a command.
    #[inline]
    pub(crate) fn receive(&mut self, now: u64, pages: u16) -> u64 {
        let length = u64::from(pages) * self.page_ns;
        self.link_in.pass(now, length, now) + self.write_ns
    }

    /// End of sending pages of 4 KiB to the host that are ready at `ready`.
    #[inline]
    pub(crate) fn send(&mut self, now: u64, pages: u32, ready: u64) -> u64 {
        self.link_out
            .pass(now, u64::from(pages) * self.page_ns, ready)
    }

    /// Time at which the fingerprint of a page that is ready at `ready` is available.
    #[inline]
    pub(crate) fn hash_page(&mut self, now: u64, ready: u64) -> u64 {
        // A pipeline: it accepts a page per interval, independent of its latency.
        self.hash.turn(now, self.hash_interval_ns).max(ready) + self.hash_ns
    }

    /// End of the firmware's work for a part of a command that arrived at `asked`: its beginning, if
    /// `begins`, and `pages` pages that are ready at `ready`.
    #[inline]
    pub(crate) fn process(&mut self, asked: u64, ready: u64, begins: bool, pages: u64) -> u64 {
        let Controller {
            firmware_ns,
            page_ns,
            ..
        } = self.controller;

        match u64::from(begins) * firmware_ns + pages * page_ns {
            0 => ready,
            length => self.occupy_core(asked, ready, begins, length),
        }
    }

    #[inline(never)]
    fn occupy_core(&mut self, asked: u64, ready: u64, begins: bool, length: u64) -> u64 {
        // All of a command is executed by one core.
        if begins {
            let cores = 0..self.cores.len();
            let first_free = cores.min_by_key(|at| self.cores[*at].free);
            self.core = first_free.unwrap_or(0);
        }
        self.core_ns += length;
        self.cores[self.core].pass(asked, length, ready)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_unit_is_pipelined() {
        let mut front = FrontEnd::new(&Latencies {
            hash_ns: 32_000,
            hash_interval_ns: 1000,
            ..Latencies::default()
        });
        assert_eq!(front.hash_page(0, 0), 32_000);
        assert_eq!(front.hash_page(0, 0), 33_000);
        let late = front.hash_page(0, 50_000);
        assert_eq!(late, 82_000, "a page that comes late does not wait");
        assert_eq!(front.hash_page(0, 0), 35_000, "and delays no other");
    }

    #[test]
    fn the_link_has_two_directions() {
        let mut front = FrontEnd::new(&Latencies {
            link_page_ns: 1200,
            link_command_ns: 1000,
            link_write_ns: 400,
            ..Latencies::default()
        });
        assert_eq!(front.receive(0, 1), 1600);
        assert_eq!(front.receive(0, 1), 2800);
        assert_eq!(front.receive(0, 4), 7600);
        assert_eq!(front.send(0, 1, 700), 1900);
        assert_eq!(front.arrive(5), 1005);
    }
}
