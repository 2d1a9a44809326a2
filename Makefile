# Everything is built with one set of flags: a second set would compile the Collector a second time.
export GOFLAGS = -trimpath -tags=netgo,osusergo
export CGO_ENABLED = 1

PREFIX ?= /usr/local
GO ?= go
LDFLAGS = -s -w
# The Collector starts on this glibc and later ones. The libraries are those that dlopen and threads once were in; -z lazy
# since NVML's functions are looked up at their first call (some distributions' gcc has -z now as default).
GLIBC_FLOOR = 2.28
COLLECTOR_LDFLAGS = $(LDFLAGS) -extldflags "-Wl,-z,lazy -Wl,--no-as-needed -l:libpthread.so.0 -l:libdl.so.2"
BIN = $(CURDIR)/bin
LIB = $(CURDIR)/lib/graphsignal

# Packages with goroutines of their own go through the race detector; the rest gains nothing from it.
RACE_PACKAGES = ./internal/... ./receiver/... ./exporter/... ./extension/...
COMPONENTS = $(patsubst %/metadata.yaml,%,$(wildcard receiver/*/metadata.yaml exporter/*/metadata.yaml extension/*/metadata.yaml))

.PHONY: all build native demo test test-native test-floor test-go test-faults test-race test-fuzz lint vuln generate check-generated bench bench-nvml bench-gpu soak sanitize test-gpu deps install install-files dist test-dist clean

all: build

# deps installs what Go and gcc do not bring (C++ compiler, tools of the tests) where it may.
deps:
	@scripts/deps.sh

build: deps native $(BIN)/graphsignal-run $(BIN)/graphsignal-top $(BIN)/graphsignal-collector

native:
	$(MAKE) -C inject all
	$(MAKE) -C examples/demo all

# The Go tool knows what is up to date; asking it costs less than a second.
.PHONY: $(BIN)/graphsignal-run $(BIN)/graphsignal-top $(BIN)/graphsignal-collector
# The launcher's entry point notes what it inherits of signals before Go's runtime changes it.
$(BIN)/graphsignal-run:
	CGO_ENABLED=0 $(GO) build -ldflags '$(LDFLAGS) -E graphsignalRunStart' -o $@ ./cmd/graphsignal-run
$(BIN)/graphsignal-top:
	CGO_ENABLED=0 $(GO) build -ldflags '$(LDFLAGS)' -o $@ ./cmd/graphsignal-top
$(BIN)/graphsignal-collector:
	$(GO) build -ldflags '$(COLLECTOR_LDFLAGS)' -o $@ ./cmd/graphsignal-collector
	$(GO) run ./internal/tools/glibcfloor -floor $(GLIBC_FLOOR) -optional nvml $@

# demo profiles a small engine that computes on the CPU, and prints what /signals says of it.
demo: build
	scripts/demo.sh

test: build lint vuln check-generated test-native test-floor test-go test-race test-soak test-fuzz

# test-repeat runs every test RUNS times in a row and stops at the first failure. Left out is what cannot vary, and fuzzing, which
# is different each time on purpose.
RUNS ?= 20
test-repeat: build
	for n in $$(seq $(RUNS)); do echo "run $$n of $(RUNS)"; \
		$(MAKE) test-native && $(GO) test -count=1 -timeout 10m ./... && \
		$(GO) test -count=1 -race -short -timeout 10m $(RACE_PACKAGES) || exit 1; done

# test-floor runs the Collector under the loader of glibc 2.31, and with a loader that binds everything at once.
test-floor: $(BIN)/graphsignal-collector
	scripts/gate-collector.sh $(GLIBC_FLOOR) $(BIN)/graphsignal-collector inject/build/packages

test-native:
	$(MAKE) -C inject test gate

test-go:
	$(GO) test -timeout 10m ./...

# test-faults kills, stops and starves each part at random moments: the long form of what test-go runs once.
FAULT_ROUNDS ?= 10
test-faults: build
	GRAPHSIGNAL_FAULT_ROUNDS=$(FAULT_ROUNDS) $(GO) test -count=1 -timeout 4h ./e2e ./launcher -run '^TestFault'

test-race:
	$(GO) test -race -short -timeout 10m $(RACE_PACKAGES)

# Each parser of foreign bytes is fuzzed for a moment, the native ones where clang++ is installed; FUZZTIME=15m makes it a session.
FUZZTIME ?= 15s
test-fuzz:
	scripts/fuzz.sh $(FUZZTIME)
	$(MAKE) -C inject fuzz FUZZTIME=$(FUZZTIME)

lint:
	scripts/lint.sh

# vuln looks for known vulnerabilities that our programs reach; without the database it says so and passes.
vuln:
	scripts/vuln.sh

generate: deps
	$(GO) tool builder --skip-get-modules --skip-compilation --config builder-config.yaml
	gofmt -w cmd/graphsignal-collector
	$(GO) run ./internal/tools/metagen $(COMPONENTS)
	$(GO) run ./internal/tools/metricsdoc docs/metrics.md internal/shmreceiver/generated_descriptions.go $(sort $(filter receiver/%,$(COMPONENTS)))
	protoc --plugin=protoc-gen-go=$$($(GO) tool -n protoc-gen-go) --go_out=. \
		--go_opt=module=github.com/graphsignal/graphsignal-collector proto/signals.proto

# check-generated fails when what is committed is not what `make generate` makes.
check-generated: generate
	@git diff --exit-code --stat -- cmd/graphsignal-collector receiver exporter extension internal/shmreceiver proto docs/metrics.md || \
		{ echo "generated files differ: run 'make generate' and commit"; exit 1; }

bench: build
	scripts/bench.sh

# soak runs launcher and sidecar for two hours beside a busy workload of 64 processes, on a machine that does nothing else, and
# feeds records to the CUPTI library through our stub. test-soak is its short form.
SOAK_TIME ?= 2h
SOAK_RECORDS ?= 1000000000
soak: build
	$(GO) run ./bench/soak -duration $(SOAK_TIME)
	$(MAKE) -C inject soak SOAK_RECORDS=$(SOAK_RECORDS)

test-soak: build
	$(GO) run ./bench/soak -duration 2m -missed-ticks 100

# sanitize runs the native tests under ASan and TSan.
sanitize:
	$(MAKE) -C inject asan tsan

# test-gpu needs an NVIDIA GPU, nvcc, and python3 with PyTorch.
test-gpu: build
	$(MAKE) -C gputest test
	$(MAKE) -C gputest/probes test
	$(MAKE) -C gputest frameworks

# bench-gpu measures what tracing costs against the floor of CUPTI itself.
bench-gpu: build
	$(MAKE) -C bench/gpu run

# bench-nvml lays out, in build/nvml.tar.gz, what compares /signals with nvidia-smi and measures the driver's calls on a host with
# an NVIDIA GPU (bench/nvml/README.md).
bench-nvml: $(BIN)/graphsignal-run $(BIN)/graphsignal-collector
	rm -rf build/nvml
	install -d build/nvml/bin
	install $(BIN)/graphsignal-run $(BIN)/graphsignal-collector build/nvml/bin
	CGO_ENABLED=0 $(GO) build -ldflags '$(LDFLAGS)' -o build/nvml/bin/bench-nvml ./bench/nvml
	$(GO) test -c -ldflags '$(COLLECTOR_LDFLAGS)' -o build/nvml/bin/nvml.test ./receiver/nvmlreceiver
	$(GO) run ./internal/tools/glibcfloor -floor $(GLIBC_FLOOR) -optional nvml build/nvml/bin/nvml.test
	cp bench/nvml/load.py build/nvml
	tar -C build -czf build/nvml.tar.gz nvml

# install puts everything below PREFIX. It can be moved from there as a whole: the launcher finds the rest from its own place.
install: build install-files

# What README.md and docs lead to is installed with them.
SHARED = LICENSE README.md SKILL.md docs examples python/README.md python/pyproject.toml python/graphsignal packaging/*Dockerfile \
	receiver/*/README.md receiver/*/documentation.md exporter/*/README.md extension/*/README.md telemetry/*/README.md \
	inject/README.md internal/kernels/taxonomy.tsv
install-files:
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/lib/graphsignal $(DESTDIR)$(PREFIX)/include/graphsignal
	install -m 755 $(BIN)/graphsignal-run $(BIN)/graphsignal-collector $(BIN)/graphsignal-top $(DESTDIR)$(PREFIX)/bin
	install -m 755 $(LIB)/*.so $(DESTDIR)$(PREFIX)/lib/graphsignal
	install -m 644 include/graphsignal/*.h $(DESTDIR)$(PREFIX)/include/graphsignal
	for f in $$(git ls-files $(SHARED) 2>/dev/null || find $(SHARED) -type f); do \
		install -D -m 644 "$$f" "$(DESTDIR)$(PREFIX)/share/graphsignal/$$f" || exit 1; done

# dist makes the release in dist/: tarball, .deb, .rpm, checksums and bill of materials.
DIST = $(CURDIR)/dist
dist: build
	packaging/dist.sh $(DIST)

# test-dist installs the release in a bare Debian 11 and a bare Ubuntu 20.04 and profiles the demo engine there. It needs root, and a network for
# the first time.
test-dist: dist
	packaging/test-dist.sh $(DIST) build/systems

clean:
	$(MAKE) -C inject clean
	$(MAKE) -C examples/demo clean
	rm -rf bin lib build dist
