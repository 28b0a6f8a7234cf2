//! Settings of the device as text, `--set KEY=VALUE`: all errors are reported together.
//!
//! Absent: the keys (`remap_ssd_device::keys`).

use crate::Error;
use remap_ssd_device::Setting;

/// Parses settings, in order.
///
/// # Errors
/// All invalid texts, each with the reason.
pub fn parse(texts: &[String]) -> Result<Vec<Setting>, Error> {
    // All of them are parsed, so that a user can fix all mistakes at once.
    let (mut settings, mut wrong) = (Vec::new(), Vec::new());
    for text in texts {
        match text.parse() {
            Ok(setting) => settings.push(setting),
            Err(why) => wrong.push(format!("--set {text}: {why}")),
        }
    }

    if wrong.is_empty() {
        Ok(settings)
    } else {
        Err(Error::Usage(listed(&wrong)))
    }
}

/// Refuses settings that a command chooses itself: for each such key, `chosen` has the reason or
/// the alternative.
///
/// ```
/// use remap_ssd_study::settings::{parse, parse_untimed, refuse, typed};
///
/// let texts = ["flash.read_ns=30us".to_owned()];
/// let settings = parse(&texts)?;
/// assert!(refuse(&settings, &[("firmware.dedup", "use --dedup instead")]).is_ok());
/// assert!(parse_untimed(&texts, &[], "a campaign").is_err());
/// assert_eq!(typed(&texts), " --set flash.read_ns=30us");
/// # Ok::<(), remap_ssd_study::Error>(())
/// ```
///
/// # Errors
/// The first of `settings` that is listed.
pub fn refuse(settings: &[Setting], chosen: &[(&str, &str)]) -> Result<(), Error> {
    for setting in settings {
        let path = setting.key.path;
        if let Some((_, why)) = chosen.iter().find(|(key, _)| *key == path) {
            return Err(Error::usage(format_args!("--set {path}: {why}")));
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
) -> Result<Vec<Setting>, Error> {
    let is_seen = |path: &str| {
        path.starts_with("firmware.") || path.starts_with("geometry.") || path == "flash.endurance"
    };
    let settings = parse(texts)?;
    refuse(&settings, chosen)?;

    match settings.iter().find(|one| !is_seen(one.key.path)) {
        None => Ok(settings),
        Some(timing) => Err(Error::usage(format_args!(
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

/// All mistakes, a line each.
pub(crate) fn listed(wrong: &[String]) -> String {
    match wrong {
        [one] => one.clone(),
        several => {
            let lines: String = several.iter().map(|line| format!("\n  {line}")).collect();
            format!("{} things are wrong:{lines}", several.len())
        }
    }
}
