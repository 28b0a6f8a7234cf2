//! The write buffer: pages of the host in DRAM.
//!
//! A slot holds one page with its LPN and a number. A page that is written again takes another slot, and its former slot
//! becomes free. Without power-loss protection that is all, and a cut leaves nothing. Otherwise a capacitor saves the
//! slots when power fails, and a page is a witness like one on flash: the newest of an LPN wins.
//!
//! ```text
//! word 0    LPN, and whether the slot is in use
//! word 1    sequence number (WSN)
//! rest      content: the bytes of a page, 512 words of 4 KiB; one word on a device whose contents are identities
//! ```
//! How a slot is filled again:
//!
//! ```text
//! 1. word 0 is zeroed, once the witness that superseded     cut before 2: the former page, or none
//!    the former page is durable
//! 2. word 1 and the content, after 1                        cut before 3: none
//! 3. word 0, after 2                                        cut after 3: the new page
//! ```
//! A page that was merged with what it had shows commands in flight, and 2 waits for these, too (`verbs::merge`).
//!
//! Invariant: a page in the index is the newest version of its LPN, which has no page on flash if the slots are saved.
//! Absent: when pages leave for flash (`verbs::buffer`).

use crate::config::Config;
use crate::config::guard::{Guard, Guards};
use crate::config::layout::{BUFFER_HEADER_WORDS, NvramLayout, buffer_slot_words};
use crate::error::Contradiction;
use crate::mapping::map::Map;
use crate::records::open_writes::PageOrder;
use crate::records::sets::PageSets;
use crate::records::twins::Twins;
use crate::stats::RemapCounts;
use bitfield_struct::bitfield;
use remap_ssd_media::{
    After, ClearId, ContentMode, Geometry, Lpn, Media, MediaError, PageView, Payload, Ppn, Purpose,
};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

/// Words of a slot on a device whose contents are identities.
const IDENTITY_SLOT_WORDS: usize = BUFFER_HEADER_WORDS + 1;

/// First word of a slot.
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
struct SlotOwner {
    in_use: bool,
    #[bits(31)]
    lpn: Lpn,
    #[bits(32)]
    __: u32,
}

/// Content of a page in the buffer.
#[derive(Clone, PartialEq, Eq)]
enum BufferedContent {
    Identity(u64),
    Bytes(Box<[u8]>),
}

/// A page in the buffer.
#[derive(Clone)]
pub(crate) struct BufferedPage {
    pub lpn: Lpn,
    /// In a volatile buffer a number of the buffer's own, by which pages are told apart.
    pub wsn: u64,
    /// The page keeps a part of what it had, and so shows commands that may be in flight: what it becomes on flash waits for these.
    pub is_merged: bool,
    /// The end of the untorn write that it belongs to: what it becomes on flash waits for that.
    pub committed: ClearId,
    content: BufferedContent,
}

impl BufferedPage {
    /// Its order when it leaves: after the end of the untorn write that it belongs to.
    pub(crate) fn order(&self) -> PageOrder {
        PageOrder {
            wsn: None,
            after: After::clear(self.committed),
        }
    }

    /// The page as the payload of a write.
    pub(crate) fn payload(&self) -> Payload<'_> {
        match &self.content {
            BufferedContent::Identity(identity) => Payload::Identity(*identity),
            BufferedContent::Bytes(bytes) => Payload::Bytes(bytes),
        }
    }
}

/// A slot that recovery has read.
pub(crate) enum FoundSlot {
    /// An intact page.
    Page { slot: u32, page: BufferedPage },
    /// A page of this LPN that cannot be read. Its number is at most `wsn`.
    Unreadable { slot: u32, lpn: Lpn, wsn: u64 },
    /// The word that names the LPN cannot be read.
    Unknown { word: usize },
}

/// What a page that enters the buffer waits for.
#[derive(Clone, Copy, Default)]
pub(crate) struct PutOrder {
    /// For a merged page, the operations that it waits for.
    pub merged: Option<After>,
    /// For a page of an untorn write, the store that opened the write, and the name of the stores after which the write ends.
    pub opened: ClearId,
    pub slots: ClearId,
}

/// What superseded the former page of a slot.
#[derive(Clone, Copy)]
pub(crate) enum Superseded {
    /// Nothing: the slot is empty, or what it holds has long been older than other witnesses.
    Long,
    /// A store: of a newer page in the buffer, or of the record of a deallocation.
    ByStore,
    /// The program of the page on flash to which it went.
    ByProgram(Ppn),
    /// The entry that maps its LPN to this page.
    ByEntry(Ppn),
}

