//! The integration tests of torture, in one program.

mod stage;
