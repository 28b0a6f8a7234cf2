//! TPC-C's transactions, as changes of pages.
//!
//! Source: Coldmap (section V), "TPC-C handles 5 warehouse databases using MySQL", on a 16 GiB
//! device. Cardinalities, row sizes and the non-uniform random law NURand are the TPC-C standard's
//! (revision 5.11, clauses 1.2 and 2.1.6): a warehouse has 10 districts, 30,000 customers and
//! 100,000 stock rows. Of 92 transactions that write, 45 are new orders, 43 payments and 4
//! deliveries (clause 5.2.3); the eight that only read cost no writes.
//!
//! - *New order*: its district, 5 to 15 stock rows of NURand(8191) items, rows appended to orders,
//!   new orders and order lines.
//! - *Payment*: its warehouse and district, a customer by NURand(1023), a row appended to the
//!   history.
//! - *Delivery*: for each district, the oldest order not delivered (order and order lines,
//!   three tenths of those tables before the newest) and a customer.
//!
//! Growing tables are rings of the size that they have after loading, so that the database size is
//! constant. The storage engine is `innodb.rs`. Reads of rows are served by the buffer pool.
//! Invariants: a warehouse's tables are contiguous; warehouses are equal and drawn uniformly.
//! Absent: indexes; remote warehouses (one item in a hundred).

use rand_xoshiro::Xoshiro256PlusPlus;

use super::WorkloadError;
use super::draw::below;
use super::innodb::Engine;
use super::script::{Scale, Script, Steps};

pub(super) const ABOUT: &str = "TPC-C-like transactions on 5 warehouses: new orders, payments and deliveries by NURand; \
     redo log and doublewrite buffer (Coldmap figures 5 to 8)";

const WAREHOUSES: f64 = 5.0;
const DISTRICTS: u32 = 10;
const CUSTOMERS: u32 = 3_000;
const ITEMS: u32 = 100_000;
const PAGE_BYTES: u32 = 16_384;
const STOCK_BYTES: u32 = 306;
const CUSTOMER_BYTES: u32 = 655;
const ORDER_BYTES: u32 = 24 + 8;
const ORDER_LINE_BYTES: u32 = 54;
const HISTORY_BYTES: u32 = 46;
/// Orders of a warehouse after loading, and mean lines of an order.
const ORDERS: u32 = 30_000;
const LINES: u32 = 10;
/// Redo in excess of the changed bytes.
const REDO_OVERHEAD_BYTES: u32 = 60;

/// Rows of a kind in one warehouse.
#[derive(Clone, Copy)]
struct TableLayout {
    /// First page within the warehouse.
    first: u32,
    rows: u32,
    rows_per_page: u32,
}

impl TableLayout {
    fn after(before: u32, rows: u32, row_bytes: u32) -> Self {
        Self {
            first: before,
            rows,
            rows_per_page: PAGE_BYTES / row_bytes,
        }
    }

    fn end(&self) -> u32 {
        self.first + self.rows.div_ceil(self.rows_per_page)
    }

    fn page(&self, row: u32) -> u32 {
        self.first + row % self.rows / self.rows_per_page
    }
}

pub(super) struct Tpcc {
    engine: Engine,
    warehouses: u32,
    warehouse_pages: u32,
    stock: TableLayout,
    customers: TableLayout,
    orders: TableLayout,
    lines: TableLayout,
    history: TableLayout,
    /// Per warehouse: orders and history rows so far.
    ordered: Vec<u32>,
    paid: Vec<u32>,
    rng: Xoshiro256PlusPlus,
}

