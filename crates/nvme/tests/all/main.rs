//! The integration tests of nvme, in one program. Beside it: `fairness`, which measures how a device
//! shares its time, and needs the processors for itself; `format_cut`, whose disk is one of a
//! process; `tls` and `without_tls`, which are for programs with TLS and without.

mod authentication;
mod conformance;
mod dataset_management;
mod digests;
mod disk;
mod durability;
mod error_log;
mod exclusive;
mod fabrics;
mod features;
mod format;
mod group_commit;
mod hostile;
#[path = "../kit/mod.rs"]
mod kit;
mod limits;
mod long_commands;
mod namespaces;
mod operate;
mod portals;
mod quotas;
mod reservations;
mod rights;
mod sent_away;
mod volatile_cache;
