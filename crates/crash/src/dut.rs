//! One device with its host: the firmware under test, and the model.
//!
//! Invariants: every command goes to both; commands stay in flight until `acknowledge` settles the
//! operations that their acknowledgement waits for, and in the models until that promises that they are durable; with larger indirection units, LPNs are pages of 4 KiB, above their layer. Absent: power cuts and recovery (the
//! campaign's).

use crate::content::{Content, LOST, ZEROES};
use crate::damage::DamageDoubts;
use crate::files::{self, FileModel};
use crate::history::{DeviceEvent, History};
use crate::oracle::{CommandId, Oracle};
use crate::promise::{CommandInFlight, Promise, UnflushedWrites};
use crate::script::{CommandGenerator, ScriptCommand, content_of_many};
use crate::setup::Setup;
use crate::steps::{StepText, StepTrace};
use remap_ssd_device::IndirectionUnits;
use remap_ssd_ftl::{FileStatus, Ftl, Lpn, Refusal};
use remap_ssd_media::geometry::PAGE_BYTES;
use remap_ssd_media::{ContentMode, Media, Page, Payload, Ppn};
use std::collections::BTreeMap;

/// A violation of the device's guarantees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// Description of the violation.
    pub text: String,
    /// The LPN concerned.
    pub lpn: Option<Lpn>,
    /// Recovery refused because of damage where FORMAT.md allows it: not a finding.
    pub is_refusal: bool,
}

impl Failure {
    /// A violation that concerns the whole device.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            lpn: None,
            is_refusal: false,
        }
    }

    /// A violation that concerns one LPN.
    pub(crate) fn of_lpn(text: impl Into<String>, lpn: Lpn) -> Self {
        Self {
            lpn: Some(lpn),
            ..Self::new(text)
        }
    }
}

/// A powered-on device.
pub(crate) struct DeviceUnderTest {
    /// The firmware under test, with its media.
    pub ftl: Ftl,
    /// The layer of indirection units above it, if they are larger than a page.
    pub units: Option<IndirectionUnits>,
    /// Model of the readable contents.
    pub oracle: Oracle,
    /// LPNs that may be media errors.
    pub doubts: DamageDoubts,
    /// The model of the file map.
    pub files: FileModel,
    /// Generator of the host's commands.
    pub generator: CommandGenerator,
    /// Commands submitted and not acknowledged.
    pub in_flight: Vec<CommandInFlight>,
    /// Acknowledged writes that a cut may undo.
    pub unflushed: UnflushedWrites,
    /// Blocks that will still fail.
    pub faults_left: u32,
    /// The device is at the end of its life. The refused command may have been executed in part,
    /// and stays in flight until the end.
    pub read_only: bool,
    /// A cut left one page shared by an LPN that is kept apart and another LPN.
    pub cut_in_move: bool,
    /// The steps of the firmware, if they are wanted.
    pub trace: Option<StepTrace>,
}

impl DeviceUnderTest {
    /// Formats a new device, with nothing in flight.
    ///
    /// # Errors
    /// The firmware refuses the configuration.
    pub(crate) fn format(
        setup: &Setup,
        seed: u64,
        steps: Option<&StepText>,
    ) -> Result<Self, Failure> {
        let words = setup.config.nvram_words(&setup.geometry);
        let mut media = Media::blank(setup.geometry, setup.mode, words);
        media.attach_rail();
        if steps.is_some() {
            media.watch_rail();
        }
        let mut ftl = Ftl::format(media, setup.config.clone())
            .map_err(|error| Failure::new(error.to_string()))?;
        // Formatting is durable before the first cut.
        ftl.media_mut().settle_all();
        let mut trace = steps.map(|text| StepTrace::begin(setup, &ftl, text.clone()));
        if let Some(trace) = &mut trace {
            trace.take(&mut ftl, &[]);
        }
        ftl.media_mut().ops.clear();
        keep_apart(&mut ftl, setup);

        let atomic_pages = if setup.atomic() {
            ftl.atomic_pages_max() * setup.geometry.host_pages()
        } else {
            0
        };
        let units = IndirectionUnits::of(&ftl);
        // With larger units, a write may take a part of one more.
        let bytes = setup.config.untorn_bytes;
        let most = (bytes / PAGE_BYTES as u64) as u32;
        let untorn = match ftl.untorn_pages_max() {
            1 => 1,
            units => ((units - 1) * setup.geometry.host_pages() + 1).min(most),
        };
        // Pages in a write buffer may be remapped there, each alone.
        let names = setup.config.write_buffer_bytes > 0;
        let untorn_remaps = match untorn {
            untorn if units.is_none() && !names => untorn.min(ftl.atomic_pages_max()),
            _ => 1,
        };
        Ok(Self {
            units,
            ftl,
            oracle: Oracle::new(setup.lpns()).with_untorn(untorn, untorn_remaps),
            doubts: DamageDoubts::new(setup.lpns()),
            files: FileModel::default(),
            generator: CommandGenerator::new(
                seed,
                setup.lpns(),
                setup.mix,
                atomic_pages,
                setup.config.scheme.uses_hints(),
            )
            .on_units(setup.geometry.host_pages())
            .with_untorn(untorn),
            in_flight: Vec::new(),
            unflushed: UnflushedWrites::default(),
            faults_left: setup.bad_blocks,
            read_only: false,
            cut_in_move: false,
            trace,
        })
    }

