//! The power rail, and the state after a cut.
//!
//! Invariant: without a rail everything lands at once. Absent: the outcomes that a cut may choose
//! (`rail`).

use super::Media;
use crate::geometry::SbId;
use crate::image::Image;
use crate::op::{After, Op, OpKind, Purpose};
use crate::rail::{AckSet, Outcome, Rail, RailEvent};
use crate::slc::{SlcArea, SlcModes};

/// Position among the operations of the current command.
#[derive(Clone, Copy, Debug)]
pub struct WriteBackMark {
    ops: usize,
    waited: usize,
}

impl Media {
    /// Attaches a power rail: from now on operations are pending until settled.
    pub fn attach_rail(&mut self) {
        let mut rail = Rail::new(self.to_image());
        if let Some(whole_lines) = self.unprotected {
            rail.unprotect(whole_lines, self.slc.clone());
        }
        self.rail = Some(Box::new(rail));
    }

    /// From now on these superblocks are, or may be, in SLC mode. To be called before `unprotect`.
    pub fn use_slc(&mut self, area: SlcArea) {
        self.slc = SlcModes::new(area, self.nand.geometry);
    }
    /// From now on a superblock, of which no page is programmed, is in this mode. At power-on: its pages were programmed in it.
    pub fn set_slc(&mut self, sb: SbId, is_slc: bool) {
        self.slc.set(sb, is_slc);
        if let Some(rail) = &mut self.rail {
            rail.set_slc(sb, is_slc);
        }
    }
    /// The superblocks in SLC mode.
    pub fn slc(&self) -> &SlcModes {
        &self.slc
    }
    /// From now on the controller's buffer does not survive a cut: a program unit lands as a whole, and a torn one
    /// may damage its word line. With `whole_lines`, who waits for a page waits for its word line.
    pub fn unprotect(&mut self, whole_lines: bool) {
        self.unprotected = Some(whole_lines);
        if let Some(rail) = &mut self.rail {
            rail.unprotect(whole_lines, self.slc.clone());
        }
    }
    /// Returns true if a cut empties the controller's buffer.
    pub fn is_unprotected(&self) -> bool {
        self.unprotected.is_some()
    }
    /// True if a rail is attached.
    pub fn has_rail(&self) -> bool {
        self.rail.is_some()
    }
    /// Starts collecting the operations that the next command's acknowledgement waits for.
    #[inline]
    pub fn begin_command(&mut self) {
        if let Some(rail) = &mut self.rail {
            rail.begin_command();
        }
    }
    /// The operations that the command's acknowledgement waits for. Empty without a rail.
    pub fn take_ack(&mut self) -> AckSet {
        self.rail
            .as_mut()
            .map(|rail| rail.take_ack())
            .unwrap_or_default()
    }
    /// Where the operations of a write-back begin; `end_write_back` takes it.
    pub fn begin_write_back(&self) -> WriteBackMark {
        WriteBackMark {
            ops: self.ops.len(),
            waited: self.rail.as_ref().map_or(0, |rail| rail.waited_for()),
        }
    }
    /// The current command's acknowledgement does not wait for the operations since `mark`: they write data of
    /// commands that have been acknowledged.
    pub fn end_write_back(&mut self, mark: &WriteBackMark) {
        for op in &mut self.ops[mark.ops..] {
            if op.purpose == Purpose::Host {
                op.purpose = Purpose::WriteBack;
            }
        }
        if let Some(rail) = &mut self.rail {
            rail.wait_only_for(mark.waited);
        }
    }
    /// Makes operations durable, with all their predecessors.
    pub fn settle(&mut self, ack: &AckSet) {
        if let Some(rail) = &mut self.rail {
            rail.settle(ack);
        }
    }
    /// Makes all pending operations durable.
    pub fn settle_all(&mut self) {
        if let Some(rail) = &mut self.rail {
            rail.settle_all();
        }
    }
    /// Number of operations not yet durable.
    pub fn pending(&self) -> usize {
        self.rail.as_ref().map_or(0, |rail| rail.pending_len())
    }
    /// The image left by a power cut; without a rail everything has landed.
    pub fn cut(&self, mut choose: impl FnMut() -> Outcome) -> Image {
        self.cut_by(|_| choose())
    }
    /// `cut`, with the kind of each operation passed: `Program`, `Erase`, `NvWrite` or `NvClear`.
    pub fn cut_by(&self, choose: impl FnMut(OpKind) -> Outcome) -> Image {
        self.cut_noted(choose, |_, _| {})
    }
    /// `cut_by`; `note` gets the number and the outcome of each pending operation.
    pub fn cut_noted(
        &self,
        choose: impl FnMut(OpKind) -> Outcome,
        note: impl FnMut(u64, Outcome),
    ) -> Image {
        match &self.rail {
            Some(rail) => rail.cut(choose, note),
            None => self.to_image(),
        }
    }
    /// From now on the rail, which must be attached, keeps what happens on it for `take_events`.
    pub fn watch_rail(&mut self) {
        self.rail.as_mut().expect("a rail is attached").watch();
    }
    /// What has happened on the rail since the last call, oldest first; nothing unless it is watched.
    pub fn take_events(&mut self) -> Vec<RailEvent> {
        let rail = self.rail.as_mut();
        rail.map(|rail| rail.take_events()).unwrap_or_default()
    }

    /// Delays completion of the current command until the operations of `after` have completed.
    #[inline]
    pub fn ack_after(&mut self, after: After) {
        // For clock and rail: the same `After`, so that every wait is also charged.
        self.record(Op::new(OpKind::Wait, Purpose::Host, after));
        if let Some(rail) = &mut self.rail {
            rail.ack_after(after);
        }
    }
}
