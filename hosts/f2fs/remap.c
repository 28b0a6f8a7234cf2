// SPDX-License-Identifier: GPL-2.0
/*
 * Cleaning by remap: the drive lets a block's new address name what its old address names, and F2FS neither
 * reads nor writes the block. After FAST'21, section 5.4.
 *
 * A victim segment goes through five steps, in f2fs_remap_segment():
 *
 *   gather    the segment's valid blocks that belong to plain regular files
 *   lock      their inodes against direct I/O and truncation, the file system against a checkpoint, and each
 *             block's page; a page that is dirty, under writeback or locked by somebody is left out
 *   allocate  a new block for each, as cleaning does, so that targets follow one another
 *   remap     by as few commands as the drive's limits allow, all of them in flight together
 *   update    the node of each block that the drive has remapped; then the old block is invalid
 *
 * What is left out, and what the drive refuses, is still valid in the victim afterwards. gc.c's own code, which
 * runs next, moves it by reading and writing.
 *
 * Invariants
 *
 * - Nothing waits for a lock while it holds one that a checkpoint or writeback could need: inodes, pages and the
 *   checkpoint's lock are only tried. What is waited for is what any data write waits for: node pages, allocation
 *   and the drive.
 * - From the moment the drive is asked until the node names the new block, the page is locked and clean, and the
 *   inode admits no direct I/O. So nobody reads the new block before it has its content, and nobody changes the
 *   old one.
 * - Commands copy; they never relocate. The old block keeps its content.
 *
 * Crash argument. Let C be the last checkpoint before the cut.
 *
 * 1. Before the next checkpoint is complete, C counts. It names old blocks. They have kept their content: F2FS
 *    gives a block that C names neither to another file nor to discard, and a copy leaves its source alone.
 *    New blocks are free in C. (A relocation would have deallocated the old block already: everything cleaned
 *    since C would be lost.)
 * 2. The next checkpoint names new blocks. All commands have ended before the node pages that it writes were
 *    changed, since the batch holds the checkpoint off until then; and a checkpoint flushes the drive before
 *    the block that completes it. So what it names is there.
 * 3. An fsync between the two writes node pages that may name new blocks, then flushes. As for any block that
 *    was written, the command had ended before the node was written, and FI_APPEND_WRITE requires the flush.
 * 4. Old blocks are discarded after the checkpoint of 2, by F2FS's own machinery, and only then.
 *
 * Absent: files that are encrypted, verified, compressed, pinned or written atomically, directories and nodes;
 * zoned devices and volumes of several devices; drives that are not NVMe. All of these are cleaned as ever.
 */

#include <linux/blk-mq.h>
#include <linux/blkdev.h>
#include <linux/completion.h>
#include <linux/f2fs_fs.h>
#include <linux/fs.h>
#include <linux/kobject.h>
#include <linux/module.h>
#include <linux/pagemap.h>
#include <linux/sched/mm.h>
#include <linux/sysfs.h>
#include <linux/unaligned.h>

#include "f2fs.h"
#include "node.h"
#include "segment.h"
#include "gc.h"
#include "remap.h"
#include "fswrite.h"
#include "nvme.h"

/* NVM command set 1.0, section 3.2.2: the Copy command, descriptor format 0. */
#define NVME_COPY		0x19
#define NVME_ONCS_COPY		BIT(8)
#define NVME_ID_NS_MSSRL	74
#define NVME_ID_NS_MCL		76
#define NVME_ID_NS_MSRC		80
#define NVME_COPY_RANGES_MAX	256

struct nvme_copy_range_0 {
	__le64 rsvd0;
	__le64 slba;
	__le16 nlb_z;
	__u8 rsvd18[14];
};
static_assert(sizeof(struct nvme_copy_range_0) == 32);

/* docs/nvme-vendor.md: the Remap command, and the log page by which a drive that has it is known. */
#define RMP_REMAP		0x90
#define RMP_REMAP_FLAGS		0
#define RMP_LOG			0xc0
#define RMP_LOG_SIGNATURE	"RMPSTATS"

