//! The firmware core: mapping, reference counts, superblocks, garbage collection, deduplication, recovery.
//!
//! Read `command` first: each verb on one screen. Then one scheme in `scheme/`, then `recovery`.

mod atomic;
mod block_map;
mod check;
pub mod command;
pub mod config;
mod core;
mod counts;
mod dealloc;
mod dedup;
mod ended;
mod files;
mod ftl;
mod fullest;
mod gc;
mod glimpse;
mod granularity;
pub mod guard;
mod hybrid;
mod layout;
mod life;
mod map;
mod murmur3;
pub mod policy;
mod program;
pub mod recovery;
pub mod scheme;
mod stats;
mod superblock;
mod survival;

pub use command::{Refusal, Remap};
pub use config::{Config, ConfigError, EntrySize};
pub use dedup::{FingerprintKind, UnknownPage};
pub use files::{FileBlock, FilePage, FileStatus};
pub use ftl::Ftl;
pub use glimpse::{Glimpse, Room, UsablePages};
pub use granularity::Granularity;
pub use guard::{Guard, Guards};
pub use policy::GcPolicy;
pub use recovery::{RecoveryError, RecoveryReport};
pub use scheme::{GroupInfo, SchemeKind, Usage};
pub use stats::{Demotion, Stats};
pub use superblock::{Head, Owners, State, Stream, Superblock};
pub use survival::{Survival, SurvivalClass};
