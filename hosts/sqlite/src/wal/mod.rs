//! SQLite's write-ahead log in a store, with every page at a multiple of 4096, so that a checkpoint
//! can share it.
//!
//! ```text
//! SQLite:  32 bytes | 24 + page | 24 + page | ..
//! store:   page 0: the 32 bytes | header page, 170 x 24 bytes | 170 pages | header page | 170 pages | ..
//! ```
//!
//! A page that ends in 32 zero bytes carries the 24 bytes of its frame there ([`Mark`]). Any other
//! page is as SQLite wrote it, and the 24 bytes are in the header page of its group. That is
//! decided for each frame each time it is written. Pages smaller than 4096 bytes are stored as
//! SQLite writes them.
//!
//! # State kept between calls, and why it stays valid
//!
//! 1. *Frames not yet in the store.* SQLite holds its write lock from the first frame of a
//!    transaction to its commit or rollback. A commit frame hands over all gathered frames. After a
//!    rollback **the caller must call [`Wal::flush`] before SQLite's write lock is released**, or
//!    these frames would later overwrite those of the next writer. So nothing is gathered while
//!    another connection writes. A failure drops the gathered frames: SQLite gets the error and
//!    rolls back.
//! 2. *Headers for header pages*: as 1. The rest of a header page is read when it is written.
//! 3. *The size of a page.* It cannot change under an open log: SQLite changes it only outside of
//!    WAL mode, and to leave that mode it locks the database exclusively against all connections
//!    that have the log open. It is nevertheless reread from each header that passes, and by `size`
//!    and `truncate`, so that a recovery sees the log's present form. As long as the file has no
//!    valid header, the size is not kept.
//! 4. *That the last call read a whole frame*: until the next call of this connection.
//! 5. *Frames read ahead in a checkpoint*: see `ahead`. A write or truncate by this connection
//!    discards them.
//!
//! # Sizes
//!
//! SQLite counts whole frames, and so does this: a partially written frame counts as whole, the
//! rest being zeroes. After a crash, the size of a log with an open end is that of its file,
//! without a partial last frame.
//!
//! # Crashes
//!
//! Each page of 4096 bytes is the old or the new one; any subset of the writes since the last sync
//! is lost. SQLite's recovery takes frames from the first one on, up to the last commit frame
//! before the first invalid frame: its salts differ from those of the log's header, or its checksum
//! does not match its page and all frames before it. It must find whole transactions, at least
//! those before the last sync.
//!
//! 1. Header and page of a stamped frame are one page, or, of larger pages, the header is in the
//!    last part. They are lost together, or the checksum detects it.
//! 2. Of a raw frame, page or header page may be lost alone. The header is then an older one, and
//!    invalid: one from an earlier round of the log has other salts; one of this round is from a
//!    transaction that was rolled back, or from this one before it rewrote the frame (no other
//!    frame is written twice), and has the checksum of that version. If the page and all before it
//!    are the same in both, the frame is valid, rightly: it is one that was not committed.
//! 3. A lost page may carry the stamp of an earlier frame, which then takes precedence over the
//!    header page. It is a whole older frame, and 2 applies.
//! 4. A header page is rewritten with headers of frames that were synced. Their bytes are the same
//!    in the old and the new page. Only the holder of the write lock writes it, as an update of the
//!    present one.
//! 5. Page 0 is written by a restart, when all frames are durably in the database. Old frames have
//!    other salts.
//! 6. When the log grows over a header page, zeroes for it are written together with the pages
//!    after it. If they are lost, the page is zeroes from when the store gave it to the file, or
//!    one of an earlier round, with other salts.
//!
//! A process may also die between two writes to the store. Pages go first, header pages next, and
//! the run with the commit frame last; readers read only frames in the wal-index, which SQLite
//! writes after the commit frame. A recovery finds a subset as above.
//!
//! Absent: SQLite's own structures beyond salts and the commit mark; exclusion of writers; the
//! wal-index.

mod ahead;
mod gather;
mod layout;
mod stored;

use crate::mark::{HEADER_BYTES, Mark};
use ahead::Ahead;
use gather::{Amount, Frame, Gathered};
use layout::{FILE_HEADER_BYTES, Form, GROUP_FRAMES, Layout, is_commit};
use remap_ssd_media::geometry::PAGE_BYTES;
use remap_ssd_store::{FileId, Store, StoreError};
use std::sync::Arc;
use stored::StoredLog;

const FILE_HEADER: u64 = FILE_HEADER_BYTES as u64;
/// Bytes of pages gathered before they are handed over.
const GATHERED_BYTES: usize = 256 << 10;

