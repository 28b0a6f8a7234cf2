//! The integration tests of lab, in one program.

mod analyses;
mod folders;
mod recordings;
mod smoke;
