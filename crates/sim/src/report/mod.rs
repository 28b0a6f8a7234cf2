//! Reports: several [`RunSummary`](crate::summary::RunSummary)s side by side, on a terminal or on
//! one page of HTML.
//!
//! [`table()`] and [`details()`] are for terminals, [`html()`] for a browser, [`sheet()`] for a
//! paper. All read the same rows ([`metrics`]), so a number can't differ from one to the other.
//!
//! Invariants: the same summaries give the same bytes (so the page omits wall-clock time); a value
//! that is not a number is shown as `-`, never as `NaN` or `inf`; a run keeps its position, its
//! label and its colour in every table and figure. Absent: measuring, averaging over runs, and
//! files (the caller writes the text).

mod figures;
pub mod format;
pub mod grid;
mod headline;
pub mod html;
pub mod layout;
pub mod metrics;
mod palette;
mod progress;
pub mod sheet;
mod table;

pub use html::html;
pub use metrics::{labels, remarks};
pub use progress::Progress;
pub use table::{details, sheet, table, table_within};
