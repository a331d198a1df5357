# `make` alone prints what there is. .ci/run is the whole check; these are its parts, by hand.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

GO       ?= go
PKG      ?= ./...
FUZZTIME ?= 30s
COSTTIME ?= 10m
BENCH    ?= .
COUNT    ?= 1
ROUNDS   ?= 200
CUTS     ?= 10
INSTANCES ?= 1000000
PEERS    ?= ../shared/peers
JUDGES   ?= ../shared/data
TAU2     ?= ../tau2-bench
PEERS_ROUNDS ?= 7
CASES    ?= 10

.PHONY: help
help: ## Print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "  PKG=./engine/... narrows test, race, cover, bench and crash; FUZZTIME=30s COSTTIME=10m BENCH=regexp COUNT=n ROUNDS=n CUTS=n INSTANCES=n PEERS=folder PEERS_ROUNDS=n CASES=n AGENTS=names JUDGES=folder TAU2=folder"

.PHONY: build
build: ## Build the static binary ./gavel
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o gavel ./cmd/gavel

.PHONY: demo
demo: ## Play the demonstration
	$(GO) run ./cmd/gavel demo

.PHONY: test
test: ## Run the tests
	$(GO) test $(PKG)

.PHONY: race
race: ## Run the tests under the race detector (needs gcc)
	$(GO) test -race -gcflags=modernc.org/sqlite/lib=-race=false $(PKG)

.PHONY: long
long: ## Run the tests of the stores, the sandbox, definitions and the program with the sizes that show most
	GAVEL_LONG=1 $(GO) test -count 1 -timeout 60m ./engine ./engine/store/memory ./engine/store/sqlite ./engine/workflow ./validators/script ./cmd/gavel

.PHONY: cover
cover: ## Run the tests and print the coverage of each package
	$(GO) test -coverprofile=coverage.out $(PKG)
	$(GO) tool cover -func=coverage.out | tail -n 1

.PHONY: tools
tools: ## Build the pinned linters into .tmp/bin
	.ci/run tools

.PHONY: lint
lint: ## Format, vet, golangci-lint
	.ci/run tools gofmt vet golangci-lint

.PHONY: fuzz
fuzz: ## Fuzz each target for FUZZTIME
	FUZZTIME=$(FUZZTIME) .ci/run fuzz

