//! A job file of fio, as the workload that it describes.
//!
//! ```text
//! [global]                     what all jobs have
//! bs=8k
//! [oltp]                       one job; its name means nothing
//! rw=randrw                    read write randread randwrite rw randrw
//! rwmixread=70
//! random_distribution=zipf:0.99
//! dedupe_percentage=30         as fio has it: the content of the write before
//! iodepth=32                   times numjobs
//! io_size=1g                   bytes to read and write
//! ```
//!
//! Invariants: what would make the load another one and cannot be had is an error with its line;
//! what only says how fio does it (engine, file, time) is left out, and named in
//! [`FioJob::ignored`]. Absent: several jobs at once; `size`: a job reads and writes the whole
//! device.

use std::str::FromStr;

use super::{ContentModel, NamedWorkload, Pattern, WorkloadSpec};

const PAGE_BYTES: u64 = 4096;

/// What a job file asks for.
///
/// ```
/// use remap_ssd_sim::workload::{ContentModel, FioJob};
/// let text = "[global]\nbs=8k\n[oltp]\nrw=randrw\nrwmixread=70\ndedupe_percentage=30\niodepth=16\n";
/// let job: FioJob = text.parse().unwrap();
/// assert_eq!(job.workload.to_string(), "randrw:70,pages=2");
/// assert_eq!(job.content, ContentModel::Repeat { duplicate_share: 0.3 });
/// assert_eq!(job.queue_depth, Some(16));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct FioJob {
    /// Addresses, share of reads, and pages of a request.
    pub workload: NamedWorkload,
    /// Contents that it writes: new ones, or a share of duplicates.
    pub content: ContentModel,
    /// Requests in flight, of all its processes together.
    pub queue_depth: Option<u32>,
    /// Pages to read or write.
    pub pages: Option<u64>,
    /// Keys that say nothing to a simulated device.
    pub ignored: Vec<String>,
}

/// A value of the file, and the line that says it.
#[derive(Clone, Copy)]
struct JobOption<'a> {
    line: usize,
    key: &'a str,
    value: &'a str,
}

/// Keys that change the load in a way that is not simulated.
const REFUSED: [&str; 12] = [
    "bssplit",
    "bsrange",
    "blocksize_range",
    "dedupe_mode",
    "percentage_random",
    "rate",
    "rate_iops",
    "read_iolog",
    "thinktime",
    "zonemode",
    "trim_percentage",
    "verify_trim",
];

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

                // Any other section is a job: `global` is what all of them have.
                if section != "global" {
                    jobs.push(section);
                }
                continue;
            }
            if section.is_empty() {
                return Err(format!("line {line}: `{content}` is before any [job]"));
            }

            // A key alone switches something on, as fio reads it.
            let (key, value) = content.split_once('=').unwrap_or((content, "1"));
            let (key, value) = (key.trim(), value.trim());
            job.take(JobOption { line, key, value })?;
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

/// A job as far as it was read: later lines replace earlier ones.
#[derive(Default)]
struct Draft {
    rw: Option<(bool, Reads)>,
    mix_read: Option<u8>,
    theta: Option<f64>,
    request_pages: Option<u32>,
    dedupe: Option<f64>,
    depth: Option<u32>,
    jobs: Option<u32>,
    bytes: Option<u64>,
    requests: Option<u64>,
    ignored: Vec<String>,
}

#[derive(Clone, Copy)]
enum Reads {
    None,
    Mixed,
    All,
}

impl Draft {
    fn take(&mut self, option: JobOption<'_>) -> Result<(), String> {
        let JobOption { key, value, .. } = option;
        match key {
            "rw" | "readwrite" => {
                // What follows the colon says how offsets go on, which the pattern decides here.
                self.rw = Some(match value.split(':').next().unwrap_or_default() {
                    "read" => (false, Reads::All),
                    "write" => (false, Reads::None),
                    "rw" | "readwrite" => (false, Reads::Mixed),
                    "randread" => (true, Reads::All),
                    "randwrite" => (true, Reads::None),
                    "randrw" => (true, Reads::Mixed),
                    _ => {
                        return Err(option.wrong(
                            "read, write, rw, randread, randwrite and randrw are simulated",
                        ));
                    }
                })
            }
            "rwmixread" => self.mix_read = Some(option.percent()?),
            // The two are complements; the one that comes last counts, as in fio.
            "rwmixwrite" => self.mix_read = Some(100 - option.percent()?),
            "bs" | "blocksize" => self.request_pages = Some(option.request_pages()?),
            "random_distribution" => {
                self.theta = match value.split_once(':') {
                    None if value == "random" => None,
                    Some(("zipf", theta)) => Some(theta.parse().map_err(|_| {
                        option.wrong("random and zipf:THETA are simulated, THETA a number")
                    })?),
                    _ => return Err(option.wrong("random and zipf:THETA are simulated")),
                }
            }
            "dedupe_percentage" => self.dedupe = Some(f64::from(option.percent()?) / 100.0),
            "iodepth" => self.depth = Some(option.number()?),
            "numjobs" => self.jobs = Some(option.number()?),
            "io_size" | "io_limit" => self.bytes = Some(option.bytes()?),
            "number_ios" => self.requests = Some(option.bytes()?),
            key if REFUSED.contains(&key) => return Err(option.wrong("it is not simulated")),
            key => {
                // Named once, however many sections repeat it.
                if !self.ignored.iter().any(|known| known == key) {
                    self.ignored.push(key.into());
                }
            }
        }
        Ok(())
    }

