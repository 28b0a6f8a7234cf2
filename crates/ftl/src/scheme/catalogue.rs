//! The list of schemes. A new scheme is a file beside this one and a line here.
//!
//! Absent: the contract of a scheme (`contract`), and the facts used elsewhere (`kind`).

use crate::config::SchemeValues;
use crate::config::guard::Guard;
use crate::config::kind::{Medium, SchemeKind};
use crate::contract::SchemeSpec;
use crate::error::UnknownChoice;
use crate::names;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

macro_rules! schemes {
    ($($(#[$doc:meta])* $name:ident = $module:ident,)*) => {
        static SPECS: &[&SchemeSpec] = &[$(&super::$module::SPEC),*];
        const NAMES: &[&str] = &[$(super::$module::SPEC.facts.name),*];

        #[allow(non_upper_case_globals)] // They read like the variants of an enumeration.
        impl SchemeKind {
            $($(#[$doc])* pub const $name: Self = Self(&super::$module::SPEC.facts);)*

            /// All schemes, in the order of the list.
            pub const ALL: [Self; NAMES.len()] = [$(Self::$name),*];
        }
    };
}

schemes! {
    /// No remapping: every duplicate is programmed.
    None = none,
    /// Remap-SSD (FAST'21): NVRAM segments owned by superblocks.
    RemapSsd = remap_ssd,
    /// One device-wide log on flash (CAFTL, Janusd, Copyless Copy, SHARE).
    FLog = flog,
    /// The same log in NVRAM.
    NLog = nlog,
    /// Owners found in O(1), without limits, not durable: the upper bound.
    Opt = opt,
    /// L2P only, without consistency of the reverse mapping (JFTL, ANViL): GC and power cuts lose
    /// mappings.
    Unsafe = l2p_only,
    /// PebbleSSD (MEMSYS'17): slots for each flash page in NVRAM, updated in place.
    Pebble = pebble,
    /// Remap-SSD with one entry for a run of pages.
    RemapSsdX = remap_ssd_x,
    /// Local logs on flash, entries cached under a capacitor (FAST'21 §4.6, where it is rejected).
    LocalFlash = local_flash,
    /// Remap-SSD that moves its largest segment group to flash pages when NVRAM fills (TCAD'22,
    /// "LH").
    RemapSsdLh = remap_ssd_lh,
    /// WAL-SSD: a page's OOB names its future home, and a command that remaps pages to their homes
    /// takes one commit record.
    WalSsd = wal,
    /// Copyless Copy (HPCC'19): entries in DRAM, saved to reserved flash by a capacitor when power
    /// fails.
    ShadowOob = shadow_oob,
}

impl SchemeKind {
    /// The baseline of comparisons.
    pub const BASELINE: Self = Self::None;
    /// The upper bound of the gain from remapping.
    pub const IDEAL: Self = Self::Opt;
    /// The schemes compared in FAST'21: the default set of a run.
    pub const FAST21: [Self; 5] = [
        Self::None,
        Self::RemapSsd,
        Self::FLog,
        Self::NLog,
        Self::Opt,
    ];

    /// The first scheme that keeps its entries on this medium.
    pub fn on(medium: Medium) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.facts().medium == medium)
    }

    /// The scheme under which the absence of a guard is visible: for most guards, the default one.
    pub fn that_shows(guard: Guard) -> Self {
        Self::ALL
            .into_iter()
            .find(|kind| kind.facts().guards.contains(&guard))
            .unwrap_or_default()
    }
}

impl SchemeValues {
    /// Sets the keys of these names in all schemes that have them.
    pub fn everywhere(values: &[(&str, u64)]) -> Self {
        let mut all = Self::default();
        for kind in SchemeKind::ALL {
            for (name, value) in values.iter().filter(|(name, _)| kind.key(name).is_some()) {
                all.set(kind, name, *value);
            }
        }
        all
    }

    /// The only scheme with a key of this name; `None` if none or several have it. Older files have
    /// such keys in `[firmware]`.
    pub fn owner_of(name: &str) -> Option<SchemeKind> {
        let mut owners = SchemeKind::ALL
            .into_iter()
            .filter(|kind| kind.key(name).is_some());
        owners.next().filter(|_| owners.next().is_none())
    }
}

/// The remaining keys of `[firmware]`: tables of schemes, and schemes' keys as in older files.
impl<'de> Deserialize<'de> for SchemeValues {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Given {
            Value(u64),
            Table(BTreeMap<String, u64>),
        }

        // The same text as serde's for an unknown field: the error for a misspelt key of a scheme
        // must read like one of the table itself.
        let unknown = |name: &str| D::Error::custom(format!("unknown field `{name}`"));
        let mut values = Self::default();
        for (name, given) in BTreeMap::<String, Given>::deserialize(deserializer)? {
            match given {
                Given::Value(value) => {
                    let owner = Self::owner_of(&name).ok_or_else(|| unknown(&name))?;
                    values.set(owner, &name, value);
                }
                Given::Table(table) => {
                    let kind: SchemeKind = name.parse().map_err(|_| unknown(&name))?;
                    for (key, value) in table {
                        kind.key(&key).ok_or_else(|| unknown(&key))?;
                        values.set(kind, &key, value);
                    }
                }
            }
        }
        Ok(values)
    }
}

pub(crate) fn spec(kind: SchemeKind) -> &'static SchemeSpec {
    SPECS
        .iter()
        .find(|spec| spec.facts.name == kind.name())
        .expect("every kind is made from the list")
}

impl Default for SchemeKind {
    fn default() -> Self {
        Self::RemapSsd
    }
}

impl fmt::Display for SchemeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Debug for SchemeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for SchemeKind {
    type Err = UnknownChoice;
    fn from_str(name: &str) -> Result<Self, UnknownChoice> {
        names::find("scheme", name, &Self::ALL, Self::name)
    }
}

impl Serialize for SchemeKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for SchemeKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        name.parse()
            .map_err(|_| D::Error::unknown_variant(&name, NAMES))
    }
}
