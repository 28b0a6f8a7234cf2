// Power cuts while LevelDB compacts by sharing: every synced write is there afterwards, and the database goes on.
//
//   cuts [--seed=S] [--cuts=N] [--operations=N]
//
// One load runs on a disk with a volatile cache that remembers every operation. At each cut the disk has the durable pages, and of the pages
// written or shared since the last flush some survive. LevelDB opens; each key has a version that is not older than its last synced one and
// not newer than its last one before the cut; all blocks have right checksums. After some cuts the load goes on and everything is compacted.

#include <memory>
#include <vector>

#include "remap/kit.h"
#include "remap/remap_files.h"
#include "remap/volume_env.h"

using namespace kit;

extern "C" {
typedef struct remap_medium remap_medium;
remap_medium* remap_medium_new(uint64_t mib);
int remap_medium_files(const remap_medium* medium, remap_files** files);
uint64_t remap_medium_operations(const remap_medium* medium);
remap_medium* remap_medium_cut(const remap_medium* medium, uint64_t operations, uint64_t seed);
void remap_medium_free(remap_medium* medium);
}

namespace {

const uint64_t kKeys = 600;
const uint64_t kMediumMib = 64;

// A write, and the operations of the disk before it began and when it had returned.
struct Write {
  uint64_t key;
  bool synced;
  uint64_t began, ended;
};

struct Volume {
  explicit Volume(remap_medium* medium) : medium(medium) {
    if (remap_medium_files(medium, &files) < 0) Fail(std::string("the volume does not open: ") + remap_error());
    env.reset(leveldb::NewVolumeEnv(leveldb::Env::Default(), files));
  }

  ~Volume() {
    env.reset();
    remap_files_close(files);
    remap_medium_free(medium);
  }

  uint64_t operations() const { return remap_medium_operations(medium); }

  remap_medium* const medium;
  remap_files* files = nullptr;
  std::unique_ptr<leveldb::Env> env;
};

std::unique_ptr<leveldb::DB> Open(leveldb::Env* env) {
  leveldb::DB* opened = nullptr;
  leveldb::Options options = SmallOptions(env, true);
  options.paranoid_checks = true;
  Check(leveldb::DB::Open(options, "/db", &opened), "the database does not open");
  return std::unique_ptr<leveldb::DB>(opened);
}

class Load {
 public:
  explicit Load(uint64_t seed) : random_(seed) {}

  // Versions are the writes' numbers.
  void Run(Volume* volume, leveldb::DB* db, uint64_t writes) {
    for (uint64_t i = 0; i < writes; i++) {
      if (random_() % 40 == 0) hot_ = random_() % kKeys;
      const uint64_t key = random_() % 8 == 0 ? random_() % kKeys : (hot_ + random_() % 20) % kKeys;
      Write write = {key, random_() % 10 == 0, volume->operations(), 0};
      leveldb::WriteOptions options;
      options.sync = write.synced;
      Check(db->Put(options, Key(key), Value(key, done_.size(), 1000)), "put");
      write.ended = volume->operations();
      done_.push_back(write);
    }
  }

  // Checks a database after a cut that followed this number of operations.
  void CheckDatabase(leveldb::DB* db, uint64_t operations) const {
    const int64_t none = -1;
    std::vector<int64_t> oldest(kKeys, none), newest(kKeys, none);
    for (size_t version = 0; version < done_.size(); version++) {
      const Write& write = done_[version];
      if (write.began <= operations) newest[write.key] = static_cast<int64_t>(version);
      if (write.synced && write.ended <= operations) oldest[write.key] = static_cast<int64_t>(version);
    }

    leveldb::ReadOptions options;
    options.verify_checksums = true;
    for (uint64_t key = 0; key < kKeys; key++) {
      std::string value;
      const leveldb::Status status = db->Get(options, Key(key), &value);
      if (!status.IsNotFound()) Check(status, "get after the cut");
      const int64_t found = status.IsNotFound() ? none : Version(key, value);
      if (found < oldest[key]) Fail(Key(key) + " has version " + std::to_string(found) + ", but " + std::to_string(oldest[key]) + " was synced");
      if (found > newest[key]) Fail(Key(key) + " has a version from after the cut");
    }
    const std::unique_ptr<leveldb::Iterator> all(db->NewIterator(options));
    for (all->SeekToFirst(); all->Valid(); all->Next()) Version(std::strtoull(all->key().data() + 3, nullptr, 10), all->value().ToString());
    Check(all->status(), "iterate after the cut");
  }

 private:
  int64_t Version(uint64_t key, const std::string& value) const {
    const size_t slash = value.find('/');
    const uint64_t version = slash == std::string::npos ? 0 : std::strtoull(value.c_str() + slash + 1, nullptr, 10);
    if (value != Value(key, version, 1000)) Fail(Key(key) + " has a value that was never written");
    return static_cast<int64_t>(version);
  }

  std::mt19937_64 random_;
  uint64_t hot_ = 0;
  std::vector<Write> done_;
};

}  // namespace

int main(int count, char** words) {
  const uint64_t seed = Number(count, words, "seed", 1);
  const uint64_t cuts = Number(count, words, "cuts", 200);
  const uint64_t writes = Number(count, words, "operations", 6000);

  remap_medium* medium = remap_medium_new(kMediumMib);
  if (medium == nullptr) Fail(remap_error());
  Volume volume(medium);
  const uint64_t first = volume.operations();
  Load load(seed);
  uint64_t shared, copied;
  {
    const std::unique_ptr<leveldb::DB> db = Open(volume.env.get());
    load.Run(&volume, db.get(), writes);
    remap_shared(volume.files, &shared, &copied);
    if (shared == 0) Fail("no page was shared");
  }

  std::mt19937_64 random(seed);
  const uint64_t operations = volume.operations() - first;
  for (uint64_t cut = 0; cut < cuts; cut++) {
    const uint64_t at = first + random() % (operations + 1);
    remap_medium* after = remap_medium_cut(medium, at, random());
    if (after == nullptr) Fail(remap_error());
    std::printf("cut %" PRIu64 " after %" PRIu64 " of %" PRIu64 " operations\r", cut, at - first, operations);
    Volume cut_volume(after);
    const std::unique_ptr<leveldb::DB> db = Open(cut_volume.env.get());
    load.CheckDatabase(db.get(), at);
    if (cut % 10 == 0) {
      db->CompactRange(nullptr, nullptr);
      load.CheckDatabase(db.get(), at);
    }
  }
  std::printf("seed %" PRIu64 ": %" PRIu64 " cuts, %" PRIu64 " operations, %" PRIu64 " pages shared, %" PRIu64 " copied: nothing lost\n", seed, cuts,
              operations, shared, copied);
  return 0;
}
