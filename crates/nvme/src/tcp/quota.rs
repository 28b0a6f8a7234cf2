//! Limits of connections and memory, per host and in total.
//!
//! A host is identified by its name (NQN) once it has connected a queue. Names can be made up, so
//! addresses are limited too. A connection is charged for the memory it holds, and refunded when it
//! shrinks or ends: its input buffer, unsent output, and partly received data. One host may use
//! half of the memory, and all hosts of one address three quarters: whichever names a client makes
//! up, a quarter is left for others. A connection that lacks memory may wait for it
//! (`memory_line`).
//!
//! Invariants: no charge exceeds a limit; a connection returns its seat and its charge however it
//! ends. Absent: the device's own memory, thread stacks, socket buffers, and connections without a
//! queue, which are few and small (`server`).

use super::memory_line::{Lacking, MemoryLine, Ticket, Waiter, Wake};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Shares of one host or address, and totals.
#[derive(Clone, Copy, Debug)]
pub(in crate::tcp) struct Shares {
    pub connections: usize,
    pub(crate) connections_of_host: usize,
    pub(crate) connections_of_address: usize,
    pub memory_bytes: usize,
    /// Maximum time for which a command waits for memory.
    pub memory_within: Duration,
}

/// Why a seat is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tcp) enum Full {
    Server,
    Host,
    Address,
    /// The memory is used up.
    Memory,
}

impl Full {
    /// The reason, for a log.
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::Server => "the server has all the connections that it takes",
            Self::Host => "its host has all the connections that one host may have",
            Self::Address => "its address has all the connections that one address may have",
            Self::Memory => "the server's memory for connections is used up",
        }
    }
}

#[derive(Default)]
struct Seats {
    all: usize,
    of_host: HashMap<String, (usize, Arc<AtomicUsize>)>,
    of_address: HashMap<IpAddr, AddressAccount>,
}

/// Resources held by the connections of an address.
#[derive(Default)]
struct AddressAccount {
    /// Connections counted for their hosts, and all connections.
    seated: usize,
    connections: usize,
    bytes: Arc<AtomicUsize>,
}

pub(in crate::tcp) struct Quotas {
    shares: Shares,
    seats: Mutex<Seats>,
    bytes: AtomicUsize,
    line: MemoryLine<Accounts>,
}

/// The accounts charged for a connection's memory, besides the server's.
#[derive(Clone)]
struct Accounts {
    of_host: Arc<AtomicUsize>,
    of_address: Arc<AtomicUsize>,
}

/// Adds, unless the sum would exceed a limit. In a single total order with `MemoryLine`, so that no
/// waiting connection is missed.
fn charge(account: &AtomicUsize, bytes: usize, limit: usize) -> bool {
    let add = |now: usize| now.checked_add(bytes).filter(|sum| *sum <= limit);
    account
        .fetch_update(Ordering::SeqCst, Ordering::SeqCst, add)
        .is_ok()
}

impl Quotas {
    pub(super) fn new(shares: Shares) -> Self {
        Self {
            shares,
            seats: Mutex::default(),
            bytes: AtomicUsize::new(0),
            line: MemoryLine::new(),
        }
    }

    /// Number of connections that wait for memory.
    pub(super) fn waiting(&self) -> usize {
        self.line.waiting()
    }

    /// Charges all accounts or none.
    fn charge(&self, accounts: &Accounts, bytes: usize) -> Result<(), Lacking> {
        if !charge(&accounts.of_host, bytes, self.memory_of_host()) {
            return Err(Lacking::Host);
        }
        // Undo earlier charges if the address or the server has no room.
        if !charge(&accounts.of_address, bytes, self.memory_of_address()) {
            accounts.of_host.fetch_sub(bytes, Ordering::SeqCst);
            return Err(Lacking::Address);
        }
        if !charge(&self.bytes, bytes, self.shares.memory_bytes) {
            accounts.of_host.fetch_sub(bytes, Ordering::SeqCst);
            accounts.of_address.fetch_sub(bytes, Ordering::SeqCst);
            return Err(Lacking::Server);
        }
        Ok(())
    }

