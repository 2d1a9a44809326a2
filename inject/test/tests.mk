# Native tests. Programs under test use libstdc++ freely; the libraries do not.
CLANG := $(shell command -v clang++ 2>/dev/null)
ROOT := $(CURDIR)
TESTFLAGS := -g $(WARN) $(INCLUDES)
TESTLIBS := -pthread -ldl
T := $(BUILD)/test

$(T):
	@mkdir -p $@

TEST_PROGRAMS := $(T)/probe_test $(T)/probe_test20 $(T)/writer_test $(T)/publisher_test $(T)/probe_program $(T)/probe_program_static $(T)/probe_program_threads $(T)/probe_program_large \
	$(T)/probe_program_slow \
	$(T)/module_a.so $(T)/module_b.so $(T)/module_c.so $(T)/module_d.so $(if $(CLANG),$(T)/probe_test_clang $(T)/probe_test20_clang)
TEST_HEADERS := $(HEADERS) test/check.h test/json_reader.h

$(T)/probe_test: test/probe_test.cpp $(TEST_HEADERS) | $(T)
	$(CXX) -std=c++17 -O1 $(TESTFLAGS) $< -o $@ $(TESTLIBS)
$(T)/probe_test20: test/probe_test.cpp $(TEST_HEADERS) | $(T)
	$(CXX) -std=c++20 -O2 -Wpedantic $(TESTFLAGS) $< -o $@ $(TESTLIBS)
$(T)/probe_test_clang: test/probe_test.cpp $(TEST_HEADERS) | $(T)
	$(CLANG) -std=c++17 -O1 $(TESTFLAGS) $< -o $@ $(TESTLIBS)
$(T)/probe_test20_clang: test/probe_test.cpp $(TEST_HEADERS) | $(T)
	$(CLANG) -std=c++20 -O2 -Wpedantic $(TESTFLAGS) $< -o $@ $(TESTLIBS)
$(T)/writer_test: test/writer_test.cpp $(COMMON) $(TEST_HEADERS) | $(T)
	$(CXX) -std=c++17 -O1 $(TESTFLAGS) $< $(COMMON) -o $@ $(TESTLIBS)
$(T)/publisher_test: test/publisher_test.cpp $(TEST_HEADERS) | $(T)
	$(CXX) -std=c++17 -O1 $(TESTFLAGS) $< -o $@
$(T)/probe_program: test/programs/probe_program.cpp $(HEADERS) | $(T)
	$(CXX) -std=c++17 -O1 $(TESTFLAGS) $< -o $@ $(TESTLIBS)
$(T)/probe_program_threads: test/programs/probe_threads.cpp $(HEADERS) | $(T)
	$(CXX) -std=c++17 -O1 -rdynamic $(TESTFLAGS) $< -o $@ $(TESTLIBS)
# Not everywhere is there a static libc; ld warns of the dlopen.
$(T)/probe_program_static: test/programs/probe_program.cpp $(HEADERS) | $(T)
	-$(CXX) -std=c++17 -O1 -static $(TESTFLAGS) $< -o $@ $(TESTLIBS) 2>/dev/null
$(T)/module_%.so: test/programs/probe_module.cpp $(HEADERS) | $(T)
	$(CXX) -std=c++17 -O1 -shared -fPIC $(if $(filter c d,$*),-fno-gnu-unique -Wl$(comma)-Bsymbolic) $(TESTFLAGS) $< -o $@ $(TESTLIBS)
comma := ,
$(T)/large_module.so: test/programs/large_module.cpp | $(T)
	$(CXX) -std=c++17 -O1 -shared -fPIC $(TESTFLAGS) -Wl,-soname,$(@F) $< -o $@
# Its constructor runs after that of the slow one.
$(T)/slow_module.so: test/programs/slow_module.cpp $(HEADERS) | $(T)
	$(CXX) -std=c++17 -O1 -shared -fPIC $(TESTFLAGS) -Wl,-soname,$(@F) $< -o $@ $(TESTLIBS)
$(T)/late_module.so: test/programs/large_module.cpp $(T)/slow_module.so
	$(CXX) -std=c++17 -O1 -shared -fPIC $(TESTFLAGS) -Wl,-soname,$(@F) $< -o $@ -Wl,--no-as-needed $(T)/slow_module.so -Wl,-rpath,'$$ORIGIN'
$(T)/probe_program_slow: test/programs/probe_program.cpp $(T)/late_module.so $(HEADERS)
	$(CXX) -std=c++17 -O1 $(TESTFLAGS) $< -o $@ -Wl,--no-as-needed $(T)/late_module.so -Wl,-rpath,'$$ORIGIN' -Wl,-rpath-link,$(T) $(TESTLIBS)
