// Binds libc functions to symbol versions that old glibc has, so that a library built on a new system loads from 2.17 on.
// Included by the build before every source (-include). On aarch64 2.17 is the first glibc.
#ifndef GRAPHSIGNAL_INJECT_COMPAT_H
#define GRAPHSIGNAL_INJECT_COMPAT_H

#if defined(__linux__) && defined(__GLIBC__) == 0
#include <features.h>
#endif

#if defined(__GLIBC__) && defined(__x86_64__)
#define GRAPHSIGNAL_OLD(name) __asm__(".symver " #name "," #name "@GLIBC_2.2.5")
#elif defined(__GLIBC__) && defined(__aarch64__)
#define GRAPHSIGNAL_OLD(name) __asm__(".symver " #name "," #name "@GLIBC_2.17")
#endif

#if defined(GRAPHSIGNAL_OLD)
GRAPHSIGNAL_OLD(dlopen);
GRAPHSIGNAL_OLD(dlsym);
GRAPHSIGNAL_OLD(dladdr);
GRAPHSIGNAL_OLD(dlclose);
GRAPHSIGNAL_OLD(dlerror);
GRAPHSIGNAL_OLD(pthread_create);
GRAPHSIGNAL_OLD(pthread_detach);
GRAPHSIGNAL_OLD(pthread_join);
GRAPHSIGNAL_OLD(pthread_sigmask);
#undef GRAPHSIGNAL_OLD
#endif

#endif
