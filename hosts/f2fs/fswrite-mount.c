// SPDX-License-Identifier: GPL-2.0
/*
 * The other half of fswrite.c: mount and unmount, recovery from the drive's lists, and the folder in sysfs.
 *
 * Invariant: recovery writes nothing, so that it can be cut and begun again; its checkpoint is F2FS's own. The crash
 * argument is at the head of fswrite.c.
 */

#include <linux/f2fs_fs.h>
#include <linux/fs.h>
#include <linux/module.h>
#include <linux/sched/mm.h>
#include <linux/sysfs.h>

#include "f2fs.h"
#include "node.h"
#include "segment.h"
#include "remap.h"
#include "fswrite-internal.h"
#include "nvme.h"

static bool fswrite = true;
module_param(fswrite, bool, 0644);
MODULE_PARM_DESC(fswrite, "sync files by the drive's file map, where it has one");

/* The lists of a drive are one file system's. */
static LIST_HEAD(all_users);
static DEFINE_MUTEX(all_users_lock);

/* --- recovery --- */

/* Entries from `first` on, as many as `list` has room for; returns how many there are in all. */
static int read_list(struct f2fs_sb_info *sbi, bool files, u32 file, u32 first, struct fsw_list *list, int *status)
{
	struct nvme_command c = { .common = { .opcode = FSW_READ } };

	c.common.cdw10 = cpu_to_le32(LIST_BYTES / 4 - 1);
	c.common.cdw12 = cpu_to_le32(files ? FSW_READ_FILES : 0);
	c.common.cdw13 = cpu_to_le32(file);
	c.common.cdw14 = cpu_to_le32(first);
	*status = fsw_ask(sbi, &c, 0, list, LIST_BYTES);
	return *status ? -EIO : le32_to_cpu(list->count);
}

static void entry_parts(u32 offset, pgoff_t *index, loff_t *size)
{
	if (offset & PARTIAL) {
		*index = offset & (BIT(PARTIAL_SHIFT) - 1);
		*size = ((loff_t)*index << PAGE_SHIFT) + ((offset & ~PARTIAL) >> PARTIAL_SHIFT);
	} else {
		*index = offset;
		*size = (loff_t)(*index + 1) << PAGE_SHIFT;
	}
}

/* Do the lists say what followed this checkpoint? Asked before anything is recovered. */
int f2fs_fswrite_pending(struct f2fs_sb_info *sbi)
{
	struct f2fs_fswrite *w = sbi->fswrite;
	struct fsw_list *list;
	u32 file, offset;
	int count, status;

	if (!w || w->foreign)
		return 0;
	if (w->unreadable) {
		f2fs_err(sbi, "the drive's file lists cannot be read (status %#x)", w->unreadable);
		return -EIO;
	}
	list = kmalloc(LIST_BYTES, GFP_KERNEL);
	if (!list)
		return -ENOMEM;
	fsw_mark_parts(sbi, &file, &offset);
	count = read_list(sbi, false, file, 0, list, &status);
	if (count > 0)
		count = le32_to_cpu(list->entry[0].offset) == offset;
	kfree(list);
	return count;
}

/* The block's new address, unless the node blocks that were recovered have it elsewhere. */
static int recover_block(struct inode *inode, pgoff_t index, block_t dest)
{
	struct f2fs_sb_info *sbi = F2FS_I_SB(inode);
	struct dnode_of_data dn;
	struct node_info ni;
	block_t src;
	int err;

	set_new_dnode(&dn, inode, NULL, NULL, 0);
	while ((err = f2fs_get_dnode_of_data(&dn, index, ALLOC_NODE)) == -ENOMEM) {
		memalloc_retry_wait(GFP_NOFS);
		set_new_dnode(&dn, inode, NULL, NULL, 0);
	}
	if (err)
		return err;
	f2fs_wait_on_page_writeback(dn.node_page, NODE, true, true);
	err = f2fs_get_node_info(sbi, dn.nid, &ni, false);
	if (err)
		goto put;

	src = dn.data_blkaddr;
	if (src == dest)
		goto put;
	if (f2fs_is_valid_blkaddr(sbi, dest, DATA_GENERIC_ENHANCE_UPDATE)) {
		f2fs_truncate_data_blocks_range(&dn, 1);
		goto put;
	}
	if (src == NULL_ADDR)
		err = f2fs_reserve_new_block(&dn);
	if (!err)
		f2fs_replace_block(sbi, &dn, src, dest, ni.version, false, false);
put:
	f2fs_put_dnode(&dn);
	return err;
}

