//! The integration tests of store, in one program.

mod branch_cuts;
mod branches;
mod cuts;
mod damage;
mod defrag;
mod files;
mod image;
mod os;
mod processes;
mod resting;
mod tenancies;
