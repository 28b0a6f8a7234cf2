//! SQLite's side of the journal: its writes in order, and the resulting bytes of its file.

use super::MAGIC;
use crate::journal::Journal;
use crate::mark::{HEADER_BYTES, Mark};
use rand::RngExt;
use remap_ssd_store::{Create, FileId, NewVolume, OpenOptions, Processes, Store, Volume};
use remap_ssd_testkit::{self as kit, MemDisk};
use std::sync::Arc;

pub(crate) struct Bench {
    pub disk: MemDisk,
    pub store: Arc<dyn Store>,
    database: FileId,
    pub file: FileId,
    pub mark: Mark,
}

impl Bench {
    pub(crate) fn new(page: usize, pages: usize) -> Self {
        let disk = MemDisk::new(100_000);
        let volume = Volume::create(
            disk.clone(),
            &Processes::One,
            &NewVolume::default(),
            &mut |_, _| {},
        );
        let store: Arc<dyn Store> = Arc::new(volume.expect("possible"));
        let open = |name, open_end| {
            store
                .open(
                    name,
                    OpenOptions {
                        create: Create::New,
                        open_end,
                        written_next: false,
                    },
                )
                .expect("possible")
        };
        let (database, file) = (open("db", false), open("db-journal", true));
        let mark = Mark::of(&store.identity().expect("a volume has one"));

        // Some pages carry the header of a frame, which is hidden from SQLite.
        for number in 0..pages {
            let mut bytes = image(number as u32 + 1, page);
            if number % 5 == 0 && Mark::has_room(&bytes) {
                mark.stamp(&mut bytes, &[7; HEADER_BYTES]);
            }
            store
                .write(database, (number * page) as u64, &bytes)
                .expect("there is room");
        }
        Self {
            disk,
            store,
            database,
            file,
            mark,
        }
    }

    pub(crate) fn journal(&self) -> Journal {
        Journal::open(
            self.store.clone(),
            self.file,
            self.mark,
            Some(self.database),
        )
    }
}

/// A page of the database as SQLite sees it.
pub(crate) fn image(number: u32, page: usize) -> Vec<u8> {
    let mut bytes = kit::tagged(u64::from(number), page);
    if number % 2 == 1 {
        bytes[page - 40..].fill(0);
    }
    bytes
}

/// SQLite's writes, and the resulting bytes of its journal.
pub(crate) struct Pager {
    page: usize,
    sector: usize,
    /// Safe append: no counts, one header.
    safe: bool,
    pub flat: Vec<u8>,
    header_at: usize,
    pub offset: usize,
    records: u32,
}

impl Pager {
    pub(crate) fn new(page: usize, sector: usize, safe: bool) -> Self {
        Self {
            page,
            sector,
            safe,
            flat: Vec::new(),
            header_at: 0,
            offset: 0,
            records: 0,
        }
    }

    pub(crate) fn write(&mut self, journal: &mut Journal, offset: usize, data: &[u8]) {
        journal.write(offset as u64, data).expect("there is room");
        kit::write(&mut self.flat, offset, data);
    }

    pub(crate) fn header(&mut self, journal: &mut Journal, random: &mut impl RngExt) {
        let at = self.offset.next_multiple_of(self.sector);
        let mut bytes = vec![0; self.page.min(self.sector)];
        if self.safe {
            bytes[..8].copy_from_slice(&MAGIC);
            bytes[8..12].fill(0xff);
        }
        random.fill_bytes(&mut bytes[12..20]);
        bytes[20..24].copy_from_slice(&(self.sector as u32).to_be_bytes());
        bytes[24..28].copy_from_slice(&(self.page as u32).to_be_bytes());
        for part in (0..self.sector).step_by(bytes.len()) {
            journal
                .write((at + part) as u64, &bytes)
                .expect("there is room");
        }
        self.flat.truncate(at);
        self.flat.resize(at + self.sector, 0);
        self.flat[at..at + 28].copy_from_slice(&bytes[..28]);
        (self.header_at, self.offset, self.records) = (at, at + self.sector, 0);
    }

    pub(crate) fn record(&mut self, journal: &mut Journal, number: u32, image: &[u8]) {
        let at = self.offset;
        self.write(journal, at, &number.to_be_bytes());
        self.write(journal, at + 4, image);
        self.write(
            journal,
            at + 4 + self.page,
            &(number ^ 0x5a5a).to_be_bytes(),
        );
        self.offset += self.page + 8;
        self.records += 1;
    }

    pub(crate) fn sync(&mut self, journal: &mut Journal, zero_byte: bool) {
        if !self.safe {
            if zero_byte {
                let next = self.offset.next_multiple_of(self.sector);
                assert!(
                    journal.read(next as u64, &mut [0; 8]).expect("readable") < 8,
                    "nothing of an older journal"
                );
                self.write(journal, next, &[0]);
            }
            journal.sync().expect("possible");
            let head = [&MAGIC[..], &self.records.to_be_bytes()].concat();
            self.write(journal, self.header_at, &head);
        }
        journal.sync().expect("possible");
    }

    pub(crate) fn super_journal(&mut self, journal: &mut Journal, name: usize, aligned: bool) {
        if aligned {
            self.offset = self.offset.next_multiple_of(self.sector);
        }
        let at = self.offset;
        self.write(journal, at, &0x4000_0001_u32.to_be_bytes());
        self.write(journal, at + 4, &vec![b'n'; name]);
        self.write(journal, at + 4 + name, &(name as u32).to_be_bytes());
        self.write(journal, at + 8 + name, &77_u32.to_be_bytes());
        self.write(journal, at + 12 + name, &MAGIC);
        self.offset += name + 20;
        let size = self.offset as u64;
        if journal.size().expect("possible") > size {
            journal.truncate(size).expect("possible");
            self.flat.truncate(self.offset);
        }
    }

    pub(crate) fn check(&self, journal: &mut Journal, random: &mut impl RngExt) {
        assert_eq!(journal.size().expect("readable"), self.flat.len() as u64);
        assert_eq!(journal.exists().expect("readable"), !self.flat.is_empty());
        let mut all = vec![9; self.flat.len() + 100];
        assert_eq!(
            journal.read(0, &mut all).expect("readable"),
            self.flat.len()
        );
        let differs = self
            .flat
            .iter()
            .zip(&all)
            .position(|(one, other)| one != other);
        assert_eq!(differs, None, "of {} bytes", self.flat.len());
        assert!(all[self.flat.len()..].iter().all(|byte| *byte == 0));
        for _ in 0..20 {
            let at = random.random_range(0..self.flat.len() + 10);
            let mut some = vec![9; random.random_range(1..3 * self.page)];
            let there = self.flat.len().saturating_sub(at).min(some.len());
            assert_eq!(journal.read(at as u64, &mut some).expect("readable"), there);
            assert_eq!(some[..there], self.flat[at.min(self.flat.len())..][..there]);
        }
    }
}

pub(crate) fn invalidate(journal: &mut Journal, way: u32) {
    match way {
        0 => journal.write(0, &[0; 28]).expect("possible"),
        1 => journal.truncate(0).expect("possible"),
        _ => journal.invalidate().expect("possible"),
    }
}
