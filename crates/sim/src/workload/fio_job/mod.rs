//! Parses a job file of fio as a workload.
//!
//! ```text
//! [global]                     defaults of all jobs
//! bs=8k
//! [oltp]                       one job; its name has no effect
//! ioengine=libaio              psync, fio's default, has one request in flight
//! rw=randrw                    read write randread randwrite rw randrw
//! rwmixread=70
//! random_distribution=zipf:0.99
//! dedupe_percentage=30         as in fio: the content of the previous write
//! iodepth=32                   times numjobs
//! io_size=1g                   bytes that each of numjobs reads and writes
//! ```
//! ```text
//! options   meaning of each fio option: simulated, left out, or refused
//! draft     effects of the simulated options
//! ```
//!
//! Invariants: an option that changes the load and cannot be simulated is an error with its line,
//! and so is an unknown option; one that does not change the requests is left out, and named in
//! [`FioJob::ignored`]; stating a default of fio changes nothing. Absent: several jobs at once;
//! `size`: a job reads and writes the whole device.

mod draft;
mod options;

use std::str::FromStr;

use super::{ContentModel, NamedWorkload};
use draft::Draft;

const PAGE_BYTES: u64 = 4096;

/// The workload of a job file.
///
/// ```
/// use remap_ssd_sim::workload::{ContentModel, FioJob};
/// let text = "[global]\nbs=8k\nioengine=libaio\n[oltp]\nrw=randrw\nrwmixread=70\ndedupe_percentage=30\niodepth=16\n";
/// let job: FioJob = text.parse().unwrap();
/// assert_eq!(job.workload.to_string(), "randrw:70,pages=2");
/// assert_eq!(job.content, ContentModel::Repeat { duplicate_share: 0.3 });
/// assert_eq!(job.queue_depth, 16);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct FioJob {
    /// Addresses, share of reads, and pages of a request.
    pub workload: NamedWorkload,
    /// Contents of the writes: new ones, a share of duplicates, or one for all.
    pub content: ContentModel,
    /// Requests in flight, of all its processes together.
    pub queue_depth: u32,
    /// Pages to read or write, of all its processes together.
    pub pages: Option<u64>,
    /// Options left out, in the order of the file.
    pub ignored: Vec<String>,
}

/// Why a job file cannot be simulated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FioJobError {
    /// The line is not valid in a job file, or cannot be simulated.
    #[error("line {line}: {reason}")]
    Line {
        /// The line's number, from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// The file has no job.
    #[error("no job: a section such as [job] with rw=randwrite is needed")]
    NoJob,
    /// The file has several jobs, with these names.
    #[error("{} jobs ({}): one at a time is simulated", .0.len(), .0.join(", "))]
    Several(Vec<String>),
}

impl FioJobError {
    fn at(line: usize, reason: String) -> Self {
        Self::Line { line, reason }
    }
}

/// An option of the file with its line number.
#[derive(Clone, Copy)]
struct JobOption<'a> {
    line: usize,
    key: &'a str,
    value: &'a str,
}

impl FromStr for FioJob {
    type Err = FioJobError;

    /// Parses the text of a job file.
    ///
    /// # Errors
    /// A line is not valid in a job file, or cannot be simulated.
    fn from_str(text: &str) -> Result<Self, FioJobError> {
        let mut job = Draft::default();
        let mut section = "";
        let mut jobs: Vec<&str> = Vec::new();

        for (at, whole) in text.lines().enumerate() {
            let line = at + 1;
            // Fio has both comment marks, also at the end of a line.
            let content = whole.split([';', '#']).next().unwrap_or_default().trim();
            if content.is_empty() {
                continue;
            }

            if let Some(name) = content.strip_prefix('[') {
                section = name
                    .strip_suffix(']')
                    .ok_or_else(|| FioJobError::at(line, format!("`{content}` is not [NAME]")))?;

                // Any other section is a job: `global` has the defaults of all jobs after it.
                if section != "global" {
                    jobs.push(section);
                } else if !jobs.is_empty() {
                    let before = jobs.join("], [");
                    return Err(FioJobError::at(
                        line,
                        format!(
                            "[global] after [{before}] is for later jobs alone: put it in front"
                        ),
                    ));
                }
                continue;
            }
            if content.split_whitespace().next() == Some("include") {
                return Err(FioJobError::at(
                    line,
                    format!("`{content}`: files are not included; put its lines here"),
                ));
            }
            if section.is_empty() {
                return Err(FioJobError::at(
                    line,
                    format!("`{content}` is before any [job]"),
                ));
            }

            // A key alone is a switch turned on, as in fio.
            let (key, value) = content.split_once('=').unwrap_or((content, "1"));
            let (key, value) = (key.trim(), value.trim());
            // Of further jobs only the number is reported.
            if jobs.len() < 2 {
                job.take(JobOption { line, key, value })?;
            }
        }

        match jobs[..] {
            [_] => job.finish(),
            [] => Err(FioJobError::NoJob),
            [..] => Err(FioJobError::Several(
                jobs.iter().map(|name| (*name).to_owned()).collect(),
            )),
        }
    }
}

