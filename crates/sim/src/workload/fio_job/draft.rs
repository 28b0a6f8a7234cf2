//! The effects of a job's simulated options.
//!
//! Invariants: later lines replace earlier ones, as in fio; defaults are fio's (a sequential read
//! by `psync`, which has one request in flight). Absent: the list of options (`options`).

use super::super::{ContentModel, Pattern, WorkloadKind, WorkloadSpec};
use super::options::{Meaning, canonical, is_synchronous, meaning};
use super::{FioJob, FioJobError, JobOption, PAGE_BYTES};

/// fio's default engine on Linux.
const ENGINE: &str = "psync";
/// Maximum commands outstanding in an NVMe queue.
const DEPTH_MAX: u32 = 65_535;

/// A job as parsed so far.
#[derive(Default)]
pub(super) struct Draft<'a> {
    rw: Option<(bool, Reads)>,
    mix_read: Option<u8>,
    theta: Option<f64>,
    request_pages: Option<u32>,
    align: Option<JobOption<'a>>,
    engine: Option<&'a str>,
    depth: Option<u32>,
    depth_low: Option<JobOption<'a>>,
    jobs: Option<JobOption<'a>>,
    loops: Option<u32>,
    bytes: Option<u64>,
    requests: Option<u64>,
    dedupe: Option<f64>,
    zeroes: bool,
    pattern: Option<JobOption<'a>>,
    compressed_away: bool,
    scramble: Option<JobOption<'a>>,
    refill: bool,
    ignored: Vec<String>,
}

#[derive(Clone, Copy)]
enum Reads {
    None,
    Mixed,
    All,
}

impl<'a> Draft<'a> {
    /// Processes one line of the file.
    ///
    /// # Errors
    /// The option is not simulated, or unknown.
    pub(super) fn take(&mut self, option: JobOption<'a>) -> Result<(), FioJobError> {
        let name = canonical(option.key);
        match meaning(name) {
            Some(Meaning::Simulated) => self.simulate(name, option),
            Some(Meaning::Fixed(values)) if values.contains(&option.value) => Ok(()),
            Some(Meaning::Fixed(values)) => Err(option.wrong(&match values {
                [] => "it is not simulated".into(),
                [value, ..] => format!("it is not simulated, except as {value}"),
            })),
            Some(Meaning::LeftOut) => {
                self.leave_out(option.key.into());
                Ok(())
            }
            None => Err(option.wrong("it is no option of fio that is known here")),
        }
    }

    /// Each name once, however many sections repeat it.
    fn leave_out(&mut self, name: String) {
        if !self.ignored.contains(&name) {
            self.ignored.push(name);
        }
    }

    fn simulate(&mut self, name: &str, option: JobOption<'a>) -> Result<(), FioJobError> {
        match name {
            "rw" => self.rw = Some(direction(option)?),
            "rwmixread" => self.mix_read = Some(option.percent()?),
            // The two are complements; the last one counts, as in fio.
            "rwmixwrite" => self.mix_read = Some(100 - option.percent()?),
            "bs" => self.request_pages = Some(option.request_pages()?),
            "bsrange" => self.request_pages = Some(option.range_pages()?),
            "ba" => self.align = Some(option),
            "random_distribution" => self.theta = distribution(option)?,
            "ioengine" => {
                is_synchronous(option.value).ok_or_else(|| {
                    option.wrong("engines that read and write a disk are simulated, such as psync, libaio and io_uring")
                })?;
                self.engine = Some(option.value);
            }
            "iodepth" => self.depth = Some(option.number()?),
            "iodepth_low" => self.depth_low = Some(option),
            "numjobs" => {
                option.number()?;
                self.jobs = Some(option);
            }
            "loops" => self.loops = Some(option.number()?),
            "io_size" => self.bytes = Some(option.bytes()?),
            // 0, fio's default, means no limit.
            "number_ios" if option.value == "0" => self.requests = None,
            "number_ios" => self.requests = Some(option.bytes()?),
            _ => self.simulate_content(name, option)?,
        }
        Ok(())
    }

    fn simulate_content(&mut self, name: &str, option: JobOption<'a>) -> Result<(), FioJobError> {
        match name {
            "dedupe_percentage" => self.dedupe = Some(f64::from(option.percent()?) / 100.0),
            "zero_buffers" => self.zeroes = option.flag()?,
            "buffer_pattern" => self.pattern = Some(option),
            "scramble_buffers" => {
                option.flag()?;
                self.scramble = Some(option);
            }
            "refill_buffers" => self.refill = option.flag()?,
            // A buffer that compresses to nothing has no bytes left that could differ.
            "buffer_compress_percentage" => {
                let percent = option.percent()?;
                self.compressed_away = percent == 100;
                self.refill |= percent > 0;
                // With other values only the bytes differ, not the number of equal pages.
                if (1..100).contains(&percent) {
                    self.leave_out(name.into());
                }
            }
            _ => unreachable!("an option that is simulated: {name}"),
        }
        Ok(())
    }

