//! Memory for output, charged to the host.
//!
//! Invariants: no command is executed while output is unsent and there is no room for as much
//! again; the charge is refunded once everything is sent and either memory is short or the
//! connection is idle. Absent: the account itself (`quota`), and arriving data (`transfers`).

use super::{Connection, OUTPUT_STEP, Output, TRANSFER_BYTES_MAX};

impl Connection {
    /// Returns true if there is unsent output and no memory for as much again.
    pub(super) fn waits_for_memory(&self, out: &Output) -> bool {
        let Some(queue) = &self.queue else {
            return false;
        };
        let held = out.len() + self.held.bytes();
        held > 0
            && held + 2 * TRANSFER_BYTES_MAX as usize > self.output_bytes
            && !queue.seat.has_room(2 * TRANSFER_BYTES_MAX as usize)
    }

    /// Charges memory for an answer of `bytes` bytes; `false` if there is none.
    pub(super) fn charge_output(&mut self, bytes: usize, out: &Output) -> bool {
        let Some(queue) = &mut self.queue else {
            return true;
        };
        // A growing buffer may be twice as large as its content.
        let open = if out.open_is_empty() {
            bytes
        } else {
            2 * (out.open_len() + bytes)
        };
        let wanted = (open + out.whole_bytes() + self.held.bytes()).next_multiple_of(OUTPUT_STEP);
        if wanted <= self.output_bytes || queue.seat.charge(wanted - self.output_bytes) {
            self.output_bytes = self.output_bytes.max(wanted);
            return true;
        }
        false
    }

    /// After everything is sent: frees spare buffers if the connection is idle or memory is short.
    pub(crate) fn release_spare(&mut self, is_idle: bool, out: &mut Output) {
        let Some(queue) = &mut self.queue else { return };
        if self.output_bytes > 0
            && (is_idle || queue.seat.is_pressed())
            && self.held.len() == 0
            && out.is_empty()
        {
            out.release();
            queue.seat.refund(std::mem::take(&mut self.output_bytes));
        }
    }
}
