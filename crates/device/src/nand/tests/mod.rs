//! The model against formulas, and against figures of another simulator and of a small event model that
//! agrees with it. All times are in nanoseconds.

mod agreement;
mod cache;
mod copies;
mod copyback;
mod errors;
mod exact;
mod host;
mod planes;
mod slc;
mod suspension;
mod two_step;
mod units;
mod waits;
mod watch;