    fn finish(self) -> Result<FioJob, String> {
        // Fio's default reads sequentially: too little to be what anyone meant.
        let (random, reads) = self.rw.ok_or("no rw: say rw=randwrite, for example")?;
        let request_pages = self.request_pages.unwrap_or(1);

        // A distribution is of random offsets only: fio leaves it out of sequential ones, too.
        let pattern = match (random, self.theta) {
            (true, Some(theta)) => Pattern::Zipf { theta },
            (true, None) => Pattern::Random,
            (false, _) => Pattern::Sequential,
        };
        let read_percent = match reads {
            Reads::None => 0,
            Reads::Mixed => self.mix_read.unwrap_or(50),
            Reads::All => 100,
        };

        let content = match self.dedupe {
            Some(duplicate_share) if duplicate_share > 0.0 => {
                ContentModel::Repeat { duplicate_share }
            }
            _ => ContentModel::Unique,
        };

        // A depth each job: what the device sees is their product.
        let depth = (self.depth.is_some() || self.jobs.is_some()).then(|| {
            self.depth
                .unwrap_or(1)
                .saturating_mul(self.jobs.unwrap_or(1))
        });

        // Fio counts requests here, the run counts pages.
        let of_requests = self
            .requests
            .map(|requests| requests.saturating_mul(request_pages.into()));

        Ok(FioJob {
            workload: NamedWorkload::Pattern(WorkloadSpec {
                pattern,
                read_percent,
                request_pages,
            }),
            content,
            // An NVMe queue has no more places.
            queue_depth: depth.map(|depth| depth.clamp(1, 65_535)),
            pages: self
                .bytes
                .map(|bytes| bytes.div_ceil(PAGE_BYTES))
                .or(of_requests),
            ignored: self.ignored,
        })
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

    fn request_pages(&self) -> Result<u32, String> {
        // One size each for reads, writes and trims: the same, or it is another load.
        let mut sizes = self.value.split(',').map(|value| {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<FioJob, String> {
        text.parse()
    }

    #[test]
    fn a_job_is_the_workload_that_fio_would_do() {
        let job = read(
            "; a comment\n[global]\nioengine=libaio\nbs=4k,4k # pages\ndirect\n\n[hot]\nrw=randwrite\n\
             random_distribution=zipf:1.1\nnumjobs=4\niodepth=8\nnumber_ios=1000\n",
        )
        .unwrap();

        assert_eq!(job.workload.to_string(), "zipfwrite:1.1");
        assert_eq!(job.content, ContentModel::Unique);
        assert_eq!((job.queue_depth, job.pages), (Some(32), Some(1000)));
        assert_eq!(job.ignored, ["ioengine", "direct"]);
    }

    #[test]
    fn what_is_left_out_is_as_fio_has_it() {
        let job = read("[a]\nreadwrite=rw\nio_size=1m\n").unwrap();
        assert_eq!(job.workload.to_string(), "seqrw:50");
        assert_eq!((job.queue_depth, job.pages), (None, Some(256)));

        // What is said last holds, of jobs and of what all have.
        let job = read("[global]\nrw=write\nrwmixwrite=10\n[a]\nrw=randrw\n").unwrap();
        assert_eq!(job.workload.to_string(), "randrw:90");
    }

    #[test]
    fn what_cannot_be_simulated_is_refused_with_its_line() {
        for (text, reason) in [
            ("", "no job"),
            ("[global]\nrw=read\n", "no job"),
            ("rw=read\n", "line 1: `rw=read` is before any [job]"),
            ("[a\n", "line 1: `[a` is not [NAME]"),
            ("[a]\n", "no rw"),
            ("[a]\nrw=read\n[b]\nrw=write\n", "2 jobs (a, b)"),
            ("[a]\nrw=randtrim\n", "line 2: rw=randtrim: read, write"),
            ("[a]\nrw=read\nbs=512\n", "line 3: bs=512: whole pages"),
            (
                "[a]\nbs=4k,8k\n",
                "line 2: bs=4k,8k: reads and writes of one size",
            ),
            ("[a]\nbs=18446744073709551615g\n", "line 2: bs="),
            (
                "[a]\nrate_iops=500\n",
                "line 2: rate_iops=500: it is not simulated",
            ),
            ("[a]\nrwmixread=101\n", "line 2: rwmixread=101: a number"),
            ("[a]\niodepth=0\n", "line 2: iodepth=0: a number"),
            (
                "[a]\nrandom_distribution=pareto:1\n",
                "line 2: random_distribution",
            ),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.starts_with(reason), "{text:?}: {error}");
        }
    }
}
