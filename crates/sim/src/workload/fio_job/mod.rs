//! A job file of fio, as the workload that it describes.
//!
//! ```text
//! [global]                     what all jobs have
//! bs=8k
//! [oltp]                       one job; its name means nothing
//! ioengine=libaio              psync, fio's default, has one request in flight
//! rw=randrw                    read write randread randwrite rw randrw
//! rwmixread=70
//! random_distribution=zipf:0.99
//! dedupe_percentage=30         as fio has it: the content of the write before
//! iodepth=32                   times numjobs
//! io_size=1g                   bytes that each of numjobs reads and writes
//! ```
//! ```text
//! options   what each option of fio means here: simulated, left out, or refused
//! draft     what the options that are simulated do
//! ```
//!
//! Invariants: what would make the load another one and cannot be had is an error with its line, and
//! so is an option that is not known; what leaves the requests as they are is left out, and named in
//! [`FioJob::ignored`]; saying what is fio's default changes nothing. Absent: several jobs at once;
//! `size`: a job reads and writes the whole device.

mod draft;
mod options;

use std::str::FromStr;

use super::{ContentModel, NamedWorkload};
use draft::Draft;

const PAGE_BYTES: u64 = 4096;

/// What a job file asks for.
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
    /// Contents that it writes: new ones, a share of duplicates, or one for all.
    pub content: ContentModel,
    /// Requests in flight, of all its processes together.
    pub queue_depth: u32,
    /// Pages to read or write, of all its processes together.
    pub pages: Option<u64>,
    /// Options that were left out, in the order of the file.
    pub ignored: Vec<String>,
}

/// A value of the file, and the line that says it.
#[derive(Clone, Copy)]
struct JobOption<'a> {
    line: usize,
    key: &'a str,
    value: &'a str,
}

impl FromStr for FioJob {
    type Err = String;

    /// Reads the text of a job file.
    ///
    /// # Errors
    /// `line N: ...`: what is no job file, or cannot be simulated.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut job = Draft::default();
        let mut section = "";
        let mut jobs: Vec<&str> = Vec::new();

        for (at, whole) in text.lines().enumerate() {
            let line = at + 1;
            // Fio has both marks for comments, at the end of a line as well.
            let content = whole.split([';', '#']).next().unwrap_or_default().trim();
            if content.is_empty() {
                continue;
            }

            if let Some(name) = content.strip_prefix('[') {
                section = name
                    .strip_suffix(']')
                    .ok_or_else(|| format!("line {line}: `{content}` is not [NAME]"))?;

                // Any other section is a job: `global` is what all jobs after it have.
                if section != "global" {
                    jobs.push(section);
                } else if !jobs.is_empty() {
                    return Err(format!(
                        "line {line}: [global] after [{}] is for later jobs alone: put it in front",
                        jobs.join("], [")
                    ));
                }
                continue;
            }
            if content.split_whitespace().next() == Some("include") {
                return Err(format!(
                    "line {line}: `{content}`: files are not included; put its lines here"
                ));
            }
            if section.is_empty() {
                return Err(format!("line {line}: `{content}` is before any [job]"));
            }

            // A key alone switches something on, as fio reads it.
            let (key, value) = content.split_once('=').unwrap_or((content, "1"));
            let (key, value) = (key.trim(), value.trim());
            // Of further jobs only the number is told.
            if jobs.len() < 2 {
                job.take(JobOption { line, key, value })?;
            }
        }

        match jobs[..] {
            [_] => job.finish(),
            [] => Err("no job: a section such as [job] with rw=randwrite is needed".into()),
            [..] => Err(format!(
                "{} jobs ({}): one at a time is simulated",
                jobs.len(),
                jobs.join(", ")
            )),
        }
    }
}

impl JobOption<'_> {
    fn wrong(&self, why: &str) -> String {
        let JobOption { line, key, value } = self;
        format!("line {line}: {key}={value}: {why}")
    }

    fn number(&self) -> Result<u32, String> {
        let number = self.value.parse().ok().filter(|number| *number > 0);
        number.ok_or_else(|| self.wrong("a number from 1 on is needed"))
    }

    fn percent(&self) -> Result<u8, String> {
        let number = self.value.parse().ok().filter(|number| *number <= 100);
        number.ok_or_else(|| self.wrong("a number from 0 to 100 is needed"))
    }

    /// Sizes as fio has them: k, m, g and t are powers of 1024.
    fn bytes(&self) -> Result<u64, String> {
        let text = self.value.to_ascii_lowercase();
        // The unit is what is left when the digits are gone.
        let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
        let shift = match unit {
            "" | "b" => 0,
            "k" | "kb" | "kib" => 10,
            "m" | "mb" | "mib" => 20,
            "g" | "gb" | "gib" => 30,
            "t" | "tb" | "tib" => 40,
            _ => return Err(self.wrong("a size such as 4k or 1g is needed")),
        };

        // A size of nothing would be a job without an end.
        let number: Option<u64> = text[..text.len() - unit.len()].parse().ok();
        number
            .and_then(|number| number.checked_mul(1 << shift))
            .filter(|bytes| *bytes > 0)
            .ok_or_else(|| self.wrong("a size such as 4k or 1g is needed"))
    }

    /// A switch: fio takes a number.
    fn flag(&self) -> Result<bool, String> {
        match self.value {
            "0" => Ok(false),
            "1" => Ok(true),
            _ => Err(self.wrong("0 or 1 is needed")),
        }
    }

    /// The size of requests, of which a range has both ends at one size.
    fn range_pages(&self) -> Result<u32, String> {
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

    fn only_one_size(&self) -> String {
        self.wrong("requests of one size, in whole pages of 4 KiB, are simulated")
    }

    fn request_pages(&self) -> Result<u32, String> {
        // One size each for reads and writes: the same, or it is another load. A third one is that
        // of trims, of which there are none.
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
