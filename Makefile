# SPDX-License-Identifier: Apache-2.0
#
# Everything that one does here, by name. `make` alone lists it.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.NOTPARALLEL: # tests load the machine, and measure it
MAKEFLAGS += --no-builtin-rules --no-print-directory

GOLANGCI_VERSION := v2.15.0
GOVULNCHECK_VERSION := v1.8.0
MD2MAN_VERSION := v2.0.7
NFPM_VERSION := v2.45.1
KUSTOMIZE_VERSION := v5.8.1
KUBERNETES_VERSION := v1.37.2

GO ?= go
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null)
# Go asks git too, and does not build where git refuses: in the checkout of another user.
VCS := $(if $(VERSION),,-buildvcs=false)
BUILD := CGO_ENABLED=0 $(GO) build $(VCS) -trimpath -ldflags '-X github.com/tailcam/tailcam/internal/version.version=$(VERSION)'
# For what needs root, where this is not run by root.
SUDO := $(if $(filter 0,$(shell id -u)),,sudo)

# The tests that load the kernel side and inject latencies run one after the
# other, on a machine that does nothing else. Those of test/vm/guest and
# test/vm/trouble run in virtual machines only.
E2E_CORE := ./test/e2e/detect/... ./test/loss/... ./test/stress/... ./internal/demo/... ./internal/inject/... ./test/support/inject/... ./test/accuracy/...
E2E_DAEMON := ./test/e2e/daemon/...
RACE_CORE := ./tracker/... ./snapshot ./snapshot/flight ./snapshot/iothread ./internal/api ./internal/daemon ./internal/fair \
	./internal/overrides ./internal/lockfile
UNIT = $(filter-out $(shell $(GO) list $(E2E_CORE) $(E2E_DAEMON) ./test/fleet ./test/packages ./test/vm/guest ./test/vm/trouble 2>/dev/null),$(shell $(GO) list ./...))