    /// Submits a command, to the firmware and to the model.
    ///
    /// # Errors
    /// The firmware refuses it.
    pub(crate) fn submit(
        &mut self,
        command: ScriptCommand,
        history: &mut History,
    ) -> Result<(), Failure> {
        history.push(DeviceEvent::Submitting(command));

        // Between these two calls the media collect the operations that the acknowledgement waits
        // for.
        self.ftl.media_mut().begin_command();
        if let Some(trace) = &mut self.trace {
            trace.command(&mut self.ftl, &command);
        }
        let result = self.execute(&command);
        let ack = self.ftl.media_mut().take_ack();
        self.ftl.media_mut().ops.clear();

        // Only on a device whose blocks wear out: any other must never refuse a write.
        self.read_only = result == Err(Refusal::ReadOnly) && self.ftl.config().pe_limit > 0;
        let result = if self.read_only { Ok(None) } else { result };
        let status = result.map_err(|refusal| {
            Failure::new(format!("the firmware refuses '{command}': {refusal}"))
        })?;

        // Background work is never acknowledged, and invisible to a host.
        if !matches!(command, ScriptCommand::Background { .. }) {
            let id = self.oracle.submit(&command);
            self.doubts.submit(id, &command);
            history.push(if self.read_only {
                DeviceEvent::WornOut(id, command)
            } else {
                DeviceEvent::Submitted(id, command)
            });
            match (command, status) {
                (ScriptCommand::FileWrite { lpn, page, .. }, Some(status)) => {
                    self.files
                        .submit(id, (page, lpn), status, self.ftl.config())
                        .map_err(Failure::new)?;
                }
                (ScriptCommand::FileReset, _) => self.files.reset(id),
                _ => {}
            }
            if !self.read_only {
                let promise = Promise::of(&command, self.ftl.config(), self.units.is_some());
                let said = self
                    .trace
                    .as_mut()
                    .map(|trace| trace.executed(&command, &mut self.ftl, self.oracle.live()));
                self.in_flight.push(CommandInFlight {
                    id,
                    ack,
                    promise,
                    said,
                });
            }
        } else {
            history.push(DeviceEvent::Idled);
        }
        Ok(())
    }

    /// Submits a command that must be refused and change nothing.
    ///
    /// # Errors
    /// It was not refused, or not for this reason.
    pub(crate) fn submit_refused(
        &mut self,
        (command, reason): (ScriptCommand, Refusal),
    ) -> Result<(), Failure> {
        match self.execute(&command) {
            Err(refusal) if refusal == reason => Ok(()),
            // Found first: the command's pages are no whole units.
            Err(Refusal::AtomicPartial) if self.units.is_some() => Ok(()),
            other => Err(Failure::new(format!(
                "'{command}' must be refused ({reason}) and ends with {other:?}"
            ))),
        }
    }

    /// Writes a page. `goes_on`: the command has more.
    fn write(
        &mut self,
        lpn: Lpn,
        content: Content,
        home: Option<Lpn>,
        goes_on: bool,
    ) -> Result<(), Refusal> {
        let mut page = [0; PAGE_BYTES];
        let payload = payload(self.ftl.media().mode(), content, &mut page);
        match (&mut self.units, home) {
            (Some(units), _) => units.write(&mut self.ftl, lpn, &payload, home, goes_on),
            (None, Some(home)) => self.ftl.write_for(lpn, &payload, home),
            (None, None) if goes_on => self.ftl.write_more(lpn, &payload),
            (None, None) => self.ftl.write(lpn, &payload),
        }
    }

