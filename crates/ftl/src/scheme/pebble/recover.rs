//! Recovery of the rooms, and repair of those with unreadable words.
//!
//! A room counts if its head names the current incarnation of its superblock. All others are zeroed
//! now: their entries would count under the next head.
//!
//! Invariants: every slot that counts becomes a witness; recovery fails on an unreadable slot only
//! if its page is programmed; an unreadable head puts the LPNs of its slots in doubt. Absent: which
//! witness wins (`witnesses`).

use super::{OwnerSlot, Pebble, RoomHead, SlotRoom};
use crate::config::guard::Guard;
use crate::contract::Recover;
use crate::core::Core;
use crate::error::RecoveryError;
use crate::recovery::witnesses::Witnesses;
use remap_ssd_media::{After, ClearId, Geometry, Media, Purpose, SbId};

impl Recover for Pebble {
    fn replay(&mut self, core: &mut Core, witnesses: &mut Witnesses) -> Result<(), RecoveryError> {
        let len = core.geometry.pages_per_superblock() as usize * self.degree;
        for index in 0..core.geometry.superblocks() {
            let sb = SbId(index);
            let first = self.slots + index as usize * len;
            let at = self.head_word(sb);
            // Its slots and its head.
            witnesses.charge_scan(&mut core.media, len + 1);

            let Ok(head) = core.media.load(at).map(RoomHead::from_bits) else {
                self.doubt_room(core.geometry, &mut core.media, witnesses, sb)?;
                continue;
            };

            let present = head.incarnation() == core.blocks.get(sb).life.incarnation();
            let counts = head.valid() && (present || !core.config.guards.has(Guard::StaleSegments));
            // Zeroed now, not when they are used: the entries would count under the next head.
            if !counts || !witnesses.is_live(sb) {
                if (first..first + len).any(|at| core.media.load(at) != Ok(0)) {
                    self.rooms[index as usize].clear = core.media.clear(first, len, After::NOTHING);
                }
                continue;
            }

            witnesses.saw(head.base());
            let mut taken = 0;
            for at in first..first + len {
                let ppn = core.geometry.page(sb, ((at - first) / self.degree) as u32);
                let word = match core.media.load(at) {
                    Ok(word) => word,
                    // A page that is not programmed has no owners; otherwise the slot may name any
                    // LPN.
                    Err(_) if core.media.is_programmed(ppn) => {
                        return Err(RecoveryError::NvramDamaged { word: at });
                    }
                    Err(_) => {
                        self.damaged.push(at);
                        continue;
                    }
                };

                let slot = OwnerSlot::from_bits(word);
                let wsn = head.base() + u64::from(slot.age());
                if slot.valid() && !witnesses.remap(core, slot.lpn(), ppn, wsn, None) {
                    witnesses.zero(at..at + 1);
                    continue;
                }
                taken += u32::from(word != 0);
            }
            self.rooms[index as usize] = SlotRoom {
                base: Some(head.base()),
                taken,
                clear: ClearId::default(),
            };
        }
        Ok(())
    }

    fn resume(&mut self, core: &mut Core) -> bool {
        for at in std::mem::take(&mut self.damaged) {
            core.media
                .store_record(at, &[0], Purpose::Meta, core.config.guards.after_doubts());
        }

        let len = core.geometry.pages_per_superblock() as usize * self.degree;
        for sb in std::mem::take(&mut self.headless) {
            let first = self.slots + sb.0 as usize * len;
            // 1. zeroes, after the pages of the doubts  2. the head. Cut between: a damaged head
            // over empty slots puts nothing in doubt.
            self.rooms[sb.0 as usize].clear =
                core.media
                    .clear(first, len, core.config.guards.after_doubts());
            core.media.store(
                self.head_word(sb),
                0,
                Purpose::Meta,
                After::clear(self.rooms[sb.0 as usize].clear),
            );
        }

        true
    }
}

impl Pebble {
    /// Handles a room with an unreadable head: its slots give the LPNs, but not their numbers.
    fn doubt_room(
        &mut self,
        geometry: Geometry,
        media: &mut Media,
        witnesses: &mut Witnesses,
        sb: SbId,
    ) -> Result<(), RecoveryError> {
        let first = self.slot_word(geometry.page(sb, 0));
        for at in first..first + geometry.pages_per_superblock() as usize * self.degree {
            let ppn = geometry.page(sb, ((at - first) / self.degree) as u32);
            // Slots of pages that are not programmed are of an earlier incarnation: its zeroing was
            // interrupted.
            if !witnesses.is_live(sb) || !media.is_programmed(ppn) {
                continue;
            }

            // An unreadable slot may name any LPN.
            let slot = media
                .load(at)
                .map(OwnerSlot::from_bits)
                .map_err(|_| RecoveryError::NvramDamaged { word: at })?;
            if slot.valid() {
                witnesses.doubt(slot.lpn(), u64::MAX);
            }
        }
        self.headless.push(sb);
        Ok(())
    }
}
