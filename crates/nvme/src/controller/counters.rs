//! Counters of commands, for SMART and for an operator.
//!
//! Absent: latencies (`telemetry`).

use super::turn::DeviceTurn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// SMART counters, over all power cycles if the caller keeps them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Health {
    /// Blocks of 512 bytes read by hosts.
    pub sectors_read: u64,
    /// Blocks of 512 bytes written by hosts.
    pub sectors_written: u64,
    /// Read and Compare commands served.
    pub read_commands: u64,
    /// Write commands served.
    pub write_commands: u64,
    /// Number of power-ons.
    pub power_cycles: u64,
    /// Power cycles that did not end in a clean shutdown.
    pub unsafe_shutdowns: u64,
    /// Commands answered with a media error.
    pub media_errors: u64,
    /// Seconds in service, over all starts.
    pub power_on_seconds: u64,
}

/// A counter that only the holder of the device's turn changes, so adding needs no locked
/// instruction. Any thread may read it.
#[derive(Default)]
pub(super) struct TurnCounter(AtomicU64);

impl TurnCounter {
    #[inline]
    pub(super) fn add(&self, _turn: &DeviceTurn<'_>, by: u64) {
        // The turn proves that no other thread adds. A load and a store are enough.
        let before = self.0.load(Ordering::Relaxed);
        self.0.store(before + by, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Default)]
pub(super) struct Counters {
    pub sectors_read: TurnCounter,
    pub sectors_written: TurnCounter,
    pub(crate) read_commands: TurnCounter,
    pub write_commands: TurnCounter,
    pub media_errors: TurnCounter,
    /// Power cuts requested by an operator.
    pub power_cuts: AtomicU64,
    /// Commands denied to hosts that lack the rights.
    pub denied: Arc<AtomicU64>,
}

impl Counters {
    /// The SMART counters after those of previous power cycles.
    pub(super) fn since(&self, before: &Health) -> Health {
        let power_cuts = self.power_cuts.load(Ordering::Relaxed);
        Health {
            sectors_read: before.sectors_read + self.sectors_read.get(),
            sectors_written: before.sectors_written + self.sectors_written.get(),
            read_commands: before.read_commands + self.read_commands.get(),
            write_commands: before.write_commands + self.write_commands.get(),
            media_errors: before.media_errors + self.media_errors.get(),
            power_cycles: before.power_cycles + power_cuts,
            unsafe_shutdowns: before.unsafe_shutdowns + power_cuts,
            ..*before
        }
    }
}