$(T)/probe_program_large: test/programs/probe_program.cpp $(T)/large_module.so $(HEADERS)
	$(CXX) -std=c++17 -O1 $(TESTFLAGS) $< -o $@ -Wl,--no-as-needed $(T)/large_module.so -Wl,-rpath,'$$ORIGIN' $(TESTLIBS)

# Stubs of CUPTI and of the driver, in one folder per variant.
STUBS := $(T)/stubs
STUB_CFLAGS := -std=gnu11 -g $(WARN) -fPIC -shared
$(STUBS)/libcupti.so.12: cupti/testdata/stub_cupti.c cupti/testdata/stub_cupti.h
	@mkdir -p $(@D)
	$(CC) $(STUB_CFLAGS) -Wl,-soname,libcupti.so.12 $< -o $@ -pthread
$(STUBS)/minimal/libcupti.so.12: cupti/testdata/stub_cupti.c cupti/testdata/stub_cupti.h
	@mkdir -p $(@D)
	$(CC) $(STUB_CFLAGS) -DMINIMAL -Wl,-soname,libcupti.so.12 $< -o $@ -pthread
$(STUBS)/libcuda.so.1: cupti/testdata/stub_cuda.c cupti/testdata/stub_cuda.h
	@mkdir -p $(@D)
	$(CC) $(STUB_CFLAGS) -Wl,-soname,libcuda.so.1 $< -o $@
$(STUBS)/old/libcuda.so.1: cupti/testdata/stub_cuda.c cupti/testdata/stub_cuda.h
	@mkdir -p $(@D)
	$(CC) $(STUB_CFLAGS) -DBEFORE_12_3 -Wl,-soname,libcuda.so.1 $< -o $@
$(STUBS)/libempty.so:
	@mkdir -p $(@D)
	echo | $(CC) $(STUB_CFLAGS) -x c - -o $@

CUDA_PROGRAM = $(CXX) -std=c++17 -O1 $(TESTFLAGS) -DWITH_PROBES $< -o $@ -Wl,--no-as-needed \
	-Wl,--export-dynamic-symbol=__graphsignal_probe_registry_v1
$(T)/cuda_program: test/programs/cuda_program.cpp $(STUBS)/libcupti.so.12 $(STUBS)/libcuda.so.1 $(HEADERS)
	$(CUDA_PROGRAM) $(STUBS)/libcupti.so.12 $(STUBS)/libcuda.so.1 -Wl,-rpath,$(ROOT)/$(STUBS) $(TESTLIBS)
$(T)/cuda_program_minimal: test/programs/cuda_program.cpp $(STUBS)/minimal/libcupti.so.12 $(STUBS)/libcuda.so.1 $(HEADERS)
	$(CUDA_PROGRAM) $(STUBS)/minimal/libcupti.so.12 $(STUBS)/libcuda.so.1 -Wl,-rpath,$(ROOT)/$(STUBS)/minimal:$(ROOT)/$(STUBS) $(TESTLIBS)
$(T)/cuda_program_old_driver: test/programs/cuda_program.cpp $(STUBS)/libcupti.so.12 $(STUBS)/old/libcuda.so.1 $(HEADERS)
	$(CUDA_PROGRAM) $(STUBS)/libcupti.so.12 $(STUBS)/old/libcuda.so.1 -Wl,-rpath,$(ROOT)/$(STUBS)/old:$(ROOT)/$(STUBS) $(TESTLIBS)
$(T)/cuda_unlinked: test/programs/cuda_unlinked.cpp $(STUBS)/libcuda.so.1
	$(CXX) -std=c++17 -O1 $(TESTFLAGS) $< -o $@ -Wl,-rpath,$(ROOT)/$(STUBS) $(TESTLIBS)
$(T)/cupti_test: test/cupti_test.cpp $(TEST_HEADERS) | $(T)
	$(CXX) -std=c++17 -O1 $(TESTFLAGS) $< -o $@
$(T)/cupti_unit_test: test/cupti_unit_test.cpp $(CUPTI) $(TEST_HEADERS) | $(T)
	$(CXX) -std=c++17 -O1 $(TESTFLAGS) $< $(filter-out cupti/injection.cpp,$(CUPTI)) -o $@ $(TESTLIBS)
CUPTI_PROGRAMS := $(T)/cupti_unit_test $(T)/cupti_test $(T)/cuda_program $(T)/cuda_program_minimal $(T)/cuda_program_old_driver $(T)/cuda_unlinked $(STUBS)/libempty.so
TEST_PROGRAMS += $(CUPTI_PROGRAMS)

