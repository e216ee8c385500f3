//! The status of a block device.

use std::net::SocketAddr;

use ::status::{Activity, Connect, Counts, FarEndState, Report, Requests, Status, Way};
use live::drivers::ublk::{Kind, KindTally, UblkDriver};

use super::About;
use crate::counters;

/// The status of the block device `device`, whose requests come over `way`.
fn common(about: &About, device: Option<&str>, activity: Vec<Activity>, way: Way) -> Connect {
    Connect {
        url: about.url.clone(),
        device: device.map(|name| format!("/dev/{name}")),
        bytes: about.bytes,
        block: about.block,
        read_only: about.read_only,
        activity,
        way,
    }
}

/// The status of a block device whose requests this process answers.
pub(super) fn of_requests<F>(about: &About, driver: &UblkDriver<F>) -> Report
where
    F: FnMut(live::drivers::ublk::Event),
{
    let tally = driver.tally();
    let [reads, writes, flushes, discards] = Kind::ALL.map(|kind| tally.of(kind));
    let mut took = vec![0; reads.latencies.counts().len()];
    for kind in Kind::ALL {
        let counts = tally.of(kind).latencies.counts();
        took.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    let activity = Activity {
        nsid: driver.medium().namespace().0,
        reads: reads.operations,
        read_bytes: reads.bytes,
        writes: writes.operations,
        written_bytes: writes.bytes,
        others: flushes.operations + discards.operations,
        errors: Kind::ALL.iter().map(|kind| tally.of(*kind).errors).sum(),
        took,
        kinds: None,
        space_errors: 0,
        statuses: Vec::new(),
    };
    let requests = |kind: Kind| {
        let KindTally { operations, bytes, errors, latencies } = tally.of(kind);
        Requests {
            request: kind.name().to_owned(),
            counts: Counts { operations: *operations, bytes: *bytes, errors: *errors },
            latencies: counters::latencies(latencies),
        }
    };
    let far_end = if driver.medium().is_here() { FarEndState::Here } else { FarEndState::Away };
    let (under_way, requests) = (driver.under_way() as u64, Kind::ALL.map(requests).to_vec());
    let way = Way::Ublk { far_end, under_way, requests };
    Report::of(Status::Connect(common(about, Some(&driver.name()), vec![activity], way)))
}

/// The status of a block device of the kernel's initiator, whose target listens at `address`, but
/// for the counts of commands.
pub(super) fn of_target(about: &About, device: Option<&str>, address: SocketAddr) -> Connect {
    let way = Way::NvmeTcp { target: address.to_string() };
    common(about, device, Vec::new(), way)
}