impl JobOption<'_> {
    fn wrong(&self, why: &str) -> FioJobError {
        let JobOption { line, key, value } = self;
        FioJobError::at(*line, format!("{key}={value}: {why}"))
    }

    fn number(&self) -> Result<u32, FioJobError> {
        let number = self.value.parse().ok().filter(|number| *number > 0);
        number.ok_or_else(|| self.wrong("a number from 1 on is needed"))
    }

    fn percent(&self) -> Result<u8, FioJobError> {
        let number = self.value.parse().ok().filter(|number| *number <= 100);
        number.ok_or_else(|| self.wrong("a number from 0 to 100 is needed"))
    }

    /// Parses a size with fio's units: k, m, g and t are powers of 1024.
    fn bytes(&self) -> Result<u64, FioJobError> {
        let text = self.value.to_ascii_lowercase();
        // The unit is the text after the digits.
        let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
        let shift = match unit {
            "" | "b" => 0,
            "k" | "kb" | "kib" => 10,
            "m" | "mb" | "mib" => 20,
            "g" | "gb" | "gib" => 30,
            "t" | "tb" | "tib" => 40,
            _ => return Err(self.wrong("a size such as 4k or 1g is needed")),
        };

        // A size of zero would be a job without an end.
        let number: Option<u64> = text[..text.len() - unit.len()].parse().ok();
        number
            .and_then(|number| number.checked_mul(1 << shift))
            .filter(|bytes| *bytes > 0)
            .ok_or_else(|| self.wrong("a size such as 4k or 1g is needed"))
    }

    /// Parses a switch: fio takes a number.
    fn flag(&self) -> Result<bool, FioJobError> {
        match self.value {
            "0" => Ok(false),
            "1" => Ok(true),
            _ => Err(self.wrong("0 or 1 is needed")),
        }
    }

    /// Parses the size of requests from a range with equal ends.
    fn range_pages(&self) -> Result<u32, FioJobError> {
        let mut ends = self.value.split(['-', ',']).map(|value| {
            let end = JobOption { value, ..*self };
            end.request_pages().map_err(|_| self.only_one_size())
        });

        let first = ends.next().expect("a text has one part")?;
        for end in ends {
            if end? != first {
                return Err(self.only_one_size());
            }
        }
        Ok(first)
    }

    fn only_one_size(&self) -> FioJobError {
        self.wrong("requests of one size, in whole pages of 4 KiB, are simulated")
    }

    fn request_pages(&self) -> Result<u32, FioJobError> {
        // One size each for reads and writes must be equal, or it is another load. A third one is
        // for trims, which do not occur.
        let mut sizes = self.value.split(',').take(2).map(|value| {
            let bytes = JobOption { value, ..*self }.bytes()?;
            let pages = u32::try_from(bytes / PAGE_BYTES).unwrap_or(0);
            let is_whole = pages > 0 && bytes % PAGE_BYTES == 0;
            is_whole
                .then_some(pages)
                .ok_or_else(|| self.wrong("whole pages of 4 KiB are simulated"))
        });

        let first = sizes.next().expect("a text has one part")?;
        for size in sizes {
            if size? != first {
                return Err(self.wrong("reads and writes of one size are simulated"));
            }
        }
        Ok(first)
    }
}