.PHONY: test-cupti
test-cupti: all $(CUPTI_PROGRAMS)
	test/real_cupti.sh $(PACKAGES) $(T)/cupti_unit_test
	$(T)/cupti_test $(ROOT)/$(OUT)/libgraphsignal_cupti.so $(ROOT)/$(T)/cuda_program $(ROOT)/$(T)/cuda_program_minimal \
		$(ROOT)/$(T)/cuda_program_old_driver $(ROOT)/$(T)/cuda_unlinked $(ROOT)/$(STUBS) $(ROOT)/$(OUT)/libgraphsignal_probe.so

test: all $(TEST_PROGRAMS)
	$(T)/probe_test
	$(T)/probe_test20
	@$(if $(CLANG),$(T)/probe_test_clang && $(T)/probe_test20_clang,echo "clang++ is not installed: probe.h was tested with g++ only")
	$(T)/writer_test
	$(T)/publisher_test $(ROOT)/$(OUT)/libgraphsignal_probe.so $(ROOT)/$(T)/probe_program $(foreach m,a b c d,$(ROOT)/$(T)/module_$(m).so)
	$(MAKE) test-cupti
	$(MAKE) soak SOAK_RECORDS=30000000

# The tests that touch threads and foreign memory, under the sanitizers. ASan's leak check would report what the libraries
# keep for ever on purpose only if it were not reachable; it is.
SANITIZED_TESTS := probe_test writer_test cupti_unit_test cuda_sanitized
define sanitized
$(BUILD)/$(1)/%: test/%.cpp $$(CUPTI) $$(TEST_HEADERS)
	@mkdir -p $$(@D)
	$$(CXX) -std=c++17 -O1 -fno-omit-frame-pointer $(2) $$(TESTFLAGS) $$< $$(filter-out cupti/injection.cpp,$$(CUPTI)) -o $$@ $$(TESTLIBS)
$(BUILD)/$(1)/cuda_sanitized: test/programs/cuda_program.cpp $$(CUPTI) cupti/testdata/stub_cupti.c cupti/testdata/stub_cuda.c $$(HEADERS)
	@mkdir -p $$(@D)
	$$(CC) $(2) $$(STUB_CFLAGS) -Wl,-soname,libcupti.so.12 cupti/testdata/stub_cupti.c -o $$(@D)/libcupti.so.12 -pthread
	$$(CC) $(2) $$(STUB_CFLAGS) -Wl,-soname,libcuda.so.1 cupti/testdata/stub_cuda.c -o $$(@D)/libcuda.so.1
	$$(CXX) -std=c++17 -O1 -fno-omit-frame-pointer $(2) $$(TESTFLAGS) -fPIC -shared $$(CUPTI) -o $$(@D)/injection.so $$(TESTLIBS)
	$$(CXX) -std=c++17 -O1 -fno-omit-frame-pointer $(2) $$(TESTFLAGS) $$< -o $$@ -Wl,--no-as-needed $$(@D)/libcupti.so.12 $$(@D)/libcuda.so.1 \
		-Wl,-rpath,$$(ROOT)/$$(@D) $$(TESTLIBS)
$(1): $$(SANITIZED_TESTS:%=$(BUILD)/$(1)/%)
	test/sanitized.sh $$(ROOT)/$(BUILD)/$(1)
endef
$(eval $(call sanitized,asan,-fsanitize=address$(comma)undefined -fno-sanitize-recover=all))
$(eval $(call sanitized,tsan,-fsanitize=thread))

# A long run: the program checks that its memory stays flat. The short form is part of the tests.
SOAK_RECORDS ?= 600000000
soak: all $(CUPTI_PROGRAMS)
	test/soak.sh $(ROOT)/$(OUT)/libgraphsignal_cupti.so $(ROOT)/$(T)/cuda_program $(SOAK_RECORDS)

# Everything compiles for aarch64; nothing of it is run here.
CROSS := aarch64-linux-gnu-
aarch64:
	@command -v $(CROSS)g++ >/dev/null || { echo "aarch64: $(CROSS)g++ is not installed (Debian package g++-aarch64-linux-gnu)"; exit 1; }
	$(MAKE) BUILD=$(BUILD)/aarch64 OUT=$(BUILD)/aarch64/lib CXX=$(CROSS)g++ CC=$(CROSS)gcc all
	objdump=$(CROSS)objdump test/versions.sh $(BUILD)/aarch64/lib/*.so

gate: all
	test/versions.sh $(LIBRARIES)
	test/gate.sh $(PACKAGES) $(LIBRARIES)
	@if command -v $(CROSS)g++ >/dev/null; then $(MAKE) aarch64; else echo "gate: $(CROSS)g++ is not installed: aarch64 was NOT compiled"; fi

# The program of benchmarks.
programs: $(T)/cuda_program
