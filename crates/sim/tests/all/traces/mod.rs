//! Traces: real excerpts match their authors' descriptions, records of every format match its
//! description, cutting and folding agree with counting sectors one by one, and damage to a file
//! causes at most an error that names the location.

mod columns;
mod containers;
mod contents;
mod damage;
mod excerpts;
mod formats;
mod kit;
mod oracle;
mod real;
mod samples;
mod vscsi;
mod writing;
