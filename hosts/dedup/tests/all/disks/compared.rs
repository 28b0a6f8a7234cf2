//! Contents that only a comparison distinguishes, and pages that cannot be compared.

use super::*;

/// A disk with a page that cannot be read, but can be copied.
struct Unreadable(MemDisk, u64);

impl Disk for Unreadable {
    type Error = <MemDisk as Disk>::Error;

    fn pages(&self) -> u64 {
        self.0.pages()
    }
    fn read(&mut self, page: u64, into: &mut [u8]) -> Result<(), Self::Error> {
        let is_in = (page..page + (into.len() / PAGE) as u64).contains(&self.1);
        if is_in {
            self.0.read(u64::MAX, into)
        } else {
            self.0.read(page, into)
        }
    }
    fn write(&mut self, page: u64, data: &[u8]) -> Result<(), Self::Error> {
        self.0.write(page, data)
    }
    fn trim(&mut self, page: u64, pages: u64) -> Result<(), Self::Error> {
        self.0.trim(page, pages)
    }
    fn flush(&mut self) -> Result<(), Self::Error> {
        self.0.flush()
    }
    fn remap(&mut self, remap: &DiskRemap) -> Result<(), Self::Error> {
        self.0.remap(remap)
    }
}

// An unreadable page cannot be compared, and is not copied.
#[test]
fn a_page_that_cannot_be_read_is_no_source_where_contents_are_compared() {
    let mut disk = ccaw(Unreadable(MemDisk::new(5000), u64::MAX), Hash::Md5);
    disk.write(5, &content(8)).expect("it works");
    // Position of address 5: data are at the end.
    disk.disk_mut().1 = 5000 - disk.pages() + 5;
    assert!(disk.read(5, &mut [0; PAGE]).is_err());
    disk.write(6, &content(8)).expect("it works");
    let mut found = [0; PAGE];
    disk.read(6, &mut found).expect("it was written");
    assert_eq!(
        (
            number(&found),
            disk.statistics().duplicates,
            disk.statistics().mismatches
        ),
        (8, 0, 1)
    );
    disk.write(7, &content(8)).expect("it works");
    assert_eq!(disk.statistics().duplicates, 1, "of the new one");
}

/// 128 bytes of Wang and Yu's (2004) two messages with the same MD5; appending equal bytes to both
/// preserves the collision.
const COLLISION: &str = "d131dd02c5e6eec4693d9a0698aff95c2fcab58712467eab4004583eb8fb7f8955ad340609f4b30283e488832571415a085125e8f7cdc99fd91dbdf280373c5bd8823e3156348f5bae6dacd436c919c6dd53e2b487da03fd02396306d248cda0e99f33420f577ee8ce54b67080a80d1ec69821bcb6a8839396f9652b6ff72a70";
/// Positions of the differences: in the highest bit of these bytes.
const DIFFERENCES: [usize; 6] = [19, 45, 59, 83, 109, 123];

fn colliding() -> [[u8; PAGE]; 2] {
    let mut pages = [[0; PAGE]; 2];
    for (index, pair) in COLLISION.as_bytes().chunks(2).enumerate() {
        let byte =
            u8::from_str_radix(std::str::from_utf8(pair).expect("text"), 16).expect("a byte");
        pages[0][index] = byte;
        pages[1][index] = if DIFFERENCES.contains(&index) {
            byte ^ 0x80
        } else {
            byte
        };
    }
    pages
}

// Two pages with the same MD5 stay distinct, since hits are compared; without comparison they do
// not.
#[test]
fn pages_of_one_md5_are_told_apart() {
    let pages = colliding();
    let both = |disk: &mut dyn Disk<Error = crate::kit::Error>| {
        disk.write(0, &pages[0]).expect("it works");
        disk.write(1, &pages[1]).expect("it works");
        disk.write(2, pages.as_flattened()).expect("it works");
        let mut found = [[0; PAGE]; 4];
        disk.read(0, found.as_flattened_mut()).expect("it works");
        found == [pages[0], pages[1], pages[0], pages[1]]
    };
    for (compare, told_apart) in [(None, true), (Some(false), false)] {
        let options = CcawOptions {
            compare,
            ..CcawOptions::default()
        };
        let mut disk = Ccaw::create(MemDisk::new(5000), &new(Hash::Md5), options, &mut |_, _| {})
            .expect("it fits");
        assert_eq!(both(&mut disk), told_apart);
        assert_eq!(disk.statistics().mismatches > 0, told_apart);
        let options = OrderMergeOptions {
            compare,
            ..OrderMergeOptions::default()
        };
        let mut disk =
            OrderMerge::create(MemDisk::new(5000), &new(Hash::Md5), options, &mut |_, _| {})
                .expect("it fits");
        assert_eq!(both(&mut disk), told_apart);
    }
    assert!(both(&mut ccaw(MemDisk::new(5000), Hash::Blake3)));
}
