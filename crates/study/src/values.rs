//! A description from named values: the names, the text form of values, and options that exclude
//! each other.
//!
//! Grids, JSON and the Python package give such tables; the command line sets the same options.
//! Invariant: a value is parsed by the same function wherever it comes from, and a mistake gets the
//! same message. Absent: the options (`spec`); checks that need the device (`plan`).

use crate::Error;
use crate::field::{Kind, text_of};
use crate::spec::{ComparisonSpec, OPTIONS, OptionDef};
use remap_ssd_device::keys::did_you_mean;
use serde_json::{Map, Value};
use std::ffi::OsStr;
use std::fmt::Display;

/// Placeholder of an option that is on or off, which is no switch: without it, another default.
const ON_OFF: &str = "on|off";

impl OptionDef {
    /// The option by its name, with `_` or `-` between words.
    ///
    /// # Errors
    /// There is no such option; the message suggests a similar name.
    pub fn find(name: &str) -> Result<&'static Self, Error> {
        Self::find_among(name, |_| true)
    }

    /// The same among the options that a caller can use.
    pub(crate) fn find_among(
        name: &str,
        is_usable: impl Fn(&Self) -> bool,
    ) -> Result<&'static Self, Error> {
        let plain = name.replace('-', "_");
        let usable = || OPTIONS.iter().filter(|option| is_usable(option));
        usable().find(|option| option.name == plain).ok_or_else(|| {
            let hint = did_you_mean(&plain, usable().map(|option| option.name));
            Error::Usage(format!("`{plain}` is no option of `compare`{hint}"))
        })
    }

    /// The first paragraph of its help.
    pub fn short_help(&self) -> String {
        let text = &self.paragraphs()[0];
        match text.strip_suffix('.') {
            // Not a full stop, but dots for more.
            Some(sentence) if !sentence.ends_with('.') => sentence.to_owned(),
            _ => text.clone(),
        }
    }

    /// All of its help, if there is more than a paragraph.
    pub fn long_help(&self) -> Option<String> {
        let paragraphs = self.paragraphs();
        (paragraphs.len() > 1).then(|| paragraphs.join("\n\n"))
    }

    fn paragraphs(&self) -> Vec<String> {
        let lines: Vec<&str> = self.help.iter().map(|line| line.trim()).collect();
        let paragraphs = lines.split(|line| line.is_empty());
        paragraphs.map(|lines| lines.join(" ")).collect()
    }

    /// Checks a value without storing it.
    ///
    /// # Errors
    /// The reason, without the option's name.
    pub fn check(&self, text: &str) -> Result<(), Error> {
        (self.set)(&mut ComparisonSpec::default(), OsStr::new(text)).map_err(Error::usage)
    }
}

/// As on a command line: `--queue-depth <N>`.
impl Display for OptionDef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "--{}", self.name.replace('_', "-"))?;
        match self.kind {
            Kind::Switch => Ok(()),
            _ => write!(f, " <{}>", self.value),
        }
    }
}

impl ComparisonSpec {
    /// Sets an option from text; for a list, appends one element.
    ///
    /// # Errors
    /// The value is invalid.
    pub fn set(&mut self, option: &OptionDef, text: &OsStr) -> Result<(), Error> {
        let set = match option.kind {
            Kind::Path if text.is_empty() => Err("a path has at least one character".into()),
            _ => (option.set)(self, text),
        };
        set.map_err(|why| {
            let text = text.display();
            Error::Usage(format!("invalid value '{text}' for '{option}': {why}"))
        })
    }

