// A database whose compactions share blocks has the same contents as one of stock LevelDB, after any load.
//
//   same [--seed=S] [--rounds=N] [--operations=N]
//
// Each round runs one random load on both, in one volume: puts of many sizes, overwrites in a few hot ranges, deletions, snapshots
// that stay, compactions of ranges, and reopening. Then all entries, each key, and each snapshot's entries must
// be equal, with checksums verified. At least one page must have been shared, or the round proves nothing.

#include <cstring>
#include <memory>
#include <vector>

#include "remap/kit.h"
#include "remap/remap_files.h"
#include "remap/volume_env.h"

using namespace kit;

namespace {

struct Both {
  leveldb::DB* stock = nullptr;
  leveldb::DB* retained = nullptr;
};

struct Snapshots {
  const leveldb::Snapshot* stock;
  const leveldb::Snapshot* retained;
};

const uint64_t kKeys = 3000;

class Round {
 public:
  Round(leveldb::Env* env, uint64_t seed) : env_(env), random_(seed), sizes_(random_() % 3) { Open(); }

  ~Round() {
    Close();
    for (const char* name : {"/stock", "/retained"}) Check(leveldb::DestroyDB(name, SmallOptions(env_, false)), "destroy");
  }

  void Run(uint64_t operations) {
    for (uint64_t i = 0; i < operations; i++) {
      const uint64_t chosen = random_() % 2000;
      if (chosen == 0) {
        Reopen();
      } else if (chosen < 4) {
        CompactRange();
      } else if (chosen < 10) {
        snapshots_.push_back({both_.stock->GetSnapshot(), both_.retained->GetSnapshot()});
        if (snapshots_.size() > 3) Release(random_() % snapshots_.size());
      } else if (chosen < 150) {
        Delete();
      } else {
        Put(i);
      }
    }
    CompareWithModel(both_.stock, "stock");
    CompareWithModel(both_.retained, "ours");
    for (const Snapshots& snapshots : snapshots_) Compare(snapshots);
    CompareKeys();
  }

 private:
  void Open() {
    Check(leveldb::DB::Open(SmallOptions(env_, false), "/stock", &both_.stock), "open stock");
    Check(leveldb::DB::Open(SmallOptions(env_, true), "/retained", &both_.retained), "open retained");
  }

  void Close() {
    while (!snapshots_.empty()) Release(0);
    delete both_.stock;
    delete both_.retained;
  }

  void Reopen() {
    Close();
    Open();
  }

  void Release(size_t index) {
    both_.stock->ReleaseSnapshot(snapshots_[index].stock);
    both_.retained->ReleaseSnapshot(snapshots_[index].retained);
    snapshots_.erase(snapshots_.begin() + index);
  }

  // Mostly in a hot range that moves, so that other blocks stay unchanged.
  uint64_t Number() {
    if (random_() % 50 == 0) hot_ = random_() % kKeys;
    return random_() % 8 == 0 ? random_() % kKeys : (hot_ + random_() % 100) % kKeys;
  }

  size_t Size() {
    const size_t usual[] = {100, 1000, 3900};
    return random_() % 20 == 0 ? random_() % 20000 : usual[sizes_];
  }

  void Put(uint64_t version) {
    const uint64_t number = Number();
    const std::string value = Value(number, version, Size());
    Check(both_.stock->Put(leveldb::WriteOptions(), Key(number), value), "put");
    Check(both_.retained->Put(leveldb::WriteOptions(), Key(number), value), "put");
    model_[Key(number)] = value;
  }

  void Delete() {
    const std::string key = Key(Number());
    Check(both_.stock->Delete(leveldb::WriteOptions(), key), "delete");
    Check(both_.retained->Delete(leveldb::WriteOptions(), key), "delete");
    model_.erase(key);
  }

  void CompactRange() {
    const std::string from = Key(random_() % kKeys), to = Key(random_() % kKeys);
    const leveldb::Slice begin(from), end(to);
    both_.stock->CompactRange(&begin, &end);
    both_.retained->CompactRange(&begin, &end);
  }

  void CompareWithModel(leveldb::DB* db, const std::string& name) {
    leveldb::ReadOptions options;
    options.verify_checksums = true;
    const std::unique_ptr<leveldb::Iterator> entries(db->NewIterator(options));
    entries->SeekToFirst();
    for (const auto& expected : model_) {
      if (!entries->Valid()) Fail(name + " ends before " + expected.first);
      if (entries->key() != expected.first) Fail(name + " has " + entries->key().ToString() + " instead of " + expected.first);
      if (entries->value() != expected.second) Fail(name + " has another value of " + expected.first);
      entries->Next();
    }
    if (entries->Valid()) Fail(name + " has more, from " + entries->key().ToString() + " on");
    Check(entries->status(), "iterate");
  }

  void Compare(const Snapshots& snapshots) {
    leveldb::ReadOptions options;
    options.verify_checksums = true;
    options.snapshot = snapshots.stock;
    const std::unique_ptr<leveldb::Iterator> stock(both_.stock->NewIterator(options));
    options.snapshot = snapshots.retained;
    const std::unique_ptr<leveldb::Iterator> retained(both_.retained->NewIterator(options));
    stock->SeekToFirst();
    retained->SeekToFirst();
    for (; stock->Valid() && retained->Valid(); stock->Next(), retained->Next()) {
      if (stock->key() != retained->key()) Fail("stock has " + stock->key().ToString() + ", ours " + retained->key().ToString());
      if (stock->value() != retained->value()) Fail(stock->key().ToString() + " has other values");
    }
    Check(stock->status(), "iterate stock");
    Check(retained->status(), "iterate ours");
    if (stock->Valid() || retained->Valid()) Fail("one has more entries");
  }

  void CompareKeys() {
    for (uint64_t number = 0; number < kKeys; number++) {
      std::string stock, retained;
      const leveldb::Status first = both_.stock->Get(leveldb::ReadOptions(), Key(number), &stock);
      const leveldb::Status second = both_.retained->Get(leveldb::ReadOptions(), Key(number), &retained);
      const auto expected = model_.find(Key(number));
      const bool absent = expected == model_.end();
      if (first.IsNotFound() != absent || (!absent && stock != expected->second)) Fail("stock's get of " + Key(number) + " is wrong");
      if (second.IsNotFound() != absent || (!absent && retained != expected->second)) Fail("our get of " + Key(number) + " is wrong");
    }
  }

  leveldb::Env* const env_;
  Both both_;
  std::vector<Snapshots> snapshots_;
  std::map<std::string, std::string> model_;
  std::mt19937_64 random_;
  const size_t sizes_;
  uint64_t hot_ = 0;
};

}  // namespace

int main(int count, char** words) {
  const uint64_t seed = Number(count, words, "seed", 1);
  const uint64_t rounds = Number(count, words, "rounds", 6);
  const uint64_t operations = Number(count, words, "operations", 20000);
  remap_files* files = nullptr;
  if (remap_files_open(&files) < 0) Fail(remap_error());
  if (files == nullptr) Fail("say REMAP_SSD_MEMORY=MIB");
  leveldb::Env* env = leveldb::NewVolumeEnv(leveldb::Env::Default(), files);

  for (uint64_t round = 0; round < rounds; round++) {
    uint64_t before, shared, copied;
    remap_shared(files, &before, &copied);
    Round(env, seed + round).Run(operations);
    remap_shared(files, &shared, &copied);
    if (shared == before) Fail("no page was shared");
    std::printf("seed %" PRIu64 ": equal, %" PRIu64 " pages shared\n", seed + round, shared - before);
    std::fflush(stdout);
  }
  return 0;
}
