//! The integration tests of crash, in one program.

mod campaign;
mod media_faults;
mod mutants;
mod options;
mod steps;
mod units;
mod volatile_buffer;
mod word_lines;
