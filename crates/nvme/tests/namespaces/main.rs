//! Namespaces are created, deleted, attached, detached and formatted with other blocks while hosts
//! use them, and the power is cut in between.
//!
//! Invariant of every test: a block reads as what was written to this namespace last, or as zeroes;
//! never as what another namespace's host has written.

#[path = "../kit/mod.rs"]
mod kit;

mod commands;
mod cuts;
mod host;
mod model;
mod under_way;
