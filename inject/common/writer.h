// Publishes this process's state as <base>/graphsignal_<pid>/<library>.json, from a thread of its own.
#ifndef GRAPHSIGNAL_INJECT_WRITER_H
#define GRAPHSIGNAL_INJECT_WRITER_H

#include "context.h"
#include "instruments.h"
#include "json.h"
#include "log.h"
#include "probe_export.h"
#include "rundir.h"
#include "system.h"

namespace graphsignal {

struct WriterOptions {
  const char* library = nullptr;       // file name without ".json"
  const char* base = nullptr;          // NULL: GRAPHSIGNAL_SHM_PATH, else /dev/shm
  uint64_t first_ns = 200000000;       // from the start to the first periodic write
  uint64_t interval_ns = 1000000000;   // from the end of one write to the next; 0 is the default
  // Host probes are published by one library of a process. kOnly: the document is for them, and is not written while
  // another library has them; kUnclaimed: take them when there are some that no other library claims.
  enum Probes { kNone, kOnly, kUnclaimed } probes = kNone;

  // Called on the writer's thread before each periodic write, and (at_end) once before the last one.
  void (*before_write)(void* argument) = nullptr;
  void (*at_end)(void* argument) = nullptr;
  // Called by stop() before the last write when a hook is not waited for any longer, though it still runs.
  void (*abandoned)(void* argument) = nullptr;
  // Adds entries after the library's own instruments.
  void (*more_metrics)(Json& out, bool* first, void* argument) = nullptr;
  void* argument = nullptr;

  // Free and total bytes of the file system of an open directory; false when unknown. Replaced by tests.
  bool (*space)(int directory, uint64_t* free_bytes, uint64_t* total_bytes) = nullptr;
};

class Writer {
 public:
  // Starts the thread. False, with one line on standard error, when the directory cannot be had; the process is not
  // affected. To be called once.
  bool start(const WriterOptions& options);

  // Makes the last document: lets the thread run at_end, then writes. A hook that shows no progress for hook_ns is not
  // waited for. Later calls, and calls in a forked child, do nothing.
  void stop(uint64_t hook_ns);
  // To be called when the process begins to exit, before the destructors of libraries run: looks for probes a last time, and leaves
  // the dynamic linker alone from then on.
  void leave_linker();
  // A hook that takes its time calls this whenever it gets somewhere.
  void hook_progress();

  Instruments& instruments() { return instruments_; }
  ProbeRegistries& probes() { return probes_; }
  Log& log() { return log_; }
  bool running() const { return __atomic_load_n(&running_, __ATOMIC_ACQUIRE) && !forked(); }

  // Makes one document now. Used by the thread and by tests.
  bool write_once();
  uint64_t skipped_writes() const { return __atomic_load_n(&skipped_, __ATOMIC_RELAXED); }

 private:
  static void* thread_main(void* self);
  void loop();
  void run_hook(void (*hook)(void*));
  bool await_thread(uint64_t hook_ns);
  bool find_probes();
  void claim_probes();
  void build();
  bool enough_space(int directory, uint64_t size);
  void skip(const char* why);

  WriterOptions options_;
  char file_[64];
  RunDirectory directory_;
  Context context_;
  Instruments instruments_;
  ProbeRegistries probes_;
  Log log_;
  Json document_;
  Lock writing_;
  Event wake_;
  Event ended_;
  pthread_t thread_;
  uint64_t hook_since_ = 0;  // monotonic; 0 while no hook runs
  pid_t pid_ = 0;
  uint64_t start_ts_ = 0;
  uint64_t skipped_ = 0;
  uint64_t probe_sightings_ = 0;
  bool owns_probes_ = false;
  bool running_ = false;
  bool directory_complained_ = false;
};

// Whether GRAPHSIGNAL_DEBUG asks for debug messages.
bool debug_asked();

}  // namespace graphsignal

#endif