impl Superseded {
    /// The operations that must be durable before the slot is filled again. Entries are stores, and wait for their pages.
    fn order(self) -> After {
        match self {
            Self::Long => After::NOTHING,
            Self::ByStore => After::FENCE,
            Self::ByProgram(page) => After::page(page),
            Self::ByEntry(page) => After::page(page).and(After::FENCE),
        }
    }

    /// The page whose program a host waits for. A store of an earlier command has long been done, and the fence that
    /// orders it includes later ones.
    fn page(self) -> Option<Ppn> {
        match self {
            Self::Long | Self::ByStore => None,
            Self::ByProgram(page) | Self::ByEntry(page) => Some(page),
        }
    }
}

/// A slot without a page.
#[derive(Clone, Copy)]
struct FreeSlot {
    slot: u32,
    superseded: Superseded,
}

/// Slots of the write buffer.
pub(crate) struct WriteBuffer {
    guards: Guards,
    /// Nothing is stored: a cut loses the pages.
    is_volatile: bool,
    /// The last number of a page of a volatile buffer.
    last_number: u64,
    base: usize,
    slot_words: usize,
    lpns: u32,
    pages: Vec<Option<BufferedPage>>,
    index: BTreeMap<Lpn, u32>,
    /// Slots in the order in which they were filled, with the number of the page. Those that have another page
    /// by now are skipped.
    oldest: VecDeque<(u32, u64)>,
    /// Free slots, those that have been free for longest first.
    free: VecDeque<FreeSlot>,
    /// Equal pages, from the first remap that left a page here.
    twins: Option<Twins>,
    /// Pages that leave a volatile buffer together.
    pub sets: PageSets,
    /// Slots that recovery could not read.
    damaged: Vec<u32>,
    /// Remaps and copies of pages that left the buffer: of no command.
    pub remapped: RemapCounts,
}

impl FreeSlot {
    /// A slot that holds nothing of use.
    fn new(slot: u32) -> Self {
        let superseded = Superseded::Long;
        Self { slot, superseded }
    }
}

impl WriteBuffer {
    /// An empty buffer; `None` if the device has none.
    pub(crate) fn new(
        config: &Config,
        layout: &NvramLayout,
        geometry: &Geometry,
        mode: ContentMode,
    ) -> Option<Self> {
        let slots = config.buffer_slots(geometry);
        let slot_words = match mode {
            ContentMode::Bytes => buffer_slot_words(geometry),
            ContentMode::Identity | ContentMode::None => IDENTITY_SLOT_WORDS,
        };
        (slots > 0).then(|| Self {
            guards: config.guards,
            is_volatile: config.has_volatile_buffer(),
            last_number: 0,
            base: layout.buffer,
            slot_words,
            lpns: config.lpns,
            pages: vec![None; slots as usize],
            index: BTreeMap::new(),
            oldest: VecDeque::new(),
            free: (0..slots).map(FreeSlot::new).collect(),
            remapped: RemapCounts::default(),
            twins: None,
            sets: PageSets::default(),
            damaged: Vec::new(),
        })
    }

    fn words(&self, slot: u32) -> Range<usize> {
        let first = self.base + slot as usize * self.slot_words;
        first..first + self.slot_words
    }

    /// Number of free slots.
    pub(crate) fn free_slots(&self) -> u32 {
        self.free.len() as u32
    }

    /// Number of pages.
    pub(crate) fn len(&self) -> u32 {
        self.index.len() as u32
    }

    /// Returns true if the newest version of an LPN is here.
    pub(crate) fn has(&self, lpn: Lpn) -> bool {
        self.index.contains_key(&lpn)
    }

    /// Returns true if the newest durable version of an LPN is here.
    pub(crate) fn supersedes_flash(&self, lpn: Lpn) -> bool {
        !self.is_volatile && self.has(lpn)
    }

    /// The number of the next page of a volatile buffer.
    pub(crate) fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// The slot of an LPN.
    pub(crate) fn slot(&self, lpn: Lpn) -> Option<u32> {
        self.index.get(&lpn).copied()
    }

    /// The buffered LPNs in a range.
    pub(crate) fn within(&self, lpns: Range<Lpn>) -> Vec<Lpn> {
        self.index.range(lpns).map(|(lpn, _)| *lpn).collect()
    }

    /// The page of an LPN.
    pub(crate) fn page(&self, lpn: Lpn) -> Option<&BufferedPage> {
        self.pages[self.slot(lpn)? as usize].as_ref()
    }

