//! The program `remap-ssd`; its code is in the library of the same package.

use std::process::ExitCode;

fn main() -> ExitCode {
    remap_ssd::main()
}
