// A library whose constructor registers a probe and then takes longer than the first document is waited for.
#include <graphsignal/probe.h>
#include <unistd.h>

__attribute__((constructor)) static void begin() {
  graphsignal_add(graphsignal_probe_register("slow_total", GRAPHSIGNAL_COUNTER, nullptr, nullptr, 0), 7);
  usleep(500000);
}
