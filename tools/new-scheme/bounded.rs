//! Bounded: the upper bound with as many entries as `log_bytes` has room for. Not durable; an example, see CONTRIBUTING.md.
//!
//! Invariant: no more remaps are in force than there is room for. Absent: anything that outlives power.

use super::index::OwnerIndex;
use crate::config::Config;
use crate::contract::{
    Inspect, LookAhead, OwnerRef, Ownership, Persist, Recover, Remapping, SchemeSpec, Usage,
};
use crate::core::Core;
use crate::error::{ConfigError, RecoveryError};
use crate::kind::{Medium, SchemeFacts};
use crate::stats::{Counter, Demotion};
use crate::witnesses::Witnesses;
use remap_ssd_media::{Geometry, Ppn, Purpose, SbId};

const COUNTERS: &[&str] = &["bounded_entries"];
/// Entries ever made.
const ENTRIES: Counter = Counter::named("bounded_entries", COUNTERS);

/// Bytes of an entry.
const ENTRY_BYTES: u64 = 16;

/// The scheme as the catalogue lists it.
pub const SPEC: SchemeSpec = SchemeSpec::new(
    SchemeFacts {
        name: "bounded",
        durable: false,
        medium: Medium::Nowhere,
        counters: COUNTERS,
        ..SchemeFacts::DURABLE
    },
    |config, geometry| Box::new(Bounded::new(config, geometry)),
)
.with_check(|config, _| check(config));

fn check(config: &Config) -> Result<(), ConfigError> {
    if config.log_bytes < ENTRY_BYTES {
        return Err(ConfigError(format!(
            "log_bytes = {} has no room for an entry: use at least {ENTRY_BYTES}",
            config.log_bytes
        )));
    }
    Ok(())
}

pub(super) struct Bounded {
    index: OwnerIndex,
    capacity: u64,
}

impl Bounded {
    fn new(config: &Config, geometry: &Geometry) -> Self {
        Self {
            index: OwnerIndex::new(geometry),
            capacity: config.log_bytes / ENTRY_BYTES,
        }
    }

    fn is_full(&self, core: &Core) -> bool {
        core.blocks.remapped_total() >= self.capacity
    }

    fn push(&mut self, core: &mut Core, remapping: &Remapping) {
        self.index.push(core, remapping);
        core.stats.scheme.add(ENTRIES, 1);
    }
}

impl Persist for Bounded {
    fn admit(&mut self, core: &mut Core, _: Ppn, _: bool) -> Result<(), Demotion> {
        if self.is_full(core) {
            Err(Demotion::NvramFull)
        } else {
            Ok(())
        }
    }

    fn persist(&mut self, core: &mut Core, remapping: &Remapping, _: Purpose) {
        self.push(core, remapping);
    }

    // The reference that moves has an entry already: this one takes its place.
    fn persist_moved(&mut self, core: &mut Core, remapping: &Remapping) -> bool {
        self.push(core, remapping);
        true
    }
}

impl Ownership for Bounded {
    fn owners(&mut self, _: &mut Core, sb: SbId, out: &mut Vec<OwnerRef>) {
        self.index.owners(sb, out);
    }

    fn forget(&mut self, _: &mut Core, sb: SbId) {
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
    fn usage(&self, core: &Core) -> Usage {
        let valid_bytes = core.blocks.remapped_total() * ENTRY_BYTES;
        Usage {
            capacity_bytes: self.capacity * ENTRY_BYTES,
            entry_room_bytes: self.capacity * ENTRY_BYTES,
            used_bytes: valid_bytes,
            valid_bytes,
            ..Usage::default()
        }
    }

    fn check(&self, core: &Core) -> Result<(), String> {
        self.index.check(core)
    }
}

impl LookAhead for Bounded {}
