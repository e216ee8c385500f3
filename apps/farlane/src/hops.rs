//! Where the time of a 4 KiB read goes on its way through the tunnel, by the time stamps of
//! its frames.

use std::cell::RefCell;
use std::rc::Rc;

use assemblies::near::{Chain, Hop, Near, Trace, read_chains};
use distribution::Distribution;
use engine::Nanos;
use nvme::host::Namespace;
use tunnel::session::ClockAlignment;
use tunnel::upstream::PortIndex;

use crate::args::Workload;
use crate::error::Error;
use crate::picture;
use crate::session::Session;
use crate::workload::{self, Job};

/// Number of reads to follow.
const TRACED: usize = 2_000;

/// The hops of many reads.
#[derive(Clone, Debug)]
pub(crate) struct Hops {
    /// The times of each hop; empty if no read could be followed.
    pub(crate) times: Vec<(Hop, Distribution)>,
    /// Largest error of the alignment of both ends' clocks; none if unknown.
    pub(crate) clock_error: Option<Nanos>,
}

impl Hops {
    /// The median time of each hop, for people.
    pub(crate) fn pictured(&self) -> Vec<picture::Hop> {
        let describe = |(hop, times): &(Hop, Distribution)| {
            let (place, name) = match hop {
                Hop::Issue => ("near", "command queued, doorbell sent"),
                Hop::DoorbellDown => ("tunnel", "doorbell goes down"),
                Hop::Dispatch => ("far", "controller asks for the command"),
                Hop::FetchUp => ("tunnel", "its read goes up"),
                Hop::HostMemory => ("near", "host memory answers"),
                Hop::EntryDown => ("tunnel", "the command goes down"),
                Hop::Controller => ("far", "controller and medium"),
                Hop::DataUp => ("tunnel", "data and completion go up"),
                Hop::Completion => ("near", "completion is seen"),
            };
            picture::Hop { place: place.into(), name: name.into(), length: times.median() }
        };
        self.times.iter().map(describe).collect()
    }
}

/// The session's knowledge of the far end's clock; none without a tunnel.
pub(crate) fn clock(session: &Session) -> Option<ClockAlignment> {
    session.near().and_then(Near::upstream).and_then(|upstream| upstream.session(PortIndex(0))?.clock())
}

/// Whether both ends of the session follow one clock.
pub(crate) fn follows_one_clock(session: &Session) -> bool {
    let upstream = session.near().and_then(Near::upstream);
    upstream
        .and_then(|upstream| upstream.session(PortIndex(0)))
        .is_some_and(tunnel::session::Session::follows_one_clock)
}

/// Follows 4 KiB reads of a session with time stamps.
pub(crate) fn follow(session: &mut Session, namespace: Namespace) -> Result<Hops, Error> {
    let trace = Rc::new(RefCell::new(Trace::default()));
    session.near_mut().watch().add(trace.clone());
    let mut chains: Vec<Chain> = Vec::new();
    let mut aligned = None;
    let give_up = session.now() + Nanos::from_secs(5);
    while chains.len() < TRACED && session.now() < give_up {
        let job = Job::plain(namespace, Workload::RandRead, 4096, 1, Nanos::from_millis(50));
        if workload::run(session, job)?.interrupted {
            return Err(Error::Interrupted);
        }
        aligned = clock(session);
        let observations = trace.borrow_mut().take();
        if let Some(clock) = aligned {
            chains.extend(read_chains(&observations, clock));
        }
    }
    session.near_mut().watch().clear();
    let of = |index: usize| chains.iter().map(|chain| chain[index]).collect::<Distribution>();
    let times = Hop::ALL.into_iter().enumerate().map(|(index, hop)| (hop, of(index))).collect();
    let times = if chains.is_empty() { Vec::new() } else { times };
    Ok(Hops { times, clock_error: aligned.map(|clock| clock.error) })
}
