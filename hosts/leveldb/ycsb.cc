// YCSB's core workloads A to F on LevelDB, one thread.
//
//   ycsb --db=DIR --workload=load|a|b|c|d|e|f --records=N --operations=N --value_size=BYTES --seed=S [--block_size=BYTES]
//
// `load` writes all records; the others expect them. Requests are YCSB's defaults: scrambled Zipf with the constant 0.99 over
// the records (the newest ones in D), 95 % scans of 1 to 100 records in E, a read before half of F's operations.
// Each value is random bytes that begin with its key, and a read that finds another key's value ends the program.
// Prints one line: operations, and bytes that the program has put.

#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>

#include "leveldb/db.h"
#include "leveldb/env.h"

namespace {

using leveldb::Slice;
using leveldb::Status;

// FNV-1a of the number's bytes, as YCSB scrambles keys.
uint64_t Scramble(uint64_t number) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (int byte = 0; byte < 8; byte++) {
    hash = (hash ^ (number & 0xff)) * 0x100000001b3ull;
    number >>= 8;
  }
  return hash;
}

// Zipf's law over 0..n, the most frequent first (Gray et al., SIGMOD 1994), with YCSB's constant.
class Zipf {
 public:
  explicit Zipf(uint64_t n) : n_(n) {
    for (uint64_t i = 1; i <= n; i++) zeta_ += 1 / std::pow(static_cast<double>(i), kTheta);
    const double zeta2 = 1 + std::pow(0.5, kTheta);
    eta_ = (1 - std::pow(2.0 / static_cast<double>(n), 1 - kTheta)) / (1 - zeta2 / zeta_);
  }

  uint64_t Next(double uniform) const {
    const double scaled = uniform * zeta_;
    if (scaled < 1) return 0;
    if (scaled < 1 + std::pow(0.5, kTheta)) return 1;
    const double rank = static_cast<double>(n_) * std::pow(eta_ * uniform - eta_ + 1, 1 / (1 - kTheta));
    return std::min(static_cast<uint64_t>(rank), n_ - 1);
  }

 private:
  static constexpr double kTheta = 0.99;
  const uint64_t n_;
  double zeta_ = 0;
  double eta_;
};

struct Mix {
  char name;
  // Percent of reads, updates, inserts, scans, and updates after a read.
  int read, update, insert, scan, modify;
};

const Mix kMixes[] = {{'a', 50, 50, 0, 0, 0}, {'b', 95, 5, 0, 0, 0}, {'c', 100, 0, 0, 0, 0},
                      {'d', 95, 0, 5, 0, 0},  {'e', 0, 0, 5, 95, 0}, {'f', 50, 0, 0, 0, 50}};

[[noreturn]] void Usage() {
  std::fprintf(stderr, "error: say --db=DIR --workload=load|a|b|c|d|e|f --records=N --operations=N --value_size=BYTES --seed=S\n");
  std::exit(2);
}

void Check(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "error: %s\n", status.ToString().c_str());
  std::exit(1);
}

class Bench {
 public:
  Bench(leveldb::DB* db, uint64_t records, size_t value_size, uint64_t seed)
      : db_(db), records_(records), value_size_(value_size), random_(seed) {}

  void Load() {
    // In the order of record numbers, whose keys are scattered.
    for (uint64_t record = 0; record < records_; record++) Put(record);
  }

  void Run(const Mix& mix, uint64_t operations) {
    const Zipf zipf(records_);
    for (uint64_t done = 0; done < operations; done++) {
      const uint64_t rank = zipf.Next(Uniform());
      const uint64_t record = mix.name == 'd' ? records_ - 1 - rank : Scramble(rank) % records_;
      int chosen = static_cast<int>(random_() % 100);
      if ((chosen -= mix.read) < 0) {
        Get(record);
      } else if ((chosen -= mix.update) < 0) {
        Put(record);
      } else if ((chosen -= mix.insert) < 0) {
        Put(records_++);
      } else if ((chosen -= mix.scan) < 0) {
        Scan(record, 1 + random_() % 100);
      } else {
        Get(record);
        Put(record);
      }
    }
  }

