//! What an operator asks of a served device and does to it: real server processes, real hosts,
//! `ctl` as a program.

mod kit;
mod metrics;
mod reservations;
mod rights;
mod snapshot;
mod verbs;
mod watch;
