//! The status of a block device.

use std::net::SocketAddr;

use ::status::{Activity, BlockQueue, Connect, Counts, FarEndState, Report, Requests, Status, Way};
use daemon::Reply;
use live::drivers::ublk::{Figures, Kind, KindTally, Tally, UblkDriver};

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
pub(super) fn of_requests(about: &About, driver: &UblkDriver) -> Reply<Report> {
    let about = About { bytes: driver.bytes(), ..about.clone() };
    let (device, nsid) = (driver.name(), driver.medium().namespace().0);
    let (first, others) = driver.figures();
    let whole = move |all: &[Figures]| Report::of(Status::Connect(of_threads(&about, &device, nsid, all)));
    if driver.threads() == 1 {
        return Reply::Now(whole(&[first]));
    }
    Reply::Later(Box::new(move || {
        let mut all = vec![first];
        all.extend(others()?);
        Some(whole(&all))
    }))
}

/// The status of a block device whose queues these threads serve.
fn of_threads(about: &About, device: &str, nsid: u32, all: &[Figures]) -> Connect {
    let mut tally = Tally::default();
    all.iter().for_each(|one| tally.add(&one.tally));
    let [reads, writes, flushes, discards] = Kind::ALL.map(|kind| tally.of(kind));
    let mut took = vec![0; reads.latencies.counts().len()];
    for kind in Kind::ALL {
        let counts = tally.of(kind).latencies.counts();
        took.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    let activity = Activity {
        nsid,
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
    let refusal = all.iter().find_map(|one| one.refusal.clone());
    let far_end = match refusal {
        Some(_) => FarEndState::Refused,
        None if all.iter().all(|one| one.is_here) => FarEndState::Here,
        None => FarEndState::Away,
    };
    let under_way = all.iter().map(|one| one.under_way as u64).sum();
    let queues = if all.len() > 1 { (0..).zip(all).map(queue).collect() } else { Vec::new() };
    let requests = Kind::ALL.map(requests).to_vec();
    let way = Way::Ublk { far_end, refusal, under_way, requests, queues };
    common(about, Some(device), vec![activity], way)
}

/// The status of a queue, whose thread has these figures.
fn queue((queue, figures): (u16, &Figures)) -> BlockQueue {
    let sum = |of: fn(&KindTally) -> u64| Kind::ALL.iter().map(|kind| of(figures.tally.of(*kind))).sum();
    BlockQueue {
        queue,
        far_end: state(figures),
        under_way: figures.under_way as u64,
        counts: Counts {
            operations: sum(|kind| kind.operations),
            bytes: sum(|kind| kind.bytes),
            errors: sum(|kind| kind.errors),
        },
    }
}

const fn state(figures: &Figures) -> FarEndState {
    match (figures.is_here, &figures.refusal) {
        (true, _) => FarEndState::Here,
        (false, Some(_)) => FarEndState::Refused,
        (false, None) => FarEndState::Away,
    }
}

/// The status of a block device of the kernel's initiator, whose target listens at `address`, but
/// for the counts of commands.
pub(super) fn of_target(
    about: &About,
    device: Option<&str>,
    address: SocketAddr,
    refusal: Option<&str>,
) -> Connect {
    let way = Way::NvmeTcp { target: address.to_string(), refusal: refusal.map(str::to_owned) };
    common(about, device, Vec::new(), way)
}
