//! The native half of the Python package `remap_ssd`: the functions that need the simulator, with
//! simple types.
//!
//! Invariant: a mistake raises an exception with the command line's message, never a panic. Absent:
//! the package's interface (`remap_ssd/*.py`), and any simulation.

#![warn(unreachable_pub)]

mod compare;
mod config;
mod device;
mod errors;
mod replay;
mod stop;
mod sweep;
mod trace;
mod workload;

use pyo3::prelude::*;

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("SOURCES", remap_ssd_study::SOURCES)?;

    module.add_function(wrap_pyfunction!(config::config_of_json, module)?)?;
    module.add_function(wrap_pyfunction!(config::config_of_toml, module)?)?;
    module.add_function(wrap_pyfunction!(config::presets, module)?)?;

    module.add_function(wrap_pyfunction!(compare::compare, module)?)?;
    module.add_function(wrap_pyfunction!(compare::compare_options, module)?)?;
    module.add_function(wrap_pyfunction!(stop::stop, module)?)?;

    module.add_function(wrap_pyfunction!(sweep::sweep_of_file, module)?)?;
    module.add_function(wrap_pyfunction!(sweep::sweep_of_json, module)?)?;
    module.add_function(wrap_pyfunction!(sweep::sweep_point, module)?)?;
    module.add_function(wrap_pyfunction!(sweep::sweep_others, module)?)?;
    module.add_function(wrap_pyfunction!(sweep::schema, module)?)?;
    module.add_function(wrap_pyfunction!(sweep::typed_option, module)?)?;
    module.add_function(wrap_pyfunction!(sweep::digest_of_file, module)?)?;
    module.add_function(wrap_pyfunction!(sweep::memory_available, module)?)?;

    module.add_function(wrap_pyfunction!(trace::check_columns, module)?)?;
    module.add_function(wrap_pyfunction!(trace::read_trace, module)?)?;
    module.add_function(wrap_pyfunction!(trace::write_trace, module)?)?;
    module.add_class::<device::Device>()?;
    Ok(())
}