    /// Refunds a charge, then serves waiting connections.
    fn refund(&self, accounts: &Accounts, bytes: usize) {
        if bytes == 0 {
            return;
        }
        accounts.of_host.fetch_sub(bytes, Ordering::SeqCst);
        accounts.of_address.fetch_sub(bytes, Ordering::SeqCst);
        self.bytes.fetch_sub(bytes, Ordering::SeqCst);
        self.line.serve(|waiter| self.charge_waiter(waiter));
    }

    fn charge_waiter(&self, waiter: &Waiter<Accounts>) -> Result<(), Lacking> {
        self.charge(&waiter.accounts, waiter.bytes)
    }

    fn seats(&self) -> MutexGuard<'_, Seats> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn memory_of_host(&self) -> usize {
        self.shares.memory_bytes / 2
    }

    fn memory_of_address(&self) -> usize {
        self.shares.memory_bytes / 4 * 3
    }

    /// A seat for a connection with a queue, with an initial charge of `bytes`.
    pub(super) fn seat(
        self: &Arc<Self>,
        host: &str,
        address: IpAddr,
        bytes: usize,
    ) -> Result<Seat, Full> {
        let mut seats = self.seats();
        let taken_by_host = seats.of_host.get(host).map_or(0, |(count, _)| *count);
        let taken_by_address = seats.of_address.get(&address).map_or(0, |one| one.seated);

        // The server first: a host should learn that the server is full, not its own share.
        if seats.all >= self.shares.connections {
            return Err(Full::Server);
        }
        if taken_by_host >= self.shares.connections_of_host {
            return Err(Full::Host);
        }
        if taken_by_address >= self.shares.connections_of_address {
            return Err(Full::Address);
        }

        // Connections of a host share its memory account, which the first one creates.
        let known = seats.of_host.get(host).map(|(_, bytes)| bytes.clone());
        let mut seat = self.empty_seat(&mut seats, host, known.unwrap_or_default(), address);

        // Charged before it is counted: a seat that fails here returns only its charge.
        if !seat.charge(bytes) {
            // Dropping it takes the lock.
            drop(seats);
            return Err(Full::Memory);
        }

        seat.seated = true;
        seats.all += 1;
        seats
            .of_host
            .entry(seat.host.clone())
            .or_insert_with(|| (0, seat.accounts.of_host.clone()))
            .0 += 1;
        seats.of_address.entry(address).or_default().seated += 1;
        Ok(seat)
    }

    /// A seat without a charge that counts for no host.
    fn empty_seat(
        self: &Arc<Self>,
        seats: &mut Seats,
        host: &str,
        of_host: Arc<AtomicUsize>,
        address: IpAddr,
    ) -> Seat {
        let account = seats.of_address.entry(address).or_default();
        account.connections += 1;
        let of_address = account.bytes.clone();

        Seat {
            quotas: self.clone(),
            host: host.to_owned(),
            accounts: Accounts {
                of_host,
                of_address,
            },
            address,
            bytes: 0,
            seated: false,
        }
    }

    /// A seat for a connection whose host has not authenticated: it counts for no host, and its
    /// memory only for the address and the server. Half-open connections have their own limit
    /// (`server`).
    pub(super) fn unproven_seat(
        self: &Arc<Self>,
        address: IpAddr,
        bytes: usize,
    ) -> Result<Seat, Full> {
        let mut seat = self.empty_seat(&mut self.seats(), "", Arc::default(), address);
        if seat.charge(bytes) {
            Ok(seat)
        } else {
            Err(Full::Memory)
        }
    }

    /// Bytes charged to all connections.
    #[cfg(test)]
    fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// A connection's place, and its charge.
pub(in crate::tcp) struct Seat {
    quotas: Arc<Quotas>,
    host: String,
    accounts: Accounts,
    address: IpAddr,
    bytes: usize,
    seated: bool,
}

impl Seat {
    /// Returns true if it counts for its host.
    pub(super) fn is_counted(&self) -> bool {
        self.seated
    }

    /// Charges more bytes; `false` without a charge if that exceeds a limit or others wait for the
    /// server's memory.
    pub(super) fn charge(&mut self, bytes: usize) -> bool {
        let charged =
            !self.quotas.line.is_short() && self.quotas.charge(&self.accounts, bytes).is_ok();
        if charged {
            self.bytes += bytes;
        }
        charged
    }

