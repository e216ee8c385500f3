//! The demo's figures: floor, direct and through the tunnel, a slice of each in turn, so that a noisy moment
//! of the machine falls on all three.

use std::net::SocketAddr;

use engine::Nanos;
use indicatif::ProgressBar;
use live::floor::Client;
use machine::near::{Chain, Hop, read_chains};
use nvme_pcie::host::Namespace;
use serde::Serialize;
use tunnel::upstream::PortIndex;

use super::slice_of;
use crate::args::Workload;
use crate::distribution::Distribution;
use crate::error::Error;
use crate::session::Session;
use crate::workload::{self, Job, rate};

/// How often each measurement gets its turn.
const ROUNDS: u64 = 5;
/// Reads whose hops are drawn.
const TRACED: u64 = 2_000;
/// Bytes on the wire: a frame's header, and what a TLP has around its payload.
mod wire {
    const FRAME: u32 = 12;
    /// CfgRd, MRd or MWr with a 32-bit address and 4 bytes.
    pub(super) const REQUEST: u32 = FRAME + 12;
    pub(super) const DOORBELL: u32 = FRAME + 16;
    /// CplD with a double word.
    pub(super) const REGISTER: u32 = FRAME + 16;
    /// CplD with a submission queue entry.
    pub(super) const ENTRY: u32 = FRAME + 12 + 64;
    /// A page, in a CplD or MWr.
    pub(super) const PAGE: u32 = FRAME + 12 + 4096;
    /// MWr with a completion queue entry.
    pub(super) const COMPLETION: u32 = FRAME + 12 + 16;
}

/// What is measured.
pub(super) struct Subjects<'a> {
    pub(super) tunnel: &'a mut Session,
    pub(super) tunnel_namespace: Namespace,
    pub(super) direct: &'a mut Session,
    pub(super) direct_namespace: Namespace,
    pub(super) floor: SocketAddr,
}

/// One subject's figures.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Figures {
    pub(super) config_read_ns: Distribution,
    pub(super) read_4k_ns: Distribution,
    pub(super) write_4k_ns: Distribution,
    pub(super) iops_qd32: f64,
    pub(super) mib_s_128k: f64,
}

/// All subjects' figures.
#[derive(Clone, Debug)]
pub(super) struct All {
    pub(super) floor: Figures,
    pub(super) direct: Figures,
    pub(super) tunnel: Figures,
}

/// Where the time of a 4 KiB read goes.
#[derive(Clone, Debug)]
pub(super) struct Hops {
    /// The median of each hop; none if no read could be followed.
    pub(super) medians: Vec<(Hop, Nanos)>,
    /// How well the clocks of both ends are aligned.
    pub(super) clock_error: Option<Nanos>,
}

/// One subject's slices.
#[derive(Default)]
struct Slices {
    config_read: Vec<Distribution>,
    read: Vec<Distribution>,
    write: Vec<Distribution>,
    iops: Vec<f64>,
    mib_s: Vec<f64>,
}

