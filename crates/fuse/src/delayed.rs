//! Answers delayed until their completion time in the timing model.
//!
//! Invariant: answers are given in the order of their times, none early. On drop, the remaining
//! ones are given at once.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

type Answer = Box<dyn FnOnce() + Send>;

/// Sleeping ends this long before an answer is due; the rest is spent polling the clock.
const SPIN: Duration = Duration::from_micros(60);

/// A thread that gives answers when they are due.
pub(crate) struct DelayedAnswers {
    sender: Sender<(u64, Answer)>,
}

/// A waiting answer; ordered by due time.
struct Waiting {
    due: u64,
    /// Breaks ties in order of arrival.
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

impl DelayedAnswers {
    /// Starts the thread; times count from `epoch`.
    ///
    /// # Errors
    /// The thread cannot be created.
    pub(crate) fn start(epoch: Instant) -> std::io::Result<Self> {
        let (sender, receiver) = channel();
        std::thread::Builder::new()
            .name("fuse answers".into())
            .spawn(move || run(epoch, &receiver))?;
        Ok(Self { sender })
    }

    /// Gives an answer when it is due.
    pub(crate) fn at(&self, due: u64, answer: impl FnOnce() + Send + 'static) {
        // If the thread has failed, an early answer is better than none.
        if let Err(unsent) = self.sender.send((due, Box::new(answer))) {
            unsent.0.1();
        }
    }
}

fn run(epoch: Instant, receiver: &Receiver<(u64, Answer)>) {
    let mut waiting = BinaryHeap::<Reverse<Waiting>>::new();
    let mut order = 0;
    loop {
        let next = waiting
            .peek()
            .map(|Reverse(first)| epoch + Duration::from_nanos(first.due));

        // Sleep until shortly before the next one is due, then poll: a sleeping thread wakes tens
        // of microseconds late.
        let received = match next {
            None => receiver.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(due) => match due.saturating_duration_since(Instant::now()) {
                left if left <= SPIN => receiver.try_recv().map_err(|_| RecvTimeoutError::Timeout),
                left => receiver.recv_timeout(left - SPIN),
            },
        };

        match received {
            Ok(first) => {
                // Collect all known answers before giving any, so that they are in order.
                for (due, answer) in std::iter::once(first).chain(receiver.try_iter()) {
                    order += 1;
                    waiting.push(Reverse(Waiting { due, order, answer }));
                }
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

    // The service is ending: a request without an answer would hang its program.
    while let Some(Reverse(Waiting { answer, .. })) = waiting.pop() {
        answer();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[test]
    fn answers_are_given_in_order_none_early_and_all_of_them() {
        let epoch = Instant::now();
        let given = Arc::new(Mutex::new(Vec::new()));
        let delayed = DelayedAnswers::start(epoch).expect("a thread");

        // One that blocks until all the others are queued.
        let (go, wait) = channel();
        delayed.at(0, move || wait.recv().expect("sent"));

        for due in [3_000_000u64, 1_000_000, 2_000_000, 1_000_000] {
            let given = given.clone();
            delayed.at(due, move || {
                let late = epoch.elapsed() >= Duration::from_nanos(due);
                given.lock().expect("nothing fails here").push((due, late));
            });
        }

        go.send(()).expect("it waits");
        while given.lock().expect("nothing fails here").len() < 4 {
            std::thread::sleep(Duration::from_millis(1));
        }

        let answers = given.lock().expect("nothing fails here").clone();
        assert_eq!(
            answers,
            [
                (1_000_000, true),
                (1_000_000, true),
                (2_000_000, true),
                (3_000_000, true)
            ]
        );
    }
}
