// LevelDB's Env on a volume of remap-ssd.
#ifndef REMAP_VOLUME_ENV_H_
#define REMAP_VOLUME_ENV_H_

#include "remap/remap_files.h"

namespace leveldb {

class Env;

// An Env on these files, which outlive it. `base`: for threads and time.
Env* NewVolumeEnv(Env* base, remap_files* files);

// The Env at the place that the environment names, made once and closed as the program ends, or `base` if it names none. Ends the
// program with a sentence if the place cannot be opened.
Env* VolumeEnvOr(Env* base);

}  // namespace leveldb

#endif  // REMAP_VOLUME_ENV_H_