impl Tpcc {
    pub(super) fn new(scale: &Scale) -> Result<Self, WorkloadError> {
        // Below one warehouse, the warehouse itself is smaller.
        let warehouses = scale.of(WAREHOUSES, 1);
        let part = (WAREHOUSES * scale.factor).min(1.0);

        // At any scale, a table has enough rows for the distribution.
        let rows = |rows: u32| ((f64::from(rows) * part) as u32).max(64);

        // Page 0 holds the warehouse and its districts.
        let stock = TableLayout::after(1, rows(ITEMS), STOCK_BYTES);
        let customers =
            TableLayout::after(stock.end(), rows(DISTRICTS * CUSTOMERS), CUSTOMER_BYTES);
        let orders = TableLayout::after(customers.end(), rows(ORDERS), ORDER_BYTES);
        let lines = TableLayout::after(orders.end(), rows(ORDERS * LINES), ORDER_LINE_BYTES);
        let history = TableLayout::after(lines.end(), rows(ORDERS), HISTORY_BYTES);

        // The tables are contiguous, with the same layout in each warehouse.
        let warehouse_pages = history.end();
        let pages = u64::from(warehouses) * u64::from(warehouse_pages);
        scale.needs(Engine::lpns(scale, pages))?;

        Ok(Self {
            engine: Engine::new(scale, pages as u32),
            warehouses,
            warehouse_pages,
            stock,
            customers,
            orders,
            lines,
            history,
            ordered: vec![0; warehouses as usize],
            paid: vec![0; warehouses as usize],
            rng: scale.rng.clone(),
        })
    }

    /// The standard's non-uniform law over `0..bound`: two uniform draws or'ed, so that some values
    /// are likelier.
    fn nurand(&mut self, a: u32, bound: u32) -> u32 {
        let or = u64::from(below(a + 1, &mut self.rng)) | u64::from(below(bound, &mut self.rng));
        (or % u64::from(bound)) as u32
    }

    fn change(&mut self, warehouse: u32, page: u32, bytes: u32, steps: &mut Steps) {
        self.engine.change(
            warehouse * self.warehouse_pages + page,
            bytes + REDO_OVERHEAD_BYTES,
            steps,
        );
    }

    fn new_order(&mut self, warehouse: u32, steps: &mut Steps) {
        // The district's next order number.
        self.change(warehouse, 0, 8, steps);

        // Five to fifteen, as in the standard.
        let items = 5 + below(11, &mut self.rng);
        for _ in 0..items {
            let item = self.nurand(8191, self.stock.rows);
            self.change(warehouse, self.stock.page(item), 24, steps);
        }

        // The table of orders is a ring: the oldest is overwritten when it is full.
        let order = self.ordered[warehouse as usize];
        self.ordered[warehouse as usize] = order.wrapping_add(1);
        self.change(warehouse, self.orders.page(order), ORDER_BYTES, steps);

        // The lines of an order are adjacent, so they are one change.
        self.change(
            warehouse,
            self.order_lines(order),
            items * ORDER_LINE_BYTES,
            steps,
        );
    }

    /// The page of an order's lines.
    fn order_lines(&self, order: u32) -> u32 {
        self.lines.page(order % (self.lines.rows / LINES) * LINES)
    }

    fn payment(&mut self, warehouse: u32, steps: &mut Steps) {
        // Warehouse and district are both in page 0.
        self.change(warehouse, 0, 16, steps);
        self.change_customer(warehouse, steps);
        let row = self.paid[warehouse as usize];
        self.paid[warehouse as usize] = row.wrapping_add(1);
        self.change(warehouse, self.history.page(row), HISTORY_BYTES, steps);
    }

    fn change_customer(&mut self, warehouse: u32, steps: &mut Steps) {
        let district = below(DISTRICTS, &mut self.rng);
        let each = self.customers.rows / DISTRICTS;
        let customer = district * each + self.nurand(1023, each);
        self.change(warehouse, self.customers.page(customer), 32, steps);
    }

    fn delivery(&mut self, warehouse: u32, steps: &mut Steps) {
        // The standard loads 900 of 3,000 orders of a district as not delivered.
        let behind = self.orders.rows / 10 * 3;
        let oldest = self.ordered[warehouse as usize].wrapping_add(self.orders.rows - behind);
        for district in 0..DISTRICTS {
            let order = oldest.wrapping_add(district);
            self.change(warehouse, self.orders.page(order), 8, steps);
            self.change(warehouse, self.order_lines(order), LINES * 8, steps);
            self.change_customer(warehouse, steps);
        }
    }
}

impl Script for Tpcc {
    fn step(&mut self, steps: &mut Steps) {
        let warehouse = below(self.warehouses, &mut self.rng);

        // The standard's mix of the writing transactions.
        match below(92, &mut self.rng) {
            0..45 => self.new_order(warehouse, steps),
            45..88 => self.payment(warehouse, steps),
            _ => self.delivery(warehouse, steps),
        }
        self.engine.commit(steps);
    }
}
