//! Garbage collection: pages with owners move away, then the victim is erased.
//!
//! In passes over a stretch of pages, so that the tables of the next pages are fetched while one is
//! handled: collect the pages with owners, resolve who owns them, place them, rewrite the other
//! references.
//!
//! Order: 1. the pages at their new place, each with one owner in its OOB  2. entries of the other
//! owners, each after the pages it names  3. the victim is marked dead, after everything  4.
//! erases  5. its entries are released. Cut before 3: the victim is a witness as before, and says
//! the same as the copies. After 3: the copies do.
//!
//! Invariants: a job gains space (its victim has garbage, and its references' entries fit into the
//! reserve); the pages of the victim that the host remaps onto while the job runs are in `late`.
//! Absent: the choices (`policy`).

pub(crate) mod job;
mod pace;
mod relocate;