  uint64_t bytes() const { return bytes_; }

 private:
  double Uniform() { return static_cast<double>(random_() >> 11) * 0x1p-53; }

  static std::string Key(uint64_t record) {
    char key[32];
    std::snprintf(key, sizeof(key), "user%020" PRIu64, Scramble(record));
    return key;
  }

  void Put(uint64_t record) {
    const std::string key = Key(record);
    std::string value = key;
    while (value.size() < value_size_) {
      const uint64_t word = random_();
      value.append(reinterpret_cast<const char*>(&word), sizeof(word));
    }
    value.resize(value_size_);
    Check(db_->Put(leveldb::WriteOptions(), key, value));
    bytes_ += key.size() + value.size();
  }

  void Get(uint64_t record) {
    const std::string key = Key(record);
    std::string value;
    Check(db_->Get(leveldb::ReadOptions(), key, &value));
    CheckValue(key, value);
  }

  void Scan(uint64_t record, uint64_t length) {
    std::unique_ptr<leveldb::Iterator> entries(db_->NewIterator(leveldb::ReadOptions()));
    entries->Seek(Key(record));
    for (; length > 0 && entries->Valid(); length--, entries->Next()) CheckValue(entries->key(), entries->value());
    Check(entries->status());
  }

  void CheckValue(const Slice& key, const Slice& value) const {
    const size_t length = std::min(key.size(), value_size_);
    if (value.size() == value_size_ && std::memcmp(key.data(), value.data(), length) == 0) return;
    std::fprintf(stderr, "error: %s has the value of another key\n", key.ToString().c_str());
    std::exit(1);
  }

  leveldb::DB* const db_;
  uint64_t records_;
  const size_t value_size_;
  std::mt19937_64 random_;
  uint64_t bytes_ = 0;
};

}  // namespace

int main(int count, char** words) {
  std::string folder, workload;
  uint64_t records = 0, operations = 0, value_size = 1000, seed = 1, block_size = 4096;
  for (int i = 1; i < count; i++) {
    char text[256];
    char rest;
    if (std::sscanf(words[i], "--db=%255s", text) == 1) {
      folder = text;
    } else if (std::sscanf(words[i], "--workload=%255s", text) == 1) {
      workload = text;
    } else if (std::sscanf(words[i], "--records=%" SCNu64 "%c", &records, &rest) != 1 &&
               std::sscanf(words[i], "--operations=%" SCNu64 "%c", &operations, &rest) != 1 &&
               std::sscanf(words[i], "--value_size=%" SCNu64 "%c", &value_size, &rest) != 1 &&
               std::sscanf(words[i], "--block_size=%" SCNu64 "%c", &block_size, &rest) != 1 &&
               std::sscanf(words[i], "--seed=%" SCNu64 "%c", &seed, &rest) != 1) {
      Usage();
    }
  }
  const Mix* mix = nullptr;
  for (const Mix& one : kMixes) {
    if (workload == std::string(1, one.name)) mix = &one;
  }
  if (folder.empty() || records < 2 || value_size == 0 || (mix == nullptr && workload != "load")) Usage();

  leveldb::Options options;
  options.create_if_missing = workload == "load";
  options.block_size = block_size;
  leveldb::DB* opened = nullptr;
  Check(leveldb::DB::Open(options, folder, &opened));
  const std::unique_ptr<leveldb::DB> db(opened);
  Bench bench(db.get(), records, value_size, seed);
  if (mix == nullptr) {
    bench.Load();
  } else {
    bench.Run(*mix, operations);
  }
  std::printf("%" PRIu64 " operations, %" PRIu64 " bytes put\n", mix == nullptr ? records : operations, bench.bytes());
  return 0;
}
