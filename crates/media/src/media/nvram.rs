//! NVRAM: words of 8 bytes, each stored atomically; and DRAM saved by a capacitor.
//!
//! Invariant: stores before a fence are durable before those after it; between fences any subset
//! lands. Absent: the layout (the firmware's).

use super::Media;
use crate::effect::{EffectOrder, MediaEffect};
use crate::fault::MediaError;
use crate::op::{After, ClearId, Op, OpKind, Purpose};
use crate::slab::{LINE_BYTES, prefetch};
use std::ops::Range;

impl Media {
    /// Reads a word. The caller charges loads (`charge_loads`): one scan is many loads.
    ///
    /// # Errors
    /// `Uncorrectable` if more than one bit of the word is flipped; a single one is corrected.
    #[inline]
    pub fn load(&mut self, word: usize) -> Result<u64, MediaError> {
        if self.faulty
            && let Some(flipped) = self.faults.flips.get(&word)
        {
            // The ECC corrects one flipped bit; it stays flipped until the word is stored again.
            if flipped.count_ones() > 1 {
                return Err(MediaError::Uncorrectable);
            }
            self.counts.nv_corrected += 1;
        }
        Ok(self.nvram[word])
    }

    /// Returns all words, for a scan of a range; `None` if bits are flipped, which it would not
    /// detect.
    #[inline]
    pub fn words(&self) -> Option<&[u64]> {
        self.faults.flips.is_empty().then_some(&self.nvram)
    }

    /// Returns a word as stored, ignoring planted faults: for checks of tables, and where `words`
    /// found no fault.
    pub fn peek(&self, word: usize) -> u64 {
        self.nvram[word]
    }

    /// Stores consecutive records. The caller charges them as a whole (`charge_stores`); `after`
    /// returns the predecessors of each.
    #[inline]
    pub fn store_records<const W: usize>(
        &mut self,
        to: usize,
        records: &[[u64; W]],
        purpose: Purpose,
        after: impl Fn(&[u64; W]) -> After,
    ) {
        // `apply` of all these stores: where nothing is pending, their order cannot matter.
        if !self.is_tracked() {
            let words = records.as_flattened();
            self.nvram[to..to + words.len()].copy_from_slice(words);
            self.counts.nv_bytes_written += 8 * words.len() as u64;
            return;
        }

        for (index, record) in records.iter().enumerate() {
            self.store_uncharged(to + index * W, record, purpose, after(record));
        }
    }

    /// Like `store_records`, with records from elsewhere in NVRAM.
    #[inline(always)]
    pub fn move_records<const W: usize>(
        &mut self,
        from: Range<usize>,
        to: usize,
        purpose: Purpose,
        after: impl Fn(&[u64; W]) -> After,
    ) {
        debug_assert!(from.len().is_multiple_of(W));
        // As in `store_records`.
        if !self.is_tracked() {
            self.counts.nv_bytes_written += 8 * from.len() as u64;
            self.nvram.copy_within(from, to);
            return;
        }

        // One by one from the old location, which is unchanged: both hold the record until the old
        // one is cleared.
        for at in from.clone().step_by(W) {
            let record: [u64; W] = std::array::from_fn(|word| self.nvram[at + word]);
            self.store_uncharged(to + at - from.start, &record, purpose, after(&record));
        }
    }

    /// Stores one word atomically; adjacent stores of one command are charged as one access.
    #[inline]
    pub fn store(&mut self, word: usize, value: u64, purpose: Purpose, after: After) {
        self.counts.nv_bytes_written += 8;

        // Merged up to a cache line, as the memory accepts them: several words of one record cost
        // one access. A store that waits for another operation begins a new access.
        match self.ops.last_mut() {
            Some(last)
                if last.kind == OpKind::NvWrite
                    && last.purpose == purpose
                    && last.amount + 8 <= 64
                    && after == After::NOTHING =>
            {
                last.amount += 8;
            }
            _ => {
                let mut op = Op::new(OpKind::NvWrite, purpose, after);
                op.amount = 8;
                self.record(op);
            }
        }

        self.put_words(word, &[value], purpose, after);
    }