/* A segment's: F2FS admits no other size with blocks of 4 KiB. */
#define BATCH_BLOCKS		512

enum method { METHOD_OFF, METHOD_AUTO, METHOD_COPY, METHOD_REMAP };
static const char * const method_names[] = { "off", "auto", "copy", "remap" };

/* Of one mounted file system; `sbi->remap`. Counters are changed by cleaning alone, which is one thread at a time. */
struct f2fs_remap {
	struct kobject kobj;
	enum method method;	/* what the administrator wants */
	/* What the drive can do. Lengths are in its logical blocks, `lba_shift` bits of bytes each. */
	bool can_copy, can_remap;
	u32 lba_shift;
	u32 copy_range_max, copy_blocks_max, copy_ranges_max;
	/* Counters. */
	unsigned long segments;		/* cleaned by remaps, at least in part */
	unsigned long blocks;		/* remapped */
	unsigned long commands;		/* sent */
	unsigned long not_clean;	/* blocks left out because of what their page was */
	unsigned long busy;		/* blocks left out because a lock was taken, or memory short */
	unsigned long refused;		/* blocks of commands that failed */
};

/* A block that may be remapped. */
struct candidate {
	struct folio *folio;	/* locked; NULL: not in this batch */
	pgoff_t index;
	block_t old, new;
	u16 inode;		/* in batch->inodes */
	bool ours;		/* the folio was not in the cache before */
	bool done;		/* remapped by the drive */
};

struct owner {
	struct inode *inode;
	bool locked;
};

/* A command in flight: candidates [first, first + count). */
struct flight {
	struct batch *batch;
	unsigned int first, count;
	struct nvme_copy_range_0 *ranges;	/* of a Copy; NULL: a Remap */
	int status;
};

struct batch {
	struct f2fs_sb_info *sbi;
	struct f2fs_remap *remap;
	struct nvme_ns *ns;
	unsigned int blocks, owners, flights;
	atomic_t in_flight;
	struct completion landed;
	struct candidate candidate[BATCH_BLOCKS];
	struct owner owner[BATCH_BLOCKS];
	struct flight flight[BATCH_BLOCKS];
};

/* --- the drive --- */

/*
 * The NVMe namespace below the file system, or NULL. With native multipath the disk stands for several paths, each a
 * namespace of its own; one that lives is taken. To be given back with f2fs_put_namespace().
 */
struct nvme_ns *f2fs_get_namespace(struct f2fs_sb_info *sbi, int *srcu)
{
	struct gendisk *disk = sbi->sb->s_bdev->bd_disk;
	const char *owner = disk->fops->owner ? module_name(disk->fops->owner) : "";
	struct nvme_ns_head *head;
	struct nvme_ns *ns;

	if (strcmp(owner, "nvme_core"))
		return NULL;
	if (!disk->fops->submit_bio) {
		ns = disk->private_data;
		*srcu = srcu_read_lock(&ns->head->srcu);
		return ns;
	}

	head = disk->private_data;
	*srcu = srcu_read_lock(&head->srcu);
	list_for_each_entry_srcu(ns, &head->list, siblings, srcu_read_lock_held(&head->srcu))
		if (nvme_ctrl_state(ns->ctrl) == NVME_CTRL_LIVE &&
		    !test_bit(NVME_NS_REMOVING, &ns->flags))
			return ns;
	srcu_read_unlock(&head->srcu, *srcu);
	return NULL;
}

void f2fs_put_namespace(struct nvme_ns *ns, int srcu)
{
	srcu_read_unlock(&ns->head->srcu, srcu);
}

