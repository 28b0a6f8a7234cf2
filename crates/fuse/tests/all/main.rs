//! The integration tests of fuse, in one program.

mod disk;
mod mount;
mod pages;
