// A program that has the driver but no CUPTI loaded when the injection starts; its argument is a library it has loaded.
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char** argv) {
  if (argc > 1 && !dlopen(argv[1], RTLD_NOW)) return 1;
  if (!dlopen("libcuda.so.1", RTLD_NOW)) return 2;
  void* library = dlopen(getenv("CUDA_INJECTION64_PATH"), RTLD_NOW | RTLD_LOCAL);
  void* symbol = library ? dlsym(library, "InitializeInjection") : nullptr;
  if (!symbol) return 3;
  int (*entry)();
  memcpy(&entry, &symbol, sizeof(entry));
  entry();
  return 42;
}
