//! Choices by their names on the command line and in files.

use crate::error::UnknownChoice;

/// The one of `all` that has this name.
///
/// # Errors
/// None has it.
pub(crate) fn find<T: Copy>(
    what: &'static str,
    given: &str,
    all: &[T],
    name: impl Fn(T) -> &'static str,
) -> Result<T, UnknownChoice> {
    let found = all.iter().copied().find(|one| name(*one) == given);
    found.ok_or_else(|| UnknownChoice {
        what,
        given: given.to_owned(),
        known: all.iter().map(|one| name(*one)).collect(),
    })
}
