// SPDX-License-Identifier: GPL-2.0
/*
 * fsync without node blocks: a data write tells the drive which block of which file it is, and node blocks wait for
 * the checkpoint. After PebbleSSD (MEMSYS'17), sections 4.2.2 and 5.2; the drive's commands are 91h, 92h and 94h of
 * docs/nvme-vendor.md.
 *
 * An epoch is the time from one checkpoint to the next. In an epoch a regular file is in one of these states, which
 * are kept by inode number (an inode may leave memory) and forgotten by the checkpoint:
 *
 *   (none)    nothing has happened to it
 *   WANTED    it was synced: its data are written out of place from now on, by 91h, also by the flusher
 *   LISTED    a 91h was sent for it
 *   NODED     an fsync wrote its node blocks, with the mark by which stock recovery finds them
 *   BARRED    something has changed that a list cannot say: see below
 *
 * A file is never LISTED and NODED in one epoch: an fsync of a file that is LISTED and BARRED writes a checkpoint.
 * BARRED are files of which a block was moved, freed or written otherwise (all changes of a block's address pass
 * f2fs_set_data_blkaddr()), whose last page was written in place (its size may have grown), or whose inode was changed
 * in anything but size, blocks and times (all such changes pass f2fs_mark_inode_dirty_sync()).
 *
 * What an entry says: the file, and in the 32 bits of its offset the block, and the file's size where it ends in that
 * block (see entry_of()). A file's times are not in it: a recovered file has the time of its recovery.
 *
 * The first entry of an epoch is its mark: a file number that no inode has, with the checkpoint's version, and its
 * checksum for the offset. It is acknowledged before any other entry is sent.
 *
 * Crash argument. Let C be the last complete checkpoint, and L the drive's lists.
 *
 * 1. L has entries of one epoch at most. The lists are reset before a mark is written (mark_epoch()), and entries
 *    follow the mark. A checkpoint waits for all 91h in flight (they count as F2FS_WB_CP_DATA) while it admits no new
 *    one (they are sent under f2fs_lock_op()). A 91h whose end is unknown ends the use of lists until the next mount,
 *    so that the epochs in which it could still arrive have no mark.
 * 2. L is replayed if its mark names C, and only then. Cut before the checkpoint that ends an epoch is complete: L's
 *    mark names C. Cut after it: the mark names C's predecessor, whether or not the reset (94h) was executed. All that
 *    L says is in C then, and replaying it would bring back what has been freed or replaced since.
 * 3. What a returned fsync promised is in C, or in L, or in node blocks. LISTED and not BARRED: each change since C
 *    was a 91h, which was acknowledged (fsync waits for writeback) and flushed (fsync flushes the drive, which keeps
 *    mark and entries then). LISTED and BARRED: a checkpoint. Else: as stock.
 * 4. Entries name blocks that still have their data. A block that was allocated since C is neither reused nor
 *    discarded before the next checkpoint, also when cleaning has moved it: SSR looks at ckpt_valid_map, which
 *    allocation sets, and free segments come from the checkpoint. In place it is overwritten only by the file's own
 *    later data.
 * 5. L's order within a file is that of the writes: a page under writeback is not written again. L holds nothing of
 *    what followed a truncation, a move or a rename, since the file was BARRED; and a promise after that was C.
 * 6. Node blocks and lists do not meet: files are different (the exception, an fsync whose node blocks fall into the
 *    epoch after its own, says nothing that the later entries of L do not replace rightfully). Recovery replays L
 *    after the node blocks, which may have deleted a file of L, and before new segments are chosen. It writes
 *    nothing before its checkpoint: a cut during recovery is one before it.
 *
 * Absent: files that are new since the checkpoint, have inline data, or are encrypted, verified, compressed, pinned,
 * cold, or written atomically; directories; volumes of several devices, zoned ones, with quota, or with fsync_mode=strict.
 * All of these are synced as ever. So is all after a mount by another module: mount a volume with this one after a
 * crash, since another ignores the lists.
 */

#include <linux/blk-mq.h>
#include <linux/blkdev.h>
#include <linux/f2fs_fs.h>
#include <linux/fs.h>
#include <linux/quotaops.h>
#include <linux/sched/mm.h>
#include <linux/xarray.h>

#include "f2fs.h"
#include "node.h"
#include "segment.h"
#include "remap.h"
#include "fswrite-internal.h"
#include "nvme.h"