/* Asks the drive what it can do. Anything unclear means that it cannot. */
static void ask_drive(struct f2fs_sb_info *sbi, struct f2fs_remap *r)
{
	struct nvme_command c;
	struct nvme_ns *ns;
	u8 *page;
	int srcu;

	ns = f2fs_get_namespace(sbi, &srcu);
	if (!ns)
		return;
	page = kzalloc(NVME_IDENTIFY_DATA_SIZE, GFP_KERNEL);
	if (!page)
		goto put;
	r->lba_shift = ns->head->lba_shift;

	/* Whose commands are not those of whole F2FS blocks, or carry metadata, is left alone. */
	if (r->lba_shift > F2FS_BLKSIZE_BITS || ns->head->ms ||
	    sbi->sb->s_bdev->bd_start_sect % (F2FS_BLKSIZE >> SECTOR_SHIFT))
		goto free;

	c = (struct nvme_command) { .identify = {
		.opcode = nvme_admin_identify, .cns = NVME_ID_CNS_CTRL } };
	if (nvme_submit_sync_cmd(ns->ctrl->admin_q, &c, page, NVME_IDENTIFY_DATA_SIZE))
		goto free;
	r->can_copy = le16_to_cpu(((struct nvme_id_ctrl *)page)->oncs) & NVME_ONCS_COPY;

	c = (struct nvme_command) { .identify = {
		.opcode = nvme_admin_identify, .cns = NVME_ID_CNS_NS,
		.nsid = cpu_to_le32(ns->head->ns_id) } };
	if (nvme_submit_sync_cmd(ns->ctrl->admin_q, &c, page, NVME_IDENTIFY_DATA_SIZE)) {
		r->can_copy = false;
		goto free;
	}
	r->copy_range_max = get_unaligned_le16(page + NVME_ID_NS_MSSRL);
	r->copy_blocks_max = get_unaligned_le32(page + NVME_ID_NS_MCL);
	r->copy_ranges_max = page[NVME_ID_NS_MSRC] + 1;
	/* Room for one F2FS block at the least. */
	if (min(r->copy_range_max, r->copy_blocks_max) < F2FS_BLKSIZE >> r->lba_shift)
		r->can_copy = false;

	memset(page, 0, NVME_IDENTIFY_DATA_SIZE);
	c = (struct nvme_command) { .get_log_page = {
		.opcode = nvme_admin_get_log_page, .lid = RMP_LOG,
		.nsid = cpu_to_le32(NVME_NSID_ALL), .numdl = cpu_to_le16(16 / 4 - 1) } };
	r->can_remap = !nvme_submit_sync_cmd(ns->ctrl->admin_q, &c, page, 16) &&
		!memcmp(page, RMP_LOG_SIGNATURE, strlen(RMP_LOG_SIGNATURE));
free:
	kfree(page);
put:
	f2fs_put_namespace(ns, srcu);
}

static bool may_copy(struct f2fs_remap *r)
{
	return r->can_copy && (r->method == METHOD_AUTO || r->method == METHOD_COPY);
}

static bool may_remap(struct f2fs_remap *r)
{
	return r->can_remap && (r->method == METHOD_AUTO || r->method == METHOD_REMAP);
}

static u64 lba(struct batch *b, block_t block)
{
	u64 base = b->sbi->sb->s_bdev->bd_start_sect >> (F2FS_BLKSIZE_BITS - SECTOR_SHIFT);

	return (base + block) << (F2FS_BLKSIZE_BITS - b->remap->lba_shift);
}

static u32 lbas(struct batch *b, u32 blocks)
{
	return blocks << (F2FS_BLKSIZE_BITS - b->remap->lba_shift);
}

static enum rq_end_io_ret flight_landed(struct request *rq, blk_status_t status)
{
	struct flight *f = rq->end_io_data;

	f->status = nvme_req(rq)->status;
	if (!f->status && (status || nvme_req(rq)->flags & NVME_REQ_CANCELLED))
		f->status = -EIO;
	if (atomic_dec_and_test(&f->batch->in_flight))
		complete(&f->batch->landed);
	return RQ_END_IO_FREE;
}

