//! The demo's figures: the floor, direct, and through the tunnel. Each gets a slice in turn, so
//! that a noisy moment of the machine falls on all three.

use distribution::Distribution;
use engine::Nanos;
use indicatif::ProgressBar;
use nvme::host::Namespace;

use super::figures::{All, Slices, Subjects};
use super::floor;
use crate::args::Workload;
use crate::error::Error;
use crate::session::Session;
use crate::workload::{self, Job};

/// How many turns each measurement gets.
const ROUNDS: u64 = 5;

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
