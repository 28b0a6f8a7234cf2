// LevelDB's Env on a volume of remap-ssd. Env::Default() returns it where the environment names a place
// (remap_files.h); threads and time stay the operating system's.
//
// Flush() passes nothing on: an appended byte leaves this process when a quarter of a megabyte is gathered, at
// Sync(), and at Close(). So writes without sync are lost when the process is killed, not only when the power is
// cut. Absent: directories, which a volume does not have.

#include "remap/volume_env.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "leveldb/env.h"
#include "port/port.h"
#include "remap/remap_files.h"
#include "util/mutexlock.h"

namespace leveldb {

namespace {

Status Failed(const std::string& name, int64_t code) {
  return code == REMAP_MISSING ? Status::NotFound(name, remap_error()) : Status::IOError(name, remap_error());
}

Status Done(const std::string& name, int64_t code) { return code < 0 ? Failed(name, code) : Status::OK(); }

struct ReaderCloser {
  void operator()(remap_reader* reader) const { remap_reader_close(reader); }
};
using Reader = std::unique_ptr<remap_reader, ReaderCloser>;

Status OpenReader(remap_files* files, const std::string& name, Reader* reader) {
  remap_reader* opened = nullptr;
  const int code = remap_reader_open(files, name.c_str(), &opened);
  reader->reset(opened);
  return Done(name, code);
}

Status ReadAt(const std::string& name, const Reader& reader, uint64_t offset, size_t n, Slice* result, char* scratch) {
  const int64_t read = remap_read(reader.get(), offset, scratch, n);
  *result = Slice(scratch, read < 0 ? 0 : static_cast<size_t>(read));
  return Done(name, read);
}

class VolumeSequentialFile : public SequentialFile {
 public:
  VolumeSequentialFile(std::string name, Reader reader) : name_(std::move(name)), reader_(std::move(reader)) {}

  Status Read(size_t n, Slice* result, char* scratch) override {
    Status s = ReadAt(name_, reader_, at_, n, result, scratch);
    at_ += result->size();
    return s;
  }

  Status Skip(uint64_t n) override {
    at_ += n;
    return Status::OK();
  }

 private:
  const std::string name_;
  const Reader reader_;
  uint64_t at_ = 0;
};

class VolumeRandomAccessFile : public RandomAccessFile {
 public:
  VolumeRandomAccessFile(std::string name, Reader reader) : name_(std::move(name)), reader_(std::move(reader)) {}

  Status Read(uint64_t offset, size_t n, Slice* result, char* scratch) const override {
    return ReadAt(name_, reader_, offset, n, result, scratch);
  }

 private:
  const std::string name_;
  const Reader reader_;
};

class VolumeWritableFile : public WritableFile {
 public:
  VolumeWritableFile(std::string name, remap_files* files, remap_appender* appender)
      : name_(std::move(name)), files_(files), appender_(appender) {}

  ~VolumeWritableFile() override { Close(); }

  Status Append(const Slice& data) override { return Done(name_, remap_append(appender_, data.data(), data.size())); }

  Status AppendShared(const std::string& from, uint64_t offset, const Slice& data, bool* shared) override {
    *shared = false;
    if (from != from_name_) {
      from_name_.clear();
      Status s = OpenReader(files_, from, &from_);
      if (!s.ok()) return s;
      from_name_ = from;
    }
    const int code = remap_share(appender_, from_.get(), offset, data.size());
    *shared = code > 0;
    return code == 0 ? Append(data) : Done(name_, code);
  }

  Status Flush() override { return Status::OK(); }

  Status Sync() override { return Done(name_, remap_sync(appender_)); }

  Status Close() override {
    if (appender_ == nullptr) return Status::OK();
    const int code = remap_appender_close(appender_);
    appender_ = nullptr;
    return Done(name_, code);
  }

 private:
  const std::string name_;
  remap_files* const files_;
  remap_appender* appender_;
  // The file that pages were shared from last.
  std::string from_name_;
  Reader from_;
};

class VolumeLock : public FileLock {
 public:
  VolumeLock(std::string name, remap_hold_t* hold) : name(std::move(name)), hold(hold) {}

  const std::string name;
  remap_hold_t* const hold;
};

// LevelDB's LOG.
class VolumeLogger : public Logger {
 public:
  explicit VolumeLogger(WritableFile* file) : file_(file) {}

  void Logv(const char* format, std::va_list arguments) override {
    char line[512];
    int length = std::vsnprintf(line, sizeof(line) - 1, format, arguments);
    if (length < 0) return;
    length = std::min<int>(length, sizeof(line) - 2);
    line[length] = '\n';
    MutexLock lock(&mutex_);
    file_->Append(Slice(line, length + 1));
  }

