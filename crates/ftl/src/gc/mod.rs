//! Garbage collection: pages with owners are moved, then the victim is erased.
//!
//! Each stretch of pages is processed in passes, so that the tables of the next pages are
//! prefetched while one is processed: collect the pages with owners, resolve their owners, place
//! the pages, rewrite the other references.
//!
//! Order: 1. the pages at their new place, each with one owner in its OOB  2. entries of the other
//! owners, each after the pages it names  3. the victim is marked dead, after everything  4. its
//! erases  5. its entries are released. Cut before 3: the victim is a witness as before, and says
//! the same as the copies. After 3: only the copies are witnesses.
//!
//! Invariants: a job gains space (its victim has garbage, and its references' entries fit into the
//! reserve), or is a refresh for which there is room; remaps onto the victim's pages while the job runs are in `late`. Absent: the choices
//! (`policy`).

mod due;
mod fold;
pub(crate) mod job;
mod pace;
mod refresh;
mod relocate;
mod room;