/* Of a file, in an epoch. */
#define WANTED		BIT(0)
#define LISTED		BIT(1)
#define NODED		BIT(2)
#define BARRED		BIT(3)
/* Its inode was changed while a checkpoint was written, which may have looked at it before: this outlives one. */
#define BARRED_INODE	BIT(4)
#define BARRED_BEFORE	BIT(5)
#define ANY_BARRED	(BARRED | BARRED_INODE | BARRED_BEFORE)

/* A 91h in flight. */
struct listed_write {
	struct work_struct work;
	struct f2fs_fswrite *w;
	struct page *page;
	nid_t ino;
	block_t block;
	int status;
	u32 reason;	/* why it was not listed */
};

/* --- the drive --- */

static void address(struct f2fs_sb_info *sbi, struct nvme_ns *ns, struct nvme_command *c, block_t block)
{
	unsigned int shift = F2FS_BLKSIZE_BITS - ns->head->lba_shift;
	u64 lba = (fsw_base_page(sbi) + block) << shift;

	c->common.cdw10 = cpu_to_le32(lower_32_bits(lba));
	c->common.cdw11 = cpu_to_le32(upper_32_bits(lba));
	c->common.cdw12 = cpu_to_le32((1 << shift) - 1);
}

/* One command, and its status. */
int fsw_ask(struct f2fs_sb_info *sbi, struct nvme_command *c, block_t block, void *data, unsigned int bytes)
{
	struct nvme_ns *ns;
	unsigned int flags;
	int srcu, status;

	ns = f2fs_get_namespace(sbi, &srcu);
	if (!ns)
		return -ENODEV;
	c->common.nsid = cpu_to_le32(ns->head->ns_id);
	if (c->common.opcode == FSW_WRITE)
		address(sbi, ns, c, block);
	flags = memalloc_noio_save();
	status = nvme_submit_sync_cmd(ns->queue, c, data, bytes);
	memalloc_noio_restore(flags);
	f2fs_put_namespace(ns, srcu);
	return status > 0 ? status & 0x7ff : status;
}

static int reset_lists(struct f2fs_fswrite *w)
{
	struct nvme_command c = { .common = { .opcode = FSW_RESET } };
	int status = fsw_ask(w->sbi, &c, 0, NULL, 0);

	if (status) {
		f2fs_warn(w->sbi, "the drive does not reset its file lists (status %#x): they are not used", status);
		return -EIO;
	}
	w->filled = false;
	atomic_long_inc(&w->resets);
	return 0;
}

/* --- states --- */

static unsigned long state_of(struct f2fs_fswrite *w, nid_t ino)
{
	void *entry = xa_load(&w->files, ino);

	return entry ? xa_to_value(entry) : 0;
}

/* To be called with the lock of `files`. Without memory the whole epoch does without lists. */
static void set_state(struct f2fs_fswrite *w, nid_t ino, unsigned long state)
{
	void *old = state ? __xa_store(&w->files, ino, xa_mk_value(state), GFP_NOWAIT) :
			    __xa_erase(&w->files, ino);

	if (xa_is_err(old))
		WRITE_ONCE(w->off, true);
}

static void bar(struct f2fs_fswrite *w, nid_t ino, unsigned long how)
{
	unsigned long state = state_of(w, ino);

	if ((state & how) == how)
		return;
	xa_lock(&w->files);
	set_state(w, ino, state_of(w, ino) | how);
	xa_unlock(&w->files);
}

static bool tracked(struct inode *inode)
{
	struct f2fs_sb_info *sbi = F2FS_I_SB(inode);

	return sbi->fswrite && S_ISREG(inode->i_mode) && !is_sbi_flag_set(sbi, SBI_POR_DOING);
}

/* A file whose data may be listed. Changes to any of this bar it. */
bool fsw_listable(struct inode *inode)
{
	return S_ISREG(inode->i_mode) && !IS_NOQUOTA(inode) && !IS_ENCRYPTED(inode) && !IS_SWAPFILE(inode) &&
		!f2fs_has_inline_data(inode) && !f2fs_compressed_file(inode) && !f2fs_is_pinned_file(inode) &&
		!f2fs_used_in_atomic_write(inode) && !f2fs_verity_in_progress(inode) && !IS_VERITY(inode) &&
		!file_is_cold(inode) && !is_inode_flag_set(inode, FI_NEW_INODE);
}

bool fsw_usable(struct f2fs_fswrite *w)
{
	struct f2fs_sb_info *sbi = w->sbi;

	return READ_ONCE(w->enabled) && !w->foreign && !READ_ONCE(w->lost) && !READ_ONCE(w->off) &&
		!READ_ONCE(w->blocks_full) && !is_sbi_flag_set(sbi, SBI_CP_DISABLED) &&
		!is_sbi_flag_set(sbi, SBI_POR_DOING) && !f2fs_cp_error(sbi) &&
		F2FS_OPTION(sbi).fsync_mode != FSYNC_MODE_STRICT && !sb_any_quota_loaded(sbi->sb);
}

