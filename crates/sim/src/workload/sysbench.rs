//! Sysbench's transactions on rows drawn by its Pareto law.
//!
//! Source: Coldmap (section V), "Sysbench accesses 60 tables with MySQL with Pareto distributions";
//! rows per table are not stated: 100,000 here, so that the tables take 1.2 GiB of its 16 GiB
//! device. Sysbench's `oltp_read_write` with `rand-type=pareto` and its default `pareto-h` of 0.2:
//! four fifths of the accesses go to the first fifth of the rows, row `u^(ln 0.2 / ln 0.8)` for a
//! uniform `u`. A transaction changes a row together with its secondary index, changes another row,
//! deletes a row and inserts it again; the tables are drawn uniformly. Rows of 200 bytes, 80 to a
//! page.
//!
//! The storage engine is `innodb.rs`. Reads of rows are served by the buffer pool. Invariants: a
//! table's rows are in key order; its index, a sixteenth of the rows' pages, follows.

use rand_xoshiro::Xoshiro256PlusPlus;

use super::WorkloadError;
use super::draw::{below, unit};
use super::innodb::Engine;
use super::script::{Scale, Script, Steps};

pub(super) const ABOUT: &str = "sysbench oltp_read_write, pareto (h = 0.2) rows of 60 tables of 100,000; redo log and \
     doublewrite buffer (Coldmap figures 5 to 8)";

const TABLES: u32 = 60;
const ROWS: f64 = 100_000.0;
const ROWS_PER_PAGE: u32 = 80;
const PARETO_H: f64 = 0.2;
const INDEX_SHARE: u32 = 16;
/// Redo per row changed, deleted or inserted, and per index entry.
const ROW_REDO_BYTES: u32 = 300;
const INDEX_REDO_BYTES: u32 = 100;

pub(super) struct Sysbench {
    engine: Engine,
    rows: u32,
    row_pages: u32,
    index_pages: u32,
    power: f64,
    rng: Xoshiro256PlusPlus,
}

impl Sysbench {
    pub(super) fn new(scale: &Scale) -> Result<Self, WorkloadError> {
        let rows = scale.of(ROWS, ROWS_PER_PAGE);
        let row_pages = rows.div_ceil(ROWS_PER_PAGE);
        let index_pages = row_pages.div_ceil(INDEX_SHARE);
        let pages = u64::from(TABLES) * u64::from(row_pages + index_pages);
        scale.needs(Engine::lpns(scale, pages))?;
        Ok(Self {
            engine: Engine::new(scale, pages as u32),
            rows,
            row_pages,
            index_pages,
            power: libm::log(PARETO_H) / libm::log(1.0 - PARETO_H),
            rng: scale.rng.clone(),
        })
    }

    fn table(&mut self) -> u32 {
        below(TABLES, &mut self.rng) * (self.row_pages + self.index_pages)
    }

    fn row(&mut self) -> u32 {
        let part = libm::pow(unit(&mut self.rng), self.power);
        ((part * f64::from(self.rows)) as u32).min(self.rows - 1)
    }

    fn change_row(&mut self, table: u32, row: u32, steps: &mut Steps) {
        self.engine
            .change(table + row / ROWS_PER_PAGE, ROW_REDO_BYTES, steps);
    }

    /// Changes an entry of the secondary index, at the position of its value.
    fn change_index(&mut self, table: u32, steps: &mut Steps) {
        let page = below(self.index_pages, &mut self.rng);
        self.engine
            .change(table + self.row_pages + page, INDEX_REDO_BYTES, steps);
    }
}

impl Script for Sysbench {
    fn step(&mut self, steps: &mut Steps) {
        // An update of an indexed column: the entry moves.
        let (table, row) = (self.table(), self.row());
        self.change_row(table, row, steps);
        self.change_index(table, steps);
        self.change_index(table, steps);

        // A column without an index: only the row.
        let (table, row) = (self.table(), self.row());
        self.change_row(table, row, steps);
        // Deleted and inserted again under the same key.
        let (table, row) = (self.table(), self.row());
        for _ in 0..2 {
            self.change_row(table, row, steps);
            self.change_index(table, steps);
        }

        // The four statements are one transaction, so the log is written once.
        self.engine.commit(steps);
    }
}
