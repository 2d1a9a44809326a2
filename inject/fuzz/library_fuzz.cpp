// GRAPHSIGNAL_CUPTI_PATH and CUDA_HOME with anything in them: what is opened is what they name, and an entry is tried whatever
// stands beside it.
#include <limits.h>
#include <stdlib.h>

#include <vector>

#include "../cupti/library.h"
#include "input.h"

using namespace graphsignal;
using namespace graphsignal::cupti;
using fuzz::require;

namespace {

std::vector<std::string> opened;

}  // namespace

// Nothing is opened; every file that could be is there to be read.
extern "C" void* __wrap_dlopen(const char* file, int) {
  opened.push_back(file ? file : "");
  return nullptr;
}
extern "C" int __wrap_access(const char*, int) { return 0; }

namespace {

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

bool listed(const std::string& list, const std::string& item) {
  return !item.empty() && (":" + list + ":").find(":" + item + ":") != std::string::npos;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Log& log = *new Log;
  fuzz::Input in(data, size);
  const std::string home = in.text(300);
  const int version = in.take<int>();
  std::string list = in.text(9000);
  const bool neighbour = in.yes();
  const std::string extra = "/zz/libcupti.so.11.8:/zz/folder";
  if (in.yes()) list = std::string(in.take<uint16_t>() % 9000, 'a') + (in.yes() ? ".so:" : ":") + list;  // about PATH_MAX
  if (neighbour) list += ":" + extra + ":" + in.text(5000);
  setenv("GRAPHSIGNAL_CUPTI_PATH", list.c_str(), 1);
  setenv("CUDA_HOME", home.c_str(), 1);

  static int told;
  told = version;
  DriverFunctions driver = {};
  if (in.yes()) {
    driver.version = [](int* v) {
      *v = told;
      return 0;
    };
  }
  Functions functions;
  char path[PATH_MAX];
  opened.clear();
  require(!open_cupti(driver, &functions, log, path, sizeof(path)), "something was opened");
  bool file = false, folder = false;
  for (const std::string& o : opened) {
    require(o.size() < PATH_MAX, "a path that is too long", o);
    file = file || o == "/zz/libcupti.so.11.8";
    folder = folder || o == "/zz/folder/libcupti.so.11.8";
    if (listed(list, o)) continue;
    bool known = o == "libcupti.so";
    for (const char* name : {"libcupti.so.13", "libcupti.so.12", "libcupti.so.11.8"}) {
      known = known || o == name;
      if (!ends_with(o, std::string("/") + name)) continue;
      const std::string place = o.substr(0, o.size() - strlen(name) - 1);
      known = known || listed(list, place);
      for (const char* below : {"/extras/CUPTI/lib64", "/extras/CUPTI/lib", "/lib64"}) {
        known = known || place == home + below || place == std::string("/usr/local/cuda") + below;
      }
    }
    require(known, "a file that nobody named", o + "\n" + list);
  }
  require(!neighbour || (file && folder), "an entry of the list is passed over", list);
  return 0;
}
