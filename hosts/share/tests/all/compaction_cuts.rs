//! Power cuts while a real copy-on-write store, redb, is compacted by sharing pages: every row
//! survives.

#[allow(dead_code)]
#[path = "../../examples/compaction/backend.rs"]
mod backend;

use backend::Backend;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use remap_ssd_store::{Create, NewVolume, OpenOptions, Processes, Store, Volume};
use remap_ssd_testkit::{MemDisk, Op, kept, subsets};
use std::collections::{BTreeMap, HashMap};

const ROWS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("rows");
const PAGES: u64 = 8192;
/// Cuts, spread over all operations of the compaction.
const CUTS: usize = 150;

type Rows = BTreeMap<u64, Vec<u8>>;

fn options() -> OpenOptions {
    OpenOptions::from(Create::IfAbsent)
}

fn backend(disk: MemDisk) -> Backend<Volume<MemDisk>> {
    let volume = Volume::open(disk, &Processes::One).expect("a volume");
    let file = volume.open("rows.redb", options()).expect("there is room");
    Backend::new(volume, file)
}

fn database(backend: Backend<Volume<MemDisk>>) -> Database {
    let mut builder = Database::builder();
    builder.set_cache_size(1 << 20);
    builder.create_with_backend(backend).expect("a database")
}

fn rows(database: &Database) -> Rows {
    let transaction = database.begin_read().expect("possible");
    let table = transaction.open_table(ROWS).expect("it is there");
    let rows = table
        .iter()
        .expect("readable")
        .map(|row| row.expect("readable"));
    rows.map(|(key, value)| (key.value(), value.value().to_vec()))
        .collect()
}

#[test]
fn a_cut_in_a_compaction_that_shares_loses_no_row() {
    let random = &mut Xoshiro256PlusPlus::seed_from_u64(7);
    let disk = MemDisk::new(PAGES);
    let new = NewVolume {
        files_max: 4,
        ..NewVolume::default()
    };
    drop(Volume::create(disk.clone(), &Processes::One, &new, &mut |_, _| {}).expect("possible"));
    let backend = backend(disk.clone());
    let mut database = database(backend.clone());
    let mut wanted = Rows::new();
    for _ in 0..4 {
        let transaction = database.begin_write().expect("possible");
        {
            let mut table = transaction.open_table(ROWS).expect("possible");
            for _ in 0..150 {
                let (key, value) = (random.random::<u64>(), vec![random.random::<u8>(); 1000]);
                table.insert(key, &value[..]).expect("there is room");
                wanted.insert(key, value);
            }
        }
        transaction.commit().expect("durable");
    }
    let transaction = database.begin_write().expect("possible");
    transaction
        .open_table(ROWS)
        .expect("it is there")
        .retain(|key, _| key % 3 == 0)
        .expect("possible");
    transaction.commit().expect("durable");
    wanted.retain(|key, _| key % 3 == 0);

    let from = disk.medium().log.len();
    backend.share(true).expect("readable");
    database.compact().expect("possible");
    let asked = backend.asked();
    assert!(
        asked.shared * 2 > asked.pages,
        "most pages only move: {asked:?}"
    );
    assert_eq!(rows(&database), wanted);

    let log: Vec<Op> = disk.medium().log.clone();
    let base = HashMap::new();
    let mut cuts = 0;
    for operations in (from..=log.len()).step_by(((log.len() - from) / CUTS).max(1)) {
        let log = &log[..operations];
        let all = subsets(log, random);
        let subset = &all[random.random_range(0..all.len())];
        let disk = MemDisk::holding(PAGES, kept(&base, log, |index| subset[index]));
        let database = self::database(self::backend(disk));
        assert!(
            rows(&database) == wanted,
            "after {operations} operations, {subset:?}"
        );
        cuts += 1;
    }
    assert!(cuts >= CUTS.min(log.len() - from), "{cuts}");
}
