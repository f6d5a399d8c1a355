# Two commands do everything on a fresh Debian or Ubuntu with Swift: `make run` and `make test`.

SWIFT ?= swift

# Warnings are errors (Package.swift). Set it for `swift build` as well, or each of the two builds everything anew.
export HAPAX_STRICT ?= 1

.PHONY: help run test test-versions fuzz docs bench build install deb test-deb staged format lint packages test-packages

help:
	@echo "make run     build server and command line, start the server on a SQLite file in ./hapax-data (http://127.0.0.1:8080; HAPAX_PORT=8081 make run"
	@echo "             takes another port), and print its page's address and the next command"
	@echo "make test    run every test, against a PostgreSQL that the tests start and stop themselves"
	@echo "              (those of the page where Chromium is installed: .ci/install-packages --with-chromium), then both programs as they are shipped"
	@echo "make test-versions  the tests of the store against PostgreSQL 16, 17 and 18 (make test takes the one that is installed)"
	@echo "make fuzz    compare a million damaged events as the scanner and as PostgreSQL read them (HAPAX_SEED brings a run back)"
	@echo "make docs    build the documentation of HapaxClient and HapaxTestKit (DocC)"
	@echo "make bench   measure server and client (release build), beside what the database itself can take"
	@echo "make install put hapax and hapax-server into \$$PREFIX/bin (/usr/local), as programs that need no Swift"
	@echo "make deb     make the Debian packages hapax-server and hapax in .build-deb;  make test-deb installs, upgrades and purges them in a clean Debian"
	@echo "make format  format all sources;  make lint checks them"

run: packages
	@SWIFT="$(SWIFT)" .ci/run-server

test: test-packages
	$(SWIFT) build --build-tests
	@SWIFT="$(SWIFT)" .ci/run-tests
	@SWIFT="$(SWIFT)" .ci/test-release
	env -u HAPAX_STRICT $(SWIFT) run --package-path Examples/usage --scratch-path .build-examples
	env -u HAPAX_STRICT $(SWIFT) test --package-path Examples/notes-app --scratch-path .build-examples

test-versions: test-packages
	$(SWIFT) build --build-tests
	@SWIFT="$(SWIFT)" .ci/test-versions

fuzz: test-packages
	$(SWIFT) build --build-tests
	HAPAX_FUZZ_EVENTS=$${HAPAX_FUZZ_EVENTS:-1000000} SWIFT="$(SWIFT)" .ci/run-tests --filter JSONBFuzzTests

docs: packages
	env -u HAPAX_STRICT HAPAX_DOCS=1 $(SWIFT) package --scratch-path .build-docs generate-documentation \
		--target HapaxClient --target HapaxTestKit --warnings-as-errors

bench: test-packages
	$(SWIFT) build -c release --product hapax-server
	$(SWIFT) build -c release --product hapax-bench
	"$$($(SWIFT) build -c release --show-bin-path)/hapax-bench" $(BENCH)

build: packages
	$(SWIFT) build

# Where `make install` puts the programs, which need no Swift where they run; DESTDIR comes before it.
PREFIX ?= /usr/local
RELEASE = -c release --static-swift-stdlib --traits Server --scratch-path .build-install

install: packages
	for product in hapax-server hapax; do env -u HAPAX_STRICT $(SWIFT) build $(RELEASE) --product $$product || exit; done
	install -d "$(DESTDIR)$(PREFIX)/bin"
	for product in hapax-server hapax; do \
		install -s "$$($(SWIFT) build $(RELEASE) --show-bin-path)/$$product" "$(DESTDIR)$(PREFIX)/bin" || exit; \
	done

deb: staged
	@Packaging/make-deb .build-deb/staging

test-deb: staged
	@Packaging/test-deb .build-deb/staging

staged:
	@.ci/install-packages --with-packaging
	$(MAKE) install DESTDIR=.build-deb/staging PREFIX=/usr

format:
	find Package.swift Shared Client Server Tests Benchmarks Examples -name .build -prune -o -name '*.swift' -type f -print0 | xargs -0 $(SWIFT) format --in-place

lint:
	$(SWIFT) format lint --strict --recursive Package.swift Shared Client Server Tests Benchmarks Examples

packages:
	@.ci/install-packages

test-packages:
	@.ci/install-packages --with-postgresql
