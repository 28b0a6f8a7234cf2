//! The program `remap-ssd`; everything it does is in the library of the same package.

use std::process::ExitCode;

fn main() -> ExitCode {
    remap_ssd::main()
}
