//! `--set KEY=VALUE`, possibly repeated: all errors are reported together.
//!
//! Absent: the keys (`remap_ssd_device::keys`).

use crate::failure::Failure;
use remap_ssd_device::Setting;

/// Parses settings, in order.
///
/// # Errors
/// All invalid texts, each with the reason.
pub fn parse(texts: &[String]) -> Result<Vec<Setting>, Failure> {
    Ok(remap_ssd_study::settings::parse(texts)?)
}

/// Refuses settings that a command chooses itself: for each such key, `chosen` has the reason or
/// the alternative.
///
/// # Errors
/// The first of `settings` that is listed.
pub fn refuse(settings: &[Setting], chosen: &[(&str, &str)]) -> Result<(), Failure> {
    for setting in settings {
        let path = setting.key.path;
        if let Some((_, why)) = chosen.iter().find(|(key, _)| *key == path) {
            return Err(Failure::usage(format_args!("--set {path}: {why}")));
        }
    }
    Ok(())
}

/// Parses the settings of a device without time: those that would have no effect are refused, so
/// that they are not assumed to have one, and those in `chosen`, as by `refuse`.
///
/// # Errors
/// Invalid texts, or the first setting that is refused.
pub fn parse_untimed(
    texts: &[String],
    chosen: &[(&str, &str)],
    device: &str,
) -> Result<Vec<Setting>, Failure> {
    let is_seen = |path: &str| {
        path.starts_with("firmware.") || path.starts_with("geometry.") || path == "flash.endurance"
    };
    let settings = parse(texts)?;
    refuse(&settings, chosen)?;

    match settings.iter().find(|one| !is_seen(one.key.path)) {
        None => Ok(settings),
        Some(timing) => Err(Failure::usage(format_args!(
            "--set {}: {device} knows no time: keys of the tables firmware and geometry, and \
             flash.endurance, can be set",
            timing.key.path
        ))),
    }
}

/// The texts as options, for a command that repeats this one.
pub fn typed(texts: &[String]) -> String {
    texts.iter().map(|text| format!(" --set {text}")).collect()
}
