// The few operating-system services the injected libraries need: clocks, pages, environment, threads and fork tracking.
#ifndef GRAPHSIGNAL_INJECT_SYSTEM_H
#define GRAPHSIGNAL_INJECT_SYSTEM_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

namespace graphsignal {

// Epoch nanoseconds.
uint64_t realtime_ns();

// Nanoseconds of a clock that never steps.
uint64_t monotonic_ns();

// Value of an environment variable, or NULL when it is unset, empty, or the process runs set-user-id.
const char* environment(const char* name);

// Zeroed pages, or NULL. They are not backed by memory until touched.
void* map_pages(size_t bytes);
void unmap_pages(void* pages, size_t bytes);

// True in a child of fork() of the process that called watch_forks: such a child has none of our threads.
bool forked();
void watch_forks();

// A one-word signal between threads. Waiting never blocks longer than asked.
class Event {
 public:
  void set();
  bool is_set() const { return __atomic_load_n(&word_, __ATOMIC_ACQUIRE) != 0; }
  // Waits until set or the timeout is over; returns whether it is set.
  bool wait(uint64_t timeout_ns);
  void clear() { __atomic_store_n(&word_, 0u, __ATOMIC_RELEASE); }

 private:
  uint32_t word_ = 0;
};

// Mutual exclusion between our threads and callbacks; spins briefly, then sleeps.
class Lock {
 public:
  void acquire();
  bool try_acquire();
  // Gives up after the timeout; returns whether the lock is held now.
  bool acquire_within(uint64_t timeout_ns);
  void release();

 private:
  uint32_t word_ = 0;
};

class Guard {
 public:
  explicit Guard(Lock& lock) : lock_(lock) { lock_.acquire(); }
  ~Guard() { lock_.release(); }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

 private:
  Lock& lock_;
};

// Starts a thread with all signals blocked, so that none of the program's handlers ever runs on it.
bool start_thread(pthread_t* thread, const char* name, void* (*body)(void*), void* argument);

// write() that fails without a signal, where the other end is closed (SIGPIPE) or the process may not write so large a
// file (SIGXFSZ): the program must not die of a write of ours.
ssize_t write_quietly(int fd, const void* data, size_t size);

// Writes one line to standard error, without a signal and without waiting for a full pipe.
void write_stderr(const char* line, size_t length);

}  // namespace graphsignal

#endif
