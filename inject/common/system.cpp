#include "system.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace graphsignal {
namespace {

const uint64_t kSecond = 1000000000u;

bool fork_seen = false;
bool watching = false;

void in_child() { __atomic_store_n(&fork_seen, true, __ATOMIC_RELEASE); }

uint64_t clock_ns(clockid_t clock) {
  struct timespec ts;
  clock_gettime(clock, &ts);
  return static_cast<uint64_t>(ts.tv_sec) * kSecond + static_cast<uint64_t>(ts.tv_nsec);
}

void futex_wait(uint32_t* word, uint32_t expected, uint64_t timeout_ns) {
  struct timespec ts;
  ts.tv_sec = static_cast<time_t>(timeout_ns / kSecond);
  ts.tv_nsec = static_cast<long>(timeout_ns % kSecond);
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, &ts, nullptr, 0);
}

void futex_wake(uint32_t* word, int count) {
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
}

struct ThreadStart {
  void* (*body)(void*);
  void* argument;
  const char* name;
};

void* thread_main(void* p) {
  const ThreadStart given = *static_cast<ThreadStart*>(p);
  unmap_pages(p, sizeof(given));
  prctl(PR_SET_NAME, given.name, 0, 0, 0);
  return given.body(given.argument);
}

}  // namespace

uint64_t realtime_ns() { return clock_ns(CLOCK_REALTIME); }
uint64_t monotonic_ns() { return clock_ns(CLOCK_MONOTONIC); }

const char* environment(const char* name) {
  if (getauxval(AT_SECURE) != 0) return nullptr;
  const char* value = getenv(name);
  return value && value[0] ? value : nullptr;
}

void* map_pages(size_t bytes) {
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return p == MAP_FAILED ? nullptr : p;
}

void unmap_pages(void* pages, size_t bytes) {
  if (pages) munmap(pages, bytes);
}

bool forked() { return __atomic_load_n(&fork_seen, __ATOMIC_ACQUIRE); }

void watch_forks() {
  if (__atomic_exchange_n(&watching, true, __ATOMIC_ACQ_REL)) return;
  pthread_atfork(nullptr, nullptr, in_child);
}

void Event::set() {
  __atomic_store_n(&word_, 1u, __ATOMIC_RELEASE);
  futex_wake(&word_, INT_MAX);
}

bool Event::wait(uint64_t timeout_ns) {
  const uint64_t deadline = monotonic_ns() + timeout_ns;
  while (!is_set()) {
    const uint64_t now = monotonic_ns();
    if (now >= deadline) return false;
    futex_wait(&word_, 0, deadline - now);
  }
  return true;
}

// 0 free, 1 held, 2 held and somebody sleeps.
bool Lock::try_acquire() {
  uint32_t free_word = 0;
  return __atomic_compare_exchange_n(&word_, &free_word, 1u, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

bool Lock::acquire_within(uint64_t timeout_ns) {
  for (int i = 0; i < 64; i++) {
    if (try_acquire()) return true;
  }
  const uint64_t start = monotonic_ns();
  while (__atomic_exchange_n(&word_, 2u, __ATOMIC_ACQUIRE) != 0) {
    const uint64_t waited = monotonic_ns() - start;
    if (waited >= timeout_ns) return false;
    futex_wait(&word_, 2u, timeout_ns - waited < kSecond ? timeout_ns - waited : kSecond);
  }
  return true;
}

void Lock::acquire() {
  while (!acquire_within(UINT64_MAX / 2)) {
  }
}

void Lock::release() {
  if (__atomic_exchange_n(&word_, 0u, __ATOMIC_RELEASE) == 2u) futex_wake(&word_, 1);
}

bool start_thread(pthread_t* thread, const char* name, void* (*body)(void*), void* argument) {
  // In memory of its own: the thread is not waited for, which may itself have to wait for what the caller holds.
  ThreadStart* given = static_cast<ThreadStart*>(map_pages(sizeof(ThreadStart)));
  if (!given) return false;
  *given = {body, argument, name};
  sigset_t all, before;
  sigfillset(&all);
  int failed = pthread_sigmask(SIG_SETMASK, &all, &before);
  if (failed == 0) {
    // The default stack: vendor libraries run on this thread too, and how deep they go is not known.
    failed = pthread_create(thread, nullptr, thread_main, given);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  if (failed != 0) unmap_pages(given, sizeof(ThreadStart));
  return failed == 0;
}

ssize_t write_quietly(int fd, const void* data, size_t size) {
  sigset_t raised, before, pending;
  sigemptyset(&raised);
  sigaddset(&raised, SIGPIPE);
  sigaddset(&raised, SIGXFSZ);
  sigpending(&pending);
  pthread_sigmask(SIG_BLOCK, &raised, &before);
  const ssize_t written = write(fd, data, size);
  const int error = errno;
  const int by = error == EPIPE ? SIGPIPE : SIGXFSZ;
  if (written < 0 && (error == EPIPE || error == EFBIG) && sigismember(&pending, by) != 1) {
    sigset_t ours;
    sigemptyset(&ours);
    sigaddset(&ours, by);
    const struct timespec none = {0, 0};
    while (sigtimedwait(&ours, nullptr, &none) < 0 && errno == EINTR) {
    }
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error;
  return written;
}

void write_stderr(const char* line, size_t length) {
  struct pollfd ready = {STDERR_FILENO, POLLOUT, 0};
  if (poll(&ready, 1, 0) != 1 || !(ready.revents & POLLOUT)) return;
  (void)!write_quietly(STDERR_FILENO, line, length);
}

}  // namespace graphsignal