    /// Takes a place in the line for memory; `wake` is called when these bytes are charged.
    pub(super) fn wait(&self, bytes: usize, wake: Wake) -> Place {
        let granted = Arc::<AtomicBool>::default();
        let waiter = Waiter {
            address: self.address,
            accounts: self.accounts.clone(),
            bytes,
            granted: granted.clone(),
            wake,
        };

        let quotas = self.quotas.clone();
        let ticket = quotas
            .line
            .enter(waiter, |waiter| quotas.charge_waiter(waiter));

        Place {
            accounts: self.accounts.clone(),
            quotas,
            ticket,
            bytes,
            granted,
        }
    }

    /// Takes over the charge granted to a place of this seat; returns its bytes.
    pub(super) fn take(&mut self, mut place: Place) -> usize {
        assert!(place.is_granted());
        let bytes = std::mem::take(&mut place.bytes);
        self.bytes += bytes;
        bytes
    }

    /// Maximum time for which a command waits for memory.
    pub(super) fn memory_within(&self) -> Duration {
        self.quotas.shares.memory_within
    }

    /// Returns true if this many more bytes would now stay within all limits.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        let fits = |account: &AtomicUsize, limit: usize| {
            account.load(Ordering::Relaxed).saturating_add(bytes) <= limit
        };
        fits(&self.accounts.of_host, self.quotas.memory_of_host())
            && fits(&self.accounts.of_address, self.quotas.memory_of_address())
            && fits(&self.quotas.bytes, self.quotas.shares.memory_bytes)
    }

    /// Returns true if memory is short, so that spare buffers should be freed.
    pub(super) fn is_pressed(&self) -> bool {
        // Early enough for freeing to help: a quarter of all memory is still free.
        self.quotas.waiting() > 0 || !self.has_room(self.quotas.memory_of_host() / 2)
    }

    /// Returns this many bytes to the quota.
    pub(super) fn refund(&mut self, bytes: usize) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        self.quotas.refund(&self.accounts, bytes);
    }
}

/// A place in the line for memory. Dropping it leaves the line.
pub(in crate::tcp) struct Place {
    quotas: Arc<Quotas>,
    accounts: Accounts,
    ticket: Ticket,
    bytes: usize,
    granted: Arc<AtomicBool>,
}

