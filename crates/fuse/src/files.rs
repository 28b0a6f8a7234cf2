//! File system operations: one folder with a file for every namespace or disk.
//!
//! Files are opened for direct I/O, so that the kernel caches none of our data: its
//! acknowledgements are the device's. Punched holes and zeroed ranges are deallocated pages, fsync
//! is Flush, copy_file_range is Copy, which remaps. Invariant: sizes, names and owners never
//! change. Absent: caches, and locks.

use crate::bytes::Bytes;
use crate::delayed::DelayedAnswers;
use crate::disk::DiskError;
use fuser::{
    CopyFileRangeFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, WriteFlags,
};
use remap_ssd_nvme::controller::TRANSFER_BYTES_MAX;
use remap_ssd_nvme::spec::status::Status;
use rustix::fs::FallocateFlags;
use rustix::fs::OFlags;
use std::ffi::OsStr;
use std::io;
use std::time::{Duration, SystemTime};

/// The kernel may cache names and attributes without limit: they do not change.
const FOREVER: Duration = Duration::from_secs(1 << 30);
const BLOCK: u32 = 4096;

/// Name of a namespace's file, like the namespace suffix of a Linux device node.
pub fn file_name(nsid: u32) -> String {
    format!("n{nsid}")
}

/// The mounted folder with a file for each namespace.
pub(crate) struct Files<B> {
    disks: Vec<B>,
    delayed: Option<DelayedAnswers>,
    since: SystemTime,
    uid: u32,
    gid: u32,
}

fn errno(error: DiskError) -> Errno {
    match error {
        // Like Linux for a write past the end of a block device.
        DiskError::Range | DiskError::Device(Status::CAPACITY_EXCEEDED) => Errno::ENOSPC,
        DiskError::Alignment => Errno::EOPNOTSUPP,
        DiskError::Device(Status::WRITE_PROTECTED) => Errno::EROFS,
        DiskError::Device(_) | DiskError::Failed => Errno::EIO,
        DiskError::Gone => Errno::ENODEV,
    }
}

impl<B: Bytes> Files<B> {
    pub(crate) fn new(disks: Vec<B>, delayed: Option<DelayedAnswers>) -> Self {
        let (uid, gid) = (
            rustix::process::getuid().as_raw(),
            rustix::process::getgid().as_raw(),
        );
        Self {
            disks,
            delayed,
            since: SystemTime::now(),
            uid,
            gid,
        }
    }

    fn disk(&self, ino: INodeNo) -> Result<&B, Errno> {
        // Inode 1 is the folder; namespaces follow.
        let index = ino.0.checked_sub(2).ok_or(Errno::EISDIR)?;
        self.disks.get(index as usize).ok_or(Errno::ENOENT)
    }

    fn inode(&self, name: &OsStr) -> Option<INodeNo> {
        let found = self
            .disks
            .iter()
            .position(|disk| OsStr::new(&disk.name()) == name)?;
        Some(INodeNo(found as u64 + 2))
    }

    fn attributes(&self, ino: INodeNo) -> Result<FileAttr, Errno> {
        let (kind, perm, nlink, size) = match self.disk(ino) {
            Ok(disk) => (FileType::RegularFile, 0o600, 1, disk.bytes()),
            Err(Errno::EISDIR) => (FileType::Directory, 0o500, 2, 0),
            Err(error) => return Err(error),
        };

        let at = self.since;

        Ok(FileAttr {
            ino,
            size,
            // All space is reserved, used or not.
            blocks: size / 512,
            atime: at,
            mtime: at,
            ctime: at,
            crtime: at,
            kind,
            perm,
            nlink,
            uid: self.uid,
            gid: self.gid,
            rdev: 0,
            blksize: BLOCK,
            flags: 0,
        })
    }

    fn answer(&self, done_at: u64, answer: impl FnOnce() + Send + 'static) {
        match &self.delayed {
            Some(delayed) => delayed.at(done_at, answer),
            None => answer(),
        }
    }
}

impl<B: Bytes> Filesystem for Files<B> {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Capabilities that the kernel lacks are not needed.
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        let _ = config.set_max_write(TRANSFER_BYTES_MAX);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self
            .inode(name)
            .filter(|_| parent == INodeNo::ROOT)
            .ok_or(Errno::ENOENT);
        match found.and_then(|ino| self.attributes(ino)) {
            // Inode numbers are never reused: one generation is enough.
            Ok(attributes) => reply.entry(&FOREVER, &attributes, Generation(0)),
            Err(error) => reply.error(error),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(ino) {
            Ok(attributes) => reply.attr(&FOREVER, &attributes),
            Err(error) => reply.error(error),
        }
    }

    /// Times are not stored; all other attributes are fixed.
    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _: Option<fuser::TimeOrNow>,
        _: Option<fuser::TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        // Like a block device: opening with O_TRUNC (`cp`, `>`) leaves it unchanged, and no other
        // size can be set. In the first case the kernel sets size 0.
        let keeps_size = |now: &FileAttr| size.is_none_or(|size| size == 0 || size == now.size);

