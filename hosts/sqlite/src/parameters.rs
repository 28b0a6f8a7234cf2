//! Validates the names of a URI's parameters. A misspelt one would be ignored, and the program get
//! a different database: `devise=` would create a local file.
//!
//! Invariant: a URI that names this VFS has known parameters only. One that does not, where this
//! VFS is the default, may have those of other software, except for names one edit away from this
//! VFS's own. Absent: values.

/// Parameters for the location of a database.
const OURS: [&str; 9] = [
    "device", "image", "size", "memory", "store", "nsid", "nqn", "hostnqn", "secret",
];
/// Parameters of SQLite's core and its VFSs ("Uniform Resource Identifiers" §3.3; `os_unix.c`,
/// SEE's keys, `multiplex`).
const SQLITE: [&str; 13] = [
    "vfs",
    "mode",
    "cache",
    "psow",
    "nolock",
    "immutable",
    "modeof",
    "8_3_names",
    "fullsync",
    "key",
    "hexkey",
    "textkey",
    "truncate",
];

/// Returns an error if one of the names is not allowed; `names_us`: the URI names this VFS.
pub(crate) fn unknown<'a>(
    names: impl IntoIterator<Item = &'a str>,
    names_us: bool,
) -> Option<String> {
    names.into_iter().find_map(|name| {
        // Drivers put their own options into URIs with this prefix (`_busy_timeout`).
        let is_known = name.starts_with('_') || OURS.contains(&name) || SQLITE.contains(&name);
        if is_known {
            return None;
        }

        let (nearest, distance) = OURS
            .iter()
            .chain(&SQLITE)
            .map(|known| (*known, distance(name, known)))
            .min_by_key(|(_, distance)| *distance)?;
        let is_misspelt = distance == 1 && OURS.contains(&nearest);
        (names_us || is_misspelt)
            .then(|| format!("{name}=: there is no such parameter; the nearest is {nearest}="))
    })
}

/// Minimum number of letters to change, insert, delete or swap with the next one (the optimal
/// string alignment distance).
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for (at, row) in rows.iter_mut().enumerate() {
        row[0] = at;
    }
    rows[0] = (0..=b.len()).collect();

    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let changed = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = changed.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && (a[i - 1], a[i - 2]) == (b[j - 2], b[j - 1]) {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = least;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_parameter_is_refused_with_the_nearest_name() {
        for (wrong, right) in [
            ("devise", "device"),
            ("hots", "mode"),
            ("imgae", "image"),
            ("nsdi", "nsid"),
            ("immutabel", "immutable"),
        ] {
            let why = unknown(["vfs", wrong], true).expect("it is none");
            assert!(why.starts_with(wrong), "{why}");
            if wrong != "hots" {
                assert!(why.ends_with(&format!("{right}=")), "{why}");
            }
        }
    }

    #[test]
    fn what_others_put_into_a_uri_is_left_to_them() {
        assert_eq!(unknown(OURS.into_iter().chain(SQLITE), true), None);
        assert_eq!(unknown(["_busy_timeout", "_txlock"], true), None);
        assert_eq!(unknown(["tiemout", "cipher", "a"], false), None);
        assert!(unknown(["a"], true).is_some());
        assert!(unknown(["devise"], false).is_some());
    }
}
