//! The integration tests of device, in one program; those that need a program of their own are
//! beside it.

mod bit_errors;
mod config;
mod damage;
mod device;
mod extremes;
mod fingerprints;
mod folder;
mod indirection;
#[path = "../kit/mod.rs"]
mod kit;
mod mapping_cache;
mod memory;
mod slc;
mod timing;
mod timing_waits;
mod units_in_buffer;
mod units_with_bytes;
mod untorn;
mod volatile_buffer;
