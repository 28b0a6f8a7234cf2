//! Comparisons of designs, and grids of them: described by named options, checked, run, and their
//! results as JSON and files.
//!
//! ```text
//! ComparisonSpec -> plan (one run per scheme) -> run, on threads, watched -> JSON, page
//! grid (lists of values) -> points, each with a key -> one comparison each -> a Parquet file each
//! ```
//! The command line, the Python package and other programs call the same functions: a description
//! is a struct, and the same struct can also be made from a table of named values.
//!
//! ```
//! use remap_ssd_study::{Comparison, ComparisonSpec, unfollowed};
//!
//! let spec = ComparisonSpec {
//!     scheme: vec!["none".parse()?, "remap-ssd".parse()?],
//!     scale: Some(1.0 / 256.0),
//!     writes: Some(2_000),
//!     ..ComparisonSpec::default()
//! };
//! let comparison = Comparison::new(spec, unfollowed())?;
//! let measured = comparison.measure()?;
//!
//! assert_eq!(comparison.names(), ["none", "remap-ssd"]);
//! assert_eq!(comparison.json(&measured)["runs"][1]["host_pages"], 2_000);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Invariants: the same description gives the same result, in every form and on every
//! machine; all mistakes in a grid are reported before anything runs; no result depends on a watch
//! or on threads. Absent: command lines, the terminal, signals; executing a run
//! (`remap_ssd_sim::study`); the papers' experiments (`lab`).

#![warn(unreachable_pub)]

mod about;
mod axis;
mod comparison;
mod device;
mod diff;
mod error;
mod field;
mod fields;
pub mod file;
mod grid;
pub mod inspected;
mod kept;
mod means;
mod memory;
pub mod names;
pub mod numbers;
pub mod parquet;
mod plan;
mod point;
mod profile;
mod profile_table;
mod reading;
mod result;
mod rows;
mod run;
mod said;
mod schema;
pub mod settings;
mod spec;
mod values;
mod watch;

pub use about::{grid_config, points_json};
pub use comparison::{Comparison, Measured};
pub use device::device_rows;
pub use diff::{Condition, Diff, Pair, ResultFile, Violation};
pub use error::Error;
pub use field::Kind;
pub use fields::Type;
pub use grid::{of_file, of_json};
pub use kept::{keep, load, of_other_sources, path};
pub use means::means;
pub use memory::{Need, available};
pub use point::{Fetch, Name, Point, SOURCES, digest};
pub use profile::{Feed, Profiled};
pub use reading::{BytesRead, Follow, unfollowed, until};
pub(crate) use result::FORMAT_VERSION;
pub use run::{PointEvent, run_points};
pub use said::said;
pub use schema::{columns, figure, run_type, typed_option};
pub use spec::{ComparisonSpec, OPTIONS, OptionDef};
pub use watch::{STEPS, Watch};
