//! Runs the points of a grid on threads.
//!
//! Invariants: a result is a file as soon as its point has ended; no point ends another, even by a
//! panic. Absent: the folder's earlier
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
    on_threads(points, threads, stop, tell, |point| {
        one(point, folder, stop, tell)
    })
}

/// Runs points on threads, each by `work`; returns those without a result, with the reasons.
fn on_threads<'a>(
    points: &[&'a Point],
    threads: u32,
    stop: &AtomicBool,
    tell: &(dyn Fn(PointEvent<'_>) + Sync),
    work: impl Fn(&Point) -> Result<(), Error> + Sync,
) -> Vec<(&'a Point, Error)> {
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
                        Error::of_panics(|| work(point))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_that_panics_fails_with_its_message_and_the_others_have_results() {
        let grid = r#"{"options": [["scale", "1/256"]], "grid": [["seed", [1, 2, 3]]]}"#;
        let points = crate::of_json(grid, None).unwrap();
        let points: Vec<&Point> = points.iter().collect();
        let done = Mutex::new(Vec::new());

        let failed = on_threads(&points, 1, &AtomicBool::new(false), &|_| (), |point| {
            assert_ne!(point.spec.seed(), 2, "out of order");
            done.lock().unwrap().push(point.spec.seed());
            Ok(())
        });

        assert_eq!(done.into_inner().unwrap(), [1, 3]);
        let [(point, Error::Failed(why))] = &failed[..] else {
            panic!("{failed:?}");
        };
        assert_eq!(point.title(), "seed=2");
        assert!(
            why.starts_with("a bug of the simulator: ") && why.contains("out of order"),
            "{why}"
        );
    }
}
