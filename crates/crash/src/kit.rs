//! Commands of unit tests, by the arguments that matter to them.

use crate::content::Content;
use crate::script::ScriptCommand;
use remap_ssd_ftl::{Lpn, Remap};

/// A write of one page.
pub(crate) fn write(lpn: u32, content: Content) -> ScriptCommand {
    ScriptCommand::Write {
        lpn: Lpn(lpn),
        content,
    }
}

/// A remap that leaves its sources mapped.
pub(crate) fn remap(target: u32, source: u32, len: u32) -> ScriptCommand {
    ScriptCommand::Remap(Remap {
        target: Lpn(target),
        source: Lpn(source),
        len,
        relocate: false,
        atomic: false,
    })
}

/// A remap that unmaps its sources.
pub(crate) fn relocate(target: u32, source: u32, len: u32) -> ScriptCommand {
    ScriptCommand::Remap(Remap {
        target: Lpn(target),
        source: Lpn(source),
        len,
        relocate: true,
        atomic: false,
    })
}

/// A deallocation of a range.
pub(crate) fn deallocate(lpn: u32, len: u32) -> ScriptCommand {
    ScriptCommand::Deallocate { lpn: Lpn(lpn), len }
}
