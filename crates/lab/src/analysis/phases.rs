//! Load between two marks of a recording: the difference of two replays, each from a new device.
//!
//! Invariant: replays are deterministic, so both are the same up to the first mark. Absent: the
//! purpose of a phase.

use crate::LabError;
use crate::table::{Ask, Table};

/// Device time and pages of one phase of a recorded load.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Phase {
    /// Modelled seconds of device time.
    pub seconds: f64,
    /// Flash pages programmed, for data, collection and metadata.
    pub flash_pages: f64,
    /// Pages written by the host.
    pub host_pages: f64,
    /// Pages remapped.
    pub remaps: f64,
    /// Pages moved by garbage collection.
    pub gc_pages: f64,
}

/// The phases of a recording under a scheme on a setup's device: the first from mark 1 to mark 2.
///
/// # Errors
/// The recording was not replayed up to each of these marks.
pub(super) fn phases<const N: usize>(
    table: &Table,
    setup: &str,
    recording: &str,
    scheme: &str,
) -> Result<[Phase; N], LabError> {
    let at = |mark: usize| -> Result<Phase, LabError> {
        let workload = format!("recording:{recording}@{mark}");
        let row = table.row(Ask {
            setup: Some(setup),
            workload: Some(&workload),
            scheme: Some(scheme),
            ..Ask::default()
        })?;
        Ok(Phase {
            seconds: row.number("seconds_simulated")?,
            flash_pages: row.number("flash_pages")?,
            host_pages: row.number("host_pages")?,
            remaps: row.number("remaps")?,
            gc_pages: row.number("gc_pages")?,
        })
    };

    let mut phases = [Phase::default(); N];
    for (index, phase) in phases.iter_mut().enumerate() {
        let (from, to) = (at(index + 1)?, at(index + 2)?);
        *phase = Phase {
            seconds: to.seconds - from.seconds,
            flash_pages: to.flash_pages - from.flash_pages,
            host_pages: to.host_pages - from.host_pages,
            remaps: to.remaps - from.remaps,
            gc_pages: to.gc_pages - from.gc_pages,
        };
    }
    Ok(phases)
}
