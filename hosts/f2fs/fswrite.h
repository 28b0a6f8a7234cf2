/* SPDX-License-Identifier: GPL-2.0 */
/* What F2FS calls of fswrite.c. All of it does nothing where the drive has no file map. */
#ifndef _F2FS_FSWRITE_H
#define _F2FS_FSWRITE_H

/* How an fsync goes on once the data are written. */
enum f2fs_fswrite_sync {
	FSWRITE_STOCK,		/* as ever */
	FSWRITE_DURABLE,	/* a flush is all that is left */
	FSWRITE_CHECKPOINT,	/* what changed since the checkpoint is neither listed nor fit for node blocks */
};

int f2fs_fswrite_init(struct f2fs_sb_info *sbi);
void f2fs_fswrite_exit(struct f2fs_sb_info *sbi);
void f2fs_fswrite_free(struct f2fs_sb_info *sbi);

/* Changes of files. */
void f2fs_fswrite_mapped(struct dnode_of_data *dn, block_t blkaddr);
void f2fs_fswrite_in_place(struct inode *inode, pgoff_t index);

/* Writes of data. */
bool f2fs_fswrite_wants(struct inode *inode);
bool f2fs_fswrite_takes(struct f2fs_io_info *fio);
void f2fs_fswrite_submit(struct f2fs_io_info *fio);

/* fsync. */
void f2fs_fswrite_begin(struct inode *inode);
enum f2fs_fswrite_sync f2fs_fswrite_synced(struct inode *inode, bool atomic);
bool f2fs_fswrite_may_write_nodes(struct inode *inode);

/* Checkpoint and recovery. */
void f2fs_fswrite_checkpointed(struct f2fs_sb_info *sbi);
int f2fs_fswrite_pending(struct f2fs_sb_info *sbi);
int f2fs_fswrite_recover(struct f2fs_sb_info *sbi);

#endif