    /// Stores the words of one record; each is atomic separately, and they are one access.
    #[inline]
    pub fn store_record(&mut self, word: usize, values: &[u64], purpose: Purpose, after: After) {
        let mut op = Op::new(OpKind::NvWrite, purpose, after);
        op.amount = 8 * values.len() as u32;
        self.record(op);
        self.store_uncharged(word, values, purpose, after);
    }

    /// Changes one word of a stored record: atomically, and after all earlier stores to the record.
    ///
    /// For the timing model, `after` must name everything that those stores wait for.
    #[inline]
    pub fn change_record(
        &mut self,
        record: Range<usize>,
        word: usize,
        value: u64,
        purpose: Purpose,
        after: After,
    ) {
        assert!(record.contains(&word));

        let mut op = Op::new(OpKind::NvWrite, purpose, after);
        op.amount = 8;
        self.record(op);

        self.counts.nv_bytes_written += 8;

        // `apply` of the store: where nothing is pending, the order cannot matter.
        if self.is_tracked() {
            self.put_tracked(word, &[value], Some(record), purpose, after);
        } else {
            self.nvram[word] = value;
        }
    }

    /// Stores the words of one record among many that are charged together (`charge`).
    #[inline]
    pub fn store_uncharged(&mut self, word: usize, values: &[u64], purpose: Purpose, after: After) {
        self.counts.nv_bytes_written += 8 * values.len() as u64;
        self.put_words(word, values, purpose, after);
    }

    /// Stores words, charged or not. Without rail, faults and folder this is `apply` of the store,
    /// where only words change.
    #[inline(always)]
    fn put_words(&mut self, word: usize, values: &[u64], purpose: Purpose, after: After) {
        if self.is_tracked() {
            return self.put_tracked(word, values, None, purpose, after);
        }
        match *values {
            [value] => self.nvram[word] = value,
            _ => self.nvram[word..word + values.len()].copy_from_slice(values),
        }
    }

    /// Like `put_words`, with rail, faults or folder. `record`: the stored record that the words
    /// change.
    #[cold]
    fn put_tracked(
        &mut self,
        word: usize,
        values: &[u64],
        record: Option<Range<usize>>,
        purpose: Purpose,
        after: After,
    ) {
        let order = EffectOrder {
            after,
            record,
            critical: purpose == Purpose::Host,
            ..EffectOrder::default()
        };
        self.apply(MediaEffect::Store { word, values }, order);
    }

    /// Stores words of DRAM that a capacitor saves on power failure: durable like NVRAM, each
    /// atomic separately, at no cost.
    #[inline]
    pub fn store_capacitor(&mut self, word: usize, values: &[u64], purpose: Purpose, after: After) {
        // Free, but not instant: operations that the store waits for still delay the
        // acknowledgement.
        if purpose == Purpose::Host && after != After::NOTHING {
            self.record(Op::new(OpKind::Wait, purpose, after));
        }
        self.put_words(word, values, purpose, after);
    }

    /// Like `store_capacitor`, for words of one record: after all earlier stores to the record. A caller that must wait
    /// records that (`wait`).
    pub fn change_capacitor(
        &mut self,
        record: Range<usize>,
        word: usize,
        values: &[u64],
        purpose: Purpose,
        after: After,
    ) {
        assert!(record.contains(&word) && word + values.len() <= record.end);
        // `apply` of the store: where nothing is pending, the order cannot matter.
        if self.is_tracked() {
            self.put_tracked(word, values, Some(record), purpose, after);
        } else {
            self.nvram[word..word + values.len()].copy_from_slice(values);
        }
    }

    /// The current command completes after the operations of `after`, because of a store whose order says so, or more.
    pub fn wait(&mut self, after: After) {
        self.record(Op::new(OpKind::Wait, Purpose::Host, after));
    }

