// Compaction that keeps unchanged data blocks, so that their pages can be shared instead of written.
//
// A data block of an input is *unchanged* if a merge emits exactly its entries, one after the other: no entry of another
// input falls between them, and none of them is dropped. RemapCom (DATE 2025) finds such blocks with a state machine while
// it merges; here a block is judged as the merge reaches its first entry, since the next entry of every other input
// is known then.
//
// Invariants: the entries, and their order, are those of LevelDB's own merge; a block is kept only if its checksum is right.
// A block is never kept if it has a deletion or two entries of one key: whether LevelDB drops these depends on other
// levels and snapshots.
//
// The output's block before an unchanged one ends there, however few entries it has. Considered and rejected: merging an
// unchanged block with such a remainder, into two blocks at least half full. It programs as many pages or more
// (docs/compaction.md). Absent: the layout of tables, and where output files end (LevelDB's own code).
#ifndef REMAP_RETAIN_H_
#define REMAP_RETAIN_H_

#include <memory>
#include <string>
#include <vector>

#include "db/dbformat.h"
#include "leveldb/iterator.h"
#include "leveldb/slice.h"

namespace leveldb {

const uint64_t kSharedPage = 4096;

inline uint64_t WholePages(uint64_t bytes) { return (bytes + kSharedPage - 1) / kSharedPage * kSharedPage; }

class Compaction;
class TableBuilder;
class TableCache;
struct Options;

// Sets align_blocks and retain_blocks from REMAP_SSD_BLOCKS, which is `aligned` or `retained`, or not set.
void BlocksFromEnvironment(Options* options);

// A data block as it is stored in a table.
struct StoredBlock {
  std::string file;     // The table's file, and the block's offset there.
  uint64_t offset = 0;
  std::string pages;    // Block and trailer, padded with zeroes to whole pages.
  size_t size = 0;      // Bytes of the block, without its trailer.
  std::string last_key;
};

// A sorted part of a compaction's input: a file of level 0, or all files of another level.
class Run;

// The merged input of a compaction.
class RetainingInput : public Iterator {
 public:
  RetainingInput(const InternalKeyComparator& comparator, const std::string& dbname, TableCache* cache, Compaction* compaction,
                 bool paranoid);
  ~RetainingInput() override;

  bool Valid() const override { return current_ != nullptr; }
  void SeekToFirst() override;
  void Next() override;
  Slice key() const override;
  Slice value() const override;
  Status status() const override;

  // A compaction reads forward only.
  void SeekToLast() override;
  void Prev() override;
  void Seek(const Slice&) override;

  // True if the present entry begins an unchanged block. `last`: the user key emitted or dropped before, null if none.
  bool AtUnchangedBlock(const std::string* last) const;

  // Adds that block to a table and moves on to the entry after it. `last_key`: the block's last internal key.
  void MoveBlock(TableBuilder* builder, std::string* last_key);

 private:
  void FindSmallest();

  const InternalKeyComparator comparator_;
  std::vector<std::unique_ptr<Run>> runs_;
  Run* current_ = nullptr;
};

}  // namespace leveldb

#endif  // REMAP_RETAIN_H_
