# make test    everything: formatting, vet, staticcheck, all tests with the race detector, in all modules
# make bench   the benchmarks of BENCHMARKS.md, beside the raw limits and the peers
# make fuzz    each fuzz target for FUZZTIME (default 30s)
# make demo    what `go run ./cmd/weir demo` shows
# make pictures  the pictures of README.md, from the running project
# make build   the weir binary

GO       ?= go
MODULES  := . lincheck benchmarks examples/frameworks
FUZZTIME ?= 30s

.PHONY: test needs lint bench fuzz demo pictures build

test: needs lint
	@set -e; for m in $(MODULES); do \
		[ -f $$m/go.mod ] || continue; \
		echo "== go test -race ./... in $$m"; \
		(cd $$m && $(GO) test -race -timeout 10m ./...); \
	done

# What the tests use that Go does not bring: a Redis server and Chromium. Without one, and without a way to install it, its tests say so and skip.
needs:
	@sh scripts/needs.sh

lint:
	@out=$$(gofmt -l $$(git ls-files '*.go')); [ -z "$$out" ] || { echo "gofmt: $$out"; exit 1; }
	$(GO) vet ./...
	$(GO) tool staticcheck ./...

bench:
	cd benchmarks && $(GO) test -run '^$$' -bench . ./...

fuzz:
	@set -e; for p in $$($(GO) list ./...); do \
		for f in $$($(GO) test -list '^Fuzz' $$p | grep '^Fuzz' || true); do \
			echo "== $$f in $$p"; $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) $$p; \
		done; \
	done

demo:
	$(GO) run ./cmd/weir demo

pictures:
	@sh scripts/pictures.sh

build:
	$(GO) build -o weir ./cmd/weir
