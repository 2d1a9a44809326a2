// A library with much memory that its file does not fill, as one with a registry has it, and with a constructor that must run once,
// in the program's first thread.
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static volatile char room[4 << 20];
static int begun;

__attribute__((constructor)) static void begin() {
  if (begun++ || syscall(SYS_gettid) != getpid()) abort();
  room[0] = 1;
}
