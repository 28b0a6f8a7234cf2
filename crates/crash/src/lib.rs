//! Power cuts by the thousand: the campaign that the firmware's promise is held against.
//!
//! Whatever was acknowledged survives a power cut at any instant, and nothing that was deallocated
//! or overwritten comes back. A campaign runs [`script`]s on tiny, nearly full devices ([`setup`]),
//! cuts their power ([`cut`]), lets the firmware recover, and asks the [`oracle`] whether a host
//! could have expected what it reads. Every failure has a [`ReplayCode`] that runs it again; with a
//! [`Guard`](remap_ssd_ftl::Guard) of the firmware switched off, a failure is what must be found
//! ([`hunt`]).
//!
//! Failing media have setups of their own ([`damage`], [`CampaignOptions::media_faults`]): damaged
//! data may be lost, but older data is never read. They do not cover unreadable pages of
//! superblocks without a tail, since recovery cannot tell these from pages torn while they were
//! programmed.

pub mod campaign;
pub mod code;
pub mod content;
pub mod cut;
pub mod damage;
pub mod dut;
pub mod files;
pub mod history;
pub mod marks;
pub mod oracle;
mod quiet;
pub mod run;
pub mod script;
pub mod setup;

pub use code::ReplayCode;
pub use marks::Marks;
pub use run::{
    CampaignBudget, CampaignOptions, CampaignProgress, CampaignReport, FailedScript, hunt, replay,
    replay_adjusted, replay_whole, run,
};
pub use setup::{Adjust, GeometryAdjust, mapping_of};