        // Owner and mode are fixed: setting the current values succeeds, as shells expect.
        let changes_nothing = |now: &FileAttr| {
            mode.is_none_or(|mode| mode & 0o7777 == u32::from(now.perm))
                && uid.is_none_or(|uid| uid == now.uid)
                && gid.is_none_or(|gid| gid == now.gid)
        };

        match self.attributes(ino) {
            Ok(now) if !keeps_size(&now) => reply.error(Errno::EINVAL),
            Ok(now) if changes_nothing(&now) => reply.attr(&FOREVER, &now),
            Ok(_) => reply.error(Errno::EPERM),
            Err(error) => reply.error(error),
        }
    }

    fn open(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.disk(ino) {
            // No page cache, and concurrent writes to one file are allowed: the device orders them.
            Ok(_) => reply.opened(
                FileHandle(0),
                FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES,
            ),
            Err(error) => reply.error(error),
        }
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self
            .disk(ino)
            .and_then(|disk| disk.read(offset, size).map_err(errno))
        {
            Ok((data, done_at)) => self.answer(done_at, move || reply.data(&data)),
            Err(error) => reply.error(error),
        }
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        // O_SYNC has the bit of O_DSYNC.
        let through = OFlags::from_bits_retain(flags.0 as u32).contains(OFlags::DSYNC);

        match self
            .disk(ino)
            .and_then(|disk| disk.write(offset, data, through).map_err(errno))
        {
            Ok((written, done_at)) => self.answer(done_at, move || reply.written(written)),
            Err(error) => reply.error(error),
        }
    }

    /// Called at each close of a file, which promises no durability: that is fsync's.
    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        match self.disk(ino).and_then(|disk| disk.flush().map_err(errno)) {
            Ok(done_at) => self.answer(done_at, move || reply.ok()),
            Err(error) => reply.error(error),
        }
    }

    fn fallocate(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let disk = match self.disk(ino) {
            Ok(disk) => disk,
            Err(error) => return reply.error(error),
        };

        let mode = FallocateFlags::from_bits_retain(mode as u32);
        let inside = offset
            .checked_add(length)
            .is_some_and(|end| end <= disk.bytes());
        let keeps_size = mode.contains(FallocateFlags::KEEP_SIZE);
        let what = mode - FallocateFlags::KEEP_SIZE;

        // Past the end without KEEP_SIZE requests a larger file, but sizes are fixed.
        if !inside && !keeps_size {
            return reply.error(Errno::EFBIG);
        }

        if what.is_empty() {
            // All space is already allocated.
            return reply.ok();
        }

        // Other modes move data or undo sharing, for which no command exists.
        if what != FallocateFlags::PUNCH_HOLE && what != FallocateFlags::ZERO_RANGE {
            return reply.error(Errno::EOPNOTSUPP);
        }

        match disk.zero(offset, length).map_err(errno) {
            Ok(done_at) => self.answer(done_at, move || reply.ok()),
            Err(error) => reply.error(error),
        }
    }

    fn copy_file_range(
        &self,
        _: &Request,
        ino_in: INodeNo,
        _: FileHandle,
        offset_in: u64,
        ino_out: INodeNo,
        _: FileHandle,
        offset_out: u64,
        len: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        // The number of bytes in the answer has 32 bits.
        let len = len.min(1 << 30);

        let copied = self.disk(ino_in).and_then(|from| {
            self.disk(ino_out)?
                .copy(offset_out, from, offset_in, len)
                .map_err(errno)
        });

        match copied {
            Ok((copied, done_at)) => self.answer(done_at, move || reply.written(copied as u32)),
            Err(error) => reply.error(error),
        }
    }

    fn readdir(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        if ino != INodeNo::ROOT {
            return reply.error(Errno::ENOTDIR);
        }

        let dots = [".", ".."].map(|name| (INodeNo::ROOT, FileType::Directory, name.to_owned()));
        let files = self.disks.iter().zip(2..);
        let files = files.map(|(disk, ino)| (INodeNo(ino), FileType::RegularFile, disk.name()));

        // `next` is where the kernel continues if its buffer is full. It counts from 1: offset 0 is
        // the beginning.
        for ((ino, kind, name), next) in
            dots.into_iter().chain(files).zip(1..).skip(offset as usize)
        {
            if reply.add(ino, next, kind, name) {
                break;
            }
        }

        reply.ok();
    }

    /// The folder never changes, so it is always durable.
    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    /// Not supported; the kernel does not ask again.
    fn getxattr(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        // No block and no inode is free: all space is reserved, and files cannot be created.
        let blocks = self.disks.iter().map(B::bytes).sum::<u64>() / u64::from(BLOCK);
        reply.statfs(blocks, 0, 0, self.disks.len() as u64, 0, BLOCK, 255, BLOCK);
    }
}