 private:
  port::Mutex mutex_;
  const std::unique_ptr<WritableFile> file_;
};

class VolumeEnv : public EnvWrapper {
 public:
  VolumeEnv(Env* base, remap_files* files) : EnvWrapper(base), files_(files) {}

  Status NewSequentialFile(const std::string& name, SequentialFile** result) override {
    Reader reader;
    Status s = OpenReader(files_, name, &reader);
    *result = s.ok() ? new VolumeSequentialFile(name, std::move(reader)) : nullptr;
    return s;
  }

  Status NewRandomAccessFile(const std::string& name, RandomAccessFile** result) override {
    Reader reader;
    Status s = OpenReader(files_, name, &reader);
    *result = s.ok() ? new VolumeRandomAccessFile(name, std::move(reader)) : nullptr;
    return s;
  }

  Status NewWritableFile(const std::string& name, WritableFile** result) override { return Open(name, false, result); }

  Status NewAppendableFile(const std::string& name, WritableFile** result) override { return Open(name, true, result); }

  bool FileExists(const std::string& name) override {
    if (remap_size(files_, name.c_str()) >= 0) return true;
    MutexLock guard(&mutex_);
    return folders_.count(name) > 0;
  }

  Status GetChildren(const std::string& folder, std::vector<std::string>* result) override {
    // As an operating system lists a folder.
    *result = {".", ".."};
    const auto found = [](void* names, const char* name) {
      static_cast<std::vector<std::string>*>(names)->emplace_back(name);
    };
    return Done(folder, remap_list(files_, folder.c_str(), found, result));
  }

  Status RemoveFile(const std::string& name) override { return Done(name, remap_delete(files_, name.c_str())); }

  // A folder is a prefix of names: only this process knows whether an empty one exists.
  Status CreateDir(const std::string& name) override {
    MutexLock guard(&mutex_);
    folders_.insert(name);
    return Status::OK();
  }

  Status RemoveDir(const std::string& name) override {
    MutexLock guard(&mutex_);
    folders_.erase(name);
    return Status::OK();
  }

  Status GetFileSize(const std::string& name, uint64_t* size) override {
    const int64_t found = remap_size(files_, name.c_str());
    *size = found < 0 ? 0 : static_cast<uint64_t>(found);
    return Done(name, found);
  }

  Status RenameFile(const std::string& from, const std::string& to) override {
    return Done(from, remap_replace(files_, from.c_str(), to.c_str()));
  }

  Status LockFile(const std::string& name, FileLock** lock) override {
    *lock = nullptr;
    MutexLock guard(&mutex_);
    if (!locked_.insert(name).second) return Status::IOError("lock " + name, "already held by process");
    remap_hold_t* hold = remap_hold(files_, name.c_str());
    if (hold == nullptr) {
      locked_.erase(name);
      return Status::IOError("lock " + name, remap_error());
    }
    *lock = new VolumeLock(name, hold);
    return Status::OK();
  }

  Status UnlockFile(FileLock* lock) override {
    VolumeLock* ours = static_cast<VolumeLock*>(lock);
    MutexLock guard(&mutex_);
    locked_.erase(ours->name);
    remap_let_go(ours->hold);
    delete ours;
    return Status::OK();
  }

  Status GetTestDirectory(std::string* folder) override {
    *folder = "/leveldbtest";
    return Status::OK();
  }

  Status NewLogger(const std::string& name, Logger** result) override {
    WritableFile* file = nullptr;
    Status s = NewWritableFile(name, &file);
    *result = s.ok() ? new VolumeLogger(file) : nullptr;
    return s;
  }

 private:
  Status Open(const std::string& name, bool keep, WritableFile** result) {
    remap_appender* appender = nullptr;
    const int code = remap_appender_open(files_, name.c_str(), keep, &appender);
    *result = code < 0 ? nullptr : new VolumeWritableFile(name, files_, appender);
    return Done(name, code);
  }

  remap_files* const files_;
  port::Mutex mutex_;
  std::set<std::string> locked_;
  std::set<std::string> folders_;
};

}  // namespace

Env* NewVolumeEnv(Env* base, remap_files* files) { return new VolumeEnv(base, files); }

Env* VolumeEnvOr(Env* base) {
  static Env* const found = [base]() -> Env* {
    remap_files* files = nullptr;
    if (remap_files_open(&files) < 0) {
      std::fprintf(stderr, "error: %s\n", remap_error());
      std::exit(1);
    }
    if (files == nullptr) return base;
    // A program closes its databases before it ends; then the volume is closed, too.
    static remap_files* const opened = files;
    std::atexit([] { remap_files_close(opened); });
    return NewVolumeEnv(base, files);
  }();
  return found;
}

}  // namespace leveldb
