//! Settings of hosts and targets, drawn from a seed.

use std::ops::RangeInclusive;

use assemblies::fabric::{Fabric, QueuePairs, controller, host as end};
use assemblies::initiator;
use engine::{Entropy, Nanos, Rng};
use nvme_fabrics::authentication::{Credentials, Group, Secret};
use nvme_fabrics::host as association;
use nvme_fabrics::host::multipath::{self, Policy};
use nvme_fabrics::wire::{HostId, Nqn};
use nvme_tcp::host::DigestUse;

use super::HOLD;
use crate::digest::crc32c;

fn name(text: &str) -> Nqn {
    text.parse().expect("a valid name")
}

/// The numbers of all hosts that there may be: the hosts, and a proxy.
pub(super) const HOST_NUMBERS: RangeInclusive<u8> = 1..=PROXY_NUMBER;
/// The number of a proxy as a host.
pub(super) const PROXY_NUMBER: u8 = 100;

/// The name of a host.
pub(super) fn host_name(number: u8) -> Nqn {
    name(&format!("nqn.2014-08.org.nvmexpress:uuid:{number}"))
}

/// The secrets by which all hosts and targets of a run authenticate each other.
pub(super) fn credentials(rng: &mut Rng) -> Credentials {
    let both = rng.one_in(2);
    let mut entropy = Entropy::from(rng.fork("secrets"));
    let host = Secret::generate(None, &mut entropy);
    let controller = both.then(|| Secret::generate(None, &mut entropy));
    // The groups' exponentiations would take most of the run's time.
    Credentials { groups: vec![Group::Null], controller, ..Credentials::new(host) }
}

/// The name of the subsystem that hosts use.
pub(super) fn subsystem_name() -> Nqn {
    name("nqn.2026-01.io.farlane:disk")
}

/// Random settings of connections of a host: digests or none, keys that the other end may
/// invalidate or that it may not.
fn connections(rng: &mut Rng, fabric: Fabric) -> end::Config {
    match fabric {
        Fabric::Tcp => {
            let pool = nvme_tcp::SharedPool::default();
            end::Config::Tcp(nvme_tcp::host::Config {
                header_digest: DigestUse::preferred_if(rng.one_in(2)),
                data_digest: DigestUse::preferred_if(rng.one_in(2)),
                initialise_timeout: HOLD,
                crc32c,
                ..nvme_tcp::host::Config::new(pool)
            })
        }
        Fabric::Iwarp => {
            let rdma = rdma_of_host(rng);
            let keys = rng.fork("keys").into();
            let pairs = QueuePairs::new(nvme_rdma::SharedPool::default(), crc32c, keys);
            end::Config::Iwarp(end::Iwarp { rdma, pairs })
        }
        Fabric::Roce => end::Config::Pair(rdma_of_host(rng)),
        Fabric::Verbs => panic!("no campaign has devices of a system"),
    }
}

/// Random settings of a host's connections of NVMe/RDMA.
fn rdma_of_host(rng: &mut Rng) -> nvme_rdma::host::Config {
    nvme_rdma::host::Config {
        remote_invalidate: rng.one_in(2),
        initialise_timeout: HOLD,
        ..nvme_rdma::host::Config::new()
    }
}

/// Random settings of a host: short and long time-outs, few and many queues.
pub(super) fn of_host(rng: &mut Rng, number: u8, fabric: Fabric) -> (initiator::Config, association::Config) {
    let connection = connections(rng, fabric);
    let multipath = multipath::Config {
        policy: if rng.one_in(2) { Policy::RoundRobin } else { Policy::LowestLatency },
        io_timeout: Nanos::from_millis(300 + rng.below(3_000)),
        ..multipath::Config::default()
    };
    let own = host_name(number);
    let association = association::Config {
        io_queues: u16::try_from(1 + rng.below(4)).expect("a few"),
        queue_size: u16::try_from(4 + rng.below(29)).expect("a few"),
        keep_alive: Nanos::from_millis(200 + rng.below(800)),
        connect_timeout: HOLD * 2,
        admin_timeout: HOLD * 2,
        reconnect: (HOLD / 64, HOLD / 4),
        controller_loss_timeout: None,
        // Commands either wait for a path, or fail after a while.
        fast_io_fail_timeout: rng.one_in(3).then_some(HOLD / 2),
        ..association::Config::new(subsystem_name(), own, HostId([number; 16]))
    };
    (initiator::Config { multipath, connection }, association)
}

/// Random settings of a target.
pub(super) fn of_target(rng: &mut Rng, fabric: Fabric) -> controller::Config {
    let ready_to_transfer_bytes_max = 4096 << rng.below(5);
    let tcp = nvme_tcp::controller::Config {
        ready_to_transfer_bytes_max,
        host_data_max: 4096 << rng.below(4),
        alignment: if rng.one_in(2) { 4 } else { 128 },
        crc32c,
        ..nvme_tcp::controller::Config::new(nvme_tcp::SharedPool::default())
    };
    let usual = controller::Config::from(tcp);
    match fabric {
        Fabric::Tcp => usual,
        Fabric::Iwarp | Fabric::Roce | Fabric::Verbs => {
            controller::Config { rdma: rdma(rng, usual.rdma), ..usual }
        }
    }
}

/// Random settings of a target's connections of NVMe/RDMA: few and many reads at a time, short and
/// long transfers.
fn rdma(rng: &mut Rng, usual: nvme_rdma::controller::Config) -> nvme_rdma::controller::Config {
    nvme_rdma::controller::Config {
        reads_max: u16::try_from(1 + rng.below(16)).expect("a few"),
        pull_bytes_max: 4096 << rng.below(6),
        backlog_bytes_max: 4096 << rng.below(8),
        remote_invalidate: rng.one_in(2),
        ..usual
    }
}