static int recover_entries(struct f2fs_fswrite *w, struct inode *inode, struct fsw_entry *entry, int count)
{
	int i, err;

	for (i = 0; i < count; i++) {
		u64 page = le32_to_cpu(entry[i].page), base = fsw_base_page(w->sbi);
		pgoff_t index;
		loff_t size;

		if (page < base || !f2fs_is_valid_blkaddr(w->sbi, page - base, META_POR))
			return -EFSCORRUPTED;
		entry_parts(le32_to_cpu(entry[i].offset), &index, &size);
		err = recover_block(inode, index, page - base);
		if (err)
			return err;
		if (size > i_size_read(inode))
			f2fs_i_size_write(inode, size);
		atomic_long_inc(&w->recovered_blocks);
	}
	return 0;
}

static int recover_file(struct f2fs_fswrite *w, u32 ino, struct fsw_list *list)
{
	struct f2fs_sb_info *sbi = w->sbi;
	struct inode *inode;
	int count, status, first = 0, err = 0;

	inode = f2fs_iget_retry(sbi->sb, ino);
	/* Deleted by what was recovered before. */
	if (PTR_ERR_OR_ZERO(inode) == -ENOENT)
		return 0;
	if (IS_ERR(inode))
		return PTR_ERR(inode);
	if (!fsw_listable(inode)) {
		f2fs_err(sbi, "file %u is listed by the drive, and must not be", ino);
		err = -EFSCORRUPTED;
		goto put;
	}

	do {
		count = read_list(sbi, false, ino, first, list, &status);
		if (count < 0)
			err = count;
		else
			err = recover_entries(w, inode, list->entry, min_t(int, count - first, LIST_ENTRIES));
		first += LIST_ENTRIES;
	} while (!err && first < count);
	if (err)
		goto put;

	inode_set_mtime_to_ts(inode, inode_set_ctime_current(inode));
	f2fs_mark_inode_dirty_sync(inode, true);
	f2fs_update_inode_page(inode);
	atomic_long_inc(&w->recovered_files);
	f2fs_notice(sbi, "recovered file %u from the drive's list of %d blocks", ino, count);
put:
	iput(inode);
	return err;
}

/* Replays the lists. What node blocks say has been recovered, and new segments have not been chosen yet. */
int f2fs_fswrite_recover(struct f2fs_sb_info *sbi)
{
	struct f2fs_fswrite *w = sbi->fswrite;
	struct fsw_list *files, *list;
	int i, count, status, first = 0, err = f2fs_fswrite_pending(sbi);

	if (err <= 0)
		return err;
	files = kmalloc(LIST_BYTES, GFP_KERNEL);
	list = kmalloc(LIST_BYTES, GFP_KERNEL);
	err = files && list ? 0 : -ENOMEM;
	count = 1;
	while (!err && first < count) {
		count = read_list(sbi, true, 0, first, files, &status);
		if (count < 0)
			err = count;
		for (i = 0; !err && i < min_t(int, count - first, LIST_ENTRIES); i++) {
			u32 ino = le32_to_cpu(files->entry[i].offset);

			if (!(ino & MARK_FILE))
				err = recover_file(w, ino, list);
		}
		first += LIST_ENTRIES;
	}
	kfree(list);
	kfree(files);
	return err;
}

/* --- /sys/fs/f2fs/DEVICE/fswrite --- */

#define to_fswrite(k) container_of(k, struct f2fs_fswrite, kobj)

static ssize_t enabled_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%d\n", to_fswrite(kobj)->enabled);
}

static ssize_t enabled_store(struct kobject *kobj, struct kobj_attribute *attr, const char *buf, size_t count)
{
	bool enabled;
	int err = kstrtobool(buf, &enabled);

	if (err)
		return err;
	WRITE_ONCE(to_fswrite(kobj)->enabled, enabled);
	return count;
}

static ssize_t state_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)
{
	struct f2fs_fswrite *w = to_fswrite(kobj);

	return sysfs_emit(buf, "%s\n", w->foreign ? "foreign" : w->lost ? "lost" : fsw_usable(w) ? "on" : "off");
}

static struct kobj_attribute enabled_attr = __ATTR_RW_MODE(enabled, 0644);
static struct kobj_attribute state_attr = __ATTR_RO(state);

#define COUNTER(name)									\
static ssize_t name##_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)	\
{											\
	return sysfs_emit(buf, "%ld\n", atomic_long_read(&to_fswrite(kobj)->name));	\
}											\
static struct kobj_attribute name##_attr = __ATTR_RO(name)

COUNTER(listed);
COUNTER(refused);
COUNTER(synced);
COUNTER(noded);
COUNTER(checkpoints);
COUNTER(resets);
COUNTER(recovered_files);
COUNTER(recovered_blocks);