/// Counters of writes to the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WalCounters {
    /// Pages that carry the header of their frame.
    pub frames_stamped: u64,
    /// Pages whose headers are in a header page.
    pub frames_raw: u64,
    /// Number of header pages written.
    pub header_pages: u64,
    /// Frames of which SQLite wrote the header alone.
    pub headers_alone: u64,
    /// Frames of which SQLite wrote the page alone.
    pub pages_alone: u64,
    /// Pages of 4096 bytes with frames.
    pub pages: u64,
    /// Writes of such pages, each of contiguous pages.
    pub runs: u64,
}

/// The write-ahead log of a database.
pub(crate) struct Wal {
    stored: StoredLog,
    /// As given by the last valid header.
    form: Option<Form>,
    gathered: Gathered,
    /// Offset in the file of the page read by the last call.
    origin: Option<u64>,
    /// The frame that the last call read as a whole.
    frame_read: Option<u64>,
    /// Present while a checkpoint copies frames.
    ahead: Option<Ahead>,
}

impl Wal {
    /// Opens the log in a file. Nothing is read yet.
    pub(crate) fn open(store: Arc<dyn Store>, file: FileId, mark: Mark) -> Self {
        let stored = StoredLog {
            store,
            file,
            mark,
            stamps: true,
            counters: WalCounters::default(),
        };
        Self {
            stored,
            form: None,
            gathered: Gathered::default(),
            origin: None,
            frame_read: None,
            ahead: None,
        }
    }

    /// Sets whether pages may carry headers. If not, a page that seems to carry one is plain data.
    pub(crate) fn set_stamps(&mut self, allowed: bool) {
        self.stored.stamps = allowed;
    }

    /// SQLite begins to copy frames into the database, or ends. In between they are read ahead.
    pub(crate) fn set_checkpointing(&mut self, checkpointing: bool) {
        self.ahead = checkpointing.then(Ahead::default);
    }

    /// Reads bytes of the log, and zero-fills the rest. Returns the number of bytes read.
    ///
    /// # Errors
    /// The store.
    pub(crate) fn read(&mut self, offset: u64, into: &mut [u8]) -> Result<usize, StoreError> {
        (self.origin, self.frame_read) = (None, None);
        if offset < FILE_HEADER {
            self.forget_form();
        }
        match self.form()? {
            Form::Plain => self.stored.read(offset, into),
            Form::Aligned(layout) => self.read_aligned(layout, offset, into),
        }
    }

