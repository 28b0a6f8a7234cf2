// What LevelDB's db_bench_sqlite3 needs of LevelDB's header of this name. That one asks for the test framework besides.
#pragma once

#include <ctime>
#include <string>

#include "leveldb/env.h"
#include "leveldb/slice.h"

namespace leveldb {
class Random;
namespace test {
Slice RandomString(Random* random, int bytes, std::string* into);
Slice CompressibleString(Random* random, double fraction, size_t bytes, std::string* into);
std::string RandomKey(Random* random, int bytes);
}  // namespace test
}  // namespace leveldb
