// Stands for HIP's device functions in tests.
#ifndef GRAPHSIGNAL_TEST_FAKE_HIP_RUNTIME_H
#define GRAPHSIGNAL_TEST_FAKE_HIP_RUNTIME_H

#include "hip_runtime_api.h"

static inline long long wall_clock64() { return 12345; }

#endif
