//! Submission and completion queues in the guest's memory.
//!
//! Invariants: a command is fetched only if there will be room for its completion; invalid
//! doorbells are ignored; a completion's last dword, with the phase, is stored after the rest.
//! Absent: execution of commands.

use crate::memory::{Memory, OutOfReach};
use crate::pci::VECTORS;
use remap_ssd_nvme::controller::QUEUE_ENTRIES_MAX;
use remap_ssd_nvme::spec::bus::{CreateCqCdw11, CreateSqCdw11, QueueCdw10};
use remap_ssd_nvme::spec::command::{Cqe, Sqe};
use remap_ssd_nvme::spec::status::Status;
use std::collections::BTreeMap;
use zerocopy::{FromBytes, IntoBytes};

const SQE_BYTES: u64 = size_of::<Sqe>() as u64;
const CQE_BYTES: u64 = size_of::<Cqe>() as u64;

/// A submission queue in guest memory.
pub(crate) struct SubmissionQueue {
    base: u64,
    entries: u16,
    head: u16,
    cqid: u16,
}

/// A completion queue in guest memory.
pub(crate) struct CompletionQueue {
    base: u64,
    entries: u16,
    head: u16,
    tail: u16,
    phase: bool,
    /// Entries reserved for outstanding commands.
    promised: u16,
    vector: Option<u16>,
    /// True if entries were added since the last interrupt.
    news: bool,
}

/// All queues; the admin queues have number 0.
#[derive(Default)]
pub(crate) struct Queues {
    submission: BTreeMap<u16, SubmissionQueue>,
    completion: BTreeMap<u16, CompletionQueue>,
}

/// Location and size of a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueMemory {
    pub base: u64,
    pub entries: u16,
}

impl CompletionQueue {
    fn new(place: QueueMemory, vector: Option<u16>) -> Self {
        let QueueMemory { base, entries } = place;
        Self {
            base,
            entries,
            head: 0,
            tail: 0,
            phase: true,
            promised: 0,
            vector,
            news: false,
        }
    }

    fn room(&self) -> u16 {
        let used = (self.tail + self.entries - self.head) % self.entries;

        // One entry stays empty, so that a full queue differs from an empty one.
        self.entries - 1 - used - self.promised
    }
}

impl Queues {
    /// Only the admin queues.
    pub(crate) fn of_admin(submission: QueueMemory, completion: QueueMemory) -> Self {
        let mut queues = Self::default();
        queues.put_sq(0, submission, 0);
        queues
            .completion
            .insert(0, CompletionQueue::new(completion, Some(0)));
        queues
    }

    fn put_sq(&mut self, qid: u16, QueueMemory { base, entries }: QueueMemory, cqid: u16) {
        self.submission.insert(
            qid,
            SubmissionQueue {
                base,
                entries,
                head: 0,
                cqid,
            },
        );
    }

    fn place(sqe: &Sqe, qids: u16) -> Result<(u16, QueueMemory), Status> {
        let cdw10 = QueueCdw10::from_bits(sqe.cdw10);
        let [base, _] = sqe.prps();

        if !(1..=qids).contains(&cdw10.qid()) {
            return Err(Status::QUEUE_IDENTIFIER);
        }

        // The size is 0's based, and a queue has at least two entries.
        if !(1..QUEUE_ENTRIES_MAX).contains(&cdw10.qsize_z()) {
            return Err(Status::QUEUE_SIZE);
        }
        if !base.is_multiple_of(crate::prp::PAGE) {
            return Err(Status::PRP_OFFSET);
        }

        Ok((
            cdw10.qid(),
            QueueMemory {
                base,
                entries: cdw10.qsize_z() + 1,
            },
        ))
    }

    /// Create I/O Completion Queue (Base 2.0 §5.4).
    pub(crate) fn create_cq(&mut self, sqe: &Sqe, qids: u16) -> Result<u16, Status> {
        let cdw11 = CreateCqCdw11::from_bits(sqe.cdw11);
        let (qid, place) = Self::place(sqe, qids)?;
        if self.completion.contains_key(&qid) {
            return Err(Status::QUEUE_IDENTIFIER);
        }
        if !cdw11.pc() {
            return Err(Status::INVALID_FIELD);
        }
        if cdw11.iv() >= VECTORS {
            return Err(Status::INTERRUPT_VECTOR);
        }
        self.completion.insert(
            qid,
            CompletionQueue::new(place, cdw11.ien().then_some(cdw11.iv())),
        );
        Ok(qid)
    }

    /// Create I/O Submission Queue (Base 2.0 §5.5).
    pub(crate) fn create_sq(&mut self, sqe: &Sqe, qids: u16) -> Result<u16, Status> {
        let cdw11 = CreateSqCdw11::from_bits(sqe.cdw11);
        let (qid, place) = Self::place(sqe, qids)?;
        if self.submission.contains_key(&qid) {
            return Err(Status::QUEUE_IDENTIFIER);
        }
        if !cdw11.pc() {
            return Err(Status::INVALID_FIELD);
        }
        if cdw11.cqid() == 0 || !self.completion.contains_key(&cdw11.cqid()) {
            return Err(Status::COMPLETION_QUEUE);
        }
        self.put_sq(qid, place, cdw11.cqid());
        Ok(qid)
    }

