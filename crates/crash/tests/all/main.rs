//! The integration tests of crash, in one program.

mod campaign;
mod damage;
mod history;
mod media_faults;
mod mutants;
mod options;
mod oracle;
