// What the test programs of this folder share: a model of a database, and a load with all that compaction must get right.
#ifndef REMAP_KIT_H_
#define REMAP_KIT_H_

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <string>

#include "leveldb/db.h"
#include "leveldb/env.h"

namespace kit {

[[noreturn]] inline void Fail(const std::string& why) {
  std::printf("FAILED: %s\n", why.c_str());
  std::exit(1);
}

inline void Check(const leveldb::Status& status, const char* what) {
  if (!status.ok()) Fail(std::string(what) + ": " + status.ToString());
}

// The small sizes make a few megabytes pass through several compactions.
inline leveldb::Options SmallOptions(leveldb::Env* env, bool retained) {
  leveldb::Options options;
  options.env = env;
  options.create_if_missing = true;
  options.write_buffer_size = 64 << 10;
  options.max_file_size = 1 << 20;
  options.align_blocks = retained;
  options.retain_blocks = retained;
  return options;
}

inline std::string Key(uint64_t number) {
  char key[32];
  std::snprintf(key, sizeof(key), "key%08" PRIu64, number);
  return key;
}

// A value that names its key and version.
inline std::string Value(uint64_t number, uint64_t version, size_t size) {
  char text[64];
  const int length = std::snprintf(text, sizeof(text), "%" PRIu64 "/%" PRIu64 "/", number, version);
  std::string value(text, length);
  std::mt19937_64 random(number * 1000003 + version);
  while (value.size() < size) value.push_back(static_cast<char>('a' + random() % 26));
  return value;
}

// The number of an argument `--NAME=NUMBER`, or `otherwise`.
inline uint64_t Number(int count, char** words, const std::string& name, uint64_t otherwise) {
  const std::string prefix = "--" + name + "=";
  for (int i = 1; i < count; i++) {
    const std::string word = words[i];
    if (word.compare(0, prefix.size(), prefix) == 0) return std::strtoull(word.c_str() + prefix.size(), nullptr, 10);
  }
  return otherwise;
}

}  // namespace kit

#endif  // REMAP_KIT_H_
