//! Statistics of traces and of workloads, with contents of a model.
//!
//! Absent: the counting (`remap_ssd_sim::trace::Profile`), and the table.

use crate::Error;
use crate::reading::{reading_note, torn_note};
use remap_ssd_media::geometry::PAGE_BYTES;
use remap_ssd_sim::source::HostLpn;
use remap_ssd_sim::study::WHOLE_DISK;
use remap_ssd_sim::trace::{Format, Profile, TraceOptions, TraceReader, profile};
use remap_ssd_sim::workload::{ContentModel, Endless, Modelled, NamedWorkload, WorkloadKind};
use serde_json::{Value, json};
use std::path::Path;

/// Logical pages of a device of 32 GiB.
const PAGES_DEFAULT: u64 = 8 << 20;

/// Requests that are read of a workload, which has no end.
const REQUESTS_DEFAULT: u64 = 1_000_000;

/// Parameters of a workload outside of a comparison: size of the device, contents, seed.
#[derive(Clone, Copy, Debug)]
pub struct Feed {
    /// Logical size of the device, in bytes.
    pub device: Option<u64>,
    /// Model of the written contents.
    pub content: Option<ContentModel>,
    /// Seed of all randomness.
    pub seed: u64,
}

/// Statistics of one trace or workload.
///
/// ```
/// use remap_ssd_study::Feed;
///
/// let feed = Feed { device: Some(1 << 30), content: None, seed: 1 };
/// let found = feed.profile(&"zipf:0.9".parse()?, Some(1000), &mut |_| ())?;
/// assert_eq!(found.json()["profile"]["requests"]["all"], 1000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Profiled {
    /// Name of the workload, or of the trace's file.
    pub name: String,
    /// `workload`, or the format of the trace.
    pub kind: String,
    /// The model of its contents; none: those of the trace.
    pub content: Option<ContentModel>,
    /// The statistics.
    pub profile: Profile,
    /// Malformed records that were skipped.
    pub skipped: u64,
    /// Records that are no requests.
    pub ignored: u64,
    /// What a user should know about the trace.
    pub notes: Vec<String>,
}

impl Profiled {
    /// The statistics as JSON.
    pub fn json(&self) -> Value {
        let mut json = json!({
            "name": self.name,
            "kind": self.kind,
            "skipped": self.skipped,
            "ignored": self.ignored,
            "profile": self.profile,
        });
        if let Some(content) = self.content {
            json["content"] = content.to_string().into();
        }
        json
    }
}

impl Feed {
    /// Number of logical pages of the device.
    fn pages(&self, default: u64) -> Result<u64, Error> {
        let Some(bytes) = self.device else {
            return Ok(default);
        };
        let pages = bytes / PAGE_BYTES as u64;
        if (1..=HostLpn::PAGES_MAX).contains(&pages) {
            Ok(pages)
        } else {
            Err(Error::usage(format_args!(
                "--device {bytes} bytes: 4KiB to 128TiB are possible"
            )))
        }
    }

    fn content_of(&self, workload: &NamedWorkload) -> ContentModel {
        let default = || workload.content_default();
        self.content.unwrap_or_else(default)
    }

    /// The requests of a workload.
    ///
    /// # Errors
    /// An impossible size or workload.
    pub fn source(&self, workload: &NamedWorkload) -> Result<Box<dyn Endless + Send>, Error> {
        // A model has the size that it was measured on; a pattern has none.
        let default = match &workload.kind {
            WorkloadKind::Model(spec) => spec.kind.reference_pages().into(),
            WorkloadKind::Pattern(_) => PAGES_DEFAULT,
        };
        let (content, pages) = (self.content_of(workload), self.pages(default)?);
        workload
            .source(content, pages, self.seed, 0)
            .map_err(Error::usage)
    }

    /// Analyses a workload: a million of its requests, or this number.
    ///
    /// # Errors
    /// An impossible workload.
    pub fn profile(
        &self,
        workload: &NamedWorkload,
        requests: Option<u64>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Profiled, Error> {
        let mut source = self.source(workload)?;
        let requests = requests.unwrap_or(REQUESTS_DEFAULT);
        let profile = profile(&mut *source, Some(requests), progress).map_err(Error::failed)?;
        Ok(Profiled {
            name: workload.to_string(),
            kind: "workload".into(),
            content: Some(self.content_of(workload)),
            profile,
            skipped: 0,
            ignored: 0,
            notes: Vec::new(),
        })
    }

    /// Analyses a trace, with the contents of the model if one is given; `options` are taken but for
    /// the number of pages.
    ///
    /// # Errors
    /// An unreadable trace, or one whose own contents the model would replace.
    pub fn profile_trace(
        &self,
        path: &Path,
        format: Option<Format>,
        options: TraceOptions,
        requests: Option<u64>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Profiled, Error> {
        // Models repeat contents of a device's pages; otherwise addresses stay as they are.
        let pages = match self.content {
            Some(_) => self.pages(PAGES_DEFAULT)?,
            None => WHOLE_DISK,
        };
        let options = TraceOptions {
            addressable: pages,
            ..options
        };

        let mut reader = TraceReader::open(path, format, options).map_err(Error::failed)?;
        let profile = match self.content {
            None => profile(&mut reader, requests, progress).map_err(Error::failed)?,
            Some(content) => {
                let source = Modelled::new(reader, content, pages, self.seed, 0);
                let mut source = source.map_err(Error::usage)?;
                let profile = profile(&mut source, requests, progress).map_err(Error::failed)?;
                reader = source.into_inner();
                profile
            }
        };

        // Known only after reading: digests are in the records.
        if self.content.is_some() && reader.has_digests() {
            return Err(Error::usage(format_args!(
                "--content: {}: the trace (format {}) records digests of its contents, which a model of contents would \
                 replace",
                path.display(),
                reader.format()
            )));
        }

        let torn = reader.torn().map(|line| torn_note(path, line));
        let notes = reader.notes();
        let notes = notes.iter().map(|text| reading_note(path, text));
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        Ok(Profiled {
            name: name.into_owned(),
            kind: reader.format().to_string(),
            content: self.content,
            profile,
            skipped: reader.skipped(),
            ignored: reader.ignored(),
            notes: torn.into_iter().chain(notes).collect(),
        })
    }
}
