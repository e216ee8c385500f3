# Farlane's jobs, one word each. `make help` lists them.

CARGO ?= cargo
MINUTES ?= 10
FUZZ_SECONDS ?= 300
REMEDIES ?= on

PREFIX ?= /usr/local
export PREFIX DESTDIR

.PHONY: gateware-mutants gateware gateware-formal gateware-lint gateware-strangers gateware-synth gateware-test fleet fleet-kill fleet-fence fleet-restore fleet-etcd-down fleet-time fleet-upgrade help setup demo check csi upgrade install deb static container book record nic hosts guest guest-5g kernel release test lint bench lookahead tail tcp releases soak package fuzz ui-test python python-test

help: ## list the jobs
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

setup: ## install what a build needs and this machine lacks
	@scripts/setup

demo: setup ## a far SSD on this machine: joined over TCP, enumerated, written, read back, verified, measured
	@echo "demo: building for 3 min 30 s at most on two cores of a cloud machine, once; processors here: $$(nproc)"
	$(CARGO) build --profile demo --package farlane
	target/demo/farlane demo

# The fastest profile of which there is a binary. What is built from older sources is built again.
PROFILE ?= $(if $(wildcard target/shipped/farlane),shipped,$(if $(wildcard target/demo/farlane),demo,shipped))

ifdef BIN
install: ## binary, manual pages, completions, systemd units, documents and examples below PREFIX (/usr/local), in DESTDIR; BIN=FILE installs that binary, PROFILE=shipped the fastest
	@echo "install: $(BIN)"
	scripts/install $(BIN)
else
install: setup
	@echo "install: target/$(PROFILE)/farlane; BIN=FILE installs another binary, PROFILE=shipped builds the fastest, which takes three times as long as the demo"
	$(CARGO) build --profile $(PROFILE) --package farlane
	scripts/install target/$(PROFILE)/farlane
endif

deb: setup ## a Debian package in target/deb
	@scripts/setup --deb
	$(CARGO) build --profile shipped --package farlane
	scripts/deb target/shipped/farlane

static: setup ## target/static/farlane, a binary that needs no library of the machine
	scripts/static

container: static ## an image of that binary alone, by podman, buildah or docker
	scripts/container

book: setup ## the documents as a book with search, in target/book
	@scripts/setup --book
	scripts/book

record: setup ## a recording from the network: killed in the middle, recovered, proved, replayed at its pace, exported
	$(CARGO) build --profile demo --package farlane
	scripts/record

nic: setup ## two processes exchange packets of 60 bytes through low-latency cards, beside the machine's floor and the kernel's UDP
	$(CARGO) build --profile demo --package farlane
	scripts/nic

fleet: setup ## a fleet on this machine: a volume is made, attached, written, verified, detached, deleted
	@scripts/setup --fleet
	$(CARGO) build --profile demo --package farlane --package farlane-fleetd
	scripts/fleet target/demo/farlane target/demo/farlane-fleet

# The tests of fleets of processes, with more rounds than the usual ones.
ROUNDS ?= 200
fleet-kill fleet-fence fleet-restore fleet-etcd-down fleet-time: setup
	@scripts/setup --tests
	$(CARGO) build --profile demo --package farlane
	FARLANE_ROUNDS=$(ROUNDS) FARLANE_UNDER_TEST=$(CURDIR)/target/demo/farlane $(CARGO) test --package farlane-fleetd --test live -- --nocapture $(FLEET_TEST)

fleet-kill: FLEET_TEST = any_part_may_be_killed ## each part of a fleet killed ROUNDS (200) times beside a load that verifies
fleet-fence: FLEET_TEST = a_stopped_host_never_writes_again ## a volume moved away from a stopped host ROUNDS times
fleet-restore: FLEET_TEST = an_old_backup_is_refused_until_it_is_recovered ## an old backup of the store
fleet-etcd-down: FLEET_TEST = etcd_may_be_away ## ten minutes without etcd beside a load that verifies
fleet-time: FLEET_TEST = attaching_is_quick ## how long it takes to attach a volume, and 100 at once

