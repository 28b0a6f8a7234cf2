//! Progress of a study's runs, in shares of their weights.
//!
//! Absent: how it is shown.

use crate::study::Event;
use std::time::{Duration, Instant};

/// Progress of a study's runs.
#[derive(Debug)]
pub struct StudyProgress {
    began: Instant,
    weight: f64,
    done: f64,
    /// Runs to make.
    pub missing: usize,
    /// Runs made so far.
    pub made: usize,
    /// Runs that were already in the folder.
    pub found: usize,
}

impl Default for StudyProgress {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            weight: 0.0,
            done: 0.0,
            missing: 0,
            made: 0,
            found: 0,
        }
    }
}

impl StudyProgress {
    /// Adds an event.
    pub fn add(&mut self, event: &Event<'_>) {
        match event {
            // Existing results are not part of the estimate.
            Event::Begun {
                missing,
                runs,
                weight,
                ..
            } => {
                (self.missing, self.found, self.weight) = (*missing, runs - missing, *weight);
            }
            Event::Worked(weight) => self.done += weight,
            Event::Done(_) => self.made += 1,
        }
    }

    /// The share of the work that is done; 0 of nothing.
    pub fn share(&self) -> f64 {
        (self.done / self.weight.max(f64::MIN_POSITIVE)).min(1.0)
    }

    /// The remaining time, estimated from that share; none before the first step.
    pub fn remaining(&self) -> Option<Duration> {
        let share = self.share();
        let left = || self.began.elapsed().mul_f64((1.0 - share) / share);
        (share > 0.0).then(left)
    }
}