impl Place {
    /// Returns true if its bytes have been charged.
    pub(super) fn is_granted(&self) -> bool {
        self.granted.load(Ordering::SeqCst)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let quotas = &self.quotas;
        quotas
            .line
            .leave(self.ticket, |waiter| quotas.charge_waiter(waiter));
        // It has left the line, so `granted` is final.
        if self.is_granted() {
            quotas.refund(&self.accounts, self.bytes);
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.refund(self.bytes);

        let mut seats = self.quotas.seats();
        if let Some(account) = seats.of_address.get_mut(&self.address) {
            account.seated -= usize::from(self.seated);
            account.connections -= 1;
            if account.connections == 0 {
                seats.of_address.remove(&self.address);
            }
        }
        if !self.seated {
            return;
        }
        seats.all -= 1;

        // The last connection removes the account, so that made-up names leave nothing allocated.
        if let Some((count, _)) = seats.of_host.get_mut(&self.host) {
            *count -= 1;
            if *count == 0 {
                seats.of_host.remove(&self.host);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn quotas(memory_bytes: usize) -> Arc<Quotas> {
        let shares = Shares {
            connections: 6,
            connections_of_host: 2,
            connections_of_address: 5,
            memory_bytes,
            memory_within: Duration::ZERO,
        };
        Arc::new(Quotas::new(shares))
    }

    #[test]
    fn a_host_and_an_address_have_their_shares_of_the_connections_and_the_server_its_own() {
        let quotas = quotas(1000);
        let seat = |host: &str, address: IpAddr| quotas.seat(host, address, 1);
        let first = [seat("a", HERE), seat("a", HERE)].map(|seat| seat.expect("within the share"));
        assert_eq!(seat("a", HERE).err(), Some(Full::Host));
        let _others = ["b", "c", "d"].map(|host| seat(host, HERE).expect("within the share"));
        assert_eq!(seat("e", HERE).err(), Some(Full::Address));
        let _elsewhere = seat("e", IpAddr::from([10, 0, 0, 1])).expect("another address");
        assert_eq!(
            seat("f", IpAddr::from([10, 0, 0, 2])).err(),
            Some(Full::Server)
        );
        drop(first);
        assert!(seat("a", HERE).is_ok(), "what has ended counts no more");
    }

    #[test]
    fn a_host_has_half_of_the_memory_and_gives_back_what_it_had() {
        let quotas = quotas(1000);
        let mut one = quotas.seat("a", HERE, 100).expect("room");
        let mut two = quotas.seat("a", HERE, 100).expect("room");
        assert!(
            one.charge(200) && !two.charge(101) && two.charge(100),
            "500 for one host"
        );
        let elsewhere = IpAddr::from([10, 0, 0, 1]);
        let mut other = quotas
            .seat("b", elsewhere, 100)
            .expect("another host has its own");
        assert!(other.charge(400) && !other.charge(1));
        assert_eq!(quotas.seat("c", HERE, 1).err(), Some(Full::Memory));
        one.refund(200);
        assert!(two.charge(200));
        drop((one, two, other));
        assert_eq!(quotas.bytes(), 0);
    }

    #[test]
    fn names_that_a_client_makes_up_leave_a_quarter_of_the_memory_to_other_addresses() {
        let quotas = quotas(1000);
        let mut made_up = ["a", "b", "c"].map(|name| quotas.seat(name, HERE, 10).expect("room"));
        let mut unproven = quotas.unproven_seat(HERE, 10).expect("room");
        let charged = |seat: &mut Seat| (0..1000).filter(|_| seat.charge(1)).count();
        let taken: usize = made_up.iter_mut().map(charged).sum();
        assert_eq!(taken + charged(&mut unproven), 750 - 40);

        let elsewhere = IpAddr::from([10, 0, 0, 1]);
        let mut victim = quotas.seat("v", elsewhere, 10).expect("room");
        assert!(victim.has_room(240) && victim.charge(240) && !victim.charge(1));
        assert_eq!(quotas.seat("d", HERE, 1).err(), Some(Full::Memory));

        // Neither ended nor refused connections leave anything allocated.
        drop((made_up, unproven, victim));
        assert_eq!(quotas.bytes(), 0);
        assert!(quotas.seats().of_address.is_empty());
    }

    #[test]
    fn what_is_given_back_goes_to_those_that_wait_and_nobody_gets_there_first() {
        let quotas = quotas(1000);
        let elsewhere = IpAddr::from([10, 0, 0, 1]);
        let mut greedy = quotas.seat("a", HERE, 500).expect("room");
        let mut other = quotas.seat("b", elsewhere, 450).expect("room");
        let mut victim = quotas
            .seat("v", IpAddr::from([10, 0, 0, 2]), 10)
            .expect("room");

        let woken = Arc::<AtomicUsize>::default();
        let wake = || -> Wake {
            let woken = woken.clone();
            Arc::new(move || {
                woken.fetch_add(1, Ordering::SeqCst);
            })
        };
        let place = victim.wait(100, wake());
        assert!(!place.is_granted() && quotas.waiting() == 1);
        assert!(!other.charge(1), "there is some, but others wait for it");
        assert_eq!(quotas.seat("c", HERE, 1).err(), Some(Full::Memory));

        greedy.refund(100);
        assert!(place.is_granted() && woken.load(Ordering::SeqCst) == 1);
        assert_eq!((victim.take(place), quotas.waiting()), (100, 0));
        assert!(greedy.charge(20), "no command waits any more");

        // A connection that leaves, before or after it is granted, takes nothing with it.
        let waiting = victim.wait(350, wake());
        let granted = other.wait(10, wake());
        assert!(!waiting.is_granted() && !granted.is_granted());
        drop(waiting);
        assert!(granted.is_granted());
        drop((granted, greedy, other, victim));
        assert_eq!((quotas.bytes(), quotas.waiting()), (0, 0));
    }
}
