//! Turns at Diffie-Hellman calculations, which any stranger who knows a host's name can request.
//!
//! Invariants: one calculation runs at a time; waiting addresses are served round robin, and
//! requests of one address in order, so that an address delays another one by one calculation for
//! each of the other's own; a connection that has ended leaves the queue. Absent: the calculation
//! (`group`), and clocks.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Interval of checks whether a waiting connection has ended.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// A connection that requests a calculation.
pub struct Asker<'a> {
    /// The address of its peer.
    pub address: IpAddr,
    /// Returns true if it has ended, and needs no calculation any more.
    pub has_ended: &'a dyn Fn() -> bool,
}

/// A place in the queue of an address.
type Ticket = u64;

/// The order of turns: the running one, and those waiting.
#[derive(Default)]
struct Order {
    issued: Ticket,
    running: Option<Ticket>,
    /// Waiting addresses, the next one first. None of their queues is empty.
    lines: VecDeque<(IpAddr, VecDeque<Ticket>)>,
}

impl Order {
    /// Takes a place at the end of the address's queue, and the turn at once if none is running.
    fn ask(&mut self, address: IpAddr) -> Ticket {
        self.issued += 1;
        let ticket = self.issued;

        match self.lines.iter_mut().find(|(one, _)| *one == address) {
            Some((_, line)) => line.push_back(ticket),
            // A new address waits for one calculation of each address already waiting.
            None => self.lines.push_back((address, [ticket].into())),
        }
        self.grant();
        ticket
    }

    /// Ends a ticket's calculation, or its wait.
    fn leave(&mut self, ticket: Ticket) {
        if self.running == Some(ticket) {
            self.running = None;
            return self.grant();
        }

        for (_, line) in &mut self.lines {
            line.retain(|one| *one != ticket);
        }
        self.lines.retain(|(_, line)| !line.is_empty());
    }

    /// Gives the turn to the first of the next address, which moves to the end of the addresses.
    fn grant(&mut self) {
        if self.running.is_some() {
            return;
        }
        let Some((address, mut line)) = self.lines.pop_front() else {
            return;
        };

        self.running = line.pop_front();
        if !line.is_empty() {
            self.lines.push_back((address, line));
        }
    }
}

#[derive(Default)]
struct State {
    order: Order,
    /// Wakes the threads of waiting tickets.
    wakes: HashMap<Ticket, Arc<Condvar>>,
}

/// Blocking access to turns.
#[derive(Default)]
pub(super) struct Turns(Mutex<State>);

/// The right to calculate, until dropped.
pub(super) struct Turn<'a> {
    turns: &'a Turns,
    ticket: Ticket,
}

impl Turns {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a turn; `None` if the asker has ended.
    pub(super) fn take(&self, asker: &Asker<'_>) -> Option<Turn<'_>> {
        let wake = Arc::new(Condvar::new());
        let mut state = self.state();
        let ticket = state.order.ask(asker.address);
        state.wakes.insert(ticket, wake.clone());

        // From here on, dropping it leaves the queue or ends the turn.
        let turn = Turn {
            turns: self,
            ticket,
        };

        loop {
            let has_turn = state.order.running == Some(ticket);
            // Called without the lock, since it may take a system call.
            drop(state);
            if (asker.has_ended)() {
                return None;
            }
            if has_turn {
                return Some(turn);
            }

            state = self.state();
            // The turn may have been granted in between, and would not wake this thread again.
            if state.order.running != Some(ticket) {
                let waited = wake.wait_timeout(state, LOOK_EVERY);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }

    /// Number of waiting connections.
    #[cfg(test)]
    fn waiting(&self) -> usize {
        let state = self.state();
        state.order.lines.iter().map(|(_, line)| line.len()).sum()
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.turns.state();
        state.wakes.remove(&self.ticket);
        state.order.leave(self.ticket);

        let next = state.order.running;
        if let Some(wake) = next.and_then(|ticket| state.wakes.get(&ticket)) {
            wake.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    /// The order in which tickets are served, starting with the running one.
    fn served(order: &mut Order) -> Vec<Ticket> {
        let mut served = Vec::new();
        while let Some(ticket) = order.running {
            served.push(ticket);
            order.leave(ticket);
        }
        served
    }

    #[test]
    fn an_address_with_many_that_wait_delays_another_one_by_one_turn_for_each_of_its_own() {
        let mut order = Order::default();
        let crowd: Vec<Ticket> = (0..32).map(|_| order.ask(address(1))).collect();
        let honest = [order.ask(address(2)), order.ask(address(2))];
        let other = order.ask(address(3));

        let served = served(&mut order);
        let first = [crowd[0], crowd[1], honest[0], other, crowd[2], honest[1]];
        assert_eq!(served[..6], first);
        assert_eq!(served[6..], crowd[3..], "first come, first served");
    }

    #[test]
    fn an_address_that_asks_again_and_again_does_not_go_before_one_that_waits() {
        let mut order = Order::default();
        let eager = order.ask(address(1));
        let patient = order.ask(address(2));
        let again = order.ask(address(1));
        assert_eq!(order.running, Some(eager));

        order.leave(eager);
        let last = order.ask(address(1));
        assert_eq!(served(&mut order), [patient, again, last]);
    }

    #[test]
    fn a_place_that_is_given_up_is_skipped_and_leaves_nothing() {
        let mut order = Order::default();
        let tickets: Vec<Ticket> = [1, 1, 1, 2]
            .map(|last| order.ask(address(last)))
            .into_iter()
            .collect();
        order.leave(tickets[1]);
        order.leave(tickets[3]);
        assert_eq!(order.lines.len(), 1, "an address without a place is gone");
        assert_eq!(served(&mut order), [tickets[0], tickets[2]]);
        assert!(order.running.is_none() && order.lines.is_empty());
    }

    #[test]
    fn threads_get_their_turns_in_that_order_and_those_that_have_ended_get_none() {
        let turns = Turns::default();
        let ended = AtomicBool::new(false);
        let stays = || false;
        let asker = |last| Asker {
            address: address(last),
            has_ended: &stays,
        };
        let first = turns.take(&asker(1)).expect("nothing runs");

        let (order, granted) = mpsc::channel();
        std::thread::scope(|scope| {
            let (turns, ended) = (&turns, &ended);
            let wait_until = |count| {
                while turns.waiting() != count {
                    std::thread::yield_now();
                }
            };

            // Each is in its queue before the next one asks.
            for (number, last) in [1, 1, 1, 2].into_iter().enumerate() {
                let order = order.clone();
                scope.spawn(move || {
                    let has_ended = || number == 1 && ended.load(Ordering::SeqCst);
                    let asker = Asker {
                        address: address(last),
                        has_ended: &has_ended,
                    };
                    let turn = turns.take(&asker);
                    order.send((number, turn.is_some())).expect("it is awaited");
                });
                wait_until(number + 1);
            }

            ended.store(true, Ordering::SeqCst);
            assert_eq!(granted.recv(), Ok((1, false)), "while another one runs");
            wait_until(3);
            drop(first);
            let rest: Vec<_> = granted.iter().take(3).collect();
            assert_eq!(rest, [(0, true), (3, true), (2, true)]);
        });

        let state = turns.state();
        assert!(state.order.running.is_none() && state.wakes.is_empty());
    }
}
