//! The firmware core: mapping, reference counts, superblocks, garbage collection, deduplication and
//! recovery.
//!
//! Start with `verbs::command`: each verb fits on one screen. Then read one scheme in `scheme/`,
//! then `recovery`.

#![warn(unreachable_pub)]

mod clock;
mod config;
mod contract;
mod core;
mod dedup;
mod dies;
mod error;
mod ftl;
mod gc;
mod mapping;
mod names;
pub mod policy;
mod records;
mod recovery;
pub mod scheme;
mod stats;
mod superblock;
mod verbs;

pub use config::buffered_remaps::BufferedRemaps;
pub use config::granularity::Granularity;
pub use config::guard::{self, Guard, Guards};
pub use config::kind::{Hue, Medium, SchemeFacts, SchemeKey, SchemeKind};
pub use config::layout::NvramLayout;
pub use config::{Config, EntrySize, SchemeValues};
pub use contract::{GroupInfo, Occupancy, Usage};
pub use dedup::FingerprintKind;
pub use dies::DieMask;
pub use error::{ConfigError, Contradiction, RecoveryError, Refusal, UnknownChoice};
pub use ftl::Ftl;
pub use mapping::survival::{Survival, SurvivalClass};
pub use policy::GcPolicy;
pub use records::files::{FileBlock, FilePage, FileStatus};
pub use recovery::witnesses::RecoveryReport;
pub use remap_ssd_media::Lpn;
pub use stats::{RemapCounts, SchemeCounters, Stats};
pub use superblock::{Owners, Stream, Superblock, SuperblockState};
pub use verbs::buffer::BufferedPages;
pub use verbs::command;
pub use verbs::glimpse::{Glimpse, UsablePages};
pub use verbs::relearn::UnknownPage;
pub use verbs::remap::Remap;
