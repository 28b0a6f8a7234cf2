//! Namespaces are created, deleted, attached, detached and formatted with another block size while
//! hosts use them, with power cuts in between.
//!
//! Invariant of every test: a block reads as last written to this namespace, or as zeroes; never as
//! data written by another namespace's host.

mod commands;
mod cuts;
mod host;
mod model;
mod under_way;
mod units;
