#include "rundir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "system.h"

namespace graphsignal {
namespace {

const char kOwner[] = ".owner";
const char kProbesLock[] = "probes.lock";
// Documents and locks a process may leave behind.
const char* const kFiles[] = {"cupti.json", "rocm.json", "probes.json", "cupti.json.tmp", "rocm.json.tmp", "probes.json.tmp",
                              kProbesLock};
// A directory of another pid namespace that was written to this recently has a living owner.
const uint64_t kForeignSilence = 10u * 1000000000u;

// The libc wrappers are newer than the oldest libc supported; the structure is the kernel's on both architectures.
int stat_descriptor(int fd, struct stat* st) { return static_cast<int>(syscall(SYS_fstat, fd, st)); }
int stat_at(int directory, const char* name, struct stat* st) {
  return static_cast<int>(syscall(SYS_newfstatat, directory, name, st, AT_SYMLINK_NOFOLLOW));
}

// A program that has closed its standard descriptors may write to their numbers all the same: ours are above them.
int above_standard(int fd) {
  if (fd < 0 || fd > STDERR_FILENO) return fd;
  const int higher = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  close(fd);
  return higher;
}

// Reads up to capacity-1 bytes and terminates them. Returns the length, or -1.
ssize_t read_some(int fd, char* to, size_t capacity) {
  size_t n = 0;
  while (n < capacity - 1) {
    const ssize_t got = read(fd, to + n, capacity - 1 - n);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return -1;
    if (got == 0) break;
    n += static_cast<size_t>(got);
  }
  to[n] = 0;
  return static_cast<ssize_t>(n);
}

ssize_t read_file(const char* path, char* to, size_t capacity) {
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  const ssize_t n = read_some(fd, to, capacity);
  close(fd);
  return n;
}

bool write_all(int fd, const char* data, size_t size) {
  while (size > 0) {
    const ssize_t n = write_quietly(fd, data, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    data += n;
    size -= static_cast<size_t>(n);
  }
  return true;
}

// Field 22 of /proc/self/stat; the name in field 2 may hold anything, so counting starts after the last ')'.
bool own_start_time(char* to, size_t capacity) {
  char text[1024];
  if (read_file("/proc/self/stat", text, sizeof(text)) <= 0) return false;
  const char* p = strrchr(text, ')');
  for (int field = 2; p && field < 22; field++) p = strchr(p + 1, ' ');
  if (!p) return false;
  const size_t n = strspn(p + 1, "0123456789");
  if (n == 0 || n >= capacity) return false;
  memcpy(to, p + 1, n);
  to[n] = 0;
  return true;
}

// Inode of our pid namespace as decimal text.
bool own_namespace(char* to, size_t capacity) {
  char link[64];
  const ssize_t n = readlink("/proc/self/ns/pid", link, sizeof(link) - 1);
  if (n <= 0) return false;
  link[n] = 0;
  const char* open = strchr(link, '[');
  if (!open) return false;
  const size_t digits = strspn(open + 1, "0123456789");
  if (digits == 0 || digits >= capacity) return false;
  memcpy(to, open + 1, digits);
  to[digits] = 0;
  return true;
}

// The text of `.owner` for this process. Returns its length, or 0 when /proc does not tell. The first `identity` bytes tell
// the process; after them comes the id of the run, which a program may take out of its environment.
size_t owner_text(char* to, size_t capacity, size_t* identity) {
  char start[32], boot[64], space[32], run[64] = "";
  if (!own_start_time(start, sizeof(start)) || !own_namespace(space, sizeof(space))) return 0;
  if (read_file("/proc/sys/kernel/random/boot_id", boot, sizeof(boot)) <= 0) return 0;
  boot[strspn(boot, "0123456789abcdef-")] = 0;
  const char* id = environment("GRAPHSIGNAL_RUN_ID");
  const size_t digits = id ? strspn(id, "0123456789abcdef") : 0;
  if (digits > 0 && digits <= 32 && id[digits] == 0) snprintf(run, sizeof(run), ",\"run\":\"%s\"", id);
  const int n = snprintf(to, capacity, "{\"pid\":%ld,\"start_time\":%s,\"boot_id\":\"%s\",\"pid_ns\":%s%s}\n",
                         static_cast<long>(getpid()), start, boot, space, run);
  if (n <= 0 || static_cast<size_t>(n) >= capacity) return 0;
  *identity = static_cast<size_t>(n) - strlen(run) - strlen("}\n");
  return static_cast<size_t>(n);
}

// Whether `.owner` text, or the end of one, is of that identity, whatever the run.
bool same_identity(const char* text, const char* identity, size_t size) {
  if (strncmp(text, identity, size) != 0) return false;
  const char* rest = text + size;
  const char run[] = ",\"run\":\"";
  if (strncmp(rest, run, strlen(run)) == 0) {
    rest += strlen(run);
    rest += strspn(rest, "0123456789abcdef");
    if (*rest++ != '"') return false;
  }
  return strcmp(rest, "}\n") == 0;
}

bool recently_written(int directory) {
  for (const char* name : kFiles) {
    struct stat st;
    if (stat_at(directory, name, &st) != 0) continue;
    const uint64_t written =
        static_cast<uint64_t>(st.st_mtim.tv_sec) * 1000000000u + static_cast<uint64_t>(st.st_mtim.tv_nsec);
    const uint64_t now = realtime_ns();
    if (written > now || now - written < kForeignSilence) return true;
  }
  return false;
}

// A value that stays the same until the next exec: a hash of the random bytes the kernel gave this image.
uint64_t image_id() {
  const unsigned char* random = reinterpret_cast<const unsigned char*>(getauxval(AT_RANDOM));
  uint64_t hash = 14695981039346656037u;
  for (int i = 0; random && i < 16; i++) hash = (hash ^ random[i]) * 1099511628211u;
  return hash;
}

}  // namespace

bool RunDirectory::set(const char* base) {
  if (!base) base = environment("GRAPHSIGNAL_SHM_PATH");
  if (!base) base = "/dev/shm";
  const int n = snprintf(path_, sizeof(path_), "%s/graphsignal_%ld", base, static_cast<long>(getpid()));
  return n > 0 && static_cast<size_t>(n) < sizeof(path_);
}

int RunDirectory::open_checked() {
  const bool created = mkdir(path_, 0700) == 0;
  if (!created && errno != EEXIST) {
    reason_ = "cannot be created";
    return -1;
  }
  const int fd = above_standard(open(path_, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat st;
  if (fd < 0 || stat_descriptor(fd, &st) != 0) {
    reason_ = "is no directory that can be opened";
  } else if (st.st_uid != geteuid()) {
    reason_ = "belongs to another user";
  } else if ((st.st_mode & 022) != 0) {
    reason_ = "can be written by other users";
  } else if (!mark(fd)) {
    reason_ = "is in use by a process of another pid namespace";
  } else {
    return fd;
  }
  if (fd >= 0) close(fd);
  return -1;
}

bool RunDirectory::mark(int directory) {
  char wanted[256], found[256];
  size_t identity = 0;
  const size_t size = owner_text(wanted, sizeof(wanted), &identity);
  if (size == 0) return true;
  const int fd = above_standard(openat(directory, kOwner, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (fd < 0) return true;
  // Two libraries of this process may start at once; only one may clear the leftovers.
  bool ok = true;
  if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
    const ssize_t n = read_some(fd, found, sizeof(found));
    if (n < 0 || strlen(found) != static_cast<size_t>(n) || !same_identity(found, wanted, identity)) {
      const char* theirs = n > 0 ? strstr(found, "\"boot_id\"") : nullptr;
      const char* ours = strstr(wanted, "\"boot_id\"");
      const bool other_space = theirs && !same_identity(theirs, ours, static_cast<size_t>(wanted + identity - ours));
      if (other_space && recently_written(directory)) {
        ok = false;
      } else {
        for (const char* name : kFiles) unlinkat(directory, name, 0);
        if (lseek(fd, 0, SEEK_SET) != 0 || ftruncate(fd, 0) != 0 || !write_all(fd, wanted, size)) unlinkat(directory, kOwner, 0);
      }
    }
  }
  close(fd);
  return ok;
}

bool RunDirectory::replace_file(int directory, const char* name, const char* data, size_t size) {
  char temporary[NAME_MAX];
  const int n = snprintf(temporary, sizeof(temporary), "%s.tmp", name);
  if (n <= 0 || static_cast<size_t>(n) >= sizeof(temporary)) return false;
  const int fd = above_standard(openat(directory, temporary, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (fd < 0) return false;
  const bool written = write_all(fd, data, size);
  if (close(fd) != 0 || !written || renameat(directory, temporary, directory, name) != 0) {
    const int error = errno;
    unlinkat(directory, temporary, 0);
    errno = error;
    return false;
  }
  return true;
}

bool RunDirectory::claim_probes(const char* library) {
  const int directory = open_checked();
  if (directory < 0) return false;
  const int fd = above_standard(openat(directory, kProbesLock, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  close(directory);
  if (fd < 0) return false;
  bool ours = false;
  // Held for microseconds only: a held descriptor could be closed, and its number reused, by the program. What counts
  // is the content, which another image of the same pid (after exec) does not match.
  if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
    char wanted[64], found[64], image[32];
    const int n = snprintf(wanted, sizeof(wanted), "%016llx %s\n", static_cast<unsigned long long>(image_id()), library);
    snprintf(image, sizeof(image), "%016llx ", static_cast<unsigned long long>(image_id()));
    const ssize_t have = read_some(fd, found, sizeof(found));
    if (have >= 0 && strncmp(found, image, strlen(image)) == 0) {
      ours = strcmp(found, wanted) == 0;
    } else if (n > 0) {
      ours = lseek(fd, 0, SEEK_SET) == 0 && ftruncate(fd, 0) == 0 && write_all(fd, wanted, static_cast<size_t>(n));
    }
  }
  close(fd);
  return ours;
}

}  // namespace graphsignal