    fn begin_write(&mut self, lpn: Lpn, len: u32) -> Result<(), Refusal> {
        match &mut self.units {
            None => self.ftl.begin_write(lpn, len),
            Some(units) => units.begin_write(&mut self.ftl, lpn, len),
        }
    }

    fn execute(&mut self, command: &ScriptCommand) -> Result<Option<FileStatus>, Refusal> {
        let done = match *command {
            ScriptCommand::FileWrite { lpn, content, page } => {
                return self
                    .ftl
                    .fs_write(
                        lpn,
                        &payload(self.ftl.media().mode(), content, &mut [0; PAGE_BYTES]),
                        page,
                    )
                    .map(Some);
            }
            ScriptCommand::FileReset => self.ftl.fs_reset(),
            ScriptCommand::Write { lpn, content } => self.write(lpn, content, None, false),
            ScriptCommand::WriteMany {
                lpn,
                len,
                source,
                fresh,
            } => self.begin_write(lpn, len).and_then(|()| {
                (0..len).try_for_each(|at| {
                    // Contents before the command: none of its pages repeats another one of its
                    // pages.
                    let content = content_of_many(self.oracle.live(), source, fresh, at);
                    self.write(lpn.offset(at), content, None, at + 1 < len)
                })
            }),
            ScriptCommand::WriteFor { lpn, content, home } => {
                self.write(lpn, content, Some(home), false)
            }
            ScriptCommand::Deallocate { lpn, len } => match &mut self.units {
                None => self.ftl.deallocate(lpn, len),
                Some(units) => units.zero(&mut self.ftl, lpn, len),
            },
            ScriptCommand::Remap(remap) => match &mut self.units {
                None => self.ftl.remap(&remap),
                Some(units) => units.remap(&mut self.ftl, &remap),
            },
            ScriptCommand::Flush => self.ftl.flush(),
            ScriptCommand::Background { steps } => {
                // Stops when nothing is left to do.
                for _ in 0..steps {
                    if !self.ftl.background() {
                        break;
                    }
                }
                Ok(())
            }
        };

        done.map(|()| None)
    }

    /// The host sees the acknowledgement of command `at` of those in flight.
    pub(crate) fn acknowledge(&mut self, at: usize, history: &mut History) {
        let CommandInFlight {
            id,
            ack,
            promise,
            said,
        } = self.in_flight.swap_remove(at);
        self.ftl.media_mut().settle(&ack);
        if let (Some(trace), Some(said)) = (&mut self.trace, said) {
            trace.acknowledge(&mut self.ftl, &said);
        }
        self.is_acknowledged(id, promise);
        history.push(DeviceEvent::Acknowledged(id));
    }

    /// All operations in flight complete, and the host sees all acknowledgements. On a device with a volatile write
    /// buffer that of a flush is the last one.
    pub(crate) fn catch_up(&mut self, history: &mut History) -> Result<(), Failure> {
        if self.ftl.config().has_volatile_buffer() {
            self.submit(ScriptCommand::Flush, history)?;
        }
        self.ftl.media_mut().settle_all();
        for command in std::mem::take(&mut self.in_flight) {
            let CommandInFlight {
                id, promise, said, ..
            } = command;
            if let (Some(trace), Some(said)) = (&mut self.trace, said) {
                trace.acknowledge(&mut self.ftl, &said);
            }
            self.is_acknowledged(id, promise);
        }
        history.push(DeviceEvent::CaughtUp);
        Ok(())
    }

    /// Makes the commands durable in the models that this acknowledgement promises to be.
    fn is_acknowledged(&mut self, id: CommandId, promise: Promise) {
        for id in self.unflushed.acknowledge(id, promise) {
            self.oracle.acknowledge(id);
            self.doubts.acknowledge(id);
            self.files.acknowledge(id);
        }
    }

    /// All operations in flight complete; the host has not been notified.
    pub(crate) fn settle_all(&mut self, history: &mut History) {
        self.ftl.media_mut().settle_all();
        history.push(DeviceEvent::Settled);
    }

