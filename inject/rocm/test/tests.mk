# Tests of the ROCm library against a fake rocprofiler-sdk.
RT := $(T)/rocm
RFAKE := rocm/testdata/fake_rocprofiler.c rocm/testdata/fake_rocprofiler.h
SDK_NAME := librocprofiler-sdk.so.1

$(RT)/$(SDK_NAME): $(RFAKE)
	@mkdir -p $(@D)
	$(CC) $(STUB_CFLAGS) -Wl,-soname,$(SDK_NAME) $< -o $@ -pthread -ldl
$(RT)/minimal/$(SDK_NAME): $(RFAKE)
	@mkdir -p $(@D)
	$(CC) $(STUB_CFLAGS) -DMINIMAL -Wl,-soname,$(SDK_NAME) $< -o $@ -pthread -ldl
$(RT)/rocm_program: rocm/test/rocm_program.cpp $(RT)/$(SDK_NAME)
	$(CXX) -std=c++17 -O1 $(TESTFLAGS) $< -o $@ $(RT)/$(SDK_NAME) -Wl,-rpath,'$$ORIGIN' $(TESTLIBS)
$(RT)/minimal/rocm_program: rocm/test/rocm_program.cpp $(RT)/minimal/$(SDK_NAME)
	$(CXX) -std=c++17 -O1 $(TESTFLAGS) $< -o $@ $(RT)/minimal/$(SDK_NAME) -Wl,-rpath,'$$ORIGIN' $(TESTLIBS)
$(RT)/rocm_test: rocm/test/rocm_test.cpp test/check.h test/json_reader.h
	@mkdir -p $(@D)
	$(CXX) -std=c++17 -O1 $(TESTFLAGS) $< -o $@

ROCM_PROGRAMS := $(RT)/rocm_program $(RT)/minimal/rocm_program $(RT)/rocm_test

.PHONY: test-rocm rocm-programs gate-rocm asan-rocm tsan-rocm
rocm-programs: $(ROCM_PROGRAMS)
test-rocm: all $(ROCM_PROGRAMS)
	$(RT)/rocm_test $(ROOT)/$(OUT)/libgraphsignal_rocm.so $(ROOT)/$(RT)/rocm_program $(ROOT)/$(RT)/minimal/rocm_program
test: test-rocm

# rocprofiler-sdk may load the tool into the global scope: nothing but the entry point may be seen there.
gate-rocm: all
	@symbols=$$(nm -D --defined-only $(OUT)/libgraphsignal_rocm.so | cut -d' ' -f2-); \
	if [ "$$symbols" != "T rocprofiler_configure" ]; then echo "gate: libgraphsignal_rocm.so exports $$symbols" >&2; exit 1; fi
gate: gate-rocm

define rocm_sanitized
$(BUILD)/$(1)/rocm/run: rocm/test/rocm_program.cpp $$(ROCM) $$(HEADERS) $$(RFAKE)
	@mkdir -p $$(@D)
	$$(CC) $(2) $$(STUB_CFLAGS) -Wl,-soname,$$(SDK_NAME) rocm/testdata/fake_rocprofiler.c -o $$(@D)/$$(SDK_NAME) -pthread -ldl
	$$(CXX) -std=c++17 -O1 -fno-omit-frame-pointer $(2) $$(TESTFLAGS) -fPIC -shared $$(ROCM) -o $$(@D)/tool.so $$(TESTLIBS)
	$$(CXX) -std=c++17 -O1 -fno-omit-frame-pointer $(2) $$(TESTFLAGS) $$< -o $$@ $$(@D)/$$(SDK_NAME) -Wl,-rpath,$$(ROOT)/$$(@D) $$(TESTLIBS)
$(1)-rocm: $(BUILD)/$(1)/rocm/run
	rocm/test/sanitized.sh $$(ROOT)/$(BUILD)/$(1)/rocm
$(1): $(1)-rocm
endef
$(eval $(call rocm_sanitized,asan,-fsanitize=address$(comma)undefined -fno-sanitize-recover=all))
$(eval $(call rocm_sanitized,tsan,-fsanitize=thread))
