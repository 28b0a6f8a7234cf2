//! Traces: real excerpts replay to what their authors say is in them, every format's records mean
//! what its description says, cutting and folding agree with counting sectors one by one, and no
//! damage to a file does worse than an error that names the place.

mod columns;
mod containers;
mod damage;
mod excerpts;
mod formats;
mod kit;
mod oracle;
mod real;
mod samples;
mod writing;
