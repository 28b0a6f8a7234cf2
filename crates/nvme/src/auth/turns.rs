//! Turns at Diffie-Hellman calculations, which strangers who know a host's name can ask for.
//!
//! Invariants: one calculation runs at a time; addresses that wait are served round robin, and
//! those of one address in the order in which they asked, so that an address delays another one by
//! one calculation for each of its own; a connection that has ended leaves its line. Absent: what
//! is calculated (`group`), and clocks.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often a connection that waits is looked at: it may have ended.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// A connection that asks for a calculation.
pub struct Asker<'a> {
    /// The address that it comes from.
    pub address: IpAddr,
    /// Whether it has ended: it needs no calculation then.
    pub has_ended: &'a dyn Fn() -> bool,
}

/// A place in the line of an address.
type Ticket = u64;

/// The order of turns: who has one, and who waits.
#[derive(Default)]
struct Order {
    issued: Ticket,
    running: Option<Ticket>,
    /// Addresses that wait, the next one first. None of the lines is empty.
    lines: VecDeque<(IpAddr, VecDeque<Ticket>)>,
}

impl Order {
    /// A place at the end of the address's line. It has the turn at once if nothing runs.
    fn ask(&mut self, address: IpAddr) -> Ticket {
        self.issued += 1;
        let ticket = self.issued;

        match self.lines.iter_mut().find(|(one, _)| *one == address) {
            Some((_, line)) => line.push_back(ticket),
            // An address that asks anew waits for one calculation of each that waits already.
            None => self.lines.push_back((address, [ticket].into())),
        }
        self.grant();
        ticket
    }

    /// The ticket's calculation has ended, or it waits no longer.
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

    /// Gives the turn to the first of the next address, which goes to the end of the addresses.
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
    /// How each ticket that waits is woken.
    wakes: HashMap<Ticket, Arc<Condvar>>,
}

/// Turns that threads wait for.
#[derive(Default)]
pub(super) struct Turns(Mutex<State>);

/// The right to calculate, until it is dropped.
pub(super) struct Turn<'a> {
    turns: &'a Turns,
    ticket: Ticket,
}

impl Turns {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a turn; `None` if the asker has ended.
    pub fn take(&self, asker: &Asker<'_>) -> Option<Turn<'_>> {
        let wake = Arc::new(Condvar::new());
        let mut state = self.state();
        let ticket = state.order.ask(asker.address);
        state.wakes.insert(ticket, wake.clone());

        // From here on dropping it leaves the line, or ends the turn.
        let turn = Turn {
            turns: self,
            ticket,
        };

        loop {
            let has_turn = state.order.running == Some(ticket);
            // Asked without the lock, since the answer may take a system call.
            drop(state);
            if (asker.has_ended)() {
                return None;
            }
            if has_turn {
                return Some(turn);
            }

            state = self.state();
            // The turn may have come meanwhile, and would not wake this thread again.
            if state.order.running != Some(ticket) {
                let waited = wake.wait_timeout(state, LOOK_EVERY);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }

    /// Connections that wait.
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

    /// The order in which those that wait are served, from the one that runs now.
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

            // Each is in its line before the next one asks.
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
