//! The integration tests of sim, in one program.

mod arrivals;
mod collection;
mod fio_jobs;
mod indirection;
mod micro;
mod models;
mod nand;
mod pipeline;
mod precision;
mod profile;
mod report;
mod runs;
mod study;
mod summary;
mod traces;
mod workloads;
