//! A simulated device as a disk for host software: calls never block, and virtual time is counted.
//!
//! Writes, copies and trims are *posted*: the host continues at once, as long as the queue has
//! room. A read waits for its data, unless the data is not used. A flush waits for all commands,
//! and then for the device.
//!
//! Contents are kept here, so that the device needs identities only: a page that repeats one number
//! takes eight bytes, a metadata page all of its bytes. Invariants: the same commands give the same
//! times; reads return the data written or remapped. Absent: what the host computes beyond its time for a
//! request (hashing, lookups).

use remap_ssd_device::{Completion, Device, Disk, DiskRemap, Lpn};
use remap_ssd_ftl::{Refusal, Remap};
use remap_ssd_media::Payload;
use remap_ssd_media::geometry::PAGE_BYTES;
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

/// Identities of metadata pages are above this one; each is used once.
const METADATA: u64 = 1 << 62;

/// Content of a page; a page without an entry holds zeroes.
#[derive(Clone)]
enum PageData {
    Number(u64),
    Bytes(Box<[u8; PAGE_BYTES]>),
}

/// Returns a page that repeats a number.
pub(super) fn page(number: u64) -> [u8; PAGE_BYTES] {
    let mut bytes = [0; PAGE_BYTES];
    bytes.as_chunks_mut::<8>().0.fill(number.to_le_bytes());
    bytes
}

/// The device, and the host's clock.
pub(super) struct TimedDisk {
    device: Device,
    now: u64,
    /// Completion times of the commands in flight.
    under_way: BinaryHeap<Reverse<u64>>,
    depth: usize,
    /// Host's time for a request.
    host_ns: u64,
    contents: FxHashMap<Lpn, PageData>,
    metadata: u64,
    /// True if a read waits for its data.
    pub reads_wait: bool,
}

impl TimedDisk {
    pub(super) fn new(device: Device) -> Self {
        let (now, depth) = (
            device.busy_until(),
            device.config().queue_depth.max(1) as usize,
        );
        Self {
            host_ns: device.config().host_ns,
            device,
            now,
            under_way: BinaryHeap::new(),
            depth,
            contents: FxHashMap::default(),
            metadata: METADATA,
            reads_wait: true,
        }
    }

    /// The host's clock, in nanoseconds.
    pub(super) fn now(&self) -> u64 {
        self.now
    }

    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    /// Waits for all commands in flight.
    pub(super) fn wait(&mut self) {
        while let Some(Reverse(done)) = self.under_way.pop() {
            self.now = self.now.max(done);
        }
    }

    /// Submits a command as soon as the queue has room for it.
    fn post<R>(
        &mut self,
        submit: impl FnOnce(&mut Device, u64) -> (u64, Result<R, Refusal>),
    ) -> Result<R, Refusal> {
        // The queue is full: the host continues when the first of the commands completes.
        if self.under_way.len() >= self.depth
            && let Some(Reverse(done)) = self.under_way.pop()
        {
            self.now = self.now.max(done);
        }
        let (done, result) = submit(&mut self.device, self.now);
        self.under_way.push(Reverse(done));
        result
    }

    fn lpns(&self, page: u64, pages: u64) -> Result<Range<Lpn>, Refusal> {
        match page.checked_add(pages) {
            Some(end) if end <= self.pages() => Ok(Lpn(page as u32)..Lpn(end as u32)),
            _ => Err(Refusal::OutOfRange),
        }
    }

    fn set(&mut self, lpn: Lpn, content: Option<PageData>) {
        match content {
            Some(content) => drop(self.contents.insert(lpn, content)),
            None => drop(self.contents.remove(&lpn)),
        }
    }
}

fn ended(completion: Completion) -> (u64, Result<(), Refusal>) {
    (completion.done_at, completion.result)
}

impl Disk for TimedDisk {
    type Error = Refusal;

    fn pages(&self) -> u64 {
        self.device.config().firmware.lpns.into()
    }

    fn read(&mut self, page: u64, into: &mut [u8]) -> Result<(), Refusal> {
        self.now += self.host_ns;
        let mut last = self.now;

        let lpns = self.lpns(page, (into.len() / PAGE_BYTES) as u64)?;
        for (lpn, into) in Lpn::between(lpns).zip(into.as_chunks_mut::<PAGE_BYTES>().0) {
            match self.contents.get(&lpn) {
                None => into.fill(0),
                Some(PageData::Number(number)) => {
                    into.as_chunks_mut::<8>().0.fill(number.to_le_bytes())
                }
                Some(PageData::Bytes(bytes)) => *into = **bytes,
            }

            self.post(|device, now| {
                let (done, result) = device.read(now, lpn);
                last = last.max(done);
                (done, result)
            })?;
        }

        // The host waits for the slowest of the pages.
        if self.reads_wait {
            self.now = self.now.max(last);
        }

        Ok(())
    }

    fn write(&mut self, page: u64, data: &[u8]) -> Result<(), Refusal> {
        self.now += self.host_ns;
        let lpns = self.lpns(page, (data.len() / PAGE_BYTES) as u64)?;
        for (lpn, bytes) in Lpn::between(lpns).zip(data.as_chunks::<PAGE_BYTES>().0) {
            let words = bytes.as_chunks::<8>().0;
            let (identity, content) = if words.iter().all(|word| *word == words[0]) {
                let number = u64::from_le_bytes(words[0]);
                (number.max(1), PageData::Number(number))
            } else {
                self.metadata += 1;
                (self.metadata, PageData::Bytes(Box::new(*bytes)))
            };
            self.post(|device, now| ended(device.write(now, lpn, &Payload::Identity(identity))))?;
            self.set(lpn, Some(content));
        }
        Ok(())
    }

    fn trim(&mut self, page: u64, pages: u64) -> Result<(), Refusal> {
        self.now += self.host_ns;
        let lpns = self.lpns(page, pages)?;
        let len = lpns.end.offset_from(lpns.start);
        self.post(|device, now| ended(device.deallocate(now, lpns.start, len)))?;
        // The cheaper of the two: a trim may cover the whole disk.
        if len as usize > self.contents.len() {
            self.contents.retain(|lpn, _| !lpns.contains(lpn))
        } else {
            Lpn::between(lpns).for_each(|lpn| self.set(lpn, None))
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Refusal> {
        // NVMe: a flush covers commands completed before its submission.
        self.wait();
        self.now += self.host_ns;
        let (done, result) = ended(self.device.flush(self.now));
        self.now = self.now.max(done);
        result
    }

    fn remap(&mut self, remap: &DiskRemap) -> Result<(), Refusal> {
        let DiskRemap {
            relocate, atomic, ..
        } = *remap;
        self.now += self.host_ns;
        let target = self.lpns(remap.target, remap.pages.into())?;
        let source = self.lpns(remap.source, remap.pages.into())?;
        let command = Remap {
            target: target.start,
            source: source.start,
            len: remap.pages,
            relocate,
            atomic,
        };
        self.post(|device, now| ended(device.remap(now, &command).into()))?;

        // Read before any change: the ranges may overlap.
        let contents: Vec<Option<PageData>> = Lpn::between(source.clone())
            .map(|lpn| self.contents.get(&lpn).cloned())
            .collect();
        if relocate {
            Lpn::between(source).for_each(|lpn| self.set(lpn, None));
        }
        Lpn::between(target)
            .zip(contents)
            .for_each(|(lpn, content)| self.set(lpn, content));
        Ok(())
    }
}
