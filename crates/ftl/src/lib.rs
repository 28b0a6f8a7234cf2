//! The firmware core: mapping, reference counts, superblocks, garbage collection, deduplication and
//! recovery.
//!
//! Start with `command`: each verb fits on one screen. Then read one scheme in `scheme/`, then
//! `recovery`.

mod atomic;
mod block_map;
mod check;
mod clock;
pub mod command;
pub mod config;
mod contract;
mod core;
mod counts;
mod dealloc;
mod dedup;
mod dies;
mod ended;
mod error;
mod file_verbs;
mod files;
mod ftl;
mod fullest;
mod gc;
mod glimpse;
mod granularity;
pub mod guard;
mod hybrid;
mod kind;
mod layout;
mod life;
mod limits;
mod look_ahead;
mod map;
mod mapping;
mod murmur3;
mod names;
mod newest;
pub mod policy;
mod program;
pub mod recovery;
mod remap;
pub mod scheme;
mod sizes;
mod stats;
mod superblock;
mod survival;
mod tables;
mod witnesses;

pub use config::{Config, EntrySize, SchemeValues};
pub use contract::{GroupInfo, Occupancy, Usage};
pub use dedup::{FingerprintKind, UnknownPage};
pub use dies::DieMask;
pub use error::{ConfigError, RecoveryError, Refusal};
pub use files::{FileBlock, FilePage, FileStatus};
pub use ftl::Ftl;
pub use glimpse::{Glimpse, UsablePages};
pub use granularity::Granularity;
pub use guard::{Guard, Guards};
pub use kind::{Hue, Medium, SchemeFacts, SchemeKey, SchemeKind};
pub use policy::GcPolicy;
pub use remap::Remap;
pub use remap_ssd_media::Lpn;
pub use stats::{Demotion, RemapCounts, SchemeCounters, Stats};
pub use superblock::{Owners, Stream, Superblock, SuperblockHead, SuperblockState};
pub use survival::{Survival, SurvivalClass};
pub use witnesses::RecoveryReport;
