# Tests of GPU probes: the device headers over a fake runtime, and libgraphsignal_cupti.so over a fake driver with memory.
FAKES := $(T)/fakes
FAKE_DRIVER := $(FAKES)/libcuda.so.1
FAKE_FLAGS := -O1 $(TESTFLAGS) -Itest/fake_runtime
FAKE_LIBS := $(FAKE_DRIVER) -Wl,-rpath,$(ROOT)/$(FAKES) $(TESTLIBS)
FAKE_HEADERS := $(TEST_HEADERS) cupti/testdata/fake_cuda_memory.h $(wildcard test/fake_runtime/*.h test/fake_runtime/hip/*.h)

$(FAKE_DRIVER): cupti/testdata/fake_cuda_memory.c cupti/testdata/fake_cuda_memory.h
	@mkdir -p $(@D)
	$(CC) $(STUB_CFLAGS) -Wl,-soname,libcuda.so.1 $< -o $@ -pthread

# Both headers with both compilers, in three standards; each also with its device half left out.
HEADER_TESTS := $(T)/cuda_header_g++17 $(T)/hip_header_g++2b $(if $(CLANG),$(T)/cuda_header_clang++2b $(T)/hip_header_clang++17)
define header_test
$(T)/cuda_header_$(1)%: test/probe_device_header_test.cpp $$(FAKE_DRIVER) $$(FAKE_HEADERS) | $$(T)
	$(1) -std=c++$$* $$(FAKE_FLAGS) -D__CUDACC__ $$< -o $$@ $$(FAKE_LIBS)
	echo '#include <graphsignal/probe_cuda.h>' | $(1) -std=c++$$* $$(FAKE_FLAGS) -Wpedantic -fsyntax-only -x c++ -
$(T)/hip_header_$(1)%: test/probe_device_header_test.cpp $$(FAKE_DRIVER) $$(FAKE_HEADERS) | $$(T)
	$(1) -std=c++$$* $$(FAKE_FLAGS) -D__HIPCC__ -DTEST_HIP $$< -o $$@ $$(FAKE_LIBS)
	echo '#include <graphsignal/probe_rocm.h>' | $(1) -std=c++$$* $$(FAKE_FLAGS) -Wpedantic -fsyntax-only -x c++ -
endef
$(foreach c,g++ clang++,$(eval $(call header_test,$(c))))

# The program exports nothing and is stripped; of the modules one keeps its registry to itself, one by its compiler, and one
# hides it.
$(T)/probe_gpu_program: test/programs/probe_gpu_program.cpp $(FAKE_DRIVER) $(FAKE_HEADERS) | $(T)
	$(CXX) -std=c++17 $(FAKE_FLAGS) -D__CUDACC__ $< -s -o $@ $(FAKE_LIBS)
GPU_MODULE = -std=c++17 $(FAKE_FLAGS) -D__CUDACC__ -shared -fPIC $< -o $@ $(FAKE_LIBS)
$(T)/gpu_module_unique.so: test/programs/probe_gpu_module.cpp $(FAKE_DRIVER) $(FAKE_HEADERS) | $(T)
	$(CXX) $(GPU_MODULE)
$(T)/gpu_module_bound.so: test/programs/probe_gpu_module.cpp $(FAKE_DRIVER) $(FAKE_HEADERS) | $(T)
	$(CXX) -fno-gnu-unique -Wl,-Bsymbolic $(GPU_MODULE)
$(T)/gpu_module_clang.so: test/programs/probe_gpu_module.cpp $(FAKE_DRIVER) $(FAKE_HEADERS) | $(T)
	$(if $(CLANG),$(CLANG),$(CXX) -fno-gnu-unique) -Wl,-Bsymbolic $(GPU_MODULE)
$(T)/gpu_module_hidden.so: test/programs/probe_gpu_module.cpp test/programs/hidden.map $(FAKE_DRIVER) $(FAKE_HEADERS) | $(T)
	$(CXX) -Wl,--version-script,test/programs/hidden.map $(GPU_MODULE)
GPU_MODULES := $(foreach m,bound clang hidden unique,$(T)/gpu_module_$(m).so)
$(T)/probe_gpu_test: test/probe_gpu_test.cpp $(TEST_HEADERS) | $(T)
	$(CXX) -std=c++17 -O1 $(TESTFLAGS) $< -o $@

# Modules that share one registry: two with our header, from both compilers, and one that declares the layout by itself.
$(T)/foreign_probes.so: test/programs/foreign_probes.cpp | $(T)
	$(CXX) -std=c++17 -O1 -g $(WARN) -shared -fPIC $< -o $@
$(T)/probe_discovery_program: test/programs/probe_discovery_program.cpp $(HEADERS) | $(T)
	$(CXX) -std=c++17 -O1 $(TESTFLAGS) $< -s -o $@ $(TESTLIBS)
$(T)/late_registry.so: test/programs/late_registry.cpp $(HEADERS) | $(T)
	$(CXX) -std=c++17 -O1 -shared -fPIC $(TESTFLAGS) $< -o $@ $(TESTLIBS)
$(T)/module_clang.so: test/programs/probe_module.cpp $(HEADERS) | $(T)
	$(if $(CLANG),$(CLANG),$(CXX)) -std=c++20 -O1 -shared -fPIC $(TESTFLAGS) $< -o $@ $(TESTLIBS)
$(T)/probe_discovery_test: test/probe_discovery_test.cpp $(COMMON) $(TEST_HEADERS) | $(T)
	$(CXX) -std=c++17 -O1 $(TESTFLAGS) $< $(COMMON) -o $@ $(TESTLIBS)

$(T)/probe_copies_test: test/probe_copies_test.cpp $(CUPTI) $(TEST_HEADERS) | $(T)
	$(CXX) -std=c++17 -O1 $(TESTFLAGS) $< $(filter-out cupti/injection.cpp,$(CUPTI)) -o $@ $(TESTLIBS)

PROBE_TESTS := $(HEADER_TESTS) $(T)/probe_copies_test $(T)/probe_gpu_test $(T)/probe_gpu_program $(GPU_MODULES) $(T)/probe_discovery_test \
	$(T)/probe_discovery_program $(T)/late_registry.so $(T)/foreign_probes.so $(foreach m,a b c clang,$(T)/module_$(m).so)

.PHONY: test-probes
test-probes: all $(PROBE_TESTS)
	set -e; for t in $(HEADER_TESTS) $(T)/probe_copies_test; do $$t; done
	$(T)/probe_discovery_test $(ROOT)/$(OUT)/libgraphsignal_probe.so $(ROOT)/$(T)
	$(T)/probe_gpu_test $(ROOT)/$(OUT)/libgraphsignal_cupti.so $(ROOT)/$(T)/probe_gpu_program $(GPU_MODULES:%=$(ROOT)/%)
	test/probe_examples.sh $(ROOT)/$(OUT)/libgraphsignal_probe.so

test: test-probes

# The reading of GPU probes under the sanitizers.
define sanitized_probes
$(1)-probes: $$(FAKE_HEADERS) $$(CUPTI)
	@mkdir -p $$(BUILD)/$(1)
	$$(CC) $(2) $$(STUB_CFLAGS) -Wl,-soname,libcuda.so.1 cupti/testdata/fake_cuda_memory.c -o $$(BUILD)/$(1)/libcuda.so.1 -pthread
	$$(CXX) -std=c++17 -O1 -fno-omit-frame-pointer $(2) $$(TESTFLAGS) -fPIC -shared $$(CUPTI) -o $$(BUILD)/$(1)/injection.so $$(TESTLIBS)
	$$(CXX) -std=c++17 -O1 -fno-omit-frame-pointer $(2) $$(FAKE_FLAGS) -D__CUDACC__ test/programs/probe_gpu_program.cpp \
		-o $$(BUILD)/$(1)/probe_gpu_program $$(BUILD)/$(1)/libcuda.so.1 -Wl,-rpath,$$(ROOT)/$$(BUILD)/$(1) $$(TESTLIBS)
	test/sanitized_probes.sh $$(ROOT)/$$(BUILD)/$(1)
$(1): $(1)-probes
.PHONY: $(1)-probes
endef
$(eval $(call sanitized_probes,asan,-fsanitize=address$(comma)undefined -fno-sanitize-recover=all))
$(eval $(call sanitized_probes,tsan,-fsanitize=thread))
