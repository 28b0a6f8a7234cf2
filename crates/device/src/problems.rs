//! Checks of a whole configuration.
//!
//! Invariants: a checked configuration can be formatted; an error lists all problems at once.
//! Absent: ranges of single keys (`keys`).

use crate::config::{DeviceConfig, DeviceConfigError};
use crate::keys::{self, KeyProblem};
use remap_ssd_media::ContentMode;

impl DeviceConfig {
    /// Checks each value, and that they are consistent.
    ///
    /// # Errors
    /// The problem and what would work: one sentence, or a line for each invalid value.
    pub fn check(&self) -> Result<(), DeviceConfigError> {
        let mut wrong = keys::problems(&self.to_value());

        if self.firmware.dedup && self.content == ContentMode::None {
            wrong.push(KeyProblem {
                path: "content".into(),
                text: "firmware.dedup compares contents: content must be \"identity\" or \"bytes\""
                    .into(),
                meant: None,
            });
        }

        // It adds values up, so each must be valid.
        if wrong.is_empty()
            && let Err(error) = self.firmware.check(&self.geometry)
        {
            return Err(DeviceConfigError(error.to_string()));
        }

        if wrong.is_empty() {
            Ok(())
        } else {
            Err(listed(&wrong, &|_| None))
        }
    }
}

/// All problems in one error: a sentence if there is one, else a line each.
pub(crate) fn listed(
    wrong: &[KeyProblem],
    line: &dyn Fn(&str) -> Option<usize>,
) -> DeviceConfigError {
    let sentence = |problem: &KeyProblem| match line(&problem.path) {
        Some(line) => format!("line {line}: {}", problem.text),
        None => problem.text.clone(),
    };
    DeviceConfigError(match wrong {
        [one] => sentence(one),
        several => {
            let mut text = format!("{} things are wrong:", several.len());
            let mut several: Vec<&KeyProblem> = several.iter().collect();

            // In file order; problems without a line come last.
            several.sort_by_key(|problem| line(&problem.path).unwrap_or(usize::MAX));
            for problem in several {
                text.push_str(&format!("\n  {}", sentence(problem)));
            }
            text
        }
    })
}