    /// Writes bytes of the log. They are gathered until a commit frame is complete or the limit is
    /// reached.
    ///
    /// # Errors
    /// The store. The gathered frames are dropped.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), StoreError> {
        self.origin = None;
        let frame_read = self.frame_read.take();
        let done = self.write_parts(offset, data, frame_read);
        self.dropping(done)
    }

    /// Truncates or extends the log.
    ///
    /// # Errors
    /// The store.
    pub(crate) fn truncate(&mut self, size: u64) -> Result<(), StoreError> {
        self.flush()?;
        self.forget_form();
        match self.form()? {
            Form::Aligned(layout) if size >= FILE_HEADER => {
                let done = self.truncate_aligned(layout, size);
                self.dropping(done)
            }
            _ => {
                self.form = None;
                self.stored.store.set_size(self.stored.file, size)
            }
        }
    }

    /// Size in SQLite's format.
    ///
    /// # Errors
    /// The store.
    pub(crate) fn size(&mut self) -> Result<u64, StoreError> {
        self.forget_form();
        match self.form()? {
            Form::Plain => self.stored.size(),
            Form::Aligned(layout) => self.size_aligned(layout),
        }
    }

    /// Writes all gathered frames to the store, without making them durable. The caller must pass
    /// an error on to SQLite.
    ///
    /// # Errors
    /// The store. The gathered frames are dropped.
    pub(crate) fn flush(&mut self) -> Result<(), StoreError> {
        (self.origin, self.frame_read) = (None, None);
        let done = self.hand_over(Amount::All);
        self.dropping(done)
    }

    /// Writes all gathered frames to the store and makes them durable.
    ///
    /// # Errors
    /// The store.
    pub(crate) fn sync(&mut self) -> Result<(), StoreError> {
        self.flush()?;
        self.stored.store.sync(self.stored.file)
    }

    /// Offset in the store's file of the page that the last call has read. `None` if that was no
    /// read of one whole page of a frame, or if the store does not have the page as it was read.
    pub(crate) fn origin(&self) -> Option<u64> {
        self.origin
    }

    /// Counters so far.
    pub(crate) fn counters(&self) -> WalCounters {
        self.stored.counters
    }

    /// The form of the log. A file without a valid header counts as plain.
    fn form(&mut self) -> Result<Form, StoreError> {
        if self.form.is_none() {
            let (header, _) = self.stored.file_header()?;
            self.form = Form::of(&header);
        }
        Ok(self.form.unwrap_or(Form::Plain))
    }

    /// Forgets the form, to be reread, unless this connection is writing.
    fn forget_form(&mut self) {
        if self.gathered.is_empty() {
            self.form = None;
        }
    }

    /// Drops the gathered frames on failure: SQLite will roll back, and other connections may write
    /// then.
    fn dropping(&mut self, done: Result<(), StoreError>) -> Result<(), StoreError> {
        if done.is_err() {
            self.gathered = Gathered::default();
        }
        done
    }

    fn hand_over(&mut self, amount: Amount) -> Result<(), StoreError> {
        // Frames read ahead may be about to change.
        self.ahead = None;
        match self.form {
            Some(Form::Aligned(layout)) if !self.gathered.is_empty() => {
                self.gathered.hand_over(&mut self.stored, layout, amount)
            }
            // Only frames of the aligned form are gathered.
            _ => Ok(()),
        }
    }

    fn size_aligned(&self, layout: Layout) -> Result<u64, StoreError> {
        let stored = layout.frames(self.stored.size()?);
        Ok(layout.log_bytes(stored.max(self.gathered.end())))
    }

    fn read_aligned(
        &mut self,
        layout: Layout,
        offset: u64,
        into: &mut [u8],
    ) -> Result<usize, StoreError> {
        let place = (offset >= FILE_HEADER).then(|| layout.locate(offset));
        // One whole page, as readers and checkpoints read it: straight from the store into the
        // buffer.
        if let Some((frame, HEADER_BYTES)) = place
            && into.len() == layout.page_bytes
            && !self.gathered.frames.contains_key(&frame)
        {
            let page = layout.page(frame);
            let bytes = match &mut self.ahead {
                Some(ahead) => ahead.read(&self.stored, page, into)?,
                None => self.stored.read(page, into)?,
            };
            let (_, present) = self.stored.unstamp(into, bytes);
            if present {
                self.origin = Some(page);
                return Ok(into.len());
            }
        }

        let left = self.size_aligned(layout)?.saturating_sub(offset);
        let bytes = left.min(into.len() as u64) as usize;
        let (mut rest, behind) = into.split_at_mut(bytes);
        behind.fill(0);
        // SQLite begins to recompute a frame's checksum by reading the whole frame at once
        // (`write_frames`).
        self.frame_read = place
            .filter(|(_, within)| *within == 0 && bytes == layout.frame_bytes())
            .map(|(frame, _)| frame);

        if offset < FILE_HEADER {
            let (header, _) = self.stored.file_header()?;
            let part = &header[offset as usize..];
            let (now, later) = rest.split_at_mut(part.len().min(rest.len()));
            now.copy_from_slice(&part[..now.len()]);
            rest = later;
        }
        let mut at = offset.max(FILE_HEADER);
        while !rest.is_empty() {
            let (frame, within) = layout.locate(at);
            let (now, later) = rest.split_at_mut((layout.frame_bytes() - within).min(rest.len()));
            self.read_frame(layout, frame, within, now)?;
            at += now.len() as u64;
            rest = later;
        }
        Ok(bytes)
    }

    /// Reads bytes of one frame.
    fn read_frame(
        &self,
        layout: Layout,
        number: u64,
        within: usize,
        into: &mut [u8],
    ) -> Result<(), StoreError> {
        let gathered = self.gathered.frames.get(&number);

        // Of a frame that is gathered, header or page may be missing: these are in the store.
        let stored = match gathered {
            Some(Frame {
                header: Some(_),
                page: Some(_),
            }) => None,
            _ => Some(self.stored.page(layout, number)?),
        };

        let header_part = HEADER_BYTES.saturating_sub(within).min(into.len());
        let (header_into, page_into) = into.split_at_mut(header_part);
        if header_part > 0 {
            let stamp = stored.as_ref().and_then(|stored| stored.stamp);
            let header = self.gathered.header(&self.stored, layout, number, stamp)?;
            header_into.copy_from_slice(&header[within..within + header_part]);
        }

        let page = gathered
            .and_then(|frame| frame.page.as_deref())
            .or(stored.as_ref().map(|stored| &stored.page[..]));
        let page = page.expect("it is gathered or stored");
        let from = (within + header_part).saturating_sub(HEADER_BYTES);
        page_into.copy_from_slice(&page[from..from + page_into.len()]);
        Ok(())
    }

    fn write_parts(
        &mut self,
        offset: u64,
        data: &[u8],
        frame_read: Option<u64>,
    ) -> Result<(), StoreError> {
        let in_header = FILE_HEADER.saturating_sub(offset).min(data.len() as u64) as usize;
        let (header, frames) = data.split_at(in_header);
        if !header.is_empty() {
            self.write_file_header(offset as usize, header)?;
        }
        let offset = offset + in_header as u64;
        match self.form()? {
            _ if frames.is_empty() => Ok(()),
            Form::Plain => self.stored.write(offset, frames),
            Form::Aligned(layout) => self.write_frames(layout, offset, frames, frame_read),
        }
    }

    /// Writes bytes of the log's header immediately: SQLite syncs it before the first frame.
    fn write_file_header(&mut self, offset: usize, data: &[u8]) -> Result<(), StoreError> {
        // In the form known now: the header may change it.
        self.hand_over(Amount::All)?;
        let (mut header, there) = self.stored.file_header()?;
        header[offset..offset + data.len()].copy_from_slice(data);
        self.form = Form::of(&header);
        match self.form {
            // Writing a whole page of the disk needs no read.
            Some(Form::Aligned(_)) => {
                let mut page = [0; PAGE_BYTES];
                page[..FILE_HEADER_BYTES].copy_from_slice(&header);
                self.stored.write(0, &page)
            }
            _ => self
                .stored
                .write(0, &header[..there.max(offset + data.len())]),
        }
    }

    fn write_frames(
        &mut self,
        layout: Layout,
        mut at: u64,
        mut data: &[u8],
        frame_read: Option<u64>,
    ) -> Result<(), StoreError> {
        while !data.is_empty() {
            let (number, within) = layout.locate(at);
            let (now, later) = data.split_at((layout.frame_bytes() - within).min(data.len()));
            self.gather(layout, number, within, now)?;

            // A header comes before its page. It comes alone where SQLite recomputes checksums,
            // after it has read the frame.
            let end = within + now.len();
            let is_last_part =
                end == layout.frame_bytes() || end == HEADER_BYTES && frame_read == Some(number);
            let commits = self.gathered.frames[&number]
                .header
                .as_ref()
                .is_some_and(is_commit);
            if is_last_part && commits {
                self.hand_over(Amount::All)?;
            } else if is_last_part
                && self.gathered.frames.len() * layout.page_bytes >= GATHERED_BYTES
            {
                self.hand_over(Amount::Pages)?;
            }
            at += now.len() as u64;
            data = later;
        }
        Ok(())
    }

    /// Gathers bytes of one frame.
    fn gather(
        &mut self,
        layout: Layout,
        number: u64,
        within: usize,
        data: &[u8],
    ) -> Result<(), StoreError> {
        let (header, page) = data.split_at(HEADER_BYTES.saturating_sub(within).min(data.len()));
        let header_in_part = !header.is_empty() && header.len() < HEADER_BYTES;
        let page_in_part = !page.is_empty() && page.len() < layout.page_bytes;
        // A partial write needs the rest of the frame, from the store if it is not gathered.
        let frame = if header_in_part || page_in_part {
            self.gathered.complete(&self.stored, layout, number)?
        } else {
            self.gathered.frames.entry(number).or_default()
        };

        match header.try_into() {
            Ok(whole) => frame.header = Some(whole),
            Err(_) if header.is_empty() => {}
            Err(_) => {
                let known = frame.header.as_mut().expect("the frame is complete");
                known[within..within + header.len()].copy_from_slice(header);
            }
        }
        if page.len() == layout.page_bytes {
            frame.page = Some(page.to_vec());
        } else if page_in_part {
            let from = within.max(HEADER_BYTES) - HEADER_BYTES;
            let known = frame.page.as_mut().expect("the frame is complete");
            known[from..from + page.len()].copy_from_slice(page);
        }
        Ok(())
    }

    fn truncate_aligned(&mut self, layout: Layout, size: u64) -> Result<(), StoreError> {
        let (whole, within) = layout.locate(size);
        let frames = whole + u64::from(within > 0);
        // A partially truncated frame stays, its rest zeroed ("Sizes" above).
        if within > 0 && size < self.size_aligned(layout)? {
            self.gather(
                layout,
                whole,
                within,
                &vec![0; layout.frame_bytes() - within],
            )?;
            self.hand_over(Amount::All)?;
        }
        self.stored
            .store
            .set_size(self.stored.file, layout.file_bytes(frames))?;

        // Headers of frames after the end must not reappear when the log grows.
        if frames % GROUP_FRAMES > 0 {
            let first = (frames % GROUP_FRAMES) as usize;
            let zero = |page: &mut [layout::Header]| page[first..].fill([0; HEADER_BYTES]);
            self.stored
                .change_header_page(layout, frames / GROUP_FRAMES, zero)?;
        }
        Ok(())
    }
}
