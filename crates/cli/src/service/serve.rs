//! `serve`: exports the device to unmodified programs: on the network, as files, and on a PCI
//! Express bus.
//!
//! Invariants: SIGTERM, SIGINT, SIGQUIT and, without keys or a list to reload, SIGHUP end the
//! service cleanly. Absent: the service (`remap_ssd_service`).

pub(crate) use super::args::Args;
use super::log::start_log;
use crate::failure::Failure;
use remap_ssd_service::{Handle, Service};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGXFSZ};
use std::io;

/// Runs `serve`.
///
/// # Errors
/// The device cannot be opened or served as asked, or it failed in service.
pub(crate) fn command(args: &Args) -> Result<(), Failure> {
    let service = Service::open(args.spec(start_log(args.json_log))?)?;
    heed_signals(service.handle(), service.reloads()).map_err(Failure::failed)?;
    Ok(service.serve()?)
}

/// Handles signals that would end the process by default without an intended power cut.
///
/// With keys or a list of hosts, SIGHUP requests a reload, even under `nohup`. A supervisor's
/// SIGHUP never means that a terminal is gone.
fn heed_signals(service: Handle, reloads: bool) -> io::Result<()> {
    // With this signal at its default a write beyond the file size limit would end the process,
    // instead of failing like one to a full disk.
    let mut heeded = vec![SIGTERM, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGXFSZ];

    // A shell's `nohup` ignores it already; that is kept unless it requests a reload here.
    if reloads || !is_ignored(SIGHUP) {
        heeded.push(SIGHUP);
    }

    let mut signals = signal_hook::iterator::Signals::new(heeded)?;
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            for signal in signals.forever() {
                match signal {
                    SIGUSR1 => service.log_statistics(),
                    SIGUSR2 => service.cut_power(),
                    // Only caught: the write fails with an error, which the service handles.
                    SIGXFSZ => {}
                    SIGHUP if reloads => service.reload(),
                    _ => service.stop(),
                }
            }
        })?;
    Ok(())
}

/// Returns true if the signal was ignored when the program started, as under `nohup`.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status
        .lines()
        .find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    mask.unwrap_or(0) >> (signal - 1) & 1 == 1
}