# The commit whose programs are upgraded.
BEFORE ?= HEAD~1
fleet-upgrade: setup ## a fleet of the programs of the commit BEFORE (HEAD~1) is upgraded, process by process, beside a load that verifies
	@scripts/setup --tests
	$(CARGO) build --profile demo --package farlane
	FARLANE_BEFORE=$$(scripts/before $(BEFORE)) FARLANE_UNDER_TEST=$(CURDIR)/target/demo/farlane $(CARGO) test --package farlane-fleetd --test live -- --nocapture upgrade

hosts: setup ## eight hosts share a far SSD for SECONDS (60), verify what they read, and are killed at random
	@scripts/setup --tests
	FARLANE_HOSTS_SECONDS=$(or $(SECONDS),60) $(CARGO) test --package farlane --test cli -- --nocapture eight_hosts

upgrade: setup ## a far end is upgraded in place COUNT (50) times under a load that verifies
	@scripts/setup --tests
	FARLANE_UPGRADES=$(or $(COUNT),50) $(CARGO) test --package farlane --test cli -- --nocapture upgrade::

guest: setup ## a stock Linux in QEMU with its disk at the far end of a tunnel, console and all
	scripts/guest

guest-5g: setup ## the same with an emulated 5G network (Release 15) in between; REMEDIES=off: how it fails without what Farlane does about it
	scripts/guest --link scenarios/5g.toml $(if $(filter off,$(REMEDIES)),--no-remedies)

kernel: setup ## build a kernel that has iommufd and siw, which none of Debian's has (minutes, once a machine), and test with it
	@scripts/setup --kernel
	$(CARGO) run --release --package farlane-guest --bin guest -- --kernel built --fetch
	$(CARGO) test --package farlane --test guest -- vfio:: rdma::
	$(CARGO) test --package farlane-guest --test siw

release: setup ## the fastest binary, target/guided/farlane: built twice, guided by a profile of its own work
	scripts/release

check: setup ## the proof of a small change: formatting, lints, unit tests, tests of the command line, 50 seeds of each scenario
	@scripts/setup --check
	@scripts/prove check

test: setup ## every test, guests among them, and a campaign of 300 seeds of each scenario
	@scripts/setup --tests
	@scripts/prove test

lint: setup ## formatting, lints and links between document comments; warnings are errors
	@scripts/setup --fleet
	@scripts/prove lint

gateware-lint: ## the circuits of gateware/rtl: Verilator -Wall, slang, verible
	@scripts/gateware lint

gateware-test: ## lint, golden vectors and 50 seeds of the circuits (needs Verilator, which scripts/setup --tests installs)
	@scripts/gateware test

gateware-formal: ## properties of the circuits' parts proved, and each mutant of them found (7 min)
	@scripts/gateware formal

gateware-synth: ## LUTs, registers and block RAM of each circuit; fails beyond 5 % of gateware/synth/utilisation.toml (5 min)
	@scripts/gateware synth

gateware-strangers: ## a root complex of cocotbext-pcie enumerates and drives the card as a circuit (1 min)
	@scripts/gateware strangers

gateware: gateware-test gateware-formal gateware-synth gateware-strangers ## all checks of the circuits

gateware-mutants: ## faults planted into the tunnel's port and the Streamer are found by a campaign or a test (minutes)
	@scripts/gateware mutants