    /// Stores one word atomically, after all earlier stores to it. Later operations can wait for this store alone.
    ///
    /// For the timing model, `after` must name everything that those stores wait for; it cannot name an ID.
    pub fn store_named(
        &mut self,
        word: usize,
        value: u64,
        purpose: Purpose,
        after: After,
    ) -> ClearId {
        debug_assert!(after.named_clear().is_none());
        self.counts.nv_bytes_written += 8;
        let clear_id = self.name_next();
        let mut op = Op::new(OpKind::NvMark, purpose, after);
        op.amount = 8;
        op.clear_id = clear_id;
        self.record(op);

        self.put_named((word..word + 1, word), &[value], purpose, (after, clear_id));
        clear_id
    }

    /// Like `store_named`, to DRAM that a capacitor saves: it takes no time, and `after` may name an ID.
    pub fn store_capacitor_named(&mut self, word: usize, value: u64, after: After) -> ClearId {
        let name = self.name_next();
        self.put_named(
            (word..word + 1, word),
            &[value],
            Purpose::Host,
            (after, name),
        );
        name
    }

    /// Like `change_capacitor`, for one of several stores with one name (`name_next`).
    pub fn change_capacitor_named(
        &mut self,
        record: Range<usize>,
        word: usize,
        value: u64,
        (after, name): (After, ClearId),
    ) {
        assert!(record.contains(&word));
        self.put_named((record, word), &[value], Purpose::Host, (after, name));
    }

    /// Stores words after all earlier stores to their record, under a name.
    fn put_named(
        &mut self,
        (record, word): (Range<usize>, usize),
        values: &[u64],
        purpose: Purpose,
        (after, clear_id): (After, ClearId),
    ) {
        // `apply` of the store: where nothing is pending, the order cannot matter.
        if !self.is_tracked() {
            self.nvram[word..word + values.len()].copy_from_slice(values);
            return;
        }

        let order = EffectOrder {
            after,
            record: Some(record),
            critical: purpose == Purpose::Host,
            clear_id,
            ..EffectOrder::default()
        };
        self.apply(MediaEffect::Store { word, values }, order);
    }

    /// From now on, the stores of the purpose `Host` come after the store of this name, as the memory's order makes them for the clock.
    /// `None`: no longer.
    pub fn order_stores(&mut self, after: Option<ClearId>) {
        if let Some(rail) = &mut self.rail {
            rail.order_stores(after);
        }
    }

    /// Makes later stores durable only after all earlier ones.
    #[inline]
    pub fn fence(&mut self) {
        if let Some(rail) = &mut self.rail {
            rail.fence();
        }
    }

    /// Zeroes a range in the background. A cut may leave any subset of its words zeroed.
    pub fn clear(&mut self, start: usize, len: usize, after: After) -> ClearId {
        self.counts.nv_bytes_written += 8 * len as u64;
        let id = self.zero(start, len, after);

        // In the background, for collection: a command waits for zeroes only by naming them.
        let mut op = Op::new(OpKind::NvClear, Purpose::Gc, after);
        op.amount = (len * 8) as u32;
        op.clear_id = id;
        self.record(op);
        id
    }

    /// Zeroes a range of DRAM saved by a capacitor, at no cost.
    #[inline]
    pub fn clear_capacitor(&mut self, start: usize, len: usize, after: After) -> ClearId {
        self.zero(start, len, after)
    }

    #[inline]
    fn zero(&mut self, start: usize, len: usize, after: After) -> ClearId {
        let clear_id = self.name_next();
        let order = EffectOrder {
            after,
            clear_id,
            ..EffectOrder::default()
        };
        self.apply(MediaEffect::Clear { start, len }, order);
        clear_id
    }

    /// Prefetches the cache lines of some words.
    #[inline]
    pub fn prefetch_words(&self, words: Range<usize>) {
        words
            .step_by(LINE_BYTES / size_of::<u64>())
            .for_each(|word| prefetch(&self.nvram, word));
    }

    /// Prefetches the cache line of a word.
    #[inline]
    pub fn prefetch_word(&self, word: usize) {
        prefetch(&self.nvram, word);
    }
}
