//! Both schemes with one interface, on a disk that loses any subset of unflushed writes.

use remap_ssd_dedup::guard::Guard;
use remap_ssd_dedup::{
    Ccaw, CcawOptions, DedupError, Hash, NewDedup, OrderMerge, OrderMergeOptions, Scheme,
    Statistics,
};
use remap_ssd_device::Disk;
use remap_ssd_testkit::{MemDisk, MemError};

pub const PAGE: usize = 4096;
pub type Error = DedupError<MemError>;

/// Scheme and parameters under test.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub scheme: Scheme,
    pub hash: Hash,
    /// Pages of the disk below.
    pub pages: u64,
    pub window: u32,
    /// Changes after which a segment of the table is valid again.
    pub commit_after: u32,
    pub entries_max: u32,
    pub without: Option<Guard>,
}

/// One of the two schemes.
pub enum Subject {
    Ccaw(Box<Ccaw<MemDisk>>),
    OrderMerge(Box<OrderMerge<MemDisk>>),
}

impl Setup {
    fn ccaw(&self) -> CcawOptions {
        let (window, entries_max, commit_after) =
            (self.window, self.entries_max, Some(self.commit_after));
        CcawOptions {
            window,
            entries_max,
            commit_after,
            without: self.without,
            ..CcawOptions::default()
        }
    }

    fn order_merge(&self) -> OrderMergeOptions {
        OrderMergeOptions {
            window: self.window,
            without: self.without,
            ..OrderMergeOptions::default()
        }
    }

    pub fn create(&self, disk: MemDisk, identity: u8, force: bool) -> Result<Subject, Error> {
        let identity = Some([identity; 16]);
        let new = NewDedup {
            hash: self.hash,
            segment_pages: 3,
            spare: 3,
            identity,
            force,
            ..NewDedup::default()
        };
        Ok(match self.scheme {
            Scheme::Ccaw => Subject::Ccaw(Box::new(Ccaw::create(
                disk,
                &new,
                self.ccaw(),
                &mut |_, _| {},
            )?)),
            Scheme::OrderMerge => Subject::OrderMerge(Box::new(OrderMerge::create(
                disk,
                &new,
                self.order_merge(),
                &mut |_, _| {},
            )?)),
        })
    }

    pub fn open(&self, disk: MemDisk) -> Result<Subject, Error> {
        Ok(match self.scheme {
            Scheme::Ccaw => Subject::Ccaw(Box::new(Ccaw::open(disk, self.ccaw())?)),
            Scheme::OrderMerge => {
                Subject::OrderMerge(Box::new(OrderMerge::open(disk, self.order_merge())?))
            }
        })
    }
}

impl Subject {
    pub fn disk(&mut self) -> &mut dyn Disk<Error = Error> {
        match self {
            Self::Ccaw(disk) => &mut **disk,
            Self::OrderMerge(disk) => &mut **disk,
        }
    }

    pub fn statistics(&self) -> Statistics {
        match self {
            Self::Ccaw(disk) => disk.statistics(),
            Self::OrderMerge(disk) => disk.statistics(),
        }
    }

    pub fn notes(&self) -> &[String] {
        match self {
            Self::Ccaw(disk) => disk.notes(),
            Self::OrderMerge(disk) => disk.notes(),
        }
    }

    /// Counts below the number of mappings, for schemes with counts.
    pub fn counts_too_low(&self) -> u64 {
        match self {
            Self::Ccaw(_) => 0,
            Self::OrderMerge(disk) => disk.counts_too_low(),
        }
    }

    pub fn close(self) -> Result<MemDisk, Error> {
        match self {
            Self::Ccaw(disk) => disk.close(),
            Self::OrderMerge(disk) => disk.close(),
        }
    }

    pub fn read(&mut self, page: u64) -> u64 {
        let mut bytes = [1; PAGE];
        self.disk().read(page, &mut bytes).expect("it can be read");
        number(&bytes)
    }
}

/// Page filled with a number; zeroes for 0.
pub fn content(number: u64) -> [u8; PAGE] {
    let mut bytes = [0; PAGE];
    bytes.as_chunks_mut::<8>().0.fill(number.to_le_bytes());
    bytes
}

/// The number that fills a page; one that no page has if there is none.
pub fn number(bytes: &[u8; PAGE]) -> u64 {
    let words = bytes.as_chunks::<8>().0;
    if words.iter().all(|word| *word == words[0]) {
        u64::from_le_bytes(words[0])
    } else {
        u64::MAX
    }
}

pub fn contents(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| content(*number)).collect()
}
