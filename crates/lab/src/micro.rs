//! Microbenchmarks of single commands, by their names in experiments.
//!
//! Invariant: the device is filled before the measured time. Absent: issuing commands (`sim`).

use crate::RunError;
use crate::grid::GridRun;
use remap_ssd_device::Device;
use remap_ssd_sim::micro::{MoveHow, file_writes, moves, precondition};
use serde_json::{Value, json};

/// The command measured, alone on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Micro {
    /// Moves of single pages, by remaps or by reads and writes.
    Move(MoveHow),
    /// Writes of single pages, recorded in the file map or not.
    Write(bool),
}

/// Parses `move-remap,threads=4`: the command, and the number of threads.
///
/// # Errors
/// One sentence: the valid names.
pub(crate) fn parse(workload: &str) -> Result<(Micro, u32), RunError> {
    let wrong = || {
        format!(
            "unknown microbenchmark `{workload}`: move-remap, move-readwrite, write or fs-write, each with `,threads=N`"
        )
    };

    let (name, threads) = match workload.split_once(",threads=") {
        Some((name, threads)) => (
            name,
            threads
                .parse()
                .ok()
                .filter(|n| (1..=1024).contains(n))
                .ok_or_else(wrong)?,
        ),
        None => (workload, 1),
    };

    let micro = match name {
        "move-remap" => Micro::Move(MoveHow::Remap),
        "move-readwrite" => Micro::Move(MoveHow::ReadWrite),
        "write" => Micro::Write(false),
        "fs-write" => Micro::Write(true),
        _ => return Err(wrong().into()),
    };

    Ok((micro, threads))
}

/// Fills the device and measures.
///
/// # Errors
/// The device refuses a command.
pub(crate) fn measured(run: &GridRun, device: &mut Device) -> Result<Value, RunError> {
    let (micro, threads) = parse(&run.workload)?;
    precondition(device, 1, run.seed)?;
    let measured = match micro {
        Micro::Move(how) => moves(device, how, threads, run.pages),
        Micro::Write(noted) => {
            file_writes(device, noted, threads, run.pages).map(|writes| writes.measured)
        }
    };
    Ok(json!(measured?))
}
