//! Workloads by name, as on the command line.
//!
//! ```text
//! randwrite   randread   randrw[:READ%]       uniformly over all pages
//! seqwrite    seqread    seqrw[:READ%]        one after the other
//! zipf:THETA  zipfwrite:THETA  zipfread:THETA  zipfrw:THETA[:READ%]
//! hot:D:R  hotwrite:D:R  hotread:D:R  hotrw:D:R[:READ%]   D % of the pages receive R % of the requests
//! mixed[:READ%]                               same as randrw
//! ...,pages=N                                 requests of N pages instead of one
//! ```
//!
//! Without a share of reads, mixed workloads read half the time. Invariant: `Display` output parses
//! back to the same spec. Absent: contents, the size of the device and the seed, which have their
//! own options.

use std::fmt;
use std::str::FromStr;

use remap_ssd_device::keys::did_you_mean;
use serde::Serialize;

use super::{ContentModel, MODELS, ModelKind, Pattern, WorkloadConfig, WorkloadError};

/// A workload without its contents, device size and seed.
///
/// ```
/// use remap_ssd_sim::workload::{Pattern, WorkloadSpec};
/// let spec: WorkloadSpec = "zipfrw:0.99:70,pages=4".parse().unwrap();
/// assert_eq!(spec.pattern, Pattern::Zipf { theta: 0.99 });
/// assert_eq!((spec.read_percent, spec.request_pages), (70, 4));
/// assert_eq!(spec.to_string(), "zipfrw:0.99:70,pages=4");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct WorkloadSpec {
    /// Distribution of the addresses of requests.
    pub pattern: Pattern,
    /// Percentage of requests that read.
    pub read_percent: u8,
    /// Pages of 4 KiB in a request.
    pub request_pages: u32,
}

impl WorkloadSpec {
    /// The whole configuration, contents counted from 1.
    pub fn config(self, content: ContentModel, addressable: u64, seed: u64) -> WorkloadConfig {
        let Self {
            pattern,
            read_percent,
            request_pages,
        } = self;
        WorkloadConfig {
            pattern,
            read_percent,
            request_pages,
            content,
            addressable,
            seed,
            content_base: 0,
        }
    }
}

const READ_PERCENT_MIXED: &str = "50";

/// The names, for suggestions.
const NAMES: [&str; 13] = [
    "randwrite",
    "randread",
    "randrw",
    "seqwrite",
    "seqread",
    "seqrw",
    "zipf",
    "zipfread",
    "zipfrw",
    "hot",
    "hotread",
    "hotrw",
    "mixed",
];

impl FromStr for WorkloadSpec {
    type Err = WorkloadError;

    fn from_str(text: &str) -> Result<Self, WorkloadError> {
        let (name, options) = match text.split_once(',') {
            Some((name, options)) => (name, Some(options)),
            None => (text, None),
        };

        // The name is the first field, so each form is one pattern below.
        let fields: Vec<&str> = name.split(':').collect();

        let zipf = |theta| {
            Ok::<_, WorkloadError>(Pattern::Zipf {
                theta: number(text, theta)?,
            })
        };

        let hot = |data, requests| {
            Ok::<_, WorkloadError>(Pattern::HotCold {
                data_percent: number(text, data)?,
                request_percent: number(text, requests)?,
            })
        };

        // A mix without a share reads half the time, as in fio.
        let (pattern, reads) = match fields[..] {
            ["randwrite"] => (Pattern::Random, "0"),
            ["randread"] => (Pattern::Random, "100"),
            ["randrw" | "mixed"] => (Pattern::Random, READ_PERCENT_MIXED),
            ["randrw" | "mixed", reads] => (Pattern::Random, reads),
            ["seqwrite"] => (Pattern::Sequential, "0"),
            ["seqread"] => (Pattern::Sequential, "100"),
            ["seqrw"] => (Pattern::Sequential, READ_PERCENT_MIXED),
            ["seqrw", reads] => (Pattern::Sequential, reads),
            ["zipf" | "zipfwrite", theta] => (zipf(theta)?, "0"),
            ["zipfread", theta] => (zipf(theta)?, "100"),
            ["zipfrw", theta] => (zipf(theta)?, READ_PERCENT_MIXED),
            ["zipfrw", theta, reads] => (zipf(theta)?, reads),
            ["hot" | "hotwrite", data, requests] => (hot(data, requests)?, "0"),
            ["hotread", data, requests] => (hot(data, requests)?, "100"),
            ["hotrw", data, requests] => (hot(data, requests)?, READ_PERCENT_MIXED),
            ["hotrw", data, requests, reads] => (hot(data, requests)?, reads),
            ["hot" | "hotwrite" | "hotread" | "hotrw", ..] => {
                return Err(WorkloadError::new(format!(
                    "`{text}`: give the percentage of the pages and that of the requests, as in hot:20:80; \
                     hotrw may have a third, of reads"
                )));
            }
            _ => return Err(unknown(text, fields[0])),
        };

        // Parsed from text, since the forms without a share also have a text default.
        let read_percent: u8 = number(text, reads)?;
        if read_percent > 100 {
            return Err(WorkloadError::new(format!(
                "{read_percent} % reads in `{text}`: at most 100"
            )));
        }

        let request_pages = match options.map(|options| options.strip_prefix("pages=")) {
            // Without an option it is one page; an unknown option is an error.
            None => 1,
            Some(Some(pages)) => number(text, pages)?,
            Some(None) => {
                let reason = format!("the options of `{text}` are `pages=N` and `flush=N`");
                return Err(WorkloadError::new(reason));
            }
        };

        Ok(Self {
            pattern,
            read_percent,
            request_pages,
        })
    }
}

fn unknown(text: &str, name: &str) -> WorkloadError {
    let models = MODELS.map(ModelKind::name);
    WorkloadError::new(format!(
        "unknown workload `{text}`: randwrite, randread, randrw:READ%, seqwrite, seqread, \
         seqrw:READ%, zipf:THETA, zipfread:THETA, zipfrw:THETA:READ%, hot:DATA%:REQUESTS%, \
         hotread or hotrw, each with `,pages=N` if requests have more than one page; or a model: {}{}",
        models.join(", "),
        did_you_mean(name, NAMES.into_iter().chain(models))
    ))
}

fn number<T: FromStr>(text: &str, field: &str) -> Result<T, WorkloadError> {
    let wrong = |_| WorkloadError::new(format!("`{field}` in `{text}` is not a number in range"));
    field.parse().map_err(wrong)
}

impl fmt::Display for WorkloadSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.pattern {
            Pattern::Random => "rand",
            Pattern::Sequential => "seq",
            Pattern::Zipf { .. } => "zipf",
            Pattern::HotCold { .. } => "hot",
        };

        // Only a real mix has the share in its name: for the other two the verb says it.
        let verb = match self.read_percent {
            0 => "write",
            100 => "read",
            _ => "rw",
        };

        write!(f, "{name}{verb}")?;
        match self.pattern {
            Pattern::Zipf { theta } => write!(f, ":{theta}")?,
            Pattern::HotCold {
                data_percent,
                request_percent,
            } => write!(f, ":{data_percent}:{request_percent}")?,
            Pattern::Random | Pattern::Sequential => {}
        }
        if verb == "rw" {
            write!(f, ":{}", self.read_percent)?;
        }
        if self.request_pages != 1 {
            write!(f, ",pages={}", self.request_pages)?;
        }

        Ok(())
    }
}
