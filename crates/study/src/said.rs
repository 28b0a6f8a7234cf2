//! The command line of a comparison, which is part of its result.

/// The words of a command line that affect the results, without those that only affect execution or
/// presentation.
pub fn said(words: impl IntoIterator<Item = String>) -> Vec<String> {
    const SHOWN: [&str; 10] = [
        "--threads",
        "--memory",
        "--json",
        "--details",
        "--report",
        "--report-x",
        "--table",
        "--timeline",
        "--timeline-window",
        "--out",
    ];
    const VALUES: [&str; 8] = [
        "--threads",
        "--memory",
        "--report",
        "--report-x",
        "--table",
        "--timeline",
        "--timeline-window",
        "--out",
    ];

    // The words are part of the result, which must not depend on threads or on files.
    let mut words = words.into_iter();
    // The program's path does not matter.
    drop(words.next());
    let mut said = vec!["remap-ssd".to_owned()];

    while let Some(word) = words.next() {
        let name = word.split('=').next().unwrap_or_default();
        if !SHOWN.contains(&name) {
            said.push(word);
        } else if VALUES.contains(&word.as_str()) {
            drop(words.next());
        }
    }
    said
}
