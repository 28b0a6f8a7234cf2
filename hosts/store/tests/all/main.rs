//! The integration tests of store, in one program.

mod cuts;
mod damage;
mod defrag;
mod files;
mod image;
mod os;
mod processes;
mod resting;
mod tenancies;
