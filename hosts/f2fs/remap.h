/* SPDX-License-Identifier: GPL-2.0 */
/* What F2FS calls of remap.c. */
#ifndef _F2FS_REMAP_H
#define _F2FS_REMAP_H

struct gc_inode_list;

/* gc.c's own test: is the block still what its summary says? Fills in the node and its offset in the file. */
typedef bool (*f2fs_alive_t)(struct f2fs_sb_info *sbi, struct f2fs_summary *sum,
			     struct node_info *dni, block_t blkaddr, unsigned int *nofs);
/* Its list of inodes, which are put once gc_lock is free. Takes over the reference. */
typedef void (*f2fs_keep_t)(struct gc_inode_list *gc_list, struct inode *inode);

/* The NVMe namespace below the file system, or NULL; for fswrite.c too. */
struct nvme_ns;
struct nvme_ns *f2fs_get_namespace(struct f2fs_sb_info *sbi, int *srcu);
void f2fs_put_namespace(struct nvme_ns *ns, int srcu);

int f2fs_remap_init(struct f2fs_sb_info *sbi);
void f2fs_remap_exit(struct f2fs_sb_info *sbi);
void f2fs_remap_segment(struct f2fs_sb_info *sbi, struct f2fs_summary *sum,
			struct gc_inode_list *gc_list, unsigned int segno, int gc_type,
			bool force_migrate, f2fs_alive_t is_alive, f2fs_keep_t keep);

#endif