impl Slices {
    fn figures(self) -> Figures {
        let merge = |slices: Vec<Distribution>| {
            slices.into_iter().fold(Distribution::new(), |mut all, slice| {
                all.merge(&slice);
                all
            })
        };
        Figures {
            config_read_ns: merge(self.config_read),
            read_4k_ns: merge(self.read),
            write_4k_ns: merge(self.write),
            iops_qd32: median(self.iops),
            mib_s_128k: median(self.mib_s),
        }
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Measures everything; each kind of measurement takes about `runtime` a subject.
pub(super) fn all(subjects: &mut Subjects<'_>, runtime: Nanos, show: bool) -> Result<All, Error> {
    let slice = slice_of(runtime, ROUNDS);
    let bar = if show { ProgressBar::new(ROUNDS * 3) } else { ProgressBar::hidden() };
    fill(subjects.tunnel, subjects.tunnel_namespace)?;
    fill(subjects.direct, subjects.direct_namespace)?;
    let (mut floor, mut direct, mut tunnel) = (Slices::default(), Slices::default(), Slices::default());
    for _ in 0..ROUNDS {
        floor_round(subjects.floor, slice, &mut floor)?;
        bar.inc(1);
        session_round(subjects.direct, subjects.direct_namespace, slice, &mut direct)?;
        // A session that says nothing for seconds is taken for lost.
        subjects.tunnel.idle_until(subjects.tunnel.now() + Nanos::from_millis(1))?;
        bar.inc(1);
        session_round(subjects.tunnel, subjects.tunnel_namespace, slice, &mut tunnel)?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(All { floor: floor.figures(), direct: direct.figures(), tunnel: tunnel.figures() })
}

fn job(namespace: Namespace, workload: Workload, bytes: u32, depth: u32, runtime: Nanos) -> Job {
    let range = namespace.blocks * u64::from(namespace.block_bytes);
    Job { namespace, workload, bytes, depth, runtime, range, verify: false, seed: 1 }
}

/// Writes the whole namespace once: memory that was never written is not there, and costs nothing to read.
fn fill(session: &mut Session, namespace: Namespace) -> Result<(), Error> {
    let size = namespace.blocks * u64::from(namespace.block_bytes);
    let mut written = 0;
    while written < size {
        let job = job(namespace, Workload::Write, 128 << 10, 8, Nanos::from_millis(50));
        written += workload::run(session, job, |_| ())?.bytes;
    }
    Ok(())
}

fn session_round(
    session: &mut Session,
    namespace: Namespace,
    slice: Nanos,
    slices: &mut Slices,
) -> Result<(), Error> {
    let mut config_read = Distribution::new();
    let end = session.now() + slice;
    while session.now() < end {
        config_read.record(session.config_read(0)?.1);
    }
    slices.config_read.push(config_read);
    let mut run = |workload, bytes, depth| -> Result<workload::Report, Error> {
        let report = workload::run(session, job(namespace, workload, bytes, depth, slice), |_| ())?;
        match report.first_error {
            None => Ok(report),
            Some(first) => Err(Error::Corrupt(first)),
        }
    };
    slices.read.push(run(Workload::RandRead, 4096, 1)?.latency);
    slices.write.push(run(Workload::RandWrite, 4096, 1)?.latency);
    slices.iops.push(run(Workload::RandRead, 4096, 32)?.iops());
    slices.mib_s.push(run(Workload::Read, 128 << 10, 8)?.mib_s());
    Ok(())
}

/// Raw TCP with the sizes and round trips of the same operations, both sides spinning.
fn floor_round(address: SocketAddr, slice: Nanos, slices: &mut Slices) -> Result<(), Error> {
    let floor_error = |error| Error::Child { what: "the floor's server", error };
    let mut client = Client::connect(address).map_err(floor_error)?;
    let mut exchange = |request, reply| -> Result<Vec<Nanos>, Error> {
        // How many fit a slice is learned from a few.
        let probe = client.ping_pong(request, reply, 200).map_err(floor_error)?;
        let each = probe.iter().copied().min().unwrap_or(Nanos::from_micros(10));
        let count = u32::try_from(slice.get() / each.get().max(1)).unwrap_or(u32::MAX).clamp(200, 1_000_000);
        client.ping_pong(request, reply, count).map_err(floor_error)
    };
    slices.config_read.push(exchange(wire::REQUEST, wire::REGISTER)?.into_iter().collect());
    let read =
        [exchange(wire::DOORBELL, wire::REQUEST)?, exchange(wire::ENTRY, wire::PAGE + wire::COMPLETION)?];
    slices.read.push(sums(&read));
    let write = [
        exchange(wire::DOORBELL, wire::REQUEST)?,
        exchange(wire::ENTRY, wire::REQUEST)?,
        exchange(wire::PAGE, wire::COMPLETION)?,
    ];
    slices.write.push(sums(&write));
    // 4 KiB at a time, and 128 KiB at a time, as fast as the connection takes them.
    let mut stream = |bytes: u32, counted: bool| -> Result<f64, Error> {
        let probe = client.stream(bytes, 2_000).map_err(floor_error)?;
        let count = u32::try_from(2_000 * slice.get() / probe.get().max(1)).unwrap_or(u32::MAX);
        let count = count.clamp(2_000, 1_000_000);
        let elapsed = client.stream(bytes, count).map_err(floor_error)?;
        let count = u64::from(count);
        Ok(if counted {
            rate(count, elapsed)
        } else {
            rate(count * u64::from(bytes), elapsed) / f64::from(1 << 20)
        })
    };
    slices.iops.push(stream(4096, true)?);
    slices.mib_s.push(stream(128 << 10, false)?);
    Ok(())
}

/// The sum of the round trips of an operation: each quantile of the sum is the sum of the round trips in the order
/// in which they were measured.
fn sums(trips: &[Vec<Nanos>]) -> Distribution {
    let count = trips.iter().map(Vec::len).min().unwrap_or(0);
    (0..count).map(|index| trips.iter().fold(Nanos::ZERO, |sum, trip| sum + trip[index])).collect()
}

/// Follows 4 KiB reads of a session with time stamps, hop by hop.
pub(super) fn hops(session: &mut Session, namespace: Namespace) -> Result<Hops, Error> {
    session.attachment().near_mut().set_trace(true);
    let mut chains: Vec<Chain> = Vec::new();
    let mut clock = None;
    let give_up = session.now() + Nanos::from_secs(5);
    while (chains.len() as u64) < TRACED && session.now() < give_up {
        workload::run(session, job(namespace, Workload::RandRead, 4096, 1, Nanos::from_millis(50)), |_| ())?;
        clock = session.near().upstream().and_then(|upstream| upstream.session(PortIndex(0))?.clock());
        let observations = session.attachment().near_mut().take_observations();
        if let Some(clock) = clock {
            chains.extend(read_chains(&observations, clock));
        }
    }
    session.attachment().near_mut().set_trace(false);
    let hop = |index: usize| chains.iter().map(|chain| chain[index]).collect::<Distribution>().median();
    let hops = Hop::ALL.into_iter().enumerate().map(|(index, name)| (name, hop(index))).collect();
    let medians = if chains.is_empty() { Vec::new() } else { hops };
    Ok(Hops { medians, clock_error: clock.map(|clock| clock.error) })
}
