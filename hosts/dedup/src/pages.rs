//! Pages of a disk: ranges, buffers, runs, and lists of pages written together.

use crate::DedupError;
use remap_ssd_device::Disk;
use remap_ssd_media::geometry::PAGE_BYTES;

/// The bytes of one page.
pub(crate) type Page = [u8; PAGE_BYTES];

/// Maximum pages per read or write.
pub(crate) const BATCH_PAGES: usize = 256;

/// Number of whole pages in a buffer.
pub(crate) fn whole<E: std::error::Error>(bytes: usize) -> Result<u64, DedupError<E>> {
    if bytes.is_multiple_of(PAGE_BYTES) {
        Ok((bytes / PAGE_BYTES) as u64)
    } else {
        Err(DedupError::NotWholePages(bytes))
    }
}

/// Checks that a range lies on a disk of `end` pages.
pub(crate) fn inside<E: std::error::Error>(
    page: u64,
    pages: u64,
    end: u64,
) -> Result<(), DedupError<E>> {
    match page.checked_add(pages) {
        Some(last) if last <= end => Ok(()),
        _ => Err(DedupError::OutOfRange { page, pages }),
    }
}

/// Splits indices into runs in which `next(previous, this)` holds, none longer than a batch.
pub(crate) fn runs(
    count: usize,
    mut next: impl FnMut(usize, usize) -> bool,
) -> Vec<std::ops::Range<usize>> {
    let mut runs: Vec<std::ops::Range<usize>> = Vec::new();
    for index in 0..count {
        match runs.last_mut() {
            Some(run) if run.len() < BATCH_PAGES && next(index - 1, index) => run.end += 1,
            _ => runs.push(index..index + 1),
        }
    }
    runs
}

/// Writes pages, in ascending order, generating each one on demand; adjacent pages are one write.
pub(crate) fn write_each<D: Disk>(
    disk: &mut D,
    pages: &[u64],
    make: impl Fn(u64) -> Page,
) -> Result<(), D::Error> {
    for run in runs(pages.len(), |before, this| pages[before] + 1 == pages[this]) {
        let bytes: Vec<Page> = pages[run.clone()].iter().map(|page| make(*page)).collect();
        disk.write(pages[run.start], bytes.as_flattened())?;
    }
    Ok(())
}

/// Reads pages and passes each, or its error, to `show`. Pages that cannot be read together are
/// read one by one.
pub(crate) fn read_each<D: Disk>(
    disk: &mut D,
    first: u64,
    count: u64,
    mut show: impl FnMut(u64, Result<&Page, D::Error>),
) {
    let mut bytes = vec![[0; PAGE_BYTES]; BATCH_PAGES.min(count as usize)];

    for at in (0..count).step_by(BATCH_PAGES) {
        let bytes = &mut bytes[..BATCH_PAGES.min((count - at) as usize)];

        // All at once; one by one only if that fails.
        if disk.read(first + at, bytes.as_flattened_mut()).is_ok() {
            (at..)
                .zip(bytes.iter())
                .for_each(|(index, page)| show(index, Ok(page)));
            continue;
        }

        for (index, page) in (at..).zip(bytes.iter_mut()) {
            match disk.read(first + index, page) {
                Ok(()) => show(index, Ok(page)),
                Err(error) => show(index, Err(error)),
            }
        }
    }
}
