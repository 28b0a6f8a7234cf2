//! Where extension modules need arguments of the linker (macOS), gives them.

fn main() {
    pyo3_build_config::add_extension_module_link_args();
}