/* Sends a command. Waits only for a place in the drive's queue, whose size is what the drive advertises. */
static void send(struct batch *b, struct nvme_command *c, void *data, unsigned int bytes,
		 unsigned int first, unsigned int count)
{
	struct flight *f = &b->flight[b->flights++];
	struct request *rq;

	*f = (struct flight) { .batch = b, .first = first, .count = count, .ranges = data, .status = -EIO };
	c->common.nsid = cpu_to_le32(b->ns->head->ns_id);
	rq = blk_mq_alloc_request(b->ns->queue, nvme_req_op(c), 0);
	if (IS_ERR(rq))
		return;
	nvme_init_request(rq, c);
	if (data && blk_rq_map_kern(rq->q, rq, data, bytes, GFP_NOIO)) {
		blk_mq_free_request(rq);
		return;
	}

	rq->end_io = flight_landed;
	rq->end_io_data = f;
	atomic_inc(&b->in_flight);
	b->remap->commands++;
	blk_execute_rq_nowait(rq, false);
}

/* Blocks from `first` on whose targets follow one another. */
static unsigned int targets_run(struct batch *b, unsigned int first)
{
	unsigned int count = 1;

	while (first + count < b->blocks &&
	       b->candidate[first + count].new == b->candidate[first].new + count)
		count++;
	return count;
}

/* Blocks from `first` on, `most` at most, whose sources follow one another. */
static unsigned int sources_run(struct batch *b, unsigned int first, unsigned int most)
{
	unsigned int count = 1;

	while (count < most && b->candidate[first + count].old == b->candidate[first].old + count)
		count++;
	return count;
}

static void send_remap(struct batch *b, unsigned int first, unsigned int count)
{
	u64 to = lba(b, b->candidate[first].new), from = lba(b, b->candidate[first].old);
	struct nvme_command c = { .common = { .opcode = RMP_REMAP } };

	c.common.cdw10 = cpu_to_le32(lower_32_bits(to));
	c.common.cdw11 = cpu_to_le32(upper_32_bits(to));
	c.common.cdw12 = cpu_to_le32((lbas(b, count) - 1) | RMP_REMAP_FLAGS);
	c.common.cdw14 = cpu_to_le32(lower_32_bits(from));
	c.common.cdw15 = cpu_to_le32(upper_32_bits(from));
	send(b, &c, NULL, 0, first, count);
}

/* One Copy of as many blocks, of `most`, as its limits allow; returns how many. 0: no memory. */
static unsigned int send_copy(struct batch *b, unsigned int first, unsigned int most)
{
	struct f2fs_remap *r = b->remap;
	unsigned int shift = F2FS_BLKSIZE_BITS - r->lba_shift, count = 0, ranges = 0, run;
	u64 to = lba(b, b->candidate[first].new);
	struct nvme_command c = { .common = { .opcode = NVME_COPY } };
	struct nvme_copy_range_0 *range;

	range = kcalloc(min(r->copy_ranges_max, most), sizeof(*range), GFP_NOIO);
	if (!range)
		return 0;
	most = min(most, r->copy_blocks_max >> shift);
	while (count < most && ranges < r->copy_ranges_max) {
		run = sources_run(b, first + count, min(most - count, r->copy_range_max >> shift));
		range[ranges].slba = cpu_to_le64(lba(b, b->candidate[first + count].old));
		range[ranges].nlb_z = cpu_to_le16(lbas(b, run) - 1);
		ranges++;
		count += run;
	}

	c.common.cdw10 = cpu_to_le32(lower_32_bits(to));
	c.common.cdw11 = cpu_to_le32(upper_32_bits(to));
	c.common.cdw12 = cpu_to_le32(ranges - 1);
	send(b, &c, range, ranges * sizeof(*range), first, count);
	return count;
}

