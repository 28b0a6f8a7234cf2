//! Power-cut campaigns that test the firmware's durability guarantee.
//!
//! All acknowledged commands survive a power cut at any instant, and deallocated or overwritten
//! data never returns. A campaign runs scripts on tiny, nearly full devices ([`setup`]), cuts
//! their power ([`cut`]), lets the firmware recover, and asks an oracle whether the contents
//! read are allowed. Every failure has a [`ReplayCode`] that reproduces it; with a
//! [`Guard`](remap_ssd_ftl::Guard) of the firmware switched off, a campaign must find a failure
//! ([`hunt`]).
//!
//! Failing media have their own setups ([`CampaignOptions::media_faults`]): damaged
//! data may be lost, but older data is never read. They do not cover unreadable pages of
//! superblocks without a tail, since recovery cannot distinguish these from pages torn while being
//! programmed.

#![warn(unreachable_pub)]

mod campaign;
mod code;
mod content;
pub mod cut;
mod damage;
mod dut;
mod files;
mod history;
#[cfg(test)]
mod kit;
mod marks;
mod oracle;
mod promise;
mod quiet;
pub mod run;
mod script;
pub mod setup;
mod steps;

pub use code::{CodeError, ReplayCode};
pub use marks::Marks;
pub use run::{
    CampaignBudget, CampaignOptions, CampaignProgress, CampaignReport, FailedScript, StepSink,
    hunt, replay, replay_adjusted, replay_traced, run,
};
pub use setup::{Adjust, GeometryAdjust};
