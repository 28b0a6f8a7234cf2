//! Settings of the device as text, `KEY=VALUE`: all errors are reported together.
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
