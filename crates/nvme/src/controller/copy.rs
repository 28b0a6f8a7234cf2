//! Copy commands: their ranges, and the copies one after the other.
//!
//! Invariant: all ranges are checked, with the rights of the host, before the first block is copied,
//! and each source again before its copy. Absent: the copy of one range (`remap`).

use super::blocks::{Blocks, Namespace};
use super::data::{HostData, take_all};
use super::faults::BlockAccess;
use super::io::{ActiveCommand, Failure};
use super::namespaces::Namespaces;
use super::rights::{HostRights, Need};
use super::{COPY_RANGES_MAX, copy_blocks_max, copy_range_blocks_max};
use crate::spec::command::CopyRange;
use crate::spec::status::Status;
use zerocopy::FromBytes;

/// One range of a Copy, with its target.
#[derive(Clone, Copy, Debug)]
struct CopyPart {
    pub source: Namespace,
    /// First source block, in the source's namespace.
    pub slba: u64,
    /// First target block, in the command's namespace.
    pub target: u64,
    pub count: u32,
}

/// Source ranges of Copy, within the limits reported by Identify.
fn copy_ranges(data: &[u8], lba_shift: u8) -> Result<Vec<CopyRange>, Status> {
    let ranges: Vec<CopyRange> = data
        .chunks_exact(size_of::<CopyRange>())
        .filter_map(|bytes| CopyRange::read_from_bytes(bytes).ok())
        .collect();

    let blocks = |range: &CopyRange| u32::from(range.nlb_z) + 1;
    let total: u64 = ranges.iter().map(|range| u64::from(blocks(range))).sum();
    let longest = u32::from(copy_range_blocks_max(lba_shift));
    let too_long = ranges.iter().any(|range| blocks(range) > longest);

    if ranges.len() as u32 > COPY_RANGES_MAX
        || total > u64::from(copy_blocks_max(lba_shift))
        || too_long
    {
        return Err(Status::SIZE_LIMIT);
    }
    Ok(ranges)
}

/// The ranges in the data of a Copy to `target` in `namespace`. All are checked, including its
/// host's rights, before the first is copied.
///
/// # Errors
/// The status to answer.
fn copy_parts(
    namespaces: &Namespaces,
    namespace: &Namespace,
    target: u64,
    with_namespaces: bool,
    data: &[u8],
    rights: &HostRights,
) -> Result<Vec<CopyPart>, Status> {
    let ranges = copy_ranges(data, namespace.lba_shift)?;

    let mut to = target;
    let mut parts = Vec::with_capacity(ranges.len());
    for range in &ranges {
        let source = if with_namespaces {
            // A source that the host does not see is refused as one that does not exist.
            rights.check(range.snsid, Need::Read)?;
            if namespaces.is_being_emptied(range.snsid) {
                return Err(Status::FORMAT_IN_PROGRESS);
            }
            namespaces
                .attached(range.snsid, rights)
                .ok_or(Status::INVALID_NAMESPACE)?
        } else {
            *namespace
        };

        // Blocks of different sizes cannot be copied.
        if source.lba_shift != namespace.lba_shift {
            return Err(Status::INVALID_NAMESPACE);
        }

        let count = u32::from(range.nlb_z) + 1;
        // Check source and target of every range before the first block is copied.
        source.blocks(range.slba, count)?;
        namespace.blocks(to, count)?;
        parts.push(CopyPart {
            source,
            slba: range.slba,
            target: to,
            count,
        });
        to += u64::from(count);
    }
    Ok(parts)
}

/// Copies the ranges in the command's data in sequence. If one fails, the result is the number of
/// ranges copied.
#[inline(never)]
pub(super) fn copy(
    command: &mut ActiveCommand<'_, '_>,
    namespace: &Namespace,
    target: u64,
    ranges: u32,
    with_namespaces: bool,
    data: &mut dyn HostData,
) -> Result<(), Failure> {
    // Take the whole list first. All ranges are checked before the first is copied.
    let list = take_all(data, ranges as usize * size_of::<CopyRange>());
    let (namespaces, rights) = (command.namespaces, command.issuer.rights);
    let parts = copy_parts(
        namespaces,
        namespace,
        target,
        with_namespaces,
        &list,
        rights,
    )?;

    // Check all sources before the first block is copied, and each again before its copy.
    for part in &parts {
        command.read_from(&part.source)?;
    }

    for (index, part) in parts.iter().enumerate() {
        let from = (&part.source, part.slba);
        command
            .read_from(&part.source)
            .and_then(|()| access_copied(command, namespace, part))
            .and_then(|()| command.copy((namespace, part.target), from, part.count))
            .map_err(|status| Failure {
                status,
                result: index as u64,
            })?;
    }

    Ok(())
}

/// Announces the reads and writes of a part of a copy to the fault injector.
fn access_copied(
    command: &mut ActiveCommand<'_, '_>,
    namespace: &Namespace,
    part: &CopyPart,
) -> Result<(), Status> {
    let blocks = |slba| Blocks {
        slba,
        count: part.count,
    };
    command.access(BlockAccess::Read, &part.source, blocks(part.slba))?;
    command.access(BlockAccess::Write, namespace, blocks(part.target))
}