/* Has the drive remap all candidates, and waits until it is done. */
static void remap_all(struct batch *b)
{
	unsigned int first = 0, end, run, sent, i;

	init_completion(&b->landed);
	atomic_set(&b->in_flight, 1);
	while (first < b->blocks) {
		end = first + targets_run(b, first);
		while (first < end) {
			/* Of a single range the Remap needs no list; otherwise fewer commands are better. */
			run = sources_run(b, first, end - first);
			if (may_remap(b->remap) && (run == end - first || !may_copy(b->remap))) {
				send_remap(b, first, run);
				first += run;
			} else {
				sent = send_copy(b, first, end - first);
				first += sent ?: end - first;
			}
		}
	}
	if (!atomic_dec_and_test(&b->in_flight))
		wait_for_completion_io(&b->landed);

	for (i = 0; i < b->flights; i++) {
		struct flight *f = &b->flight[i];
		unsigned int at;

		for (at = f->first; at < f->first + f->count; at++)
			b->candidate[at].done = !f->status;
	}
}

/* A drive that does not know a command, or not in this form, will not learn it. */
static void judge(struct batch *b)
{
	struct f2fs_remap *r = b->remap;
	unsigned int i;

	for (i = 0; i < b->flights; i++) {
		struct flight *f = &b->flight[i];
		int status = f->status > 0 ? f->status & 0x7ff : 0;

		if (!f->status)
			continue;
		r->refused += f->count;
		if (status != NVME_SC_INVALID_OPCODE && status != NVME_SC_INVALID_FIELD &&
		    status != 0x183 /* Command Size Limit Exceeded */)
			continue;
		if (f->ranges ? r->can_copy : r->can_remap)
			f2fs_warn(b->sbi, "the drive refuses %s (status %#x): not used any more",
				  f->ranges ? "Copy" : "Remap", status);
		if (f->ranges)
			r->can_copy = false;
		else
			r->can_remap = false;
	}
}

static void free_flights(struct batch *b)
{
	unsigned int i;

	for (i = 0; i < b->flights; i++)
		kfree(b->flight[i].ranges);
}

/* --- F2FS --- */

/* Data whose cache page, if any, is all that has to be known. */
static bool remappable(struct inode *inode)
{
	return S_ISREG(inode->i_mode) && !is_bad_inode(inode) && !f2fs_has_inline_data(inode) &&
		!f2fs_meta_inode_gc_required(inode) && !f2fs_is_pinned_file(inode);
}

static bool is_valid(struct f2fs_sb_info *sbi, unsigned int segno, unsigned int off)
{
	bool valid;

	down_read(&SIT_I(sbi)->sentry_lock);
	valid = f2fs_test_bit(off, get_seg_entry(sbi, segno)->cur_valid_map);
	up_read(&SIT_I(sbi)->sentry_lock);
	return valid;
}

/* The owner's place in the batch, or -1. Nothing is locked yet: f2fs_iget() may wait for an inode's eviction. */
static int find_owner(struct batch *b, nid_t ino)
{
	struct inode *inode;
	int i;

	/* Neighbours mostly belong to one file. */
	for (i = b->owners - 1; i >= 0; i--)
		if (b->owner[i].inode->i_ino == ino)
			return i;

	inode = f2fs_iget(b->sbi->sb, ino);
	if (IS_ERR(inode))
		return -1;
	b->owner[b->owners] = (struct owner) { .inode = inode };
	return b->owners++;
}

static void gather(struct batch *b, struct f2fs_summary *sum, unsigned int segno, f2fs_alive_t is_alive)
{
	struct f2fs_sb_info *sbi = b->sbi;
	unsigned int off, nofs;
	struct node_info dni;
	int owner;

	for (off = 0; off < f2fs_usable_blks_in_seg(sbi, segno); off++) {
		block_t old = START_BLOCK(sbi, segno) + off;

		if (!is_valid(sbi, segno, off) || !is_alive(sbi, &sum[off], &dni, old, &nofs))
			continue;
		owner = find_owner(b, dni.ino);
		if (owner < 0)
			continue;
		/* gc.c does not clean such a segment. */
		if (f2fs_is_pinned_file(b->owner[owner].inode)) {
			b->blocks = 0;
			return;
		}
		if (!remappable(b->owner[owner].inode))
			continue;
		b->candidate[b->blocks++] = (struct candidate) {
			.index = f2fs_start_bidx_of_node(nofs, b->owner[owner].inode) +
				le16_to_cpu(sum[off].ofs_in_node),
			.old = old,
			.inode = owner,
		};
	}
}

