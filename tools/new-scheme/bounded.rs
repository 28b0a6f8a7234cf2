//! Bounded: the upper bound with as many entries as `log_bytes` has room for. Not durable; an
//! example, see CONTRIBUTING.md.
//!
//! Invariant: the remaps in force never exceed the room for them. Absent: state that survives
//! power loss.

use super::index::OwnerIndex;
use crate::config::Config;
use crate::config::kind::{Medium, SchemeFacts, SchemeKey};
use crate::contract::{
    Inspect, LookAhead, OwnerLookup, Ownership, Persist, Recover, Remapping, SchemeSpec, Usage,
};
use crate::core::Core;
use crate::error::{ConfigError, Contradiction, RecoveryError};
use crate::mapping::ended::EndedFilters;
use crate::mapping::tables::Tables;
use crate::recovery::witnesses::Witnesses;
use crate::stats::{Counter, Demotion, SchemeCounters};
use crate::superblock::Superblocks;
use remap_ssd_media::{Geometry, Media, Ppn, Purpose, SbId};

const COUNTERS: &[&str] = &["bounded_entries"];
/// Total number of entries made.
const ENTRIES: Counter = Counter::named("bounded_entries", COUNTERS);

/// Bytes of an entry: a key of the scheme's own table, `[firmware.bounded]`.
const ENTRY_BYTES: SchemeKey = SchemeKey {
    name: "entry_bytes",
    unit: "bytes",
    default: 16,
    least: 8,
    most: 64,
    about: "What an entry takes of `log_bytes`.",
};

/// The scheme's declaration for the catalogue.
pub(super) const SPEC: SchemeSpec = SchemeSpec::new(
    SchemeFacts {
        name: "bounded",
        durable: false,
        medium: Medium::Nowhere,
        keys: &[&ENTRY_BYTES],
        counters: COUNTERS,
        ..SchemeFacts::DURABLE
    },
    |config, geometry| Box::new(Bounded::new(config, geometry)),
)
.with_check(|config, _| check(config));

fn check(config: &Config) -> Result<(), ConfigError> {
    let least = config.own(&ENTRY_BYTES);
    if config.log_bytes < least {
        return Err(ConfigError(format!(
            "log_bytes = {} has no room for an entry: use at least {least}",
            config.log_bytes
        )));
    }
    Ok(())
}

pub(super) struct Bounded {
    index: OwnerIndex,
    capacity: u64,
    entry_bytes: u64,
}

impl Bounded {
    fn new(config: &Config, geometry: &Geometry) -> Self {
        Self {
            index: OwnerIndex::new(geometry),
            capacity: config.log_bytes / config.own(&ENTRY_BYTES),
            entry_bytes: config.own(&ENTRY_BYTES),
        }
    }

    fn is_full(&self, blocks: &Superblocks) -> bool {
        blocks.remapped_total() >= self.capacity
    }

    fn push(&mut self, core: &mut Core, remapping: &Remapping) {
        self.index.push(&mut core.tables, &core.blocks, remapping);
        core.stats.scheme.add(ENTRIES, 1);
    }
}

impl Persist for Bounded {
    fn admit(&mut self, core: &mut Core, _: Ppn, _: bool) -> Result<(), Demotion> {
        if self.is_full(&core.blocks) {
            Err(Demotion::NvramFull)
        } else {
            Ok(())
        }
    }

    fn persist(&mut self, core: &mut Core, remapping: &Remapping, _: Purpose) {
        self.push(core, remapping);
    }

    // The moved reference already has an entry, which this one replaces.
    fn persist_moved(&mut self, core: &mut Core, remapping: &Remapping) -> bool {
        self.push(core, remapping);
        true
    }
}

impl Ownership for Bounded {
    fn owners(&mut self, lookup: OwnerLookup) {
        self.index.owners(lookup.sb, lookup.out);
    }

    fn forget(&mut self, _: &mut Media, _: &mut EndedFilters, _: &mut SchemeCounters, sb: SbId) {
        self.index.forget(sb);
    }
}

impl Recover for Bounded {
    fn replay(&mut self, _: &mut Core, _: &mut Witnesses) -> Result<(), RecoveryError> {
        Ok(())
    }

    fn resume(&mut self, _: &mut Core) -> bool {
        true
    }
}

impl Inspect for Bounded {
    fn usage(&self, blocks: &Superblocks) -> Usage {
        let valid_bytes = blocks.remapped_total() * self.entry_bytes;
        Usage {
            capacity_bytes: self.capacity * self.entry_bytes,
            entry_room_bytes: self.capacity * self.entry_bytes,
            used_bytes: valid_bytes,
            valid_bytes,
            ..Usage::default()
        }
    }

    fn check(&self, tables: &Tables, _: &Superblocks, _: &Media) -> Result<(), Contradiction> {
        self.index.check(tables)
    }
}

impl LookAhead for Bounded {}
