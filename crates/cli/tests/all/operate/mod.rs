//! Operators' queries and changes to a served device: real server processes, real hosts, `ctl` as a
//! program.

mod failed_disk;
mod metrics;
mod reservations;
mod rights;
mod snapshot;
mod supervised;
mod verbs;
mod watch;
