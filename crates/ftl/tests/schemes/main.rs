//! What a new scheme must pass before any other test.
//!
//! A program of its own: `tools/new-scheme` builds it, and not all tests, for a changed copy of the
//! tree.

mod fast_paths;
mod floors;
#[allow(dead_code, reason = "the other program uses the rest")]
#[path = "../all/kit/mod.rs"]
mod kit;
