//! Devices as operators see them: what `remap-ssd-http` shows.
//!
//! ```text
//! table    superblocks and counters, read from a device in short stretches
//! served   a device in service, and the verbs of `ctl`
//! backup   a copy of an image while it is served
//! ```

pub mod backup;
pub mod served;
pub mod table;
