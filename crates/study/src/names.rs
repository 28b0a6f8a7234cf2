//! Parsing of names: schemes, policies, mappings. The error for an unknown name suggests a similar one.
//!
//! Absent: the names themselves (`remap_ssd_ftl`).

use crate::Error;
use remap_ssd_device::keys::did_you_mean;
use remap_ssd_ftl::{GcPolicy, Granularity, SchemeKind, UnknownChoice};

/// Parses the name of a scheme.
///
/// # Errors
/// There is no such scheme.
pub(crate) fn scheme(name: &str) -> Result<SchemeKind, Error> {
    let names = SchemeKind::ALL.map(SchemeKind::name);
    name.parse().map_err(|error: UnknownChoice| {
        Error::usage(format_args!("{error}{}", did_you_mean(name, names)))
    })
}

/// Parses the name of a garbage collection policy.
///
/// # Errors
/// There is no such policy.
pub(crate) fn policy(name: &str) -> Result<GcPolicy, Error> {
    let names = GcPolicy::ALL.map(GcPolicy::name);
    name.parse().map_err(|error: UnknownChoice| {
        Error::usage(format_args!("{error}{}", did_you_mean(name, names)))
    })
}

/// Parses the name of a mapping's granularity.
///
/// # Errors
/// There is no such mapping.
pub(crate) fn mapping(name: &str) -> Result<Granularity, Error> {
    let names = Granularity::ALL.map(Granularity::name);
    name.parse().map_err(|error: UnknownChoice| {
        Error::usage(format_args!("{error}{}", did_you_mean(name, names)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_name_is_answered_with_the_one_that_was_meant() {
        for name in ["Remap-SSD", "remap_ssd", "REMAPSSD", "remap-sdd"] {
            let error = scheme(name).unwrap_err().to_string();
            assert!(error.ends_with("did you mean `remap-ssd`?"), "{error}");
        }
        assert!(
            !scheme("raid")
                .unwrap_err()
                .to_string()
                .contains("did you mean")
        );
        assert!(
            policy("Greedy")
                .unwrap_err()
                .to_string()
                .contains("did you mean `greedy`?")
        );
        let error = mapping("hybird").unwrap_err().to_string();
        assert!(error.ends_with("did you mean `hybrid`?"), "{error}");
    }
}
