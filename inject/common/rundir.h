// The run directory of this process, <base>/graphsignal_<pid>: creation, ownership, and replacing files in it.
//
// Beside the documents it holds `.owner`, one JSON line {"pid":…,"start_time":…,"boot_id":"…","pid_ns":…} with the start
// time in clock ticks after boot (field 22 of /proc/<pid>/stat) and the inode of the pid namespace, so that a reader
// can tell a directory of a dead process from one of a process it cannot see; and `probes.lock`, which names the
// library that publishes the host probes of this process image.
#ifndef GRAPHSIGNAL_INJECT_RUNDIR_H
#define GRAPHSIGNAL_INJECT_RUNDIR_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

namespace graphsignal {

class RunDirectory {
 public:
  // base NULL: GRAPHSIGNAL_SHM_PATH, else /dev/shm. Only remembers the path. Returns false when the path is too long.
  bool set(const char* base);

  // Creates the directory if need be, checks that it is ours, and marks it with `.owner`. Files that an earlier process
  // with the same pid left behind are removed. Returns a descriptor for openat and friends, to be closed by the
  // caller, or -1 with reason() saying why.
  int open_checked();

  // Atomically replaces <name> in the directory with the bytes given. Returns false on any error; the previous file stays.
  static bool replace_file(int directory, const char* name, const char* data, size_t size);

  // Claims the publication of host probes for a library; true when it is, or already was, this library's.
  bool claim_probes(const char* library);

  const char* path() const { return path_; }
  const char* reason() const { return reason_; }

 private:
  bool mark(int directory);

  char path_[PATH_MAX];
  const char* reason_ = "";
};

}  // namespace graphsignal

#endif
