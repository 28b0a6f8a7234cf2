//! The queue ("line") of connections that wait for memory.
//!
//! The thread that releases memory serves the line: addresses take turns, and connections of one
//! address are served in order of arrival. A connection stopped by its own share is skipped. A
//! connection for which the server's memory is short stops all that come after it: released memory
//! then accumulates until it suffices, so that small requests do not starve a large one.
//!
//! Invariants: a connection is in the line at most once; it is charged before it is woken; whenever
//! it leaves, the line goes on without it. Absent: accounts and limits (`quota`), clocks.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Wakes the thread of a waiting connection.
pub(super) type Wake = Arc<dyn Fn() + Send + Sync>;

/// The limit that makes a charge fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lacking {
    Host,
    Address,
    Server,
}

/// A waiting connection.
pub(super) struct Waiter<A> {
    pub address: IpAddr,
    /// The accounts to charge.
    pub(crate) accounts: A,
    pub bytes: usize,
    /// Set once it is charged.
    pub granted: Arc<AtomicBool>,
    pub wake: Wake,
}

/// A place in the line.
pub(super) type Ticket = u64;

/// Connections of one address, in order of arrival.
type AddressLine<A> = VecDeque<(Ticket, Waiter<A>)>;

/// All waiting connections by address; the next address first. None of the lines is empty.
struct Order<A> {
    issued: Ticket,
    addresses: VecDeque<(IpAddr, AddressLine<A>)>,
}

/// Result of serving an address.
enum Served {
    Granted,
    /// None of its connections may have more.
    PassedOver,
    /// The server has too little memory for it.
    Short,
}

impl<A> Order<A> {
    fn len(&self) -> usize {
        self.addresses.iter().map(|(_, line)| line.len()).sum()
    }

    fn enter(&mut self, waiter: Waiter<A>) -> Ticket {
        self.issued += 1;
        let (ticket, address) = (self.issued, waiter.address);
        match self.addresses.iter_mut().find(|(one, _)| *one == address) {
            Some((_, line)) => line.push_back((ticket, waiter)),
            None => self
                .addresses
                .push_back((address, [(ticket, waiter)].into())),
        }
        ticket
    }

    fn leave(&mut self, ticket: Ticket) {
        for (_, line) in &mut self.addresses {
            line.retain(|(one, _)| *one != ticket);
        }
        self.addresses.retain(|(_, line)| !line.is_empty());
    }

    /// Serves as many as there is memory for; `true` if the server's memory is too short for the
    /// next.
    fn serve(&mut self, mut charge: impl FnMut(&Waiter<A>) -> Result<(), Lacking>) -> bool {
        let mut passed_over = 0;
        while passed_over < self.addresses.len() {
            let Some((address, mut line)) = self.addresses.pop_front() else {
                return false;
            };

            match serve_address(&mut line, &mut charge) {
                Served::Granted => passed_over = 0,
                Served::PassedOver => passed_over += 1,
                // It stays first.
                Served::Short => {
                    self.addresses.push_front((address, line));
                    return true;
                }
            }
            if !line.is_empty() {
                self.addresses.push_back((address, line));
            }
        }
        false
    }
}

/// Serves one connection of an address.
fn serve_address<A>(
    line: &mut AddressLine<A>,
    charge: &mut impl FnMut(&Waiter<A>) -> Result<(), Lacking>,
) -> Served {
    for at in 0..line.len() {
        match charge(&line[at].1) {
            Ok(()) => {
                if let Some((_, waiter)) = line.remove(at) {
                    waiter.granted.store(true, Ordering::SeqCst);
                    (waiter.wake)();
                }
                return Served::Granted;
            }
            // Another host of this address may still have more.
            Err(Lacking::Host) => {}
            Err(Lacking::Address) => return Served::PassedOver,
            Err(Lacking::Server) => return Served::Short,
        }
    }
    Served::PassedOver
}

/// The line, with values that can be read without its lock.
pub(super) struct MemoryLine<A> {
    order: Mutex<Order<A>>,
    waiting: AtomicUsize,
    is_short: AtomicBool,
}

impl<A> MemoryLine<A> {
    pub(super) fn new() -> Self {
        let (issued, addresses) = (0, VecDeque::new());
        Self {
            order: Mutex::new(Order { issued, addresses }),
            waiting: AtomicUsize::new(0),
            is_short: AtomicBool::new(false),
        }
    }

    fn order(&self) -> MutexGuard<'_, Order<A>> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of waiting connections.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }

    /// Returns true if the server's memory is reserved for waiting connections.
    pub(super) fn is_short(&self) -> bool {
        self.is_short.load(Ordering::SeqCst)
    }

    /// Enters the line and serves it.
    ///
    /// No wake-up is lost. Here: 1. the connection counts as waiting 2. it is charged, if possible.
    /// A thread that releases memory uses the opposite order: 1. the accounts 2. the number of
    /// waiting connections. So one of the two sees the other.
    pub(super) fn enter(
        &self,
        waiter: Waiter<A>,
        charge: impl FnMut(&Waiter<A>) -> Result<(), Lacking>,
    ) -> Ticket {
        let mut order = self.order();
        let ticket = order.enter(waiter);
        self.waiting.store(order.len(), Ordering::SeqCst);
        self.serve_order(&mut order, charge);
        ticket
    }

