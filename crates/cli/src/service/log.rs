//! The service's log: its own lines, with a level that can be changed at run time.
//!
//! Invariant: a failure to write the log does not end the service. Absent: the messages, and their
//! rate limit (`tcp::notice`).

use tracing_subscriber::filter::{LevelFilter, filter_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, reload};

type Handle = reload::Handle<LevelFilter, Registry>;

/// The log level, which can be changed at run time.
#[derive(Clone)]
pub struct LogLevel(Handle);

impl LogLevel {
    /// The names of the levels.
    const LEVELS: [(&str, LevelFilter); 5] = [
        ("error", LevelFilter::ERROR),
        ("warn", LevelFilter::WARN),
        ("info", LevelFilter::INFO),
        ("debug", LevelFilter::DEBUG),
        ("trace", LevelFilter::TRACE),
    ];

    /// Level of a log that is discarded.
    pub fn unheard() -> Self {
        Self(reload::Layer::new(LevelFilter::OFF).1)
    }

    /// The current level of the log.
    pub fn get(&self) -> String {
        let level = self.0.clone_current().unwrap_or(LevelFilter::INFO);
        level.to_string().to_lowercase()
    }

    /// Sets the least serious level that is logged.
    ///
    /// # Errors
    /// There is no such level.
    pub fn set(&self, name: &str) -> Result<(), String> {
        let level = Self::LEVELS.iter().find(|(known, _)| *known == name);
        let (_, level) = level.ok_or("level: error, warn, info, debug or trace")?;
        // Fails only if the log is gone.
        let _ = self.0.reload(*level);
        Ok(())
    }
}

/// Starts the log on standard error, in lines of text or of JSON.
pub(super) fn start_log(as_json: bool) -> LogLevel {
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

    LogLevel(handle)
}
