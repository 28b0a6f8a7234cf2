//! Runs the points of a grid on threads.
//!
//! Invariant: a result is a file as soon as its point has ended. Absent: the folder's earlier
//! results.

use crate::{Comparison, Error, Point, available, keep, until};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Progress of a grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PointEvent<'a> {
    /// A note about a comparison.
    Note(&'a str),
    /// A point has ended, with a result or without.
    Ended,
}

/// Runs points and writes their files; returns the points without a result, with the reasons.
///
/// By default on all cores, as many at a time as fit into memory. `stop` ends running points and
/// starts no others.
pub fn run_points<'a>(
    points: &[&'a Point],
    folder: &Path,
    threads: Option<u32>,
    stop: &Arc<AtomicBool>,
    tell: &(dyn Fn(PointEvent<'_>) + Sync),
) -> Vec<(&'a Point, Error)> {
    let cores = || std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
    let threads = threads.unwrap_or_else(|| cores().min(fitting(points)));
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(Vec::new());

    std::thread::scope(|scope| {
        for _ in 0..threads.min(points.len() as u32) {
            scope.spawn(|| {
                // Points take different times, so each thread takes the next one not yet started.
                while let Some(point) = points.get(next.fetch_add(1, Ordering::Relaxed)) {
                    // A running point is stopped only by its own watch: the rest of the list is
                    // only reported.
                    let result = if stop.load(Ordering::Relaxed) {
                        Err(Error::Stopped("stopped before it began"))
                    } else {
                        one(point, folder, stop, tell)
                    };
                    tell(PointEvent::Ended);
                    if let Err(error) = result {
                        let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                        failed.push((*point, error));
                    }
                }
            });
        }
    });
    failed.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Number of points that fit into memory concurrently, assuming the largest; at least one.
fn fitting(points: &[&Point]) -> u32 {
    let largest = points.iter().map(|point| point.memory_bytes).max();
    match (available(), largest) {
        (Some(available), Some(largest @ 1..)) => (available / largest).clamp(1, 1 << 16) as u32,
        _ => u32::MAX,
    }
}

/// Runs one point and writes its file.
fn one(
    point: &Point,
    folder: &Path,
    stop: &Arc<AtomicBool>,
    tell: &(dyn Fn(PointEvent<'_>) + Sync),
) -> Result<(), Error> {
    let comparison = Comparison::new(point.spec.clone(), until(Arc::clone(stop)))?;
    let notes = comparison.notes().iter();
    notes.for_each(|note| tell(PointEvent::Note(note)));
    let measured = comparison.run(&[&**stop])?;
    keep(folder, &point.name, &comparison.json(&measured)["runs"][0])
}
