// The C interface of the crate remap-ssd-leveldb (src/c.rs): LevelDB's files on a volume.
//
// A function that returns a number fails with a negative one, and remap_error() then has the sentence, for the thread
// that called it. REMAP_MISSING: there is no such file. Names are paths in UTF-8.
#ifndef REMAP_FILES_H_
#define REMAP_FILES_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define REMAP_MISSING (-2)

typedef struct remap_files remap_files;
typedef struct remap_hold_t remap_hold_t;
typedef struct remap_reader remap_reader;
typedef struct remap_appender remap_appender;

const char* remap_error(void);

// Opens the place that REMAP_SSD_DEVICE or REMAP_SSD_MEMORY names; *files is null if neither is set.
int remap_files_open(remap_files** files);
void remap_files_close(remap_files* files);

int64_t remap_size(const remap_files* files, const char* name);
int remap_list(const remap_files* files, const char* folder, void (*found)(void*, const char*), void* context);
int remap_delete(const remap_files* files, const char* name);
// Renames; a file of the new name is replaced at one instant, also across a power cut.
int remap_replace(const remap_files* files, const char* from, const char* to);
// Pages shared so far, and pages that sharing had to copy.
void remap_shared(const remap_files* files, uint64_t* shared, uint64_t* copied);

// Excludes other processes from holding the same file; null if one holds it, or on an error.
remap_hold_t* remap_hold(const remap_files* files, const char* name);
void remap_let_go(remap_hold_t* hold);

int remap_reader_open(const remap_files* files, const char* name, remap_reader** reader);
int64_t remap_read(const remap_reader* reader, uint64_t offset, void* into, size_t bytes);
void remap_reader_close(remap_reader* reader);

// An appender is for one thread at a time. keep: the file keeps its contents.
int remap_appender_open(const remap_files* files, const char* name, bool keep, remap_appender** appender);
int remap_append(remap_appender* appender, const void* data, size_t bytes);
// Appends pages of another file by sharing them: 1. 0: nothing was done, since the file does not end at a page or the
// range is not of whole pages of 4 KiB; append the bytes instead.
int remap_share(remap_appender* appender, const remap_reader* from, uint64_t offset, uint64_t bytes);
int remap_sync(remap_appender* appender);
int remap_appender_close(remap_appender* appender);

#ifdef __cplusplus
}
#endif

#endif  // REMAP_FILES_H_
