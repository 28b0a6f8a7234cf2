//! Minimizes the losses of a failing cut: delta debugging (Zeller and Hildebrandt, TSE 2002).
//!
//! Invariant: the list returned has failed itself, or is the input. Absent: how a list is tried.

/// Searches for a smaller list that still fails. `fails` returns true for a failing list, and
/// `None` when time is up. The second result is true if no element can be left out.
pub(crate) fn shrink<T: Clone, E>(
    whole: &[T],
    mut fails: impl FnMut(&[T]) -> Result<Option<bool>, E>,
) -> Result<(Vec<T>, bool), E> {
    let mut least = whole.to_vec();
    if least.is_empty() {
        return Ok((least, true));
    }

    // If it fails without losses, the losses are not the cause.
    match fails(&[])? {
        Some(true) => return Ok((Vec::new(), true)),
        Some(false) => {}
        None => return Ok((least, false)),
    }

    let mut parts = 2;
    while least.len() > 1 {
        let size = least.len().div_ceil(parts);
        let mut smaller = None;

        // A part alone, then its complement.
        for alone in [true, false] {
            for (index, part) in least.chunks(size).enumerate() {
                let others =
                    || [&least[..index * size], &least[index * size + part.len()..]].concat();
                let candidate = if alone { part.to_vec() } else { others() };
                // With two parts each is the complement of the other.
                if candidate.len() == least.len() || (!alone && parts == 2) {
                    continue;
                }
                match fails(&candidate)? {
                    None => return Ok((least, false)),
                    Some(false) => {}
                    Some(true) => {
                        // As in the paper: after a part alone the search restarts with two parts;
                        // after a complement it keeps the size of parts.
                        smaller = Some((candidate, if alone { 2 } else { (parts - 1).max(2) }));
                        break;
                    }
                }
            }
            if smaller.is_some() {
                break;
            }
        }

        match smaller {
            Some((candidate, next)) => (least, parts) = (candidate, next),
            None if size == 1 => break,
            None => parts = (parts * 2).min(least.len()),
        }
    }
    Ok((least, true))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    fn least(whole: &[u32], fails: impl Fn(&[u32]) -> bool) -> Vec<u32> {
        let (least, finished) =
            shrink(whole, |list| Ok::<_, Infallible>(Some(fails(list)))).unwrap();
        assert!(finished);
        least
    }

    #[test]
    fn the_elements_that_it_takes_are_found() {
        let whole: Vec<u32> = (0..200).collect();
        for needed in [&[7][..], &[0, 199], &[3, 4, 150], &[]] {
            assert_eq!(
                least(&whole, |list| needed.iter().all(|one| list.contains(one))),
                needed
            );
        }
    }

    // One of two causes is enough; no element of the result can be left out.
    #[test]
    fn one_of_two_causes_is_left() {
        let whole: Vec<u32> = (0..64).collect();
        let found = least(&whole, |list| {
            list.contains(&5) || (list.contains(&40) && list.contains(&41))
        });
        assert!(found == [5] || found == [40, 41], "{found:?}");
    }

    #[test]
    fn without_time_the_last_that_failed_is_returned() {
        let mut tries = 0;
        let result = shrink(&[1, 2, 3, 4], |list| {
            tries += 1;
            Ok::<_, Infallible>((tries < 3).then(|| list.contains(&1)))
        });
        assert_eq!(result.unwrap(), (vec![1, 2], false));
    }
}
