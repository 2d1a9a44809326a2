# Native tests. Programs under test use libstdc++ freely; the libraries do not.
CLANG := $(shell command -v clang++ 2>/dev/null)
ROOT := $(CURDIR)
TESTFLAGS := -g $(WARN) $(INCLUDES)
TESTLIBS := -pthread -ldl
T := $(BUILD)/test

$(T):
	@mkdir -p $@

TEST_PROGRAMS := $(T)/probe_test $(T)/probe_test20 $(T)/writer_test $(T)/publisher_test $(T)/probe_program \
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
$(T)/module_%.so: test/programs/probe_module.cpp $(HEADERS) | $(T)
	$(CXX) -std=c++17 -O1 -shared -fPIC $(if $(filter c d,$*),-fno-gnu-unique -Wl$(comma)-Bsymbolic) $(TESTFLAGS) $< -o $@ $(TESTLIBS)
comma := ,

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
CUPTI_PROGRAMS := $(T)/cupti_test $(T)/cuda_program $(T)/cuda_program_minimal $(T)/cuda_program_old_driver $(T)/cuda_unlinked $(STUBS)/libempty.so
TEST_PROGRAMS += $(CUPTI_PROGRAMS)

.PHONY: test-cupti
test-cupti: all $(CUPTI_PROGRAMS)
	$(T)/cupti_test $(ROOT)/$(OUT)/libgraphsignal_cupti.so $(ROOT)/$(T)/cuda_program $(ROOT)/$(T)/cuda_program_minimal \
		$(ROOT)/$(T)/cuda_program_old_driver $(ROOT)/$(T)/cuda_unlinked $(ROOT)/$(STUBS) $(ROOT)/$(OUT)/libgraphsignal_probe.so

test: all $(TEST_PROGRAMS)
	$(T)/probe_test
	$(T)/probe_test20
	@$(if $(CLANG),$(T)/probe_test_clang && $(T)/probe_test20_clang,echo "clang++ is not installed: probe.h was tested with g++ only")
	$(T)/writer_test
	$(T)/publisher_test $(ROOT)/$(OUT)/libgraphsignal_probe.so $(ROOT)/$(T)/probe_program $(foreach m,a b c d,$(ROOT)/$(T)/module_$(m).so)
	$(MAKE) test-cupti

gate: all
	test/gate.sh $(PACKAGES) $(LIBRARIES)
