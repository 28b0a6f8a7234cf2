//! SQLite's use of a write-ahead log, by its documentation:
//! <https://sqlite.org/fileformat2.html#the_write_ahead_log>.
//!
//! Absent: the wal-index; here the writer knows the frames.

use crate::wal::Wal;

pub(crate) const FILE_HEADER: usize = 32;
pub(crate) const HEADER: usize = 24;

/// A file as SQLite sees one.
pub(crate) trait Log {
    fn write(&mut self, offset: usize, data: &[u8]);
    fn read(&mut self, offset: usize, bytes: usize) -> Vec<u8>;
    fn size(&mut self) -> usize;
}

impl Log for Wal {
    fn write(&mut self, offset: usize, data: &[u8]) {
        Self::write(self, offset as u64, data).expect("possible");
    }

    fn read(&mut self, offset: usize, bytes: usize) -> Vec<u8> {
        let mut into = vec![0xaa; bytes];
        Self::read(self, offset as u64, &mut into).expect("possible");
        into
    }

    fn size(&mut self) -> usize {
        Self::size(self).expect("possible") as usize
    }
}

impl Log for Vec<u8> {
    fn write(&mut self, offset: usize, data: &[u8]) {
        self.resize(self.len().max(offset + data.len()), 0);
        self[offset..offset + data.len()].copy_from_slice(data);
    }

    fn read(&mut self, offset: usize, bytes: usize) -> Vec<u8> {
        let there = self.len().saturating_sub(offset).min(bytes);
        let mut read = if there > 0 {
            self[offset..offset + there].to_vec()
        } else {
            Vec::new()
        };
        read.resize(bytes, 0);
        read
    }

    fn size(&mut self) -> usize {
        self.len()
    }
}

/// A running checksum over pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sum(u32, u32);

impl Sum {
    fn of_bytes(bytes: &[u8]) -> Self {
        Self(word(bytes, 0), word(bytes, 4))
    }

    fn add(mut self, bytes: &[u8], big_endian: bool) -> Self {
        for pair in bytes.as_chunks::<8>().0 {
            let [one, two] = [0, 4].map(|at| {
                let word = word(pair, at);
                if big_endian { word } else { word.swap_bytes() }
            });
            self.0 = self.0.wrapping_add(one).wrapping_add(self.1);
            self.1 = self.1.wrapping_add(two).wrapping_add(self.0);
        }
        self
    }

    fn bytes(self) -> [u8; 8] {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&self.0.to_be_bytes());
        bytes[4..].copy_from_slice(&self.1.to_be_bytes());
        bytes
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(*bytes[at..].first_chunk().expect("four bytes"))
}

/// A connection that writes as SQLite would.
#[derive(Clone)]
pub(crate) struct Writer {
    pub page_bytes: usize,
    big_endian: bool,
    salts: [u8; 8],
    /// Number of frames written.
    pub frames: usize,
    /// Number of committed frames, and the checksum there.
    pub committed: usize,
    committed_sum: Sum,
    sum: Sum,
    /// The first overwritten frame of the transaction.
    overwritten_from: Option<usize>,
}

impl Writer {
    /// Starts a round of a log.
    pub(crate) fn restart(log: &mut impl Log, page_bytes: usize, round: u32) -> Self {
        let big_endian = round % 3 == 1;
        let salts = [
            (round + 1).to_be_bytes(),
            round.wrapping_mul(0x9e37_79b9).to_be_bytes(),
        ]
        .concat();
        let words = [
            0x377f_0682 | u32::from(big_endian),
            3_007_000,
            page_bytes as u32,
            round,
        ];
        let mut header = words.map(u32::to_be_bytes).concat();
        header.extend(&salts);
        let sum = Sum::default().add(&header, big_endian);
        header.extend(sum.bytes());
        log.write(0, &header);

        let salts = salts.try_into().expect("two words");
        let (frames, committed, committed_sum, overwritten_from) = (0, 0, sum, None);
        Self {
            page_bytes,
            big_endian,
            salts,
            frames,
            committed,
            committed_sum,
            sum,
            overwritten_from,
        }
    }

    pub(crate) fn place(&self, frame: usize) -> usize {
        FILE_HEADER + frame * (HEADER + self.page_bytes)
    }