static struct attribute *fswrite_attrs[] = {
	&enabled_attr.attr, &state_attr.attr, &listed_attr.attr, &refused_attr.attr, &synced_attr.attr,
	&noded_attr.attr, &checkpoints_attr.attr, &resets_attr.attr, &recovered_files_attr.attr,
	&recovered_blocks_attr.attr, NULL,
};
ATTRIBUTE_GROUPS(fswrite);

static void fswrite_release(struct kobject *kobj)
{
	complete(&to_fswrite(kobj)->unregistered);
}

static const struct kobj_type fswrite_ktype = {
	.sysfs_ops = &kobj_sysfs_ops,
	.default_groups = fswrite_groups,
	.release = fswrite_release,
};

/* --- mount and unmount --- */

/* The lists are one file system's: not those of another mount, and not what another volume of the drive left. */
static bool is_foreign(struct f2fs_fswrite *w, struct fsw_list *files)
{
	struct f2fs_sb_info *sbi = w->sbi;
	struct f2fs_fswrite *other;
	bool foreign = false;
	int count, status;
	u64 page;

	mutex_lock(&all_users_lock);
	list_for_each_entry(other, &all_users, users)
		foreign |= other->subsystem == w->subsystem;
	list_add(&w->users, &all_users);
	mutex_unlock(&all_users_lock);
	if (foreign || !files->count)
		return foreign;

	/* The list of a file of another namespace is empty here. */
	count = read_list(sbi, false, le32_to_cpu(files->entry[0].offset), 0, files, &status);
	page = le32_to_cpu(files->entry[0].page);
	return count <= 0 || page < fsw_base_page(sbi) || page - fsw_base_page(sbi) >= MAX_BLKADDR(sbi);
}

static void *subsystem_of(struct f2fs_sb_info *sbi)
{
	struct nvme_ns *ns;
	void *found = NULL;
	int srcu;

	ns = f2fs_get_namespace(sbi, &srcu);
	if (ns) {
		found = ns->ctrl->subsys;
		f2fs_put_namespace(ns, srcu);
	}
	return found;
}

/* At mount, when the drive has been asked what it is, and before anything is recovered. */
int f2fs_fswrite_init(struct f2fs_sb_info *sbi)
{
	struct f2fs_fswrite *w;
	struct fsw_list *files;
	int status, count, err = -ENOMEM;

	files = kmalloc(LIST_BYTES, GFP_KERNEL);
	if (!files)
		return -ENOMEM;
	count = read_list(sbi, true, 0, 0, files, &status);
	if (status == FSW_NO_FILE_MAP || status == NVME_SC_INVALID_OPCODE || status == -ENODEV) {
		kfree(files);
		return 0;
	}

	w = kzalloc(sizeof(*w), GFP_KERNEL);
	if (!w)
		goto free_files;
	w->retries = alloc_workqueue("f2fs_fswrite", WQ_MEM_RECLAIM | WQ_UNBOUND, 0);
	if (!w->retries)
		goto free;
	w->sbi = sbi;
	w->enabled = fswrite;
	w->unreadable = status;
	w->filled = count != 0;
	w->subsystem = subsystem_of(sbi);
	mutex_init(&w->lock);
	xa_init(&w->files);
	init_completion(&w->unregistered);
	if (count < 0)
		files->count = 0;
	w->foreign = is_foreign(w, files);
	if (w->foreign)
		f2fs_warn(sbi, "the drive's file lists are another file system's: they are not used");

	sbi->fswrite = w;
	kfree(files);
	err = kobject_init_and_add(&w->kobj, &fswrite_ktype, &sbi->s_kobj, "fswrite");
	if (err)
		f2fs_fswrite_exit(sbi);
	return err;
free:
	kfree(w);
free_files:
	kfree(files);
	return err;
}

/* The folder goes before the last checkpoint is written; the rest stays until then. */
void f2fs_fswrite_exit(struct f2fs_sb_info *sbi)
{
	struct f2fs_fswrite *w = sbi->fswrite;

	if (!w || completion_done(&w->unregistered))
		return;
	kobject_put(&w->kobj);
	wait_for_completion(&w->unregistered);
	complete_all(&w->unregistered);
}

/* Nothing is written any more. */
void f2fs_fswrite_free(struct f2fs_sb_info *sbi)
{
	struct f2fs_fswrite *w = sbi->fswrite;

	if (!w)
		return;
	sbi->fswrite = NULL;
	mutex_lock(&all_users_lock);
	list_del(&w->users);
	mutex_unlock(&all_users_lock);
	destroy_workqueue(w->retries);
	xa_destroy(&w->files);
	kfree(w);
}
