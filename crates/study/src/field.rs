//! Fields of a description that are set from text: switches, single values, lists.
//!
//! Absent: the fields (`spec`).

use crate::numbers::NumberError;
use serde_json::Value;
use std::str::FromStr;

/// How an option's value is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Present or not.
    Switch,
    /// One value.
    One,
    /// A path.
    Path,
    /// One or several values, separated by commas.
    List,
}

/// A field of a comparison's description, set from text.
pub(crate) trait Field {
    /// The type of one value.
    type One;
    /// How its values are given, for all but paths.
    const KIND: Kind;

    fn store(&mut self, value: Self::One);
    fn is_given(&self) -> bool;
}

impl<T> Field for Option<T> {
    type One = T;
    const KIND: Kind = Kind::One;

    fn store(&mut self, value: T) {
        *self = Some(value);
    }

    fn is_given(&self) -> bool {
        self.is_some()
    }
}

impl<T> Field for Vec<T> {
    type One = T;
    const KIND: Kind = Kind::List;

    fn store(&mut self, value: T) {
        self.push(value);
    }

    fn is_given(&self) -> bool {
        !self.is_empty()
    }
}

impl Field for bool {
    type One = bool;
    const KIND: Kind = Kind::Switch;

    fn store(&mut self, value: bool) {
        *self = value;
    }

    fn is_given(&self) -> bool {
        *self
    }
}

/// Parses a value by its type.
pub(crate) fn parsed<T: FromStr>(text: &str) -> Result<T, T::Err> {
    text.parse()
}

/// Parses a whole number from 1 to `MAX`.
pub(crate) fn number<const MAX: u32>(text: &str) -> Result<u32, NumberError> {
    let number = text.parse::<u32>().ok();
    let fits = number.filter(|number| (1..=MAX).contains(number));
    fits.ok_or_else(|| NumberError::Whole(text.into(), 1, MAX.into()))
}

/// Parses a seed.
pub(crate) fn seed(text: &str) -> Result<u64, NumberError> {
    let number = text.parse().ok();
    number.ok_or_else(|| NumberError::Whole(text.into(), 0, u64::MAX))
}

/// Parses `on` or `off`.
pub(crate) fn on_off(text: &str) -> Result<bool, &'static str> {
    match text {
        "on" | "true" => Ok(true),
        "off" | "false" => Ok(false),
        _ => Err("one of on, off"),
    }
}

/// A value as text; none for tables, lists and null.
pub(crate) fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(is_so) => Some(is_so.to_string()),
        // The shortest text that parses to the same number, for TOML, JSON and Python alike: 1.0 is
        // 1.
        Value::Number(number) if number.is_f64() => {
            number.as_f64().map(|number| number.to_string())
        }
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}
