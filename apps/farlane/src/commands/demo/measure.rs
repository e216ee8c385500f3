//! The demo's figures: the floor, direct, and through the tunnel. Each gets a slice in turn, so
//! that a noisy moment of the machine falls on all three.

use std::net::SocketAddr;

use distribution::Distribution;
use engine::Nanos;
use indicatif::ProgressBar;
use nvme::host::Namespace;
use serde::Serialize;

use super::floor;
use crate::args::Workload;
use crate::error::Error;
use crate::session::Session;
use crate::workload::{self, Job};

/// How many turns each measurement gets.
const ROUNDS: u64 = 5;
/// The subjects of the measurement: two sessions, and this machine's own TCP.
pub(super) struct Subjects<'a> {
    pub(super) tunnel: &'a mut Session,
    pub(super) tunnel_namespace: Namespace,
    pub(super) direct: &'a mut Session,
    pub(super) direct_namespace: Namespace,
    /// Address of the floor server. None where a network is emulated: this machine's own TCP says
    /// nothing of it.
    pub(super) floor: Option<SocketAddr>,
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
    pub(super) floor: Option<Figures>,
    pub(super) direct: Figures,
    pub(super) tunnel: Figures,
}

/// One subject's slices, kind by kind.
#[derive(Default)]
pub(super) struct Slices {
    pub(super) config_read: Vec<Distribution>,
    pub(super) read: Vec<Distribution>,
    pub(super) write: Vec<Distribution>,
    pub(super) iops: Vec<f64>,
    pub(super) mib_s: Vec<f64>,
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

/// Measures everything. Each kind of measurement takes about `runtime` for each subject.
pub(super) fn all(subjects: &mut Subjects<'_>, runtime: Nanos, show: bool) -> Result<All, Error> {
    let slice = runtime / ROUNDS;
    let bar = if show { ProgressBar::new(ROUNDS * 3) } else { ProgressBar::hidden() };
    fill(subjects.tunnel, subjects.tunnel_namespace)?;
    fill(subjects.direct, subjects.direct_namespace)?;
    let (mut floor, mut direct, mut tunnel) = (Slices::default(), Slices::default(), Slices::default());
    for _ in 0..ROUNDS {
        floor::round(subjects, slice, &mut floor)?;
        bar.inc(1);
        let Subjects { direct: session, direct_namespace, tunnel: waiting, .. } = subjects;
        session_round(session, *direct_namespace, slice, &mut direct, || waiting.keep_alive())?;
        bar.inc(1);
        session_round(subjects.tunnel, subjects.tunnel_namespace, slice, &mut tunnel, || Ok(()))?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    let floor = subjects.floor.map(|_| floor.figures());
    Ok(All { floor, direct: direct.figures(), tunnel: tunnel.figures() })
}

/// Writes the whole namespace once: memory that was never written is not there, and costs nothing
/// to read.
fn fill(session: &mut Session, namespace: Namespace) -> Result<(), Error> {
    let size = namespace.blocks * u64::from(namespace.block_bytes);
    let mut written = 0;
    while written < size {
        let job = Job::plain(namespace, Workload::Write, 128 << 10, 8, Nanos::from_millis(50));
        written += workload::run(session, job)?.bytes;
    }
    Ok(())
}

/// Measures one slice of each kind. `between` runs after each, so that other sessions are not taken
/// for lost.
fn session_round(
    session: &mut Session,
    namespace: Namespace,
    slice: Nanos,
    slices: &mut Slices,
    mut between: impl FnMut() -> Result<(), Error>,
) -> Result<(), Error> {
    let mut config_read = Distribution::new();
    let end = session.now() + slice;
    while session.now() < end {
        config_read.record(session.probe()?.1);
    }
    slices.config_read.push(config_read);
    between()?;
    let mut run = |workload, bytes, depth| -> Result<workload::Report, Error> {
        let report = workload::run(session, Job::plain(namespace, workload, bytes, depth, slice))?;
        between()?;
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