/* No direct I/O, no truncation, no hole punched from here on. */
static void lock_owners(struct batch *b)
{
	unsigned int i;

	for (i = 0; i < b->owners; i++) {
		struct inode *inode = b->owner[i].inode;

		if (!f2fs_down_write_trylock(&F2FS_I(inode)->i_gc_rwsem[WRITE]))
			continue;
		if (!f2fs_down_write_trylock(&F2FS_I(inode)->i_gc_rwsem[READ])) {
			f2fs_up_write(&F2FS_I(inode)->i_gc_rwsem[WRITE]);
			continue;
		}
		b->owner[i].locked = true;
		inode_dio_wait(inode);
	}
}

static void unlock_owners(struct batch *b)
{
	unsigned int i;

	for (i = 0; i < b->owners; i++) {
		struct inode *inode = b->owner[i].inode;

		if (!b->owner[i].locked)
			continue;
		f2fs_up_write(&F2FS_I(inode)->i_gc_rwsem[READ]);
		f2fs_up_write(&F2FS_I(inode)->i_gc_rwsem[WRITE]);
	}
}

/* An inode's last reference must not go while gc_lock is held: gc.c keeps those that it would keep itself. */
static void put_owners(struct batch *b, struct gc_inode_list *gc_list, f2fs_keep_t keep)
{
	unsigned int i;

	for (i = 0; i < b->owners; i++) {
		struct inode *inode = b->owner[i].inode;

		if (is_bad_inode(inode) || special_file(inode->i_mode) ||
		    f2fs_has_inline_data(inode) || f2fs_is_pinned_file(inode))
			iput(inode);
		else
			keep(gc_list, inode);
	}
}

/* The block's page, locked, if it is clean. One that is not in the cache is put there, so that nobody reads meanwhile. */
static bool lock_page_if_clean(struct batch *b, struct candidate *c)
{
	struct address_space *mapping = b->owner[c->inode].inode->i_mapping;
	struct folio *folio = __filemap_get_folio(mapping, c->index, FGP_LOCK | FGP_NOWAIT, 0);

	if (PTR_ERR_OR_ZERO(folio) == -ENOENT) {
		folio = __filemap_get_folio(mapping, c->index, FGP_LOCK | FGP_CREAT | FGP_NOWAIT,
					    mapping_gfp_mask(mapping));
		c->ours = !IS_ERR(folio) && !folio_test_uptodate(folio);
	}
	if (IS_ERR(folio)) {
		b->remap->busy++;
		return false;
	}
	if (folio_test_dirty(folio) || folio_test_writeback(folio) || folio_test_large(folio) ||
	    page_private_gcing(&folio->page)) {
		folio_unlock(folio);
		folio_put(folio);
		b->remap->not_clean++;
		return false;
	}
	c->folio = folio;
	return true;
}

static void unlock_page_of(struct batch *b, struct candidate *c)
{
	/* Cleaning leaves the cache as it was. */
	if (c->ours && !folio_test_uptodate(c->folio))
		generic_error_remove_folio(b->owner[c->inode].inode->i_mapping, c->folio);
	folio_unlock(c->folio);
	folio_put(c->folio);
}

/* A new block, if the file's node still names the old one. */
static bool allocate(struct batch *b, struct candidate *c)
{
	struct dnode_of_data dn;
	struct f2fs_summary sum;
	struct node_info ni;

	set_new_dnode(&dn, b->owner[c->inode].inode, NULL, NULL, 0);
	if (f2fs_get_dnode_of_data(&dn, c->index, LOOKUP_NODE))
		return false;
	f2fs_put_dnode(&dn);
	if (dn.data_blkaddr != c->old || f2fs_get_node_info(b->sbi, dn.nid, &ni, false))
		return false;

	/* The old block stays valid until its successor is there. */
	set_summary(&sum, dn.nid, dn.ofs_in_node, ni.version);
	if (f2fs_allocate_data_block(b->sbi, NULL, NULL_ADDR, &c->new, &sum, CURSEG_COLD_DATA, NULL))
		return false;
	f2fs_invalidate_internal_cache(b->sbi, c->new);
	return true;
}

