//! The integration tests of fuse, in one program.

mod mount;
mod pages;