bench: release ## figures as ratios to floors of the same run
	$(CARGO) bench --package farlane-network-models --bench hops
	$(CARGO) bench --package farlane-sim --bench hops
	$(CARGO) bench --package farlane-sim --bench ssd
	$(CARGO) bench --package farlane-scenarios --bench speed
	$(CARGO) bench --package farlane-assemblies --bench engines
	$(CARGO) bench --package farlane-live --bench emulate
	$(CARGO) bench --package farlane-live --bench lanes
	$(CARGO) bench --package farlane-live --bench shm
	$(CARGO) bench --package farlane-nvme-pcie --bench read4k
	$(CARGO) bench --package farlane-iwarp --bench engines
	FARLANE=$(CURDIR)/target/guided/farlane $(CARGO) bench --package farlane --bench speed
	FARLANE=$(CURDIR)/target/guided/farlane $(CARGO) bench --package farlane --bench trust
	FARLANE=$(CURDIR)/target/guided/farlane $(CARGO) bench --package farlane --bench gate
	FARLANE=$(CURDIR)/target/guided/farlane $(CARGO) bench --package farlane --bench carriers
	FARLANE=$(CURDIR)/target/guided/farlane $(CARGO) bench --package farlane --bench local
	FARLANE=$(CURDIR)/target/guided/farlane $(CARGO) bench --package farlane --bench nic
	FARLANE=$(CURDIR)/target/guided/farlane $(CARGO) bench --package farlane --bench nvme_tcp
	FARLANE=$(CURDIR)/target/guided/farlane $(CARGO) bench --package farlane --bench host_threads
	FARLANE=$(CURDIR)/target/guided/farlane $(CARGO) bench --package farlane --bench strangers
	FARLANE=$(CURDIR)/target/guided/farlane $(CARGO) bench --package farlane --bench rdma
	FARLANE=$(CURDIR)/target/guided/farlane $(CARGO) bench --package farlane --bench record
	FARLANE=$(CURDIR)/target/guided/farlane $(CARGO) bench --package farlane --bench trace
	FARLANE=$(CURDIR)/target/guided/farlane $(CARGO) bench --package farlane --bench watched

ui-test: ## the page of farlane observe ui in Chromium, each view in light and dark, at the widths of a desk and a phone; pictures in target/ui-test
	@scripts/setup --ui
	$(CARGO) test --package farlane --test cli -- ui:: ui_browser::

python: setup ## the Python package: a wheel in target/wheels, installed in target/python
	@scripts/setup --python
	python3 -m venv target/python
	target/python/bin/pip install --quiet maturin pyarrow
	target/python/bin/maturin build --quiet --manifest-path apps/python/Cargo.toml --out target/wheels
	target/python/bin/pip install --quiet --force-reinstall --no-deps --no-index --find-links target/wheels farlane
	@target/python/bin/python -c 'import farlane; print("python: the package farlane is in", farlane.__path__[0])'

python-test: python ## the tests of the Python package, beside the figures of the program, which is built for them
	$(CARGO) build --package farlane
	target/python/bin/pip install --quiet pytest pandas polars distributed nbclient ipykernel mypy
	target/python/bin/pytest -q -p no:cacheprovider apps/python/tests

tail: setup ## the far percentiles over bad links, remedy by remedy, between network namespaces (root; an hour and three quarters)
	$(CARGO) build --profile shipped --package farlane
	FARLANE=$(CURDIR)/target/shipped/farlane $(CARGO) bench --package farlane --bench tail

lookahead: setup ## the tables of docs/lookahead.md, simulated, emulated and over loopback (20 minutes)
	$(CARGO) build --profile shipped --package farlane
	FARLANE=$(CURDIR)/target/shipped/farlane $(CARGO) bench --package farlane --bench lookahead

tcp: demo ## the modelled TCP beside this kernel's own, over the same emulated links (root; 20 minutes)
	scripts/tcp

releases: setup ## apps/scenarios/releases.md: NVMe over 5G, release by release, simulated
	$(CARGO) run --profile demo --package farlane-scenarios --example releases > target/releases.md
	mv target/releases.md apps/scenarios/releases.md

csi: setup ## the driver for Kubernetes: csi-sanity, also in guests with the kernel's initiator and with kills, each call against a fleet in memory, the Helm chart
	@scripts/csi

soak: setup ## what takes long: new seeds for MINUTES (10), kills, debug beside demo, the browser, packages, a race detector, fuzzing
	@scripts/setup --tests
	@MINUTES=$(MINUTES) SEEDS=$(SEEDS) scripts/prove soak

package: setup ## the crates of pure/ as they would be published, each built from its package alone
	$(CARGO) package --allow-dirty $(patsubst pure/%,--package farlane-%,$(wildcard pure/*))

fuzz: setup ## each fuzz target for FUZZ_SECONDS seconds (needs a nightly toolchain)
	scripts/fuzz $(FUZZ_SECONDS)
