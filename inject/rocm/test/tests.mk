# Tests of the ROCm library against a fake rocprofiler-sdk.
RT := $(T)/rocm
RFAKE := rocm/testdata/fake_rocprofiler.c rocm/testdata/fake_rocprofiler.h
SDK_NAME := librocprofiler-sdk.so.1
HIP_NAME := libamdhip64.so.7

$(RT)/$(SDK_NAME): $(RFAKE)
	@mkdir -p $(@D)
	$(CC) $(STUB_CFLAGS) -Wl,-soname,$(SDK_NAME) $< -o $@ -pthread -ldl
$(RT)/minimal/$(SDK_NAME): $(RFAKE)
	@mkdir -p $(@D)
	$(CC) $(STUB_CFLAGS) -DMINIMAL -Wl,-soname,$(SDK_NAME) $< -o $@ -pthread -ldl
$(RT)/$(HIP_NAME): rocm/testdata/fake_hip.c rocm/testdata/fake_hip.h
	@mkdir -p $(@D)
	$(CC) $(STUB_CFLAGS) -Wl,-soname,$(HIP_NAME) $< -o $@ -pthread
$(RT)/hip_module.so: rocm/test/hip_module.cpp $(RT)/$(HIP_NAME) ../include/graphsignal/probe.h
	$(CXX) -std=c++17 -O1 $(TESTFLAGS) -fPIC -shared $< -o $@ $(RT)/$(HIP_NAME) -Wl,-rpath,'$$ORIGIN' $(TESTLIBS)
$(RT)/rocm_program: rocm/test/rocm_program.cpp $(RT)/$(SDK_NAME) $(RT)/$(HIP_NAME)
	$(CXX) -std=c++17 -O1 $(TESTFLAGS) $< -o $@ $(RT)/$(SDK_NAME) $(RT)/$(HIP_NAME) -Wl,-rpath,'$$ORIGIN' $(TESTLIBS)
$(RT)/minimal/rocm_program: rocm/test/rocm_program.cpp $(RT)/minimal/$(SDK_NAME) $(RT)/$(HIP_NAME)
	$(CXX) -std=c++17 -O1 $(TESTFLAGS) $< -o $@ $(RT)/minimal/$(SDK_NAME) $(RT)/$(HIP_NAME) -Wl,-rpath,'$$ORIGIN:$$ORIGIN/..' $(TESTLIBS)
$(RT)/rocm_test: rocm/test/rocm_test.cpp test/check.h test/json_reader.h
	@mkdir -p $(@D)
	$(CXX) -std=c++17 -O1 $(TESTFLAGS) $< -o $@

ROCM_PROGRAMS := $(RT)/rocm_program $(RT)/minimal/rocm_program $(RT)/rocm_test $(RT)/hip_module.so

.PHONY: test-rocm rocm-programs gate-rocm asan-rocm tsan-rocm
rocm-programs: $(ROCM_PROGRAMS)
test-rocm: all $(ROCM_PROGRAMS)
	$(RT)/rocm_test $(ROOT)/$(OUT)/libgraphsignal_rocm.so $(ROOT)/$(RT)/rocm_program $(ROOT)/$(RT)/minimal/rocm_program $(ROOT)/$(RT)/hip_module.so
test: test-rocm

# rocprofiler-sdk may load the tool into the global scope: nothing but the entry point may be seen there.
gate-rocm: all
	@symbols=$$(nm -D --defined-only $(OUT)/libgraphsignal_rocm.so | cut -d' ' -f2-); \
	if [ "$$symbols" != "T rocprofiler_configure" ]; then echo "gate: libgraphsignal_rocm.so exports $$symbols" >&2; exit 1; fi
gate: gate-rocm

define rocm_sanitized
$(BUILD)/$(1)/rocm/run: rocm/test/rocm_program.cpp rocm/test/hip_module.cpp $$(ROCM) $$(HEADERS) $$(RFAKE) rocm/testdata/fake_hip.c
	@mkdir -p $$(@D)
	$$(CC) $(2) $$(STUB_CFLAGS) -Wl,-soname,$$(SDK_NAME) rocm/testdata/fake_rocprofiler.c -o $$(@D)/$$(SDK_NAME) -pthread -ldl
	$$(CXX) -std=c++17 -O1 -fno-omit-frame-pointer $(2) $$(TESTFLAGS) -fPIC -shared $$(ROCM) -o $$(@D)/tool.so $$(TESTLIBS)
	$$(CC) $(2) $$(STUB_CFLAGS) -Wl,-soname,$$(HIP_NAME) rocm/testdata/fake_hip.c -o $$(@D)/$$(HIP_NAME) -pthread
	$$(CXX) -std=c++17 -O1 $(2) $$(TESTFLAGS) -fPIC -shared rocm/test/hip_module.cpp -o $$(@D)/hip_module.so $$(@D)/$$(HIP_NAME) \
		-Wl,-rpath,$$(ROOT)/$$(@D) $$(TESTLIBS)
	$$(CXX) -std=c++17 -O1 -fno-omit-frame-pointer $(2) $$(TESTFLAGS) $$< -o $$@ $$(@D)/$$(SDK_NAME) $$(@D)/$$(HIP_NAME) -Wl,-rpath,$$(ROOT)/$$(@D) $$(TESTLIBS)
$(1)-rocm: $(BUILD)/$(1)/rocm/run
	rocm/test/sanitized.sh $$(ROOT)/$(BUILD)/$(1)/rocm
$(1): $(1)-rocm
endef
$(eval $(call rocm_sanitized,asan,-fsanitize=address$(comma)undefined -fno-sanitize-recover=all))
$(eval $(call rocm_sanitized,tsan,-fsanitize=thread))
