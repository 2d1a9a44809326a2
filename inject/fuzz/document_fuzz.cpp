// Own instruments, messages and context under any names and values: the document is JSON.
#include <stdlib.h>

#include <new>

#include "../common/context.h"
#include "../common/instruments.h"
#include "../common/log.h"
#include "input.h"
#include "memory.h"
#include "valid_json.h"

using namespace graphsignal;
using fuzz::require;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Json out;
  alignas(Log) static char memory[sizeof(Log)];
  Log& log = *new (memory) Log;
  out.reset();
  out.raw("{");
  fuzz::Input in(data, size);
  fuzz::Memory pages;

  static const char* const kVariables[] = {"RANK", "SLURM_PROCID", "MASTER_ADDR", "SLURM_JOBID"};
  for (const char* name : kVariables) setenv(name, in.text(400).c_str(), 1);
  Context context;
  context.capture();
  context.write(out);

  Instruments all;
  require(all.allocate(), "no memory");
  uint64_t sum = 0;
  Instrument* total = all.get("sum", GRAPHSIGNAL_COUNTER);
  for (int i = 0; i < 64 && !in.empty(); i++) {
    const graphsignal_instrument_type type = static_cast<graphsignal_instrument_type>(in.take<uint8_t>() % 4);
    const std::string name = in.text(300), key = in.text(80), other = in.text(80), value = in.text(400);
    const Tag tags[] = {{key.c_str(), value.c_str()}, {other.c_str(), name.c_str()}, {"", ""}, {value.c_str(), key.c_str()}};
    const uint32_t ntags = in.take<uint8_t>() % 5;
    // Equal names give equal instruments, whatever the type; so the type that it got is not known here.
    Instrument* instrument = all.get(name.c_str(), type, tags, ntags, 1 + in.take<uint8_t>());
    require((instrument != nullptr) == !name.empty(), "an instrument is refused, or has no name", name);
    require(all.get(name.c_str(), type, tags, ntags) == instrument, "the same instrument is another one", name);
    const uint64_t bits = in.take<uint64_t>();
    if (instrument == total) continue;  // a name may be "sum", and a gauge of that name would set the sum
    if (instrument && instrument->profile()) {
      const std::string frame = in.bytes(5000);
      const uint32_t index = instrument->profile()->intern(frame.data(), frame.size());
      instrument->profile()->add(index, bits);
      if (index != Profile::kNoFrame) {
        require(instrument->profile()->intern(frame.data(), frame.size()) == index, "the same frame is another one", frame);
        require(instrument->profile()->length(index) <= Profile::kMaxNameBytes, "a long name", frame);
      }
    } else if (instrument && type == GRAPHSIGNAL_GAUGE) {
      double number;
      memcpy(&number, &bits, sizeof(number));
      instrument->set(number);
    }
    log.add(Level::kError, "%s", value.c_str());
    total->add(bits);
    sum += bits;
  }
  out.raw("\"metrics\":[");
  bool first = true;
  all.write(out, &first);
  out.raw("]");
  log.write(out);
  out.raw("}");
  const std::string document(out.data(), out.size());
  require(out.complete() && fuzz::JsonCheck::valid(document), "no JSON", document);
  const std::string neighbour = "{\"name\":\"sum\",\"type\":\"counter\",\"tags\":{},\"value\":" + std::to_string(sum) + "}";
  require(document.find(neighbour) != std::string::npos, "the neighbour is lost", document);
  return 0;
}
