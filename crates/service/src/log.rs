//! The level of a program's log, which an operator can change while a device is served.
//!
//! Absent: the log itself. This crate writes events of `tracing`; the program chooses where they
//! go.

use tracing::level_filters::LevelFilter;

/// The least serious level that the program logs.
pub trait LogLevel: Send + Sync {
    /// The current level.
    fn get(&self) -> LevelFilter;

    /// Changes it. Returns true if it took effect.
    fn set(&self, level: LevelFilter) -> bool;
}

/// For a program without a log, or with a fixed level.
impl LogLevel for () {
    fn get(&self) -> LevelFilter {
        LevelFilter::OFF
    }

    fn set(&self, _: LevelFilter) -> bool {
        false
    }
}

/// The levels by name.
const LEVELS: [(&str, LevelFilter); 5] = [
    ("error", LevelFilter::ERROR),
    ("warn", LevelFilter::WARN),
    ("info", LevelFilter::INFO),
    ("debug", LevelFilter::DEBUG),
    ("trace", LevelFilter::TRACE),
];

/// The level of this name.
pub(crate) fn level(name: &str) -> Result<LevelFilter, &'static str> {
    let level = LEVELS.iter().find(|(known, _)| *known == name);
    let (_, level) = level.ok_or("level: error, warn, info, debug or trace")?;
    Ok(*level)
}
