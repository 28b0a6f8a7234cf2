//! Choices by their names on the command line and in files.

/// The one of `all` that has this name.
///
/// # Errors
/// None has it; the sentence lists the known names.
pub(crate) fn find<T: Copy>(
    what: &str,
    given: &str,
    all: &[T],
    name: impl Fn(T) -> &'static str,
) -> Result<T, String> {
    let found = all.iter().copied().find(|one| name(*one) == given);
    found.ok_or_else(|| {
        let known: Vec<&str> = all.iter().map(|one| name(*one)).collect();
        let known = known.join(", ");
        format!("no {what} is named '{given}'; there are {known}")
    })
}