    /// Reads every LPN into `read`.
    ///
    /// # Errors
    /// The first LPN that cannot be read.
    pub(crate) fn observe(&mut self, read: &mut Vec<Content>) -> Result<(), Failure> {
        read.clear();
        for lpn in Lpn::range(Lpn::ZERO, self.oracle.live().len() as u32) {
            let found = match &mut self.units {
                None => self.ftl.read(lpn),
                Some(units) => units.read(&mut self.ftl, lpn),
            };
            let content = match found {
                // No doubt excuses this: damaged media may lose data, but never return other data.
                Ok(page) => content(&page).ok_or_else(|| {
                    Failure::of_lpn(format!("LPN {lpn} reads what was never written"), lpn)
                })?,
                Err(Refusal::MediaError) if self.doubts.may_be_lost(lpn) => LOST,
                Err(refusal) => {
                    return Err(Failure::of_lpn(
                        format!("LPN {lpn} cannot be read: {refusal}"),
                        lpn,
                    ));
                }
            };
            read.push(content);
        }
        if let Some(trace) = &mut self.trace {
            trace.shown(&mut self.ftl, read);
        }

        self.ftl.media_mut().ops.clear();
        Ok(())
    }

    /// Checks, while power is on, that every LPN reads as its newest command left it, and that all
    /// tables are consistent.
    ///
    /// # Errors
    /// The first inconsistency.
    pub(crate) fn verify_live(&mut self, read: &mut Vec<Content>) -> Result<(), Failure> {
        self.check_tables()?;
        let (listed, live) = (
            files::observe(&mut self.ftl).map_err(Failure::new)?,
            self.files.live(),
        );

        if listed != live {
            return Err(Failure::new(format!(
                "power is on, the file map lists {listed:?} and not {live:?}"
            )));
        }

        self.observe(read)?;
        let wrong = self
            .oracle
            .live()
            .iter()
            .zip(read.iter())
            .position(|(live, read)| !self.oracle.reads(*live, *read));
        wrong.map_or(Ok(()), |lpn| {
            let (live, read) = (self.oracle.live()[lpn], read[lpn]);
            let (read, live) = (crate::content::name(read), crate::content::name(live));
            Err(Failure::of_lpn(
                format!("power is on, LPN {lpn} reads {read} and not {live}"),
                Lpn(lpn as u32),
            ))
        })
    }

    /// # Errors
    /// The error of the firmware's own check.
    pub(crate) fn check_tables(&self) -> Result<(), Failure> {
        self.ftl
            .check()
            .map_err(|text| Failure::new(format!("the firmware's tables disagree: {text}")))?;
        self.check_apart()
    }

    /// Checks that no LPN that is kept apart shares a page with another LPN. Each was kept apart
    /// before its first write; only a cut during a move can leave its page with both.
    pub(crate) fn check_apart(&self) -> Result<(), Failure> {
        if self.ftl.apart().is_empty() || self.cut_in_move {
            return Ok(());
        }

        let mut owners: BTreeMap<Ppn, Lpn> = BTreeMap::new();
        for lpn in Lpn::range(Lpn::ZERO, self.ftl.config().lpns) {
            let Some(ppn) = self.ftl.place(lpn) else {
                continue;
            };
            let is_apart = |lpn: &Lpn| self.ftl.apart().iter().any(|lpns| lpns.contains(lpn));
            if let Some(other) = owners.insert(ppn, lpn)
                && (is_apart(&lpn) || is_apart(&other))
            {
                return Err(Failure::of_lpn(
                    format!("LPN {lpn} shares a page with LPN {other}, though one is kept apart"),
                    lpn,
                ));
            }
        }
        Ok(())
    }
}

/// Configures at power-on the LPNs that share nothing: two ranges, with others before, between and
/// after.
pub(crate) fn keep_apart(ftl: &mut Ftl, setup: &Setup) {
    if setup.apart {
        let eighth = setup.config.lpns / 8;
        ftl.keep_apart(Lpn(eighth)..Lpn(2 * eighth));
        ftl.keep_apart(Lpn(4 * eighth)..Lpn(5 * eighth));
    }
}

/// The payload of a write of `content`: in bytes mode, the number repeated.
fn payload(mode: ContentMode, content: Content, page: &mut [u8; PAGE_BYTES]) -> Payload<'_> {
    if mode != ContentMode::Bytes {
        return Payload::Identity(content);
    }
    for chunk in page.chunks_exact_mut(8) {
        chunk.copy_from_slice(&content.to_le_bytes());
    }
    Payload::Bytes(page)
}

fn content(page: &Page) -> Option<Content> {
    match page {
        Page::Zeroes => Some(ZEROES),
        Page::Unknown => None,
        Page::Identity(identity) => Some(*identity),
        Page::Bytes(bytes) => {
            // All words must be equal, as they were written: detects a mixture of two pages.
            let mut words = bytes
                .chunks_exact(8)
                .map(|word| Content::from_le_bytes(word.try_into().expect("8 bytes")));
            let first = words.next()?;
            words.all(|word| word == first).then_some(first)
        }
    }
}
