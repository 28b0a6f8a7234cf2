// See retain.h.

#include "remap/retain.h"

#include <cassert>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "db/filename.h"
#include "db/table_cache.h"
#include "db/version_set.h"
#include "leveldb/env.h"
#include "leveldb/table.h"
#include "leveldb/table_builder.h"
#include "table/block.h"
#include "table/format.h"
#include "util/coding.h"
#include "util/crc32c.h"

namespace leveldb {

class Run {
 public:
  Run(const Comparator* comparator, const std::string& dbname, TableCache* cache, bool paranoid,
      std::vector<FileMetaData*> files)
      : comparator_(comparator), dbname_(dbname), cache_(cache), paranoid_(paranoid), files_(std::move(files)) {}

  bool Valid() const { return entries_ != nullptr; }
  Slice key() const { return entries_->key(); }
  Slice value() const { return entries_->value(); }
  const Status& status() const { return status_; }

  void SeekToFirst() { NextFile(); }

  void Next() {
    at_start_ = false;
    entries_->Next();
    if (entries_->Valid()) return;
    status_ = entries_->status();
    entries_.reset();
    if (status_.ok()) NextBlock();
  }

  // True if the present entry is the first of a block whose pages can be shared.
  bool AtStoredBlock() const { return at_start_ && stored_.size > 0; }
  const StoredBlock& stored() const { return stored_; }

  // An iterator over the present block, for the caller to delete.
  Iterator* NewBlockIterator() const { return block_->NewIterator(comparator_); }

  // Moves on to the first entry after the present block.
  void NextBlock() {
    entries_.reset();
    block_.reset();
    index_->Next();
    ReadBlockOrNextFile();
  }

 private:
  void NextFile() {
    entries_.reset();
    index_.reset();
    if (next_file_ == files_.size()) return;
    file_ = files_[next_file_++];
    ReadOptions options;
    options.fill_cache = false;
    // This iterator is not read: it keeps the table open.
    open_.reset(cache_->NewIterator(options, file_->number, file_->file_size, &table_));
    status_ = open_->status();
    if (!status_.ok()) return;
    index_.reset(table_->NewIndexIterator());
    index_->SeekToFirst();
    ReadBlockOrNextFile();
  }

  void ReadBlockOrNextFile() {
    while (index_->Valid()) {
      status_ = ReadPresentBlock();
      if (!status_.ok()) return;
      entries_.reset(block_->NewIterator(comparator_));
      entries_->SeekToFirst();
      at_start_ = true;
      if (entries_->Valid()) return;
      status_ = entries_->status();
      entries_.reset();
      if (!status_.ok()) return;
      index_->Next();
    }
    status_ = index_->status();
    if (status_.ok()) NextFile();
  }

  // Reads the block at the index's entry; `stored_.size` is 0 if its pages cannot be shared.
  Status ReadPresentBlock() {
    BlockHandle handle;
    Slice input = index_->value();
    Status s = handle.DecodeFrom(&input);
    if (!s.ok()) return s;
    const size_t size = static_cast<size_t>(handle.size());
    const size_t bytes = size + kBlockTrailerSize;
    stored_.pages.assign(WholePages(bytes), '\0');
    Slice read;
    s = table_->file()->Read(handle.offset(), bytes, &read, &stored_.pages[0]);
    if (!s.ok()) return s;
    if (read.size() != bytes) return Status::Corruption("truncated block read");
    if (read.data() != stored_.pages.data()) stored_.pages.replace(0, bytes, read.data(), bytes);
    const char* data = stored_.pages.data();
    // A block is passed on with its checksum, which must be right. Otherwise LevelDB decides, as in its own merge.
    const bool intact = crc32c::Unmask(DecodeFixed32(data + size + 1)) == crc32c::Value(data, size + 1);
    if (!intact && paranoid_) return Status::Corruption("block checksum mismatch", TableFileName(dbname_, file_->number));

    BlockContents contents = {Slice(data, size), false, false};
    if (data[size] != kNoCompression) {
      s = ReadBlock(table_->file(), ReadOptions(), handle, &contents);
      if (!s.ok()) return s;
    }
    block_.reset(new Block(contents));
    // Tables of stock LevelDB have blocks at any offset.
    const bool shareable =
        intact && handle.offset() % kSharedPage == 0 && handle.offset() + stored_.pages.size() <= file_->file_size;
    stored_.size = shareable ? size : 0;
    if (!shareable) return s;

    stored_.file = TableFileName(dbname_, file_->number);
    stored_.offset = handle.offset();
    std::unique_ptr<Iterator> last(block_->NewIterator(comparator_));
    last->SeekToLast();
    if (last->Valid()) stored_.last_key = last->key().ToString();
    return last->status();
  }