.PHONY: fuzz-cost
fuzz-cost: ## Fuzz what hostile documents and scripts cost, each kind for COSTTIME
	@grep -rlE '^func FuzzCost' --include='*_test.go' . | while read -r file; do \
	  for target in $$(sed -nE 's/^func (FuzzCost[A-Za-z]*)\(.*/\1/p' "$$file"); do \
	    $(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(COSTTIME) -fuzzminimizetime 10x -timeout 0 "./$$(dirname "$$file")" || exit 1; \
	  done; done

.PHONY: bench
bench: ## Run the benchmarks (BENCH=regexp)
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem -count $(COUNT) $(PKG)

.PHONY: bench-store
bench-store: ## Measure the store beside the disk and one transaction per write
	@$(GO) test -count 1 -timeout 10m -v -run 'TestBenchStore$$' ./engine/store/sqlite -store.bench | grep -vE '^(===|PASS)'

.PHONY: bench-peers
bench-peers: ## Compare with a policy server and bare servers in one run, where PEERS is there (minutes, Linux)
	@$(GO) test -count 1 -timeout 60m -v -run 'TestBenchPeers$$' ./cmd/gavel -peers.rounds $(PEERS_ROUNDS) -peers.dir '$(abspath $(PEERS))' | grep -vE '^(===|PASS)'

.PHONY: million
million: ## Measure the store with a million instances in its file (about 1.5 GB, minutes)
	@$(GO) test -count 1 -timeout 60m -v -run 'TestMillion$$' ./engine/store/sqlite -store.instances $(INSTANCES) | grep -vE '^(===|PASS)'

.PHONY: bench-console
bench-console: ## Measure the console's first page with a million instances, and an advance with 200 open pages (2 GB, minutes)
	@GAVEL_LONG=1 $(GO) test -count 1 -parallel 1 -timeout 60m -v -run 'TestConsole(FirstPage|OpenPages)$$' ./cmd/gavel -console.instances $(INSTANCES) -console.pages 200 | grep -vE '^(===|PASS)'

.PHONY: bench-postgres
bench-postgres: ## Measure commits and pages of a PostgreSQL with a million instances (3 GB, minutes)
	@$(GO) test -count 1 -timeout 60m -v -run 'Test(BenchPostgres|Million)$$' ./internal/modules/postgres -pg.rounds 3 -pg.instances $(INSTANCES) | grep -vE '^(===|PASS)'

.PHONY: figures
figures: ## Measure a release binary: its size, its start, its memory when idle (Linux)
	@$(GO) test -count 1 -v -run 'TestReleaseFigures$$' ./cmd/gavel -figures | grep -vE '^(===|PASS)'

.PHONY: load
load: ## A thousand clients over HTTP for a minute, then SIGTERM in the middle (Linux)
	@$(GO) test -count 1 -parallel 1 -timeout 20m -v -run 'Test(Load|TermUnderLoad)$$' ./cmd/gavel -load.clients 1000 -load.time 1m | grep -vE '^(===|PASS)'

.PHONY: bench-fairness
bench-fairness: ## Measure an honest caller beside a noisy one, for everything that callers share (Linux)
	@GAVEL_LONG=1 $(GO) test -count 1 -timeout 20m -v -run 'TestNoisyNeighbour$$' ./cmd/gavel -fairness.calls 200 | grep -vE '^(===|PASS)'

.PHONY: deployments
deployments: ## Check compose.yaml, the Kubernetes files and the alert rules, and run compose.yaml's services (root, Linux)
	.ci/run build deployments

.PHONY: crash
crash: ## Kill a process in mid-load, ROUNDS times; then the other tests that kill, COUNT times
	$(GO) test -count 1 -timeout 60m -v -run 'TestKilledProcessLosesNothing|TestDeletedLog|TestLogAlone' ./engine/store/sqlite -crash.rounds $(ROUNDS) | grep -vE '^(===|PASS)'
	$(GO) test -count 1 -timeout 60m -v -run 'TestKillLosesNothing|TestKilledWebhooks' ./cmd/gavel -kill.rounds $(ROUNDS) | grep -vE '^(===|PASS)'
	$(GO) test -run '(?i)(kill|crash)' -count $(COUNT) -v $(PKG) | grep -vE '^(===|PASS)'

.PHONY: crash-gateway
crash-gateway: ## Kill gavel, the server behind it, or both at every point of a gated call, ROUNDS times
	$(GO) test -count 1 -timeout 60m -v -run 'TestKill$$' ./internal/modules/gateway/foreign -rounds $(ROUNDS) | grep -vE '^(===|PASS)'

.PHONY: crash-postgres
crash-postgres: ## Two servers over a PostgreSQL: ten minutes of load, then kill one, both, the database or its connections, ROUNDS times
	@GAVEL_LONG=1 $(GO) test -count 1 -timeout 90m -v -run 'TestReplicas' ./cmd/gavel -replicas.time 10m -replicas.rounds $(ROUNDS) -kill.rounds 18 | grep -vE '^(===|PASS)'

.PHONY: crash-chains
crash-chains: ## Kill a process that runs a chain, and one of two over a PostgreSQL, a hundred times each; or stop one
	GAVEL_LONG=1 $(GO) test -count 1 -timeout 90m -v -run '^(TestKilled|TestReplicasKilled|TestStopped|TestAdoption)$$' ./internal/modules/chain | grep -vE '^(===|PASS)'

.PHONY: power
power: ## Cut the power under a store, CUTS times (as root, on loop devices)
	$(GO) test -count 1 -timeout 60m -v -run TestPowerCut ./engine/store/sqlite -power.rounds $(CUTS) | grep -vE '^(===|PASS)'

.PHONY: log
log: ## Write most of a gigabyte beside steady readers, and see how long the write-ahead log gets
	$(GO) test -count 1 -timeout 60m -v -run TestLogStaysShortUnderSteadyReading ./engine/store/sqlite -log.real | grep -vE '^(===|PASS)'

.PHONY: hostile
hostile: ## Run the hostile scripts long: 10,000 calls, the full time limits
	GAVEL_HOSTILE_CALLS=10000 GAVEL_LONG=1 $(GO) test -count 1 -timeout 60m -v -run 'TestHostDoesNotGrow|TestHostile|TestCorpus|TestHonest' ./validators/script | grep -E '^ *(--- (FAIL|PASS): Test[A-Z]|ok|FAIL|panic)'

.PHONY: clients
clients: ## Play the checks with foreign MCP clients (needs Node and npm)
	.ci/run build seed-walk inspector

.PHONY: agents
agents: build ## Play the hooks with real coding agents, offline (Node and npm, 2 GB; AGENTS=names)
	@mkdir -p .tmp/agents && cp testdata/agents/* .tmp/agents/
	@cd .tmp/agents && npm install --no-package-lock --no-audit --no-fund --loglevel=error
	@node .tmp/agents/play.mjs gavel $(AGENTS)

.PHONY: bench-tokens
bench-tokens: build ## Count what the tools and answers cost a model, in tokens (Node and npm; BEFORE=program)
	@.ci/run mcp-clients >/dev/null
	@node .tmp/clients/tokens.mjs $(if $(BEFORE),--before $(BEFORE)) -- $(CURDIR)/gavel

.PHONY: eval
eval: ## Measure the judge of the golden set from recorded answers (authored ones, no model's)
	@$(GO) run ./cmd/gavel eval run --llm-base-url http://localhost --llm-model authored --llm-structured json_schema --cassette testdata/golden/authored.cassette --gates testdata/golden/gates.yaml --max-errors 0 --remark 'The answers in the cassette were authored with the cases: they are evidence about the machinery, not about any judge.' testdata/golden

.PHONY: real-model
real-model: build ## Have models of 0.5 and 1.5 billion parameters judge CASES=10 cases in every form (Node, npm, Python; 1.6 GB once; GPU=auto)
	@testdata/real-model/run.sh installed || testdata/real-model/run.sh install
	@testdata/real-model/run.sh all $(CASES)

.PHONY: suite-telecom
suite-telecom: build ## Judge every write of tau2-bench's telecom agent, and walk its charts (TAU2=copy of its repository; Python)
	@[ -x .tmp/telecom/venv/bin/python ] || python3 -m venv .tmp/telecom/venv
	@.tmp/telecom/venv/bin/pip install --quiet --disable-pip-version-check --no-deps -r testdata/telecom/requirements.txt
	@.tmp/telecom/venv/bin/python testdata/telecom/convert.py '$(TAU2)' .tmp/telecom/out
	@./gavel test .tmp/telecom/out/*.test.json | grep -vE '^  pass'
	@cp testdata/workflows/telecom.yaml .tmp/telecom/out && ./gavel eval run --structural .tmp/telecom/out/writes.jsonl | grep -E '^(cases|false-|  slice|  tag: [a-z_]+  )'

INJECTION := .tmp/injection-0.1.0-0.6.0
$(INJECTION):
	@python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps --target $@ agent-injection-bench==0.1.0 bastioncorpus==0.6.0

.PHONY: suite-injection
suite-injection: $(INJECTION) ## Run agent-injection-bench and bastioncorpus past a model that believes everything (Python)
	@$(GO) test -count 1 -v -run 'TestPublicInjections$$' ./judge -injection.public '$(CURDIR)/$(INJECTION)' | grep -E '^( *\||---|ok|FAIL)|stale'

.PHONY: suite-judges
suite-judges: ## Recompute the figures of LLMBar, PandaLM and XSTest from recorded answers (JUDGES=folder of the sets)
	@GAVEL_EVAL_DATA='$(abspath $(JUDGES))' $(GO) test -count 1 -v -run 'LLMBar|Panda|XSTest' ./internal/modules/measure/eval | grep -vE '^(===|PASS)'

.PHONY: suites
suites: ## Run the tests of the workflows that come with gavel
	@$(GO) run ./cmd/gavel test testdata/suites

.PHONY: golden
golden: ## Write the golden files and generated pages anew; read the diff
	@packages=$$(grep -rlE 'flag\.Bool\("update"' --include='*_test.go' . | xargs -r -n1 dirname | sort -u); \
	for p in $$packages; do echo "$(GO) test $$p -update"; $(GO) test $$p -update; done
	git --no-pager diff --stat -- docs '*/testdata/*'

.PHONY: docs
docs: golden ## Generated pages are golden files

.PHONY: site
site: ## Write the pages as a site to .tmp/site/html, and check it in a browser (Python, Node and npm)
	.ci/run site

.PHONY: console
console: ## Check the console in a browser, and keep the pictures in .tmp/console/shots (Node and npm)
	.ci/run console

.PHONY: screenshots
screenshots: ## Take the pictures of README and docs/console.md again (Node and npm)
	.ci/run screenshots

.PHONY: tidy
tidy: ## Tidy go.mod
	$(GO) mod tidy

.PHONY: ci
ci: ## Everything, as the machine does it
	.ci/run

include packaging/release.mk

.PHONY: clean
clean: ## Remove what was built, but not the tools
	rm -rf gavel coverage.out .tmp/clients .tmp/gavel .tmp/logs