    /// Describes a comparison by named values: options as text, numbers, booleans or lists, and
    /// settings of the device by names with a dot. An option that is null is left out.
    ///
    /// ```
    /// use remap_ssd_study::ComparisonSpec;
    ///
    /// let spec: ComparisonSpec = serde_json::from_str(
    ///     r#"{"scheme": ["none", "remap-ssd"], "scale": "1/8", "firmware.gc_free": 0.2}"#,
    /// )?;
    /// assert_eq!(spec.scale, Some(0.125));
    /// assert_eq!(spec.set, ["firmware.gc_free=0.2"]);
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    ///
    /// # Errors
    /// A name is unknown or given twice, a value is invalid, or options exclude each other.
    pub(crate) fn from_values<'a>(
        values: impl IntoIterator<Item = (&'a str, &'a Value)>,
    ) -> Result<Self, Error> {
        let mut spec = Self::default();
        let mut added: Vec<&str> = Vec::new();
        for (name, value) in values.into_iter().filter(|(_, value)| !value.is_null()) {
            if name.contains('.') {
                let text = text_of(value).ok_or_else(|| {
                    let one = "must be text, a number, true or false";
                    Error::Usage(format!("`{name}` {one}"))
                })?;
                spec.set.push(format!("{name}={text}"));
                continue;
            }

            // Two spellings are one option, of which one value would be lost.
            let option = OptionDef::find(name)?;
            if added.contains(&option.name) {
                return Err(Error::Usage(format!("`{}` is given twice", option.name)));
            }
            added.push(option.name);
            spec.add(option, value)?;
        }
        spec.check_together()?;
        Ok(spec)
    }

    /// Sets an option from a value of a table.
    pub(crate) fn add(&mut self, option: &OptionDef, value: &Value) -> Result<(), Error> {
        let takes_bool = option.kind == Kind::Switch || option.value == ON_OFF;
        let wrong = || {
            let bools = if takes_bool { ", true or false" } else { "" };
            Error::Usage(format!(
                "`{}` must be text, a number{bools}, or a list of them",
                option.name
            ))
        };
        let text = |value: &Value| match value {
            Value::Bool(_) if !takes_bool => None,
            value => text_of(value),
        };
        let text = match value {
            Value::Array(values) => {
                let texts: Option<Vec<String>> = values.iter().map(text).collect();
                texts.ok_or_else(wrong)?.join(",")
            }
            value => text(value).ok_or_else(wrong)?,
        };

        // Commas separate the elements of a list, as on the command line.
        match option.kind {
            Kind::List => text
                .split(',')
                .try_for_each(|one| self.set(option, OsStr::new(one))),
            _ => self.set(option, OsStr::new(&text)),
        }
    }

    /// Checks that numbers are in their ranges, that no option excludes another one, and that each
    /// has the one that it needs.
    ///
    /// # Errors
    /// The first number out of its range; the first option with a conflict, or without the one that
    /// it needs.
    pub fn check_together(&self) -> Result<(), Error> {
        self.check_numbers()?;

        let given = || OPTIONS.iter().filter(|option| (option.is_given)(self));

        for option in given() {
            let excluded: Vec<String> = given()
                .filter(|other| {
                    option.excludes.contains(&other.name) || other.excludes.contains(&option.name)
                })
                .map(|other| other.to_string())
                .collect();
            match &excluded[..] {
                [] => {}
                [one] => {
                    return Err(Error::Usage(format!(
                        "the argument '{option}' cannot be used with '{one}'"
                    )));
                }
                several => {
                    let list = several.join("\n  ");
                    return Err(Error::Usage(format!(
                        "the argument '{option}' cannot be used with:\n  {list}"
                    )));
                }
            }
        }

        if self.precision.is_some() && self.job.as_ref().is_some_and(|job| job.pages.is_some()) {
            return Err(Error::usage(
                "--precision: the job file already says how much it reads and writes (io_size, number_ios)",
            ));
        }

        for option in given() {
            if option.needs.is_empty() || given().any(|other| option.needs.contains(&other.name)) {
                continue;
            }
            let needed: Result<Vec<String>, _> = option
                .needs
                .iter()
                .map(|name| OptionDef::find(name).map(ToString::to_string))
                .collect();
            return Err(Error::Usage(format!(
                "the following required arguments were not provided:\n  {}",
                needed?.join(" or ")
            )));
        }
        Ok(())
    }

    /// A table's numbers were checked as text; those of a struct get the same check and message.
    fn check_numbers(&self) -> Result<(), Error> {
        let numbers = [
            ("scale", self.scale.map(|factor| factor.to_string())),
            ("duplicates", self.duplicates.map(|share| share.to_string())),
            ("repeat", self.repeat.map(|rounds| rounds.to_string())),
            ("writes", self.writes.map(|pages| pages.to_string())),
            (
                "queue_depth",
                self.queue_depth.map(|depth| depth.to_string()),
            ),
            ("threads", self.threads.map(|threads| threads.to_string())),
        ];
        for (name, text) in numbers {
            if let Some(text) = text {
                Self::default().set(OptionDef::find(name)?, OsStr::new(&text))?;
            }
        }
        Ok(())
    }
}

impl TryFrom<Map<String, Value>> for ComparisonSpec {
    type Error = Error;

    fn try_from(values: Map<String, Value>) -> Result<Self, Error> {
        Self::from_values(values.iter().map(|(name, value)| (name.as_str(), value)))
    }
}
