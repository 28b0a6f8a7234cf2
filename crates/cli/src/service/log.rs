//! The service's log: its own lines, with a level that can be changed at run time.
//!
//! Invariant: a failure to write the log does not end the service. Absent: the messages, and their
//! rate limit (`tcp::notice`).

use remap_ssd_service::LogLevel;
use tracing_subscriber::filter::{LevelFilter, filter_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, reload};

type Handle = reload::Handle<LevelFilter, Registry>;

/// The running log, whose level can be changed.
pub(super) struct Log(Handle);

impl LogLevel for Log {
    fn get(&self) -> LevelFilter {
        self.0.clone_current().unwrap_or(LevelFilter::INFO)
    }

    fn set(&self, level: LevelFilter) -> bool {
        // Fails only if the log is gone.
        self.0.reload(level).is_ok()
    }
}

/// Starts the log on standard error, in lines of text or of JSON.
pub(super) fn start_log(as_json: bool) -> Log {
    // Only our own messages: those of libraries are for their developers.
    let ours = filter_fn(|about| about.target().starts_with("remap_ssd"));
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_target(false);

    // A log that cannot be written, e.g. on a full disk, must not end the service.
    let lines = lines.log_internal_errors(false);

    let lines = if as_json {
        lines.json().boxed()
    } else {
        lines.with_ansi(false).boxed()
    };

    let (level, handle) = reload::Layer::new(LevelFilter::INFO);
    // Fails only if there is a log already.
    let _ = tracing_subscriber::registry()
        .with(lines.with_filter(level).with_filter(ours))
        .try_init();

    Log(handle)
}