/* Candidates that got their page and a new block; the others leave the batch. */
static void prepare(struct batch *b)
{
	unsigned int i, kept = 0;

	for (i = 0; i < b->blocks; i++) {
		struct candidate *c = &b->candidate[i];
		struct owner *owner = &b->owner[c->inode];

		/* It may have changed before it was locked. */
		if (!owner->locked || !remappable(owner->inode)) {
			b->remap->busy++;
			continue;
		}
		if (!lock_page_if_clean(b, c))
			continue;
		if (!allocate(b, c)) {
			unlock_page_of(b, c);
			continue;
		}
		b->candidate[kept++] = *c;
	}
	b->blocks = kept;
}

/* The file names the new block, or else the new block is free again. */
static bool update(struct batch *b, struct candidate *c)
{
	struct inode *inode = b->owner[c->inode].inode;
	struct dnode_of_data dn;

	set_new_dnode(&dn, inode, NULL, NULL, 0);
	if (!c->done || f2fs_get_dnode_of_data(&dn, c->index, LOOKUP_NODE))
		goto undo;
	if (dn.data_blkaddr != c->old) {
		f2fs_put_dnode(&dn);
		WARN_ONCE(1, "a block under a locked page has moved");
		goto undo;
	}
	f2fs_update_data_blkaddr(&dn, c->new);
	f2fs_put_dnode(&dn);
	set_inode_flag(inode, FI_APPEND_WRITE);
	f2fs_invalidate_blocks(b->sbi, c->old);
	return true;
undo:
	f2fs_invalidate_blocks(b->sbi, c->new);
	return false;
}

static void move(struct batch *b, int gc_type)
{
	unsigned int i, moved = 0, flags;

	lock_owners(b);
	if (!f2fs_trylock_op(b->sbi)) {
		b->remap->busy += b->blocks;
		goto unlock;
	}
	/* With what is locked, memory must not be looked for in file systems. */
	flags = memalloc_nofs_save();
	prepare(b);
	remap_all(b);
	judge(b);
	free_flights(b);
	for (i = 0; i < b->blocks; i++)
		moved += update(b, &b->candidate[i]);
	for (i = 0; i < b->blocks; i++)
		unlock_page_of(b, &b->candidate[i]);
	memalloc_nofs_restore(flags);
	f2fs_unlock_op(b->sbi);

	b->remap->blocks += moved;
	b->remap->segments += !!moved;
	stat_inc_data_blk_count(b->sbi, moved, gc_type);
unlock:
	unlock_owners(b);
}

/**
 * f2fs_remap_segment() - moves what it can of a victim segment by remaps
 * @sum: the summary entries of the segment's blocks
 * @gc_list: gc.c's list of inodes
 * @segno: the victim
 * @gc_type: FG_GC or BG_GC
 * @force_migrate: also if all of the segment is valid
 * @is_alive: gc.c's test of a block
 * @keep: gc.c's way to put an inode on its list
 *
 * What is not moved is still valid afterwards, and is moved by the caller. The caller holds gc_lock.
 */
