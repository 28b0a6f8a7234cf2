//! `serve`: exports the device to unmodified programs: on the network, as files, and on a PCI
//! Express bus.
//!
//! Invariants: SIGTERM, SIGINT and SIGQUIT end the service cleanly, and SIGHUP never does. Absent: the service (`remap_ssd_service`).

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
    heed_signals(service.handle()).map_err(Failure::failed)?;
    Ok(service.serve()?)
}

/// Handles signals that would end the process by default without an intended power cut.
fn heed_signals(service: Handle) -> io::Result<()> {
    // With SIGXFSZ at its default a write beyond the file size limit would end the process, instead of
    // failing like one to a full disk.
    let heeded = [SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2, SIGXFSZ];
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
                    SIGHUP => service.reload(),
                    _ => service.stop(),
                }
            }
        })?;
    Ok(())
}