    /// Delete I/O Completion Queue (Base 2.0 §5.6).
    pub(crate) fn delete_cq(&mut self, sqe: &Sqe) -> Result<u16, Status> {
        let qid = QueueCdw10::from_bits(sqe.cdw10).qid();
        if qid == 0 || !self.completion.contains_key(&qid) {
            return Err(Status::QUEUE_IDENTIFIER);
        }

        // A submission queue must keep its completion queue.
        if self.submission.values().any(|queue| queue.cqid == qid) {
            return Err(Status::QUEUE_DELETION);
        }
        self.completion.remove(&qid);
        Ok(qid)
    }

    /// Delete I/O Submission Queue. Its outstanding commands must be completed first.
    pub(crate) fn delete_sq(&mut self, sqe: &Sqe) -> Result<u16, Status> {
        let qid = QueueCdw10::from_bits(sqe.cdw10).qid();
        if qid == 0 || self.submission.remove(&qid).is_none() {
            return Err(Status::QUEUE_IDENTIFIER);
        }
        Ok(qid)
    }

    /// Identifiers of all submission queues.
    pub(crate) fn submission_ids(&self) -> Vec<u16> {
        self.submission.keys().copied().collect()
    }

    /// Updates the heads of completion queues from the doorbells.
    pub(crate) fn take(&mut self, doorbell: impl Fn(u16) -> u16) {
        for (qid, queue) in &mut self.completion {
            let head = doorbell(*qid);
            if head < queue.entries && head != queue.head {
                // Not beyond the tail.
                let used = (queue.tail + queue.entries - queue.head) % queue.entries;
                let now = (head + queue.entries - queue.head) % queue.entries;
                if now <= used {
                    queue.head = head;
                }
            }
        }
    }

    /// Returns true if there is room for a completion besides those of outstanding commands.
    pub(crate) fn has_room(&self, cqid: u16) -> bool {
        self.completion
            .get(&cqid)
            .is_some_and(|queue| queue.room() > 0)
    }

    /// Releases the completion entry reserved for a fetched command.
    pub(crate) fn release_slot(&mut self, sqid: u16) {
        let cqid = self.submission.get(&sqid).map(|queue| queue.cqid);
        if let Some(queue) = cqid.and_then(|cqid| self.completion.get_mut(&cqid)) {
            queue.promised -= 1;
        }
    }

    /// The next command of a queue up to `tail`, if there is one and room for its completion.
    ///
    /// # Errors
    /// The queue is not in the guest's memory.
    pub(crate) fn fetch(
        &mut self,
        qid: u16,
        tail: u16,
        memory: &Memory,
    ) -> Result<Option<Sqe>, OutOfReach> {
        let Some(queue) = self.submission.get_mut(&qid) else {
            return Ok(None);
        };
        let Some(completion) = self.completion.get_mut(&queue.cqid) else {
            return Ok(None);
        };

        // Without room for its completion no command is fetched. A tail outside the queue is an
        // invalid doorbell.
        if tail >= queue.entries || tail == queue.head || completion.room() == 0 {
            return Ok(None);
        }

        let mut bytes = [0; SQE_BYTES as usize];
        let at = queue
            .base
            .checked_add(u64::from(queue.head) * SQE_BYTES)
            .ok_or(OutOfReach)?;
        memory.read(at, &mut bytes)?;

        queue.head = (queue.head + 1) % queue.entries;
        completion.promised += 1;
        Ok(Some(Sqe::read_from_bytes(&bytes).expect("64 bytes")))
    }

    /// Puts the completion of a fetched command. No effect if its queue is gone.
    ///
    /// # Errors
    /// The queue is not in the guest's memory.
    pub(crate) fn complete(
        &mut self,
        sqid: u16,
        cid: u16,
        status: Status,
        result: u64,
        memory: &Memory,
    ) -> Result<(), OutOfReach> {
        let Some(submission) = self.submission.get(&sqid) else {
            return Ok(());
        };
        let (sqhd, cqid) = (submission.head, submission.cqid);

        let Some(queue) = self.completion.get_mut(&cqid) else {
            return Ok(());
        };

        let cqe = Cqe {
            result,
            sqhd,
            sqid,
            cid,
            status: status.into_bits() << 1 | u16::from(queue.phase),
        };

        let at = queue
            .base
            .checked_add(u64::from(queue.tail) * CQE_BYTES)
            .ok_or(OutOfReach)?;

        // All but the last dword first; then the last, whose phase makes the entry visible.
        memory.write(at, &cqe.as_bytes()[..12])?;
        let last = u32::from_le_bytes(cqe.as_bytes()[12..].try_into().expect("four bytes"));
        memory.store(at + 12, last.to_le())?;

        // The phase flips each round: it tells the guest new entries from old ones.
        queue.tail += 1;
        if queue.tail == queue.entries {
            (queue.tail, queue.phase) = (0, !queue.phase);
        }

        // An event request released its entry when it was fetched; it is completed when no other
        // command of its queue is outstanding.
        queue.promised = queue.promised.saturating_sub(1);
        queue.news = true;
        Ok(())
    }

    /// Vectors of queues that have new entries; each is reported once.
    pub(crate) fn interrupts(&mut self) -> impl Iterator<Item = u16> + '_ {
        self.completion
            .values_mut()
            .filter_map(|queue| std::mem::take(&mut queue.news).then_some(queue.vector)?)
    }
}