C_FILES := $(wildcard bpf/*.h bpf/*/*.h bpf/*.c test/support/inject/src/*.h test/support/inject/src/*.c test/support/threadctx/src/*.h test/support/threadctx/src/*.c test/accuracy/src/*.h test/accuracy/src/*.c test/bench/*.c test/bench/service/src/*.c test/bench/table/*.c test/stress/*.c \
	internal/symbols/testdata/*.c internal/trigger/testdata/*.c test/e2e/daemon/testdata/*.c clients/c/*.h clients/c/testdata/*.c)

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z][a-z0-9-]*:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Programs that are built once, into .tools/.
MD2MAN := .tools/go-md2man-$(MD2MAN_VERSION)

$(MD2MAN):
	GOBIN=$(CURDIR)/.tools $(GO) install github.com/cpuguy83/go-md2man/v2@$(MD2MAN_VERSION)
	mv .tools/go-md2man $@

NFPM := .tools/nfpm-$(NFPM_VERSION)

$(NFPM):
	GOBIN=$(CURDIR)/.tools $(GO) install github.com/goreleaser/nfpm/v2/cmd/nfpm@$(NFPM_VERSION)
	mv .tools/nfpm $@

KUSTOMIZE := .tools/kustomize-$(KUSTOMIZE_VERSION)

$(KUSTOMIZE):
	GOBIN=$(CURDIR)/.tools $(GO) install sigs.k8s.io/kustomize/kustomize/v5@$(KUSTOMIZE_VERSION)
	mv .tools/kustomize $@

# The schemas of its objects, from the source of Kubernetes.
KUBERNETES_OPENAPI := .tools/kubernetes-$(KUBERNETES_VERSION).json

$(KUBERNETES_OPENAPI):
	@mkdir -p .tools
	cp "$$($(GO) mod download -json k8s.io/kubernetes@$(KUBERNETES_VERSION) | sed -n 's/^\t"Dir": "\(.*\)",$$/\1/p')/api/openapi-spec/swagger.json" $@

# The collector of the fleet's tests, whose versions are in its go.mod.
OTELCOL := .tools/otelcol

$(OTELCOL): $(wildcard test/fleet/collector/*.go test/fleet/collector/go.*)
	@echo 'Building the OpenTelemetry collector of the tests into .tools/, once; it takes a few minutes'
	@mkdir -p .tools
	cd test/fleet/collector && CGO_ENABLED=0 $(GO) build $(VCS) -trimpath -o $(CURDIR)/$@ .

# Loki, with the replacements of its own go.mod, which `go install` refuses.
LOKI := .tools/loki

$(LOKI): test/fleet/loki/go.mod
	@echo 'Building Grafana Loki into .tools/, once; it takes some ten minutes'
	@mkdir -p .tools
	cd test/fleet/loki && CGO_ENABLED=0 $(GO) build $(VCS) -trimpath -o $(CURDIR)/$@ github.com/grafana/loki/v3/cmd/loki

# The engine of a current ClickHouse, as Debian has an old one.
CHDB_VERSION := 3.4.0
CHDB := .tools/chdb-$(CHDB_VERSION)

$(CHDB):
	npm install --silent --ignore-scripts --no-save --prefix $@.new chdb@$(CHDB_VERSION)
	mv $@.new $@

# ------------------------------------------------------------------- programs

.PHONY: build
build: ## static bin/tailcam; needs only Go
	@mkdir -p bin
	$(BUILD) -o bin/tailcam ./cmd/tailcam

.PHONY: run
run: build ## build, and run the daemon in the foreground with configs/ (ARGS='--log-level debug')
	$(SUDO) bin/tailcam run --config configs/tailcam.yaml --rules configs/rules.d --log-format console $(ARGS)

.PHONY: demo
demo: build ## build, and provoke, catch and explain one latency of each kind (ARGS='-o json')
	$(SUDO) bin/tailcam demo $(ARGS)

.PHONY: install
install: $(MD2MAN) ## install what was built (bin/tailcam) with unit, rules, manual: PREFIX=/usr/local, DESTDIR=
	@test -x bin/tailcam || { echo 'install: no bin/tailcam: run make build first'; exit 1; }
	MD2MAN=$(MD2MAN) DESTDIR='$(DESTDIR)' PREFIX='$(PREFIX)' scripts/install.sh bin/tailcam

.PHONY: clean
clean: ## remove what was built; the caches of out/vm/kernels and .tools stay
	rm -rf bin dist
	find out -mindepth 1 -maxdepth 1 ! -name vm -exec rm -rf {} + 2>/dev/null || true
	rm -rf out/vm/build out/vm/logs

# ---------------------------------------------------------------------- tests

REPORT := $(GO) run ./test/support/report

.PHONY: test
test: deps-test ## what a change needs: vet, unit tests, the core of race and e2e; some seven minutes on 2 CPUs
	@$(MAKE) --keep-going vet unit race-core e2e-core

.PHONY: test-all
test-all: deps-test ## every test; CI takes half of the kernels each time; some forty minutes on 2 CPUs
	@$(MAKE) --keep-going vet unit race e2e fuzz-smoke e2e-unit test-vm

.PHONY: unit
unit: ## tests of packages, next to the code; without root, some are skipped
	$(REPORT) $(UNIT)

.PHONY: race
race: ## the same under the race detector, the slow ones left out (PART=0/3: every third package)
	@if command -v gcc >/dev/null; then \
		echo 'race: go test -race -short $(or $(RACE),of the packages of unit)'; \
		CGO_ENABLED=1 $(REPORT) -race -short $(or $(RACE),$(if $(PART),$(shell printf '%s\n' $(UNIT) | awk -v part=$(PART) 'split(part, p, "/") && NR % p[2] == p[1]'),$(UNIT))); \
	else \
		echo 'race: not run: the race detector needs gcc (apt-get install gcc libc6-dev)'; \
	fi

.PHONY: race-core
race-core: # packages with threads that share data
	@$(MAKE) race RACE='$(RACE_CORE)'

.PHONY: e2e
e2e: ## injected latencies against the real kernel; needs root (PART=0/3: every third test of the daemon)
	@$(MAKE) --keep-going e2e-core e2e-daemon

.PHONY: e2e-daemon
e2e-daemon: # what an operator would do to the daemon
	$(REPORT) $(addprefix -part=,$(PART)) -count=1 -p 1 -timeout 30m $(E2E_DAEMON)

.PHONY: e2e-core
e2e-core: # all but what an operator would do to the daemon
	$(REPORT) -each='^Test(Scenarios|RequestScenarios|SampledSoftirqs)$$' -count=1 -p 1 -timeout 20m $(E2E_CORE)

# What the sandbox of the unit cannot change: which outliers there are, how many, and how they are printed.
INDIFFERENT := Adaptive|AgreesWith|Chain|Dashboard|Export|Join|Limiter|OddRule|OnTime|PathAgrees|Ratchet|RingBuffer|Storm|Threshold|Torn|Window

.PHONY: e2e-unit
e2e-unit: deps-unit ## the daemon's tests once more, under the shipped systemd unit; needs root (INDIFFERENT=none: all of them; PART=0/3)
	@echo 'e2e-unit: every daemon of $(E2E_DAEMON) runs as a service of configs/systemd/tailcam.service'
	E2E_UNIT=1 $(REPORT) $(addprefix -part=,$(PART)) -count=1 -timeout 20m -skip '^Test($(INDIFFERENT))' $(E2E_DAEMON)

.PHONY: soak
soak: deps-test ## the daemon under mixed load for TIME=1h: nothing unaccounted for, nothing grows; needs root (TIMES=3: as many bursts every ten seconds)
	SOAK=$(or $(TIME),1h) SOAK_TIMES=$(TIMES) $(GO) test -count=1 -v -timeout 0 -run '^TestSoak$$' ./test/e2e/daemon

.PHONY: soak-hours
soak-hours: deps-vm ## six hours of an emulated machine, whose clock jumps while it idles, in less than one
	$(GO) run ./test/vm -kernels 6.12-idle -run '^TestHours$$' -timeout 8h -v

.PHONY: triggers
triggers: deps-test ## N=10000 triggers while the target of uploads is down, and a third of them while it and the daemon end at random: each is sent once, or counted; needs root
	TRIGGERS=$(or $(N),10000) $(GO) test -count=1 -v -timeout 0 -run '^TestTriggers(WhileTheTargetIsDown|AcrossRestarts)$$' ./test/e2e/daemon

.PHONY: test-packages
test-packages: deps-packages $(NFPM) $(MD2MAN) $(KUSTOMIZE) $(KUBERNETES_OPENAPI) ## the packages in a fresh Debian, the image in podman, the schemas of Kubernetes, the same bytes twice; needs root
	NFPM=$(CURDIR)/$(NFPM) MD2MAN=$(CURDIR)/$(MD2MAN) KUSTOMIZE=$(CURDIR)/$(KUSTOMIZE) KUBERNETES_OPENAPI=$(CURDIR)/$(KUBERNETES_OPENAPI) $(REPORT) -count=1 -timeout 14m ./test/packages

.PHONY: test-fleet
test-fleet: deps-fleet $(OTELCOL) $(CHDB) ## a day of 500 hosts through a real collector into a real ClickHouse, and what is asked of it
	OTELCOL=$(CURDIR)/$(OTELCOL) CHDB=$(CURDIR)/$(CHDB)/node_modules/chdb $(GO) test -count=1 -v -timeout 15m -skip '^TestLoki$$' ./test/fleet

.PHONY: test-fleet-loki
test-fleet-loki: $(OTELCOL) $(LOKI) ## the same queries of a real Loki
	OTELCOL=$(CURDIR)/$(OTELCOL) LOKI=$(CURDIR)/$(LOKI) $(GO) test -count=1 -v -timeout 15m -run '^TestLoki$$' ./test/fleet

.PHONY: scenarios
scenarios: deps-test ## known latencies of some ninety kinds, and whether each is explained as it was; prints the score (ARGS="-load hackbench", or neighbour)
	@rm -f out/scenarios.txt; mkdir -p out
	@echo 'scenarios: each is caused, caught and explained once; a minute'
	@status=0; $(SUDO) $(GO) test -count=1 ./test/accuracy -args -all -table $(CURDIR)/out/scenarios.txt $(ARGS) >out/scenarios.log 2>&1 || status=$$?; \
		cat out/scenarios.txt || cat out/scenarios.log; [ $$status = 0 ] || echo 'not passed: the rest is in out/scenarios.log'; exit $$status

.PHONY: fuzz-smoke
fuzz-smoke: # some seconds each (PART=0/3: every third target)
	scripts/fuzz.sh 20000 $(PART)

.PHONY: fuzz
fuzz: ## every fuzz target with INPUTS=2000000 inputs, and MACHINES=2000 simulated machines, some minutes
	scripts/fuzz.sh $(or $(INPUTS),2000000)
	TAILCAM_MACHINES=$(or $(MACHINES),2000) $(GO) test -count=1 -run '^TestMachines$$' -timeout 30m ./explain

# Kernels of which CI takes half each time (see test/vm/target.go).
CI_KERNELS := 6.1,6.1-rt,6.12,6.12-rt,6.12-idle

.PHONY: test-vm
test-vm: deps-vm ## load, attach and one outlier per tracker, and silence when idle, on Debian's 6.1, 6.12 and real-time kernels, in QEMU
	$(GO) run ./test/vm $(or $(ARGS),-kernels $(CI_KERNELS))

.PHONY: test-kernels
test-kernels: deps-vm deps-kernels ## all of that on every kernel, Debian sid's and those of arm64 too; writes docs/kernels.md
	$(GO) run ./test/vm -record $(ARGS)

.PHONY: kernels-page
kernels-page: # docs/kernels.md from docs/kernels.json
	$(GO) run ./test/vm -page

.PHONY: bench
bench: deps-bench ## what tailcam costs, beside its peers; writes out/bench.json (ARGS=-quick)
	$(GO) run ./test/bench $(ARGS)

.PHONY: bench-snapshot
bench-snapshot: build deps-bench ## from an outlier to its history on disk, beside perf's (ARGS='-n 20')
	$(GO) run ./test/bench/snapshot $(ARGS)

.PHONY: bench-service
bench-service: build deps-bench-service ## what tailcam costs redis, nginx, PostgreSQL and others, beside its peers; a quarter of an hour (ARGS=-quick)
	$(GO) run ./test/bench/service $(ARGS)

.PHONY: bench-parts
bench-parts: build deps-bench-service ## what services feel of tailcam's programs, each taken out and put back beside a client that goes on; 25 minutes (ARGS='-rounds 9 -only redis')
	$(GO) run ./test/bench/service -parts -pin -rounds 60 -only redis,nginx,pgbench,hackbench $(ARGS)

.PHONY: bench-sites
bench-sites: deps-bench-service ## how much of the time that tasks wait has words in explain/waitsites, while services run; half a minute
	$(GO) run ./test/bench/service -sites $(ARGS)

.PHONY: bench-activities
bench-activities: build deps-bench-service ## what activities cost: a switch of tokens, and a token a request in redis, nginx, PostgreSQL and hackbench; seven minutes (ARGS=-quick)
	$(SUDO) $(GO) test -run '^$$' -bench Switch ./clients/c ./clients/go
	$(GO) run ./test/bench/service -only redis,nginx,pgbench,hackbench -variants tailcam,groups,all -seconds 0.5 \
		-o out/bench-activities.json $(ARGS)

.PHONY: bench-table
bench-table: deps-bench ## the pending table beside the kernel's own; writes out/bench-table.json (ARGS=-quick)
	$(GO) run ./test/bench/table $(ARGS)

# ------------------------------------------------------------- code and style

.PHONY: generate
generate: deps-generate ## compile the BPF C, and make its Go types
	$(GO) generate ./...

.PHONY: schemas
schemas: ## write configs/schemas, the JSON Schemas of what -o json prints
	$(GO) test ./cmd/tailcam -run '^TestSchemas$$' -update

.PHONY: check-generate
check-generate: deps-generate ## prove that generate gives what is committed
	scripts/check-generate.sh

.PHONY: vet
vet:
	$(GO) vet ./...

GOLANGCI := .tools/golangci-lint-$(GOLANGCI_VERSION)

$(GOLANGCI):
	@echo 'Building golangci-lint $(GOLANGCI_VERSION) into .tools/, once; it takes a few minutes'
	GOBIN=$(CURDIR)/.tools $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	mv .tools/golangci-lint $@

GOVULNCHECK := .tools/govulncheck-$(GOVULNCHECK_VERSION)

$(GOVULNCHECK):
	GOBIN=$(CURDIR)/.tools $(GO) install golang.org/x/vuln/cmd/govulncheck@$(GOVULNCHECK_VERSION)
	mv .tools/govulncheck $@

.PHONY: lint
lint: deps-lint vet $(GOLANGCI) $(GOVULNCHECK) ## all that complains: Go, C, shell, licences, go.mod
	$(GOLANGCI) run ./...
	$(GO) mod tidy -diff
	scripts/vulnerabilities.sh $(GOVULNCHECK)
	CGO_ENABLED=0 GOARCH=arm64 $(GO) build $(VCS) -trimpath -o /dev/null ./cmd/tailcam
	clang-format-19 --dry-run -Werror $(C_FILES)
	scripts/check-headers.sh
	shellcheck .ci/run scripts/*.sh $(wildcard configs/actions/*.sh)
	shellcheck -s sh configs/packaging/deb/p* configs/packaging/rpm/p*
	scripts/check-licences.sh

.PHONY: format
format: deps-lint $(GOLANGCI) ## format Go and C
	$(GOLANGCI) fmt ./...
	clang-format-19 -i $(C_FILES)

# -------------------------------------------------------------------- release

.PHONY: packages
packages: $(NFPM) $(MD2MAN) ## .deb and .rpm of what is checked out, for amd64 and arm64, in dist/
	GO='$(GO)' NFPM=$(NFPM) MD2MAN=$(MD2MAN) scripts/packages.sh '$(VERSION)' dist

.PHONY: image
image: $(MD2MAN) ## OCI image of what is checked out, for amd64 and arm64, in dist/: podman load, skopeo, crane
	GO='$(GO)' MD2MAN=$(MD2MAN) scripts/image.sh '$(VERSION)' dist

.PHONY: release
release: $(NFPM) $(MD2MAN) ## archives, packages, image, bills of materials and checksums of the tagged commit, in dist/ (SNAPSHOT=1: of any commit)
	GO='$(GO)' NFPM=$(NFPM) MD2MAN=$(MD2MAN) scripts/release.sh '$(VERSION)'

# ----------------------------------------------------------- Debian's packages

GCC := gcc='builds the latency injectors and for the race detector' libc6-dev='headers and static C library of the injectors'

.PHONY: deps-generate
deps-generate:
	@scripts/apt.sh clang-19='compiles the BPF C' llvm-19='strips the objects' libbpf-dev='headers of the BPF C' \
		linux-libc-dev='headers of the BPF C' git='compares with the last commit'

.PHONY: deps-lint
deps-lint:
	@scripts/apt.sh clang-format-19='checks the format of the C files' clang-19='compiles each header of the BPF C' libbpf-dev='headers of the BPF C' \
		linux-libc-dev='headers of the BPF C' shellcheck='checks the shell scripts' \
		git='lists the files to check' systemd='checks the shipped unit' curl='asks for the vulnerability database'

.PHONY: deps-test
deps-test:
	@scripts/apt.sh $(GCC) g++='C++ programs whose stacks are named' musl-tools='programs with another C library' \
		dwz='debug files that share parts' libc6-dbg='the lines of a library' xz-utils='symbols of stripped programs' \
		llvm-19='its opinion of those lines' \
		babeltrace2='reads the traces that tailcam writes' \
		python3-lttnganalyses='reports of traces, to compare with' python3-babeltrace='reads them for it' babeltrace='the same' \
		linux-perf='its opinion of the same seconds' openssh-server='takes snapshots' curl='ships snapshots' gdb='stacks of a process, for a shipped action' bpftool='maps, for another' rsync='ships snapshots' shellcheck='checks shipped scripts' \
		python3='its lock, for a scenario' rt-tests='hackbench, load' dmsetup='stacked disks' \
		nginx-light='a server whose answers are slow' redis-server='a server that is busy for one client while another waits' \
		postgresql='a server that waits for the disk of its log' pgbouncer='a pool of one connection' iproute2='a wire between two networks' e2fsprogs='a file system on a slow disk' \
		prometheus='scrapes the daemon; promtool' prometheus-alertmanager='sends alerts; amtool' \
		protobuf-compiler='reads what is exported to Perfetto' chromium='opens pages and flame graphs' librsvg2-bin='draws pictures as no browser does' \
		containerd='pods' podman='containers' docker.io='containers by another daemon' runc='runs both' openjdk-17-jdk-headless='a JVM, whose title is its main class' \
		$(if $(shell command -v rustc),,rustc='Rust programs whose stacks are named')

.PHONY: deps-unit
deps-unit: deps-test
	@scripts/apt.sh systemd='runs the daemon as a service, with the whole sandbox of its unit' util-linux='a mount namespace for it'

.PHONY: deps-packages
deps-packages:
	@scripts/apt.sh lintian='checks the Debian packages' mmdebstrap='a fresh Debian to install them in' rpm='installs the other packages' \
		mandoc='checks the manual pages' util-linux='namespaces to install in' podman='runs the image' runc='runs its containers' containerd='runs pods beside it'

.PHONY: deps-fleet
deps-fleet:
	@scripts/apt.sh clickhouse-server='keeps outliers of many hosts'

.PHONY: deps-vm
deps-vm:
	@scripts/apt.sh $(GCC) qemu-system-x86='boots the kernels' xz-utils='unpacks kernel modules'

.PHONY: deps-kernels
deps-kernels:
	@scripts/apt.sh qemu-system-arm='boots the kernels of arm64' gcc-aarch64-linux-gnu='builds the latency injectors for them' \
		libc6-dev-arm64-cross='headers and static C library of these' debian-archive-keyring='signatures of Debian sid'

.PHONY: deps-bench
deps-bench:
	@scripts/apt.sh $(GCC) bpftrace='peer to compare with' linux-perf='peer to compare with' rt-tests='hackbench, the load' \
		fio='the load on the disk'

.PHONY: deps-bench-service
deps-bench-service: deps-bench
	@scripts/apt.sh redis-server='a service to measure' redis-tools='redis-benchmark, its client' nginx-light='a service to measure' \
		wrk='its client' postgresql='a service to measure, and its client pgbench' make='runs the compile'