    /// Leaves the line. If the ticket was already granted, the caller must release its memory.
    pub(super) fn leave(
        &self,
        ticket: Ticket,
        charge: impl FnMut(&Waiter<A>) -> Result<(), Lacking>,
    ) {
        let mut order = self.order();
        order.leave(ticket);
        // It may have blocked others.
        self.serve_order(&mut order, charge);
    }

    /// Serves the line after memory was released.
    #[inline]
    pub(super) fn serve(&self, charge: impl FnMut(&Waiter<A>) -> Result<(), Lacking>) {
        if self.waiting() > 0 {
            self.serve_order(&mut self.order(), charge);
        }
    }

    fn serve_order(
        &self,
        order: &mut Order<A>,
        charge: impl FnMut(&Waiter<A>) -> Result<(), Lacking>,
    ) {
        let is_short = order.serve(charge);
        self.is_short.store(is_short, Ordering::SeqCst);
        self.waiting.store(order.len(), Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory of the server, and the remaining share of each host.
    struct Memory {
        all: usize,
        of_host: [usize; 4],
    }

    impl Memory {
        fn charge(&mut self, waiter: &Waiter<usize>) -> Result<(), Lacking> {
            let of_host = &mut self.of_host[waiter.accounts];
            if *of_host < waiter.bytes {
                return Err(Lacking::Host);
            }
            if self.all < waiter.bytes {
                return Err(Lacking::Server);
            }
            self.all -= waiter.bytes;
            *of_host -= waiter.bytes;
            Ok(())
        }
    }

    /// A line of connections, numbered in order of arrival, and those granted.
    struct Rig {
        line: MemoryLine<usize>,
        memory: Memory,
        granted: Arc<Mutex<Vec<usize>>>,
        came: usize,
    }

    impl Rig {
        fn new(all: usize) -> Self {
            Self {
                line: MemoryLine::new(),
                memory: Memory {
                    all,
                    of_host: [100; 4],
                },
                granted: Arc::default(),
                came: 0,
            }
        }

        fn enter(&mut self, address: u8, host: usize, bytes: usize) -> Ticket {
            let (granted, number) = (self.granted.clone(), self.came);
            self.came += 1;
            let waiter = Waiter {
                address: IpAddr::from([10, 0, 0, address]),
                accounts: host,
                bytes,
                granted: Arc::default(),
                wake: Arc::new(move || granted.lock().expect("no panic").push(number)),
            };
            self.line.enter(waiter, |one| self.memory.charge(one))
        }

        /// Releases memory; returns the connections granted by that.
        fn give_back(&mut self, bytes: usize) -> Vec<usize> {
            self.memory.all += bytes;
            self.line.serve(|one| self.memory.charge(one));
            std::mem::take(&mut self.granted.lock().expect("no panic"))
        }
    }

    #[test]
    fn addresses_take_turns_and_one_address_is_served_in_order() {
        let mut rig = Rig::new(0);
        for address in [1, 1, 1, 2, 2, 3] {
            rig.enter(address, 0, 1);
        }
        assert!(rig.line.is_short() && rig.line.waiting() == 6);
        assert_eq!(rig.give_back(4), [0, 3, 5, 1]);
        assert_eq!(rig.give_back(4), [4, 2]);
        assert!(!rig.line.is_short() && rig.line.waiting() == 0);
    }

    #[test]
    fn what_is_given_back_in_small_pieces_gathers_for_the_one_whose_turn_it_is() {
        let mut rig = Rig::new(0);
        rig.enter(1, 0, 10);
        rig.enter(2, 1, 1);
        for _ in 0..9 {
            assert!(rig.give_back(1).is_empty());
        }
        assert_eq!(rig.give_back(1), [0]);
        assert_eq!(rig.give_back(1), [1]);
    }

    #[test]
    fn a_connection_whose_own_host_has_its_share_holds_up_nobody() {
        let mut rig = Rig::new(0);
        rig.memory.of_host[0] = 0;
        let blocked = rig.enter(1, 0, 1);
        assert!(!rig.line.is_short());
        rig.enter(1, 1, 1);
        rig.enter(2, 2, 1);
        assert_eq!(rig.give_back(9), [1, 2]);

        rig.memory.of_host[0] = 1;
        assert_eq!(rig.give_back(0), [0]);
        rig.line.leave(blocked, |one| rig.memory.charge(one));
    }

    #[test]
    fn one_that_leaves_lets_those_go_on_that_it_held_up() {
        let mut rig = Rig::new(5);
        let large = rig.enter(1, 0, 10);
        rig.enter(2, 1, 5);
        assert!(rig.give_back(0).is_empty() && rig.line.is_short());
        rig.line.leave(large, |one| rig.memory.charge(one));
        assert_eq!(rig.give_back(0), [1]);
        assert!(!rig.line.is_short() && rig.line.waiting() == 0);
    }
}
