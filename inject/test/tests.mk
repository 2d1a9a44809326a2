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

test: all $(TEST_PROGRAMS)
	$(T)/probe_test
	$(T)/probe_test20
	@$(if $(CLANG),$(T)/probe_test_clang && $(T)/probe_test20_clang,echo "clang++ is not installed: probe.h was tested with g++ only")
	$(T)/writer_test
	$(T)/publisher_test $(ROOT)/$(OUT)/libgraphsignal_probe.so $(ROOT)/$(T)/probe_program $(foreach m,a b c d,$(ROOT)/$(T)/module_$(m).so)

gate: all
	test/gate.sh $(PACKAGES) $(LIBRARIES)
