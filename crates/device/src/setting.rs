//! One value of a device, as given on a command line.
//!
//! Absent: the device that it changes (`DeviceConfig::with`).

use crate::config::DeviceConfigError;
use crate::keys::{self, DeviceKey};
use serde_json::Value;
use std::str::FromStr;

/// One value of a device as given on a command line: `firmware.gc_free=0.1`.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The key that is set.
    pub key: &'static DeviceKey,
    /// Its new value.
    pub value: Value,
}

impl FromStr for Setting {
    type Err = DeviceConfigError;

    fn from_str(text: &str) -> Result<Self, DeviceConfigError> {
        let wrong = |text: String| Err(DeviceConfigError(text));
        let Some((path, value)) = text.split_once('=') else {
            return wrong(format!(
                "`{text}` is not KEY=VALUE, such as firmware.gc_free=0.1"
            ));
        };

        let key = match keys::find(path.trim()) {
            // A setting changes an existing device; these two keys select it.
            Some(key) if ["preset", "scale"].contains(&key.path) => {
                return wrong(format!("use {} instead", key.flag));
            }
            Some(key) => key,
            None => {
                // The error that a file with this key would get: it names the key that was probably
                // meant.
                let given = keys::nested(path.trim(), Value::Null);
                let problems = keys::problems(&given);
                return wrong(problems.first().map_or_else(
                    || format!("`{path}` is a table: name one of its keys"),
                    |problem| problem.text.clone(),
                ));
            }
        };

        let value = key.value(value.trim());

        match (key.problem(&value), key.list_example()) {
            (Some(problem), Some(example)) => {
                let units = match key.units().as_slice() {
                    [] => String::new(),
                    units => format!("; its units are {}", units.join(", ")),
                };
                wrong(format!(
                    "{}; a list is typed as {example}{units}",
                    problem.text
                ))
            }
            // A number with a unit that is not known is text.
            (Some(problem), None) if value.is_string() && !key.units().is_empty() => wrong(
                format!("{}; its units are {}", problem.text, key.units().join(", ")),
            ),
            (Some(problem), None) => wrong(problem.text),
            (None, _) => Ok(Self { key, value }),
        }
    }
}
