//! Reports of changes, with submission and completion: everything needed to know what a volatile
//! write cache could lose.
//!
//! A change is completed right before its answer is sent, hence before any reaction of the host.
//! Invariants: changes are reported in the order in which the device has them; a change whose
//! answer was never sent is never completed. Absent: how changes are found (`announce`), use of the
//! reports; registers, reads, and reservations.

/// Identifies a flush or a change until it is completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(pub u32);

/// New content of a range of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewContent<'a> {
    /// This many zero bytes.
    Zeroes(u64),
    /// The bytes written or copied there.
    Bytes(&'a [u8]),
}

/// Receives the effects of commands. Called with the device held, except for `begun` and
/// `ended`. With an observer, atomic remaps are refused.
pub trait Observer: Send + Sync {
    /// A flush was submitted. It covers changes completed before, so it is reported before it waits
    /// for the device.
    fn begun(&self) -> Ticket;
    /// A command has changed blocks, starting at byte `offset` of the device. `through`: durable
    /// when it is completed (FUA, or its host has switched the cache off).
    fn changed(&self, offset: u64, content: NewContent<'_>, through: bool) -> Ticket;
    /// The answer to a flush or a change is about to be sent.
    fn ended(&self, ticket: Ticket);
}