    /// Returns the job after all lines.
    ///
    /// # Errors
    /// Options that are not simulated in combination.
    pub(super) fn finish(mut self) -> Result<FioJob, FioJobError> {
        let (random, reads) = self.rw.unwrap_or((false, Reads::All));
        let request_pages = self.request_pages.unwrap_or(1);
        self.check_alignment(request_pages)?;

        // A distribution applies to random offsets only; fio also ignores it for sequential ones.
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
        let content = self.content(request_pages)?;

        let jobs = self.jobs.map_or(Ok(1), |option| option.number())?;
        if let Some(option) = self.jobs.filter(|_| jobs > 1 && !random) {
            return Err(option.wrong("several sequential streams are not simulated"));
        }
        let depth = self.depth()?;

        // Each process executes the whole job, once per loop.
        let times = u64::from(jobs).saturating_mul(self.loops.unwrap_or(1).into());
        // Fio counts requests here, the run counts pages.
        let of_requests = self
            .requests
            .map(|requests| requests.saturating_mul(request_pages.into()));
        let of_bytes = self.bytes.map(|bytes| bytes.div_ceil(PAGE_BYTES));
        let pages = of_bytes.into_iter().chain(of_requests).min();

        Ok(FioJob {
            workload: WorkloadKind::Pattern(WorkloadSpec {
                pattern,
                read_percent,
                request_pages,
            })
            .into(),
            content,
            // The depth is per process: the device sees the product.
            queue_depth: depth.saturating_mul(jobs).clamp(1, DEPTH_MAX),
            pages: pages.map(|pages| pages.saturating_mul(times)),
            ignored: self.ignored,
        })
    }

    /// Requests in flight of one process.
    fn depth(&mut self) -> Result<u32, FioJobError> {
        let depth = self.depth.unwrap_or(1);
        if let Some(low) = self.depth_low.filter(|low| low.value != "0")
            && low.number()? != depth
        {
            return Err(low.wrong("it is not simulated, except as iodepth"));
        }

        let engine = self.engine.unwrap_or(ENGINE);
        if is_synchronous(engine) == Some(false) || depth == 1 {
            return Ok(depth);
        }
        self.leave_out(format!("iodepth ({engine} has one request in flight)"));
        Ok(1)
    }

    /// Checks that offsets are multiples of the request size, fio's default.
    fn check_alignment(&self, request_pages: u32) -> Result<(), FioJobError> {
        let Some(align) = self.align.filter(|align| align.value != "0") else {
            return Ok(());
        };
        if align.request_pages() == Ok(request_pages) {
            return Ok(());
        }
        Err(align.wrong("offsets that are multiples of bs are simulated"))
    }

    fn content(&self, request_pages: u32) -> Result<ContentModel, FioJobError> {
        // Fio's precedence: duplicates, then a pattern, then zeroes.
        if let Some(duplicate_share) = self.dedupe.filter(|share| *share > 0.0) {
            return Ok(ContentModel::Repeat { duplicate_share });
        }

        if let Some(option) = self.pattern
            && !is_same_in_all_pages(option.value, request_pages)
        {
            return Err(option.wrong(
                "a pattern in hexadecimal that is the same in all pages is simulated, such as 0xdeadbeef",
            ));
        }

        let is_constant = self.pattern.is_some() || self.zeroes || self.compressed_away;
        if is_constant {
            // Each write has the content of the previous one.
            return Ok(ContentModel::Repeat {
                duplicate_share: 1.0,
            });
        }

        match self.scramble {
            Some(option) if option.value == "0" && !self.refill => Err(option.wrong(
                "buffers that are written again and again are not simulated; refill_buffers=1 fills them",
            )),
            _ => Ok(ContentModel::Unique),
        }
    }
}

/// Returns true if a pattern repeated in a request makes all its pages equal.
fn is_same_in_all_pages(pattern: &str, request_pages: u32) -> bool {
    let Some(digits) = pattern.strip_prefix("0x") else {
        return false;
    };
    let is_hexadecimal =
        !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    // A pattern whose length divides a page restarts in each; fio's longest has 512 bytes.
    is_hexadecimal && (request_pages == 1 || digits.len().div_ceil(2).is_power_of_two())
}

/// Parses the direction: random offsets or not, and which requests are reads.
fn direction(option: JobOption<'_>) -> Result<(bool, Reads), FioJobError> {
    let (value, modifier) = option.value.split_once(':').unwrap_or((option.value, ""));
    let (random, reads) = match value {
        "read" => (false, Reads::All),
        "write" => (false, Reads::None),
        "rw" | "readwrite" => (false, Reads::Mixed),
        "randread" => (true, Reads::All),
        "randwrite" => (true, Reads::None),
        "randrw" => (true, Reads::Mixed),
        _ => {
            return Err(
                option.wrong("read, write, rw, randread, randwrite and randrw are simulated")
            );
        }
    };

    // After the colon: bytes that sequential offsets skip, or requests for each random offset.
    match (random, modifier) {
        (_, "") | (false, "0") | (true, "1") => Ok((random, reads)),
        _ => Err(option.wrong("what follows the colon changes the offsets, and is not simulated")),
    }
}

/// Parses the parameter of a Zipf distribution; `None`: all offsets are equally likely.
fn distribution(option: JobOption<'_>) -> Result<Option<f64>, FioJobError> {
    match option.value.split_once(':') {
        None if option.value == "random" => Ok(None),
        Some(("zipf", theta)) => {
            let theta = theta
                .parse()
                .map_err(|_| option.wrong("random and zipf:THETA are simulated, THETA a number"))?;
            Ok(Some(theta))
        }
        _ => Err(option.wrong("random and zipf:THETA are simulated")),
    }
}
