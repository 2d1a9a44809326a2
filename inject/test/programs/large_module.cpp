// A library with much memory that its file does not fill, as one with a registry has it, and with a constructor that must run once.
#include <stdlib.h>

static volatile char room[4 << 20];
static int begun;

__attribute__((constructor)) static void begin() {
  if (begun++) abort();
  room[0] = 1;
}