    fn header(&mut self, number: u32, size: u32, page: &[u8]) -> [u8; HEADER] {
        let mut header = [0; HEADER];
        header[..4].copy_from_slice(&number.to_be_bytes());
        header[4..8].copy_from_slice(&size.to_be_bytes());
        if self.overwritten_from.is_none() {
            self.sum = self
                .sum
                .add(&header[..8], self.big_endian)
                .add(page, self.big_endian);
            header[8..16].copy_from_slice(&self.salts);
            header[16..].copy_from_slice(&self.sum.bytes());
        }
        header
    }

    /// Appends a frame; a size of the database other than 0 commits.
    pub(crate) fn append(&mut self, log: &mut impl Log, number: u32, size: u32, page: &[u8]) {
        let header = self.header(number, size, page);
        let place = self.place(self.frames);
        log.write(place, &header);
        log.write(place + HEADER, page);
        self.frames += 1;
        if size > 0 {
            self.commit(log);
        }
    }

    /// Rewrites the page of a frame of this transaction.
    pub(crate) fn overwrite(&mut self, log: &mut impl Log, frame: usize, page: &[u8]) {
        assert!(frame >= self.committed && frame < self.frames);
        log.write(self.place(frame) + HEADER, page);
        self.overwritten_from = Some(self.overwritten_from.unwrap_or(frame).min(frame));
    }

    fn commit(&mut self, log: &mut impl Log) {
        if let Some(from) = self.overwritten_from.take() {
            let before = if from == 0 {
                24
            } else {
                self.place(from - 1) + 16
            };
            self.sum = Sum::of_bytes(&log.read(before, 8));
            for frame in from..self.frames {
                let place = self.place(frame);
                let whole = log.read(place, HEADER + self.page_bytes);
                let header = self.header(word(&whole, 0), word(&whole, 4), &whole[HEADER..]);
                log.write(place, &header);
            }
        }
        (self.committed, self.committed_sum) = (self.frames, self.sum);
    }

    /// Forgets uncommitted frames.
    pub(crate) fn roll_back(&mut self) {
        (self.frames, self.sum, self.overwritten_from) = (self.committed, self.committed_sum, None);
    }
}

/// The result of recovering a log.
pub(crate) struct Recovered {
    pub page_bytes: usize,
    pub round: u32,
    /// Page number and content of committed frames.
    pub frames: Vec<(u32, Vec<u8>)>,
    /// A writer that continues.
    pub writer: Writer,
}

/// Reads a log as SQLite does after a crash; `None` if it has no valid header.
pub(crate) fn recover(log: &mut impl Log) -> Option<Recovered> {
    let size = log.size();
    if size <= FILE_HEADER {
        return None;
    }
    let header = log.read(0, FILE_HEADER);
    let (magic, page_bytes) = (word(&header, 0), word(&header, 8) as usize);
    if magic & !1 != 0x377f_0682
        || !page_bytes.is_power_of_two()
        || !(512..=65536).contains(&page_bytes)
    {
        return None;
    }
    let big_endian = magic & 1 == 1;
    let mut sum = Sum::default().add(&header[..24], big_endian);
    if sum != Sum::of_bytes(&header[24..]) {
        return None;
    }

    let salts: [u8; 8] = header[16..24].try_into().expect("eight bytes");
    let (mut frames, mut committed, mut committed_sum) = (Vec::new(), 0, sum);
    for place in (FILE_HEADER..)
        .step_by(HEADER + page_bytes)
        .take_while(|place| place + HEADER + page_bytes <= size)
    {
        let frame = log.read(place, HEADER + page_bytes);
        let (head, page) = frame.split_at(HEADER);
        sum = sum.add(&head[..8], big_endian).add(page, big_endian);
        if head[8..16] != salts || word(head, 0) == 0 || sum != Sum::of_bytes(&head[16..]) {
            break;
        }
        frames.push((word(head, 0), page.to_vec()));
        if word(head, 4) > 0 {
            (committed, committed_sum) = (frames.len(), sum);
        }
    }
    frames.truncate(committed);
    let writer = Writer {
        page_bytes,
        big_endian,
        salts,
        frames: committed,
        committed,
        committed_sum,
        sum: committed_sum,
        overwritten_from: None,
    };
    Some(Recovered {
        page_bytes,
        round: word(&header, 12),
        frames,
        writer,
    })
}
