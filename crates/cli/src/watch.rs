//! `watch`: plays a simulated device on a page in the browser.
//!
//! Absent: the device in virtual time (`remap_ssd_service::Played`), and HTTP.

use crate::compare::{Bar, SpecArgs};
use crate::failure::Failure;
use crate::output;
use indicatif::ProgressBar;
use remap_ssd_ftl::SchemeKind;
use remap_ssd_http::{Limits, Server, Watched};
use remap_ssd_service::{Played, PlayedOptions};
use remap_ssd_study::{Comparison, unfollowed};
use std::net::SocketAddr;
use std::sync::Arc;

/// Plays a workload or a recorded session on a simulated device, in virtual time and at any speed,
/// on a page in the browser.
///
/// Device and workload are set by the options of `compare`, with a single scheme. By default a
/// preset is scaled to a 64th, so that single superblocks are visible. With --end the device's
/// counters are printed as JSON.
#[derive(Debug, clap::Args)]
#[group(id = "watch")]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Listen here for HTTP.
    ///
    /// An address of this machine only. Port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9420")]
    pub http: SocketAddr,
    /// Initial speed in virtual seconds per second.
    ///
    /// The page changes it. 0 starts paused.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    pub speed: f64,
    /// End with the workload; otherwise the page stays until Ctrl-C.
    #[arg(long)]
    pub end: bool,
    /// The device and the workload to play.
    #[command(flatten)]
    pub spec: SpecArgs<false>,
}

const EXAMPLES: &str = "\
Examples:
  remap-ssd watch --workload randrw:50 --scheme remap-ssd --http 127.0.0.1:0
  remap-ssd serve --memory 1GiB --record session.trace
  remap-ssd watch --trace session.trace --speed 10";

/// Default scale of a preset.
const SCALE: f64 = 1.0 / 64.0;

/// Runs `watch`.
///
/// # Errors
/// An impossible device, workload or address.
pub(crate) fn command(mut args: Args) -> Result<(), Failure> {
    // There is no token here, so only this machine may connect.
    if !args.http.ip().to_canonical().is_loopback() {
        return Err(Failure::usage(
            "--http: an address of the loopback, such as 127.0.0.1:9420",
        ));
    }
    // Written so that NaN is refused too.
    if !(args.speed >= 0.0 && args.speed <= 1e6) {
        return Err(Failure::usage(
            "--speed: 0 to 1000000 virtual seconds a second",
        ));
    }
    let compared = &mut args.spec.0;
    if compared.scheme.len() > 1 {
        return Err(Failure::usage("--scheme: one scheme is played"));
    }
    if compared.scheme.is_empty() && compared.age.is_none() {
        compared.scheme = vec![SchemeKind::default()];
    }

    // A preset at full size would age for minutes before anything is visible.
    if compared.config.is_none() && compared.trace.is_none() && compared.age.is_none() {
        compared.scale = compared.scale.or(Some(SCALE));
    }

    let bar = Bar::new(ProgressBar::new(1), Arc::default());
    // A run until death would have no end here.
    compared.until_death = false;
    let comparison = Comparison::new(compared.clone(), unfollowed())?;
    comparison.notes().iter().for_each(output::note);
    let (run, staged) = comparison.stage(&bar)?;
    bar.clear();
    let config = staged.device.config();
    let mut source = run.requests.source(config.addressable_lpns(), run.seed)?;
    let options = PlayedOptions {
        queue_depth: compared.queue_depth().unwrap_or(config.queue_depth),
        // A trace has its own end.
        pages_total: run.pages(config).unwrap_or(u64::MAX),
        speed: args.speed,
    };
    let played = Played::new(run.requests.to_string(), staged.device, options)?;
    let server = Server::start(args.http, played.clone(), None, Limits::default());
    let server = server.map_err(|error| Failure::about(args.http, error))?;
    output::note(format_args!("watch it at http://{}/", server.address()));

    // Other threads serve the page; this one plays.
    played.play(&mut *source).map_err(Failure::failed)?;
    if !args.end {
        output::note("the workload has ended; Ctrl-C ends the page");
        // A loop, since `park` may return spuriously.
        loop {
            std::thread::park();
        }
    }
    output::json(&played.statistics())
}
