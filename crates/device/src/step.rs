//! The steps of commands, as the firmware's half hands them to the timing's.
//!
//! Absent: what a step does (`halves`), and its operations, which are in the media's list.

/// Path of a command's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DataPath {
    /// Internal work of the firmware.
    Own,
    /// No data crosses the link.
    Absent,
    /// No data either: a flush.
    Flush,
    /// Pages from the host.
    FromHost,
    /// Pages to the host.
    ToHost,
    /// Pages from the host, to be merged with the data read.
    ToMerge,
    /// Pages of the device, to be merged with the data read.
    ToCopy,
    /// What was merged in the previous step is written.
    Merged,
}

/// A part of a command with its own end time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    data: DataPath,
    /// The request continues with the next step.
    goes_on: bool,
    /// Pages transferred or remapped.
    pages: u16,
}

impl Step {
    pub(crate) fn new(data: DataPath, goes_on: bool) -> Self {
        let pages = match data {
            DataPath::Own | DataPath::Absent | DataPath::Flush | DataPath::Merged => 0,
            DataPath::FromHost | DataPath::ToHost | DataPath::ToMerge | DataPath::ToCopy => 1,
        };
        Self {
            data,
            goes_on,
            pages,
        }
    }

    pub(crate) fn data(self) -> DataPath {
        self.data
    }

    pub(crate) fn goes_on(self) -> bool {
        self.goes_on
    }

    pub(crate) fn pages(self) -> u64 {
        self.pages.into()
    }

    /// Several pages of one indirection unit.
    pub(crate) fn of_pages(data: DataPath, pages: u32, goes_on: bool) -> Self {
        Self {
            data,
            goes_on,
            pages: pages as u16,
        }
    }

    pub(crate) fn and_goes_on(self, goes_on: bool) -> Self {
        Self { goes_on, ..self }
    }

    /// A remap of `pages` pages.
    pub(crate) fn of_remap(pages: u32) -> Self {
        Self {
            data: DataPath::Absent,
            goes_on: false,
            pages: pages.min(u16::MAX.into()) as u16,
        }
    }
}