/* A block of a file has another address. `dn->listed`: a 91h says so. */
void f2fs_fswrite_mapped(struct dnode_of_data *dn, block_t blkaddr)
{
	if (!dn->listed && tracked(dn->inode))
		bar(F2FS_I_SB(dn->inode)->fswrite, dn->inode->i_ino, BARRED);
}

/* A page was written in place. If it is the last one, the file may have grown with it. */
void f2fs_fswrite_in_place(struct inode *inode, pgoff_t index)
{
	if (tracked(inode) && index >= (i_size_read(inode) - 1) >> PAGE_SHIFT)
		bar(F2FS_I_SB(inode)->fswrite, inode->i_ino, BARRED);
}

/*
 * Something of the inode has changed that is not its size, blocks, times or extents. It is on the list of what a
 * checkpoint writes before the file is barred: a checkpoint that begins later has it, and one that runs may not.
 */
void f2fs_mark_inode_dirty_sync(struct inode *inode, bool sync)
{
	struct f2fs_sb_info *sbi = F2FS_I_SB(inode);

	f2fs_mark_inode_dirty_recoverable(inode, sync);
	if (!tracked(inode))
		return;
	smp_mb();
	bar(sbi->fswrite, inode->i_ino, f2fs_rwsem_is_locked(&sbi->cp_global_sem) ? BARRED_INODE : BARRED);
}

/* --- writes --- */

/* What a list says of a block: false if it cannot. */
static bool entry_of(pgoff_t index, loff_t size, u32 *offset)
{
	loff_t begin = (loff_t)index << PAGE_SHIFT;

	if (size <= begin)
		return false;
	if (size >= begin + PAGE_SIZE) {
		*offset = index;
		return index < PARTIAL;
	}
	*offset = PARTIAL | (u32)(size - begin) << PARTIAL_SHIFT | index;
	return index < BIT(PARTIAL_SHIFT);
}

void fsw_mark_parts(struct f2fs_sb_info *sbi, u32 *file, u32 *offset)
{
	struct f2fs_checkpoint *ckpt = F2FS_CKPT(sbi);

	*file = MARK_FILE | lower_32_bits(cur_cp_version(ckpt));
	*offset = cur_cp_crc(ckpt);
}

/* The mark's data are those of the block that is to be listed: no block is needed for it. */
static bool mark_epoch(struct f2fs_fswrite *w, struct f2fs_io_info *fio)
{
	struct nvme_command c = { .common = { .opcode = FSW_WRITE } };
	u32 file, offset;
	int status;

	if (READ_ONCE(w->marked))
		return true;
	mutex_lock(&w->lock);
	if (w->marked || READ_ONCE(w->off))
		goto out;
	/* What is there is of an epoch that has ended. */
	if (w->filled && reset_lists(w)) {
		WRITE_ONCE(w->off, true);
		goto out;
	}

	fsw_mark_parts(w->sbi, &file, &offset);
	c.common.cdw13 = cpu_to_le32(file);
	c.common.cdw14 = cpu_to_le32(offset);
	w->filled = true;
	status = fsw_ask(w->sbi, &c, fio->new_blkaddr, page_address(fio->page), F2FS_BLKSIZE);
	if (status) {
		f2fs_warn(w->sbi, "the drive does not list the mark of an epoch (status %#x)", status);
		WRITE_ONCE(w->off, true);
	} else {
		smp_store_release(&w->marked, true);
	}
out:
	mutex_unlock(&w->lock);
	return w->marked;
}

/* Data of this file are written out of place, whatever the policy: an entry is for a new block. */
bool f2fs_fswrite_wants(struct inode *inode)
{
	return tracked(inode) && state_of(F2FS_I_SB(inode)->fswrite, inode->i_ino) & (WANTED | LISTED);
}

/* Is this page to be written by 91h? The file counts as LISTED from then on. */
bool f2fs_fswrite_takes(struct f2fs_io_info *fio)
{
	struct f2fs_fswrite *w = fio->sbi->fswrite;
	struct inode *inode;
	unsigned long state;
	u32 offset;
	bool takes;

	if (!w || fio->type != DATA || fio->need_lock != LOCK_REQ || !fsw_usable(w))
		return false;
	inode = fio->page->mapping->host;
	if (!fsw_listable(inode) || fio->encrypted_page || fio->compressed_page || page_private_gcing(fio->page) ||
	    !entry_of(page_folio(fio->page)->index, i_size_read(inode), &offset))
		return false;

	xa_lock(&w->files);
	state = state_of(w, inode->i_ino);
	takes = state & (WANTED | LISTED) && !(state & (NODED | ANY_BARRED)) &&
		(state & LISTED || !READ_ONCE(w->files_full));
	if (takes && !(state & LISTED))
		set_state(w, inode->i_ino, state | LISTED);
	xa_unlock(&w->files);
	return takes;
}

