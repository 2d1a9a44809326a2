# libFuzzer targets under ASan and UBSan, FUZZTIME each (seconds, or as 15s or 15m). They need clang++ and its runtime. What a
# target found interesting stays below build/fuzz; a failing input is left there and printed.
FUZZTIME ?= 15
FUZZ := $(BUILD)/fuzz
FUZZ_TARGETS := $(basename $(notdir $(wildcard fuzz/*_fuzz.cpp)))
FUZZ_SOURCES := fuzz/memory.cpp $(COMMON) $(filter-out cupti/injection.cpp,$(CUPTI)) $(filter-out rocm/tool.cpp,$(ROCM))
FUZZ_OBJECTS := $(sort $(FUZZ_SOURCES:%.cpp=$(FUZZ)/%.o))
FUZZ_FLAGS := -std=c++17 -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all \
	$(WARN) $(INCLUDES)
# Pages come from the heap while an input runs; the targets that open files do not open them.
FUZZ_WRAPPED := _ZN11graphsignal9map_pagesEm _ZN11graphsignal11unmap_pagesEPvm
FUZZ_LINK := $(FUZZ_WRAPPED:%=-Wl,--wrap=%) $(TESTLIBS)

$(FUZZ)/%.o: %.cpp
	@mkdir -p $(@D)
	@echo "clang++ $<"
	@$(CLANG) $(FUZZ_FLAGS) -fsanitize=fuzzer-no-link -MMD -MP -c $< -o $@
-include $(FUZZ_OBJECTS:%.o=%.d) $(FUZZ_TARGETS:%=$(FUZZ)/fuzz/%.d)

$(FUZZ)/libinject.a: $(FUZZ_OBJECTS)
	@rm -f $@
	@ar rcs $@ $^
$(FUZZ)/library_fuzz: FUZZ_LINK += -Wl,--wrap=dlopen -Wl,--wrap=access
$(FUZZ)/%_fuzz: $(FUZZ)/fuzz/%_fuzz.o $(FUZZ)/libinject.a
	@$(CLANG) $(FUZZ_FLAGS) -fsanitize=fuzzer $^ -o $@ $(FUZZ_LINK)

.SECONDARY: $(FUZZ_TARGETS:%=$(FUZZ)/fuzz/%.o)
.PHONY: fuzz
fuzz:
	@if echo 'extern "C" int LLVMFuzzerTestOneInput(const char*, unsigned long) { return 0; }' | \
		$(or $(CLANG),clang++) -x c++ -fsanitize=fuzzer,address,undefined - -o /dev/null >/dev/null 2>&1; then \
		$(MAKE) -s $(FUZZ_TARGETS:%=$(FUZZ)/%) && fuzz/run.sh $(FUZZ) $(FUZZTIME) $(FUZZ_TARGETS); \
	else echo "clang++ with libFuzzer is not installed: the native parsers were NOT fuzzed"; fi