    /// The content of a slot.
    pub(crate) fn view(&self, slot: u32, mode: ContentMode) -> PageView<'_> {
        match (&self.pages[slot as usize], mode) {
            (None, _) => PageView::Zeroes,
            (Some(_), ContentMode::None) => PageView::Unknown,
            (Some(page), _) => match &page.content {
                BufferedContent::Identity(identity) => PageView::Identity(*identity),
                BufferedContent::Bytes(bytes) => PageView::Bytes(bytes),
            },
        }
    }

    /// Stores a page in a free slot, which must exist. Returns true if it replaces a page of its LPN.
    pub(crate) fn put(
        &mut self,
        media: &mut Media,
        lpn: Lpn,
        wsn: u64,
        payload: &Payload<'_>,
        order: PutOrder,
    ) -> bool {
        let FreeSlot { slot, superseded } = self.free.pop_front().expect("room was made");
        let content = match payload {
            Payload::Identity(identity) => BufferedContent::Identity(*identity),
            Payload::Bytes(bytes) => BufferedContent::Bytes((*bytes).into()),
        };
        if let Some(page) = superseded.page() {
            media.wait(After::page(page));
        }
        if !self.is_volatile {
            let words = self.content_words(&content);
            self.store(media, slot, (superseded.order(), order), (lpn, wsn, &words));
        }

        let replaced = self.index.insert(lpn, slot);
        self.pages[slot as usize] = Some(BufferedPage {
            lpn,
            wsn,
            is_merged: order.merged.is_some(),
            committed: ClearId::default(),
            content,
        });
        self.note_order(slot, wsn);
        if let Some(old) = replaced {
            self.free(old, Superseded::ByStore);
        }
        replaced.is_some()
    }

    /// A page has just been stored with the content of another one.
    pub(crate) fn join(&mut self, lpn: Lpn, other: Lpn) {
        let slots = self.pages.len() as u32;
        if let (Some(slot), Some(other)) = (self.slot(lpn), self.slot(other)) {
            let twins = self.twins.get_or_insert_with(|| Twins::new(slots));
            twins.join(slot, other);
        }
    }

    /// Pages that leave if these do, each once: a page is followed by those that are equal to it, in the order of their ring.
    pub(crate) fn with_twins<'a>(&self, lpns: &'a [Lpn]) -> Cow<'a, [Lpn]> {
        let Some(twins) = &self.twins else {
            return Cow::Borrowed(lpns);
        };
        let mut all = Vec::with_capacity(lpns.len());
        let mut followers = BTreeSet::new();
        for &lpn in lpns {
            let Some(slot) = self.slot(lpn).filter(|slot| !followers.contains(slot)) else {
                continue;
            };
            all.push(lpn);
            for other in twins.others(slot) {
                all.extend(self.pages[other as usize].as_ref().map(|page| page.lpn));
                followers.insert(other);
            }
        }
        Cow::Owned(all)
    }

    /// Pages that leave a volatile buffer if these do, each once; those of one set follow each other.
    pub(crate) fn with_sets(&self, lpns: &[Lpn]) -> Vec<Lpn> {
        let mut found = BTreeSet::new();
        let mut all = Vec::with_capacity(lpns.len());
        for lpn in lpns {
            match self.sets.of(*lpn) {
                None => all.push(*lpn),
                // A write may have ended before its last page.
                Some(set) if found.insert(set) => {
                    all.extend(self.sets.pages(set).filter(|lpn| self.has(*lpn)));
                }
                Some(_) => {}
            }
        }
        all
    }

    /// The page before this one in its ring: the page itself if it is alone.
    pub(crate) fn twin(&self, lpn: Lpn) -> Option<Lpn> {
        let twin = self.twins.as_ref()?.previous(self.slot(lpn)?);
        Some(self.pages[twin as usize].as_ref()?.lpn)
    }

    /// The slot holds the youngest page. The list has at most two elements for each slot.
    fn note_order(&mut self, slot: u32, wsn: u64) {
        if self.oldest.len() >= 2 * self.pages.len() {
            let mut all = std::mem::take(&mut self.oldest);
            all.retain(|(slot, wsn)| self.is_in(*slot, *wsn));
            self.oldest = all;
        }
        self.oldest.push_back((slot, wsn));
    }

    /// Steps 1 to 3. What was read for a merged page may be another page than that which superseded the former one: so step 2
    /// waits for it, since an operation names one page.
    fn store(
        &self,
        media: &mut Media,
        slot: u32,
        (freed, order): (After, PutOrder),
        (lpn, wsn, content): (Lpn, u64, &[u64]),
    ) {
        let record = self.words(slot);
        let owner = SlotOwner::new().with_in_use(true).with_lpn(lpn).into();
        let mut stored = Vec::with_capacity(1 + content.len());
        stored.push(wsn);
        stored.extend(content);

        if !self.guards.has(Guard::BufferWhole) {
            media.store_capacitor(record.start, &[owner], Purpose::Host, freed);
            media.store_capacitor(record.start + 1, &stored, Purpose::Host, freed);
            return;
        }
        let after = self.guards.waits(Guard::BufferReuse, freed);
        let mut change = |word: usize, values: &[u64], after: After| {
            media.change_capacitor(record.clone(), word, values, Purpose::Host, after);
        };
        change(record.start, &[0], after);
        change(
            record.start + 1,
            &stored,
            order.merged.unwrap_or(After::NOTHING),
        );
        let last = (After::clear(order.opened), order.slots);
        media.change_capacitor_named(record.clone(), record.start, owner, last);
    }

    /// The page of an LPN belongs to an untorn write, which ends with the store of this name.
    pub(crate) fn wait_for(&mut self, lpn: Lpn, committed: ClearId) {
        let slot = self.slot(lpn);
        if let Some(page) = slot.and_then(|slot| self.pages[slot as usize].as_mut()) {
            page.committed = committed;
        }
    }

    /// The words of a slot without which it holds no page.
    pub(crate) fn first_words(&self, slot: u32) -> Range<usize> {
        let first = self.words(slot).start;
        first..first + 1
    }

    fn content_words(&self, content: &BufferedContent) -> Vec<u64> {
        match content {
            BufferedContent::Identity(identity) => vec![*identity],
            // A device without contents accepts bytes, and stores none.
            BufferedContent::Bytes(_) if self.slot_words == IDENTITY_SLOT_WORDS => vec![0],
            BufferedContent::Bytes(bytes) => bytes
                .chunks_exact(8)
                .map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")))
                .collect(),
        }
    }

    /// The LPNs that have been in the buffer for longest, at most `count`, without those that are about to be
    /// written again.
    pub(crate) fn oldest(&mut self, count: u32, written: Range<Lpn>) -> Vec<Lpn> {
        let mut found = Vec::with_capacity(count.min(self.len()) as usize);
        // Before its first page in use, the list holds only slots that were freed or filled again.
        while let Some((slot, wsn)) = self.oldest.front().copied()
            && !self.is_in(slot, wsn)
        {
            self.oldest.pop_front();
        }
        for &(slot, wsn) in &self.oldest {
            if found.len() == count as usize {
                break;
            }
            if self.is_in(slot, wsn) {
                let lpn = self.pages[slot as usize].as_ref().map(|page| page.lpn);
                found.extend(lpn.filter(|lpn| !written.contains(lpn)));
            }
        }
        found
    }

    fn is_in(&self, slot: u32, wsn: u64) -> bool {
        matches!(&self.pages[slot as usize], Some(page) if page.wsn == wsn)
    }

    /// Removes the page of an LPN, which something newer has superseded.
    pub(crate) fn remove(&mut self, lpn: Lpn, superseded: Superseded) {
        if let Some(slot) = self.index.remove(&lpn) {
            self.sets.leave(lpn);
            self.free(slot, superseded);
        }
    }

    fn free(&mut self, slot: u32, superseded: Superseded) {
        self.pages[slot as usize] = None;
        if let Some(twins) = &mut self.twins {
            twins.leave(slot);
        }
        self.free.push_back(FreeSlot { slot, superseded });
    }

    /// Reads all slots at recovery.
    pub(crate) fn read_back(&self, media: &mut Media) -> Vec<FoundSlot> {
        let slots = (0..self.pages.len() as u32).collect::<Vec<_>>();
        slots
            .into_iter()
            .filter_map(|slot| self.read_slot(media, slot))
            .collect()
    }

    /// Words that `read_back` reads.
    pub(crate) fn scanned_words(&self) -> usize {
        self.pages.len() * self.slot_words
    }

    fn read_slot(&self, media: &mut Media, slot: u32) -> Option<FoundSlot> {
        let words = self.words(slot);
        let owner = media.load(words.start).map(SlotOwner::from_bits);
        let wsn = media.load(words.start + 1);
        match owner {
            Ok(owner) if !owner.in_use() || !owner.lpn().is_below(self.lpns) => return None,
            Ok(_) => {}
            // A slot that was never filled.
            Err(_) if wsn == Ok(0) => return None,
            Err(_) => return Some(FoundSlot::Unknown { word: words.start }),
        }
        let lpn = owner.map_or(Lpn::ZERO, |owner| owner.lpn());
        let content: Result<Vec<u64>, MediaError> = words
            .skip(BUFFER_HEADER_WORDS)
            .map(|word| media.load(word))
            .collect();
        let (Ok(wsn), Ok(content)) = (wsn, content) else {
            let wsn = wsn.unwrap_or(u64::MAX);
            return Some(FoundSlot::Unreadable { slot, lpn, wsn });
        };
        let content = match content[..] {
            [identity] => BufferedContent::Identity(identity),
            _ => {
                let mut bytes = vec![0; content.len() * 8].into_boxed_slice();
                for (to, word) in bytes.chunks_exact_mut(8).zip(content) {
                    to.copy_from_slice(&word.to_le_bytes());
                }
                BufferedContent::Bytes(bytes)
            }
        };
        // Nothing is in flight.
        let page = BufferedPage {
            lpn,
            wsn,
            is_merged: false,
            committed: ClearId::default(),
            content,
        };
        Some(FoundSlot::Page { slot, page })
    }

    /// Continues with the pages that are the newest versions of their LPNs. The other slots are free.
    pub(crate) fn resume(&mut self, mut newest: Vec<(u32, BufferedPage)>) {
        newest.sort_by_key(|(_, page)| page.wsn);
        for (slot, page) in newest {
            self.oldest.push_back((slot, page.wsn));
            self.index.insert(page.lpn, slot);
            self.pages[slot as usize] = Some(page);
        }
        self.free = (0..self.pages.len() as u32)
            .filter(|slot| self.pages[*slot as usize].is_none())
            .map(FreeSlot::new)
            .collect();
    }

    /// Notes a slot that cannot be read.
    pub(crate) fn note_damage(&mut self, slot: u32) {
        self.damaged.push(slot);
    }

    /// Empties the slots that recovery could not read, after the pages of the doubts: until these are durable, the
    /// slot is the only sign of the doubt.
    pub(crate) fn heal(&mut self, media: &mut Media) {
        for slot in std::mem::take(&mut self.damaged) {
            let record = self.words(slot);
            let zeroes = vec![0; record.len()];
            let after = self.guards.after_doubts();
            media.change_capacitor(record.clone(), record.start, &zeroes, Purpose::Meta, after);
        }
    }

    /// Checks the index, the slots and what is stored against each other.
    ///
    /// # Errors
    /// The first contradiction.
    pub(crate) fn check(&self, media: &Media, map: &Map) -> Result<(), Contradiction> {
        let fail = |text: String| Err(Contradiction(text));
        if let Some(twins) = &self.twins {
            let content = |slot: u32| Some(&self.pages[slot as usize].as_ref()?.content);
            twins.check(|one, other| content(one).is_some() && content(one) == content(other))?;
        }
        if self.index.len() + self.free.len() != self.pages.len() {
            return fail(format!(
                "the write buffer has {} pages and {} free slots of {}",
                self.index.len(),
                self.free.len(),
                self.pages.len()
            ));
        }
        for (lpn, slot) in &self.index {
            let page = self.pages[*slot as usize].as_ref();
            if page.is_none_or(|page| page.lpn != *lpn) {
                return fail(format!(
                    "slot {slot} of the write buffer does not hold LPN {lpn}"
                ));
            }
            if self.is_volatile {
                continue;
            }
            if map.get(*lpn).is_some() {
                return fail(format!("LPN {lpn} is in the write buffer and on flash"));
            }
            let words = self.words(*slot);
            let owner = SlotOwner::from_bits(media.peek(words.start));
            let wsn = media.peek(words.start + 1);
            let is_stored = owner.in_use() && owner.lpn() == *lpn;
            if !is_stored || !self.is_in(*slot, wsn) {
                return fail(format!(
                    "slot {slot} of the write buffer does not hold LPN {lpn}"
                ));
            }
            let content = page.map(|page| self.content_words(&page.content));
            let stored = words.skip(BUFFER_HEADER_WORDS).map(|word| media.peek(word));
            if !content.is_some_and(|content| stored.eq(content)) {
                return fail(format!(
                    "slot {slot} of the write buffer does not hold the content of LPN {lpn}"
                ));
            }
        }
        Ok(())
    }
}
