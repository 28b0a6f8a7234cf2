//! The name that was probably meant instead of an unknown one.

/// The name that is most similar to this one, ignoring case, if one is similar enough.
pub(crate) fn suggest<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Threshold of the Jaro-Winkler similarity, which is 1 for equal names.
    const ALIKE: f64 = 0.8;
    let plain = |text: &str| text.to_lowercase().replace('_', "-");
    let given = plain(name);
    names
        .into_iter()
        .map(|other| (strsim::jaro_winkler(&given, &plain(other)), other))
        .filter(|(alike, _)| *alike >= ALIKE)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, other)| other)
}

/// `: did you mean x?`, or an empty text.
pub fn did_you_mean<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    suggest(name, names).map_or_else(String::new, |name| format!(": did you mean `{name}`?"))
}