  const Comparator* const comparator_;
  const std::string dbname_;
  TableCache* const cache_;
  const bool paranoid_;
  const std::vector<FileMetaData*> files_;
  size_t next_file_ = 0;
  FileMetaData* file_ = nullptr;
  Table* table_ = nullptr;
  // In this order, since each uses those before it.
  std::unique_ptr<Iterator> open_;
  std::unique_ptr<Iterator> index_;
  StoredBlock stored_;
  std::unique_ptr<Block> block_;
  std::unique_ptr<Iterator> entries_;
  bool at_start_ = false;
  Status status_;
};

RetainingInput::RetainingInput(const InternalKeyComparator& comparator, const std::string& dbname, TableCache* cache,
                               Compaction* compaction, bool paranoid)
    : comparator_(comparator) {
  for (int which = 0; which < 2; which++) {
    std::vector<FileMetaData*> files;
    for (int i = 0; i < compaction->num_input_files(which); i++) {
      FileMetaData* file = compaction->input(which, i);
      // Files of level 0 overlap.
      if (compaction->level() + which == 0) {
        runs_.emplace_back(new Run(&comparator_, dbname, cache, paranoid, {file}));
      } else {
        files.push_back(file);
      }
    }
    if (!files.empty()) runs_.emplace_back(new Run(&comparator_, dbname, cache, paranoid, files));
  }
}

RetainingInput::~RetainingInput() = default;

void RetainingInput::SeekToFirst() {
  for (const auto& run : runs_) run->SeekToFirst();
  FindSmallest();
}

void RetainingInput::Next() {
  current_->Next();
  FindSmallest();
}

Slice RetainingInput::key() const { return current_->key(); }
Slice RetainingInput::value() const { return current_->value(); }

Status RetainingInput::status() const {
  for (const auto& run : runs_) {
    if (!run->status().ok()) return run->status();
  }
  return Status::OK();
}

void RetainingInput::SeekToLast() { assert(false); }
void RetainingInput::Prev() { assert(false); }
void RetainingInput::Seek(const Slice&) { assert(false); }

void RetainingInput::FindSmallest() {
  current_ = nullptr;
  for (const auto& run : runs_) {
    if (run->Valid() && (current_ == nullptr || comparator_.Compare(run->key(), current_->key()) < 0)) {
      current_ = run.get();
    }
  }
}

bool RetainingInput::AtUnchangedBlock(const std::string* last) const {
  if (!current_->AtStoredBlock()) return false;
  const Comparator* user = comparator_.user_comparator();
  const Slice last_user_key = ExtractUserKey(current_->stored().last_key);
  for (const auto& run : runs_) {
    const bool between = run.get() != current_ && run->Valid() && user->Compare(ExtractUserKey(run->key()), last_user_key) <= 0;
    if (between) return false;
  }

  // All are values of different keys: none is dropped.
  std::unique_ptr<Iterator> entries(current_->NewBlockIterator());
  std::string before = last == nullptr ? std::string() : *last;
  bool has_before = last != nullptr;
  for (entries->SeekToFirst(); entries->Valid(); entries->Next()) {
    ParsedInternalKey key;
    if (!ParseInternalKey(entries->key(), &key) || key.type != kTypeValue) return false;
    if (has_before && user->Compare(key.user_key, before) == 0) return false;
    before.assign(key.user_key.data(), key.user_key.size());
    has_before = true;
  }
  return entries->status().ok();
}

void RetainingInput::MoveBlock(TableBuilder* builder, std::string* last_key) {
  std::unique_ptr<Iterator> entries(current_->NewBlockIterator());
  builder->AddBlock(current_->stored(), entries.get());
  *last_key = current_->stored().last_key;
  current_->NextBlock();
  FindSmallest();
}

void BlocksFromEnvironment(Options* options) {
  const char* text = std::getenv("REMAP_SSD_BLOCKS");
  if (text == nullptr || *text == '\0') return;
  const std::string blocks = text;
  if (blocks != "aligned" && blocks != "retained") {
    std::fprintf(stderr, "error: REMAP_SSD_BLOCKS=%s: say aligned or retained\n", text);
    std::exit(2);
  }
  options->align_blocks = true;
  options->retain_blocks = blocks == "retained";
}

}  // namespace leveldb