void f2fs_remap_segment(struct f2fs_sb_info *sbi, struct f2fs_summary *sum,
			struct gc_inode_list *gc_list, unsigned int segno, int gc_type,
			bool force_migrate, f2fs_alive_t is_alive, f2fs_keep_t keep)
{
	struct f2fs_remap *r = sbi->remap;
	struct batch *b;
	int srcu;

	if (!r || !(may_copy(r) || may_remap(r)) || f2fs_cp_error(sbi) || BLKS_PER_SEG(sbi) > BATCH_BLOCKS)
		return;
	/* When gc.c would not move anything either. */
	if ((gc_type == BG_GC && has_not_enough_free_secs(sbi, 0, 0)) ||
	    (!force_migrate && get_valid_blocks(sbi, segno, true) == CAP_BLKS_PER_SEC(sbi)))
		return;

	b = kvzalloc(sizeof(*b), GFP_NOFS);
	if (!b)
		return;
	b->sbi = sbi;
	b->remap = r;
	b->ns = f2fs_get_namespace(sbi, &srcu);
	if (!b->ns)
		goto free;

	gather(b, sum, segno, is_alive);
	if (b->blocks)
		move(b, gc_type);
	f2fs_put_namespace(b->ns, srcu);
	put_owners(b, gc_list, keep);
free:
	kvfree(b);
}

/* --- /sys/fs/f2fs/DEVICE/remap --- */

#define to_remap(k) container_of(k, struct f2fs_remap, kobj)

static ssize_t method_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)
{
	struct f2fs_remap *r = to_remap(kobj);

	return sysfs_emit(buf, "%s\n", method_names[r->method]);
}

static ssize_t method_store(struct kobject *kobj, struct kobj_attribute *attr, const char *buf, size_t count)
{
	int method = sysfs_match_string(method_names, buf);

	if (method < 0)
		return method;
	to_remap(kobj)->method = method;
	return count;
}

static ssize_t drive_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)
{
	struct f2fs_remap *r = to_remap(kobj);

	if (!r->can_copy && !r->can_remap)
		return sysfs_emit(buf, "none\n");
	return sysfs_emit(buf, "%s%s%s\n", r->can_copy ? "copy" : "",
			  r->can_copy && r->can_remap ? " " : "", r->can_remap ? "remap" : "");
}

static struct kobj_attribute method_attr = __ATTR_RW_MODE(method, 0644);
static struct kobj_attribute drive_attr = __ATTR_RO(drive);

#define COUNTER(name)									\
static ssize_t name##_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)	\
{											\
	return sysfs_emit(buf, "%lu\n", READ_ONCE(to_remap(kobj)->name));		\
}											\
static struct kobj_attribute name##_attr = __ATTR_RO(name)

COUNTER(segments);
COUNTER(blocks);
COUNTER(commands);
COUNTER(not_clean);
COUNTER(busy);
COUNTER(refused);

static struct attribute *remap_attrs[] = {
	&method_attr.attr, &drive_attr.attr, &segments_attr.attr, &blocks_attr.attr, &commands_attr.attr,
	&not_clean_attr.attr, &busy_attr.attr, &refused_attr.attr, NULL,
};
ATTRIBUTE_GROUPS(remap);

static void remap_release(struct kobject *kobj)
{
	kfree(to_remap(kobj));
}

static const struct kobj_type remap_ktype = {
	.sysfs_ops = &kobj_sysfs_ops,
	.default_groups = remap_groups,
	.release = remap_release,
};

/* At mount, when the file system has its folder in sysfs. */
int f2fs_remap_init(struct f2fs_sb_info *sbi)
{
	struct f2fs_remap *r = kzalloc(sizeof(*r), GFP_KERNEL);
	int err;

	if (!r)
		return -ENOMEM;
	r->method = METHOD_AUTO;
	if (!f2fs_is_multi_device(sbi) && !f2fs_sb_has_blkzoned(sbi))
		ask_drive(sbi, r);
	err = kobject_init_and_add(&r->kobj, &remap_ktype, &sbi->s_kobj, "remap");
	if (err) {
		kobject_put(&r->kobj);
		return err;
	}
	sbi->remap = r;
	/* 92h is asked of a drive that says by its log page that it is one of ours: others may give it another meaning. */
	return r->can_remap ? f2fs_fswrite_init(sbi) : 0;
}

/* At unmount. Cleaning has ended. */
void f2fs_remap_exit(struct f2fs_sb_info *sbi)
{
	f2fs_fswrite_exit(sbi);
	if (sbi->remap)
		kobject_put(&sbi->remap->kobj);
	sbi->remap = NULL;
}