static void finish(struct listed_write *l, int err)
{
	struct f2fs_sb_info *sbi = l->w->sbi;
	struct page *page = l->page;

	kfree(l);
	if (err)
		mapping_set_error(page->mapping, err);
	dec_page_count(sbi, F2FS_WB_CP_DATA);
	if (!get_pages(sbi, F2FS_WB_CP_DATA) && wq_has_sleeper(&sbi->cp_wait))
		wake_up(&sbi->cp_wait);
	end_page_writeback(page);
}

static int write_plainly(struct listed_write *l)
{
	struct bio_vec vec;
	struct bio bio;
	int err;

	bio_init(&bio, l->w->sbi->sb->s_bdev, &vec, 1, REQ_OP_WRITE | REQ_SYNC);
	bio.bi_iter.bi_sector = SECTOR_FROM_BLOCK(l->block);
	__bio_add_page(&bio, l->page, PAGE_SIZE, 0);
	err = submit_bio_wait(&bio);
	bio_uninit(&bio);
	return err;
}

/* The data are written, and not listed. */
static void not_listed(struct listed_write *l)
{
	struct f2fs_fswrite *w = l->w;

	atomic_long_inc(&w->refused);
	if (l->reason != FSW_FILES_FULL) {
		/* Lists that are full, or damaged: what is listed is better off in a checkpoint. */
		WRITE_ONCE(w->blocks_full, true);
		if (l->reason != FSW_BLOCKS_FULL)
			WRITE_ONCE(w->off, true);
		bar(w, l->ino, BARRED);
		return;
	}
	/* A table that is full stays so: nothing of this file is listed, and its node blocks may be written. */
	WRITE_ONCE(w->files_full, true);
	xa_lock(&w->files);
	set_state(w, l->ino, (state_of(w, l->ino) & ~(WANTED | LISTED)) | BARRED);
	xa_unlock(&w->files);
}

/* A 91h that has failed. The file is BARRED before its page's writeback ends, and so before its fsync decides. */
static void retry(struct work_struct *work)
{
	struct listed_write *l = container_of(work, struct listed_write, work);

	if (l->status > 0 && (l->status & 0x7ff) == FSW_NOT_LISTED) {
		not_listed(l);
		finish(l, 0);
		return;
	}
	if (!xchg(&l->w->lost, true))
		f2fs_warn(l->w->sbi, "a listed write has failed (status %#x): no lists until the next mount", l->status);
	bar(l->w, l->ino, BARRED);
	finish(l, write_plainly(l));
}

static enum rq_end_io_ret landed(struct request *rq, blk_status_t status)
{
	struct listed_write *l = rq->end_io_data;

	l->status = nvme_req(rq)->status;
	l->reason = le32_to_cpu(nvme_req(rq)->result.u32);
	if (!l->status && (status || nvme_req(rq)->flags & NVME_REQ_CANCELLED))
		l->status = -EIO;
	if (l->status) {
		queue_work(l->w->retries, &l->work);
	} else {
		atomic_long_inc(&l->w->listed);
		finish(l, 0);
	}
	return RQ_END_IO_FREE;
}

/* Sends 91h for a page under writeback; false if nothing was sent. */
static bool send_listed(struct f2fs_fswrite *w, struct f2fs_io_info *fio)
{
	struct inode *inode = fio->page->mapping->host;
	struct nvme_command c = { .common = { .opcode = FSW_WRITE } };
	struct listed_write *l;
	struct request *rq;
	struct nvme_ns *ns;
	u32 offset;
	int srcu;

	if (!entry_of(page_folio(fio->page)->index, i_size_read(inode), &offset))
		return false;
	l = kmalloc(sizeof(*l), GFP_NOIO);
	if (!l)
		return false;
	*l = (struct listed_write) { .w = w, .page = fio->page, .ino = inode->i_ino, .block = fio->new_blkaddr };
	INIT_WORK(&l->work, retry);

	ns = f2fs_get_namespace(w->sbi, &srcu);
	if (!ns)
		goto free;
	c.common.nsid = cpu_to_le32(ns->head->ns_id);
	address(w->sbi, ns, &c, fio->new_blkaddr);
	c.common.cdw13 = cpu_to_le32(inode->i_ino);
	c.common.cdw14 = cpu_to_le32(offset);
	rq = blk_mq_alloc_request(ns->queue, nvme_req_op(&c), 0);
	if (IS_ERR(rq))
		goto put;
	nvme_init_request(rq, &c);
	if (blk_rq_map_kern(rq->q, rq, page_address(fio->page), F2FS_BLKSIZE, GFP_NOIO)) {
		blk_mq_free_request(rq);
		goto put;
	}

	rq->end_io = landed;
	rq->end_io_data = l;
	/* A checkpoint waits for these. */
	inc_page_count(w->sbi, F2FS_WB_CP_DATA);
	blk_execute_rq_nowait(rq, false);
	f2fs_put_namespace(ns, srcu);
	return true;
put:
	f2fs_put_namespace(ns, srcu);
free:
	kfree(l);
	return false;
}

