//! Answers that are held until the timing model completes them.
//!
//! Invariant: answers are given in the order of their times, none early. Dropped, the rest is given at once.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

type Answer = Box<dyn FnOnce() + Send>;

/// Sleeping ends this much before an answer is due; the rest is spent looking at the clock.
const SPIN: Duration = Duration::from_micros(60);

/// Holds answers.
pub struct Later {
    sender: Sender<(u64, Answer)>,
}

/// An answer that waits; the first one is the one that is due first.
struct Waiting {
    due: u64,
    order: u64,
    answer: Answer,
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        (self.due, self.order) == (other.due, other.order)
    }
}
impl Eq for Waiting {}
impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.due, self.order).cmp(&(other.due, other.order))
    }
}

impl Later {
    /// Starts; times count from `epoch`.
    ///
    /// # Errors
    /// There can be no thread.
    pub fn start(epoch: Instant) -> std::io::Result<Self> {
        let (sender, receiver) = channel();
        std::thread::Builder::new().name("fuse answers".into()).spawn(move || run(epoch, &receiver))?;
        Ok(Self { sender })
    }

    /// Gives an answer when it is due.
    pub fn at(&self, due: u64, answer: impl FnOnce() + Send + 'static) {
        if let Err(unsent) = self.sender.send((due, Box::new(answer))) {
            unsent.0.1();
        }
    }
}

fn run(epoch: Instant, receiver: &Receiver<(u64, Answer)>) {
    let mut waiting = BinaryHeap::<Reverse<Waiting>>::new();
    let mut order = 0;
    loop {
        let next = waiting.peek().map(|Reverse(first)| epoch + Duration::from_nanos(first.due));
        let received = match next {
            None => receiver.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(due) => match due.saturating_duration_since(Instant::now()) {
                left if left <= SPIN => receiver.try_recv().map_err(|_| RecvTimeoutError::Timeout),
                left => receiver.recv_timeout(left - SPIN),
            },
        };
        match received {
            Ok((due, answer)) => {
                order += 1;
                waiting.push(Reverse(Waiting { due, order, answer }));
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        while let Some(Reverse(first)) = waiting.peek()
            && epoch + Duration::from_nanos(first.due) <= Instant::now()
            && let Some(Reverse(Waiting { answer, .. })) = waiting.pop()
        {
            answer();
        }
        std::hint::spin_loop();
    }
    while let Some(Reverse(Waiting { answer, .. })) = waiting.pop() {
        answer();
    }
}
