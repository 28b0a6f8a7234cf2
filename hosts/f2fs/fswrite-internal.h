/* SPDX-License-Identifier: GPL-2.0 */
/* What fswrite.c and fswrite-mount.c share: the drive's lists, and what is known of a mounted file system. */
#ifndef _F2FS_FSWRITE_INTERNAL_H
#define _F2FS_FSWRITE_INTERNAL_H

#include <linux/completion.h>
#include <linux/kobject.h>
#include <linux/xarray.h>
#include "fswrite.h"

struct nvme_command;

/* docs/nvme-vendor.md */
#define FSW_WRITE		0x91
#define FSW_READ		0x92
#define FSW_READ_FILES		1
#define FSW_RESET		0x94
#define FSW_NOT_LISTED		0x1c1
#define FSW_NO_FILE_MAP		0x1c2
#define FSW_FILES_FULL		1
#define FSW_BLOCKS_FULL		2

/* An answer to 92h: the number of all entries, and those that are asked for. */
struct fsw_entry {
	__le32 offset;	/* or the file */
	__le32 page;	/* 4 KiB page of the namespace, or 0 */
};
struct fsw_list {
	__le32 count;
	__le32 rsvd4;
	struct fsw_entry entry[];
};
static_assert(sizeof(struct fsw_list) == 8);
#define LIST_BYTES	16384
#define LIST_ENTRIES	((LIST_BYTES - sizeof(struct fsw_list)) / sizeof(struct fsw_entry))

/* Files above are marks: F2FS numbers inodes from 0, up to less than this. */
#define MARK_FILE	BIT(31)

/* An entry's offset: a whole block; or the last one, with the bytes of the file in it. */
#define PARTIAL		BIT(31)
#define PARTIAL_SHIFT	19

/* Of one mounted file system; `sbi->fswrite`. */
struct f2fs_fswrite {
	struct kobject kobj;
	struct completion unregistered;
	struct f2fs_sb_info *sbi;
	struct workqueue_struct *retries;
	struct list_head users;		/* in all_users */
	void *subsystem;		/* whose lists these are */
	bool enabled;			/* what the administrator wants */
	bool foreign;			/* the lists are another file system's */
	bool lost;			/* a 91h has ended nobody knows how */
	int unreadable;			/* why the lists could not be read, at mount */

	struct mutex lock;		/* of the mark */
	bool filled;			/* the lists may have entries */
	bool marked;			/* this epoch has its mark */
	bool off;			/* no list in this epoch: all files are as if BARRED */
	bool files_full, blocks_full;	/* in this epoch */
	struct xarray files;		/* their states, by inode number */

	/* Counters. */
	atomic_long_t listed;		/* data blocks written by 91h */
	atomic_long_t refused;		/* that the drive wrote, and did not list */
	atomic_long_t synced;		/* fsyncs without a node block */
	atomic_long_t noded;		/* fsyncs of regular files with node blocks */
	atomic_long_t checkpoints;	/* fsyncs that wrote a checkpoint because of the lists */
	atomic_long_t resets;
	atomic_long_t recovered_files, recovered_blocks;
};

static inline u64 fsw_base_page(struct f2fs_sb_info *sbi)
{
	return sbi->sb->s_bdev->bd_start_sect >> (F2FS_BLKSIZE_BITS - SECTOR_SHIFT);
}

int fsw_ask(struct f2fs_sb_info *sbi, struct nvme_command *c, block_t block, void *data, unsigned int bytes);
bool fsw_listable(struct inode *inode);
bool fsw_usable(struct f2fs_fswrite *w);
void fsw_mark_parts(struct f2fs_sb_info *sbi, u32 *file, u32 *offset);

#endif