/* Instead of f2fs_submit_page_write(), for a page that was taken. `fio->listed` says whether a list will have it. */
void f2fs_fswrite_submit(struct f2fs_io_info *fio)
{
	struct f2fs_fswrite *w = fio->sbi->fswrite;

	fio->listed = mark_epoch(w, fio) && send_listed(w, fio);
	fio->submitted = 1;
	if (!fio->listed)
		f2fs_submit_page_write(fio);
}

/* --- fsync --- */

/* Before data are written: shall they be listed? */
void f2fs_fswrite_begin(struct inode *inode)
{
	struct f2fs_sb_info *sbi = F2FS_I_SB(inode);
	struct f2fs_fswrite *w = sbi->fswrite;

	if (!tracked(inode) || !fsw_usable(w) || READ_ONCE(w->files_full) || !fsw_listable(inode))
		return;
	/* A file that the checkpoint does not have cannot be found by its number. */
	if (state_of(w, inode->i_ino) || !f2fs_is_checkpointed_node(sbi, inode->i_ino))
		return;
	xa_lock(&w->files);
	if (!state_of(w, inode->i_ino))
		set_state(w, inode->i_ino, WANTED);
	xa_unlock(&w->files);
}

/* All of the file's data are written, in the range that was asked for. */
enum f2fs_fswrite_sync f2fs_fswrite_synced(struct inode *inode, bool atomic)
{
	struct f2fs_sb_info *sbi = F2FS_I_SB(inode);
	struct f2fs_fswrite *w = sbi->fswrite;
	unsigned long state;

	if (!tracked(inode))
		return FSWRITE_STOCK;
	state = state_of(w, inode->i_ino);
	if (!(state & LISTED) && (!(state & WANTED) || state & (NODED | ANY_BARRED) || READ_ONCE(w->off) || atomic))
		return FSWRITE_STOCK;
	if (state & ANY_BARRED || READ_ONCE(w->off) || atomic || !f2fs_space_for_roll_forward(sbi))
		return FSWRITE_CHECKPOINT;
	atomic_long_inc(&w->synced);
	return FSWRITE_DURABLE;
}

/* May an fsync write the file's node blocks? Otherwise it must write a checkpoint. */
bool f2fs_fswrite_may_write_nodes(struct inode *inode)
{
	struct f2fs_fswrite *w = F2FS_I_SB(inode)->fswrite;
	unsigned long state;

	if (!tracked(inode))
		return true;
	xa_lock(&w->files);
	state = state_of(w, inode->i_ino);
	if (!(state & LISTED))
		set_state(w, inode->i_ino, (state & ~WANTED) | NODED);
	xa_unlock(&w->files);

	atomic_long_inc(state & LISTED ? &w->checkpoints : &w->noded);
	return !(state & LISTED);
}

/* --- checkpoint --- */

/* A checkpoint is complete, and nobody writes yet: the next epoch begins. */
void f2fs_fswrite_checkpointed(struct f2fs_sb_info *sbi)
{
	struct f2fs_fswrite *w = sbi->fswrite;
	unsigned long ino, state;
	void *entry;

	if (!w)
		return;
	w->marked = false;
	w->off = false;
	w->files_full = false;
	w->blocks_full = false;
	if (w->filled && !w->foreign)
		reset_lists(w);

	xa_for_each(&w->files, ino, entry) {
		xa_lock(&w->files);
		state = state_of(w, ino);
		if (state & BARRED_INODE)
			state = BARRED_BEFORE;
		else if (state & LISTED && !(state & ANY_BARRED))
			state = WANTED;
		else
			state = 0;
		set_state(w, ino, state);
		xa_unlock(&w->files);
	}
}
