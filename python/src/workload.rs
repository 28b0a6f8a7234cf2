//! Requests made by a Python function, as a source of page operations.
//!
//! Python yields batches of checked rows (`remap_ssd/_workload.py`); here they become pages.
//! Invariants: every run calls the function anew; what it raises ends the run, and is raised by
//! `compare`. Absent: checks of rows.

use pyo3::prelude::*;
use pyo3::types::PyIterator;
use remap_ssd_sim::source::{HostLpn, HostPage, PageKind, Source, SourceError};
use remap_ssd_sim::study::Recorded;
use remap_ssd_sim::trace::TraceOptions;
use std::sync::{Arc, Mutex, PoisonError};

/// The exception that ended a run.
pub(crate) type Raised = Arc<Mutex<Option<PyErr>>>;

/// A function from the number of addressable pages to batches of rows.
#[derive(Debug)]
pub(crate) struct PythonRequests {
    name: String,
    batches: Py<PyAny>,
    raised: Raised,
}

/// A row: letter, first page, number of pages, source of a remap, time in ns, contents from 1.
type Row = (u8, u64, u64, u64, u64, Vec<u64>);

impl PythonRequests {
    pub(crate) fn new(name: String, batches: Py<PyAny>, raised: Raised) -> Self {
        Self {
            name,
            batches,
            raised,
        }
    }
}

impl Recorded for PythonRequests {
    fn name(&self) -> &str {
        &self.name
    }

    fn replay(&self, options: TraceOptions) -> Result<Box<dyn Source>, SourceError> {
        let batches = Python::attach(|py| {
            let batches = self.batches.call1(py, (options.addressable,))?;
            Ok(batches.bind(py).try_iter()?.unbind())
        });
        let mut source = PythonSource {
            name: self.name.clone(),
            batches: None,
            base: options.content_base,
            raised: Arc::clone(&self.raised),
        };
        source.batches = Some(batches.map_err(|error| source.ended_by(error))?);
        Ok(Box::new(source))
    }
}

struct PythonSource {
    name: String,
    batches: Option<Py<PyIterator>>,
    /// Contents have identities above this one.
    base: u64,
    raised: Raised,
}

impl PythonSource {
    fn ended_by(&self, error: PyErr) -> SourceError {
        let reason = error.to_string();
        *self.raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        SourceError::Unusable {
            file: self.name.clone(),
            reason,
        }
    }

    fn append(&self, row: &Row, out: &mut Vec<HostPage>) {
        let &(verb, lpn, count, source, at_ns, ref contents) = row;
        let page = |lpn: u64, kind: PageKind, content: u64, last: bool| HostPage {
            at_ns,
            content,
            lpn: HostLpn::new(lpn),
            kind,
            last,
        };
        let remap = |relocate| PageKind::Remap {
            source: HostLpn::new(source),
            len: u16::try_from(count).expect("Python has checked the length"),
            relocate,
            atomic: false,
        };

        let kind = match verb {
            b'C' => return out.push(page(lpn, remap(false), 0, true)),
            b'M' => return out.push(page(lpn, remap(true), 0, true)),
            b'F' => return out.push(page(0, PageKind::Flush, 0, true)),
            b'W' => PageKind::Write,
            b'P' => PageKind::ReadModifyWrite,
            b'D' => PageKind::Trim,
            _ => PageKind::Read,
        };
        out.extend((0..count).map(|at| {
            let content = contents.get(at as usize).map_or(0, |own| self.base + own);
            page(lpn + at, kind, content, at + 1 == count)
        }));
    }
}

impl Source for PythonSource {
    fn fill(&mut self, out: &mut Vec<HostPage>, _want: usize) -> Result<bool, SourceError> {
        // A batch is small.
        let next = Python::attach(|py| {
            let Some(batches) = &self.batches else {
                return Ok(None);
            };
            let next = batches.bind(py).clone().next();
            next.map(|batch| batch?.extract::<Vec<Row>>()).transpose()
        });
        let rows = next.map_err(|error| self.ended_by(error))?;
        let Some(rows) = rows else {
            return Ok(false);
        };
        rows.iter().for_each(|row| self.append(row, out));
        Ok(true)
    }
}
