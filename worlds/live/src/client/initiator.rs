//! A subsystem behind NVMe/TCP or NVMe/RDMA: the initiator, and the options of its connections.

use std::rc::Rc;

use assemblies::fabric::{QueuePairs, host as end};
use assemblies::initiator::{self, Initiator, Output};
use engine::{Instant, Pool};
use nvme::host::{Command, Completed};
use nvme_fabrics::host::multipath::{Multipath, PathIndex, Request, SubmitError};
use nvme_fabrics::host::{self};
use nvme_rdma::QUEUE_SIZE_MAX;
use nvme_rdma::host as rdma;
use nvme_tcp::host::{self as tcp, DigestUse};

use super::address::Subsystem;
use super::error::AttachError;
use super::fabrics::{FabricDriver, FabricEvent, Fabrics, association, paths, psks};
use super::options::Options;
use super::subsystem::{Fabric, Provider};
use crate::drivers::fabrics::crc32c;
use crate::drivers::fabrics::initiator::{Carrier, InitiatorDriver, Reach};
use crate::reactor::Reactor;
use crate::reactor::blocking::{Application, Blocking};
use crate::sys;

/// The most bytes of blocks that the pool keeps for reuse.
const POOL_BYTES: usize = 16 << 20;

/// Begins to connect to a subsystem.
pub(super) fn connect(
    subsystem: &Subsystem,
    options: &Options,
) -> Result<Fabrics<InitiatorDriver>, AttachError> {
    let settings = &subsystem.url.settings;
    let pool = Rc::new(Pool::new(POOL_BYTES).into());
    let association = association(subsystem, options)?;
    let (psks, host) = (psks(subsystem, options, &association)?, association.host.clone());
    // TLS authenticates every record, so digests add nothing unless they are insisted on.
    let unless_encrypted = |digest| match digest {
        DigestUse::Preferred if !psks.is_empty() => DigestUse::Off,
        digest => digest,
    };
    let connection_by = |fabric| match fabric {
        Fabric::NvmeTcp => end::Config::Tcp(tcp::Config {
            crc32c,
            header_digest: unless_encrypted(settings.header_digest),
            data_digest: unless_encrypted(settings.data_digest),
            ..tcp::Config::new(Rc::clone(&pool))
        }),
        Fabric::NvmeRdma => match settings.provider {
            Provider::Iwarp => end::Config::Iwarp(end::Iwarp {
                rdma: rdma::Config::new(),
                pairs: QueuePairs::new(Rc::clone(&pool), crc32c, sys::entropy::system()),
            }),
            Provider::Roce | Provider::Verbs => end::Config::Pair(rdma::Config::new()),
        },
    };
    let connection = connection_by(subsystem.url.fabric);
    let config = initiator::Config { multipath: paths(subsystem, options), connection };
    let associations = subsystem.paths.iter().map(|_| association.clone()).collect();
    let mut initiator = Initiator::new(config, associations);
    for (path, way) in (0..).map(PathIndex).zip(&subsystem.url.paths) {
        initiator.set_connection(path, connection_by(way.fabric));
    }
    let clock = options.clock;
    let reactor = Reactor::new(clock, options.spin)?;
    initiator.start(clock.now());
    let mut driver = InitiatorDriver::new(initiator, subsystem.paths.clone(), pool, psks);
    let precedence = settings.precedence.or(options.transport.tcp.precedence);
    driver.set_precedence(precedence);
    let carrier = match settings.provider {
        Provider::Roce => Some(Carrier::Roce),
        Provider::Verbs => Some(Carrier::Verbs),
        Provider::Iwarp => None,
    };
    if let Some(carrier) = carrier.filter(|_| subsystem.url.is_by(Fabric::NvmeRdma)) {
        // As many again as the queue has commands, so that few commands need a completion.
        let depth = 2 * QUEUE_SIZE_MAX;
        driver.reach_by(Reach { carrier, local: settings.local, depth, precedence });
    }
    Ok(Fabrics::new(Blocking::new(reactor, driver), options, host))
}

impl Application for InitiatorDriver {
    type Event = FabricEvent;

    fn poll_event(&mut self) -> Option<FabricEvent> {
        Some(match self.shell.events.pop_front()? {
            Output::Completed(completed) => FabricEvent::Completed(completed),
            Output::AdminCompleted(Completed { cookie, entry, data }) => {
                FabricEvent::AdminCompleted { cookie, entry, data }
            }
            Output::Initialized(id, _) if id.queue.is_admin() => FabricEvent::Connected(id.path),
            Output::PathUp(path) => FabricEvent::PathUp(path),
            Output::PathLost(path, why) => FabricEvent::PathLost(path, why),
            Output::PathEnded(path, Some(failure)) => FabricEvent::PathGivenUp(path, failure),
            Output::ProtocolError(_, why) => FabricEvent::ProtocolError(why.to_string()),
            _ => FabricEvent::Other,
        })
    }
    fn has_events(&self) -> bool {
        !self.shell.events.is_empty()
    }
    /// Commands leave before everything else.
    fn before_wait(&mut self) {
        self.send();
    }
}

impl FabricDriver for InitiatorDriver {
    fn multipath(&self) -> &Multipath {
        self.initiator().multipath()
    }

    fn dial_failure(&self, path: PathIndex) -> Option<String> {
        self.failure(usize::from(path.0)).map(ToString::to_string)
    }

    fn is_key_refused(&self, path: PathIndex) -> bool {
        Self::is_key_refused(self, usize::from(path.0))
    }

    fn missing_digests(&self, path: PathIndex) -> Option<&'static str> {
        self.initiator().missing_digests(path)
    }

    #[inline]
    fn submit(&mut self, now: Instant, request: Request) -> Result<(), SubmitError> {
        self.initiator_mut().submit(now, request)
    }

    fn submit_admin(&mut self, now: Instant, command: Command) -> Result<(), host::SubmitError> {
        self.initiator_mut().submit_admin(now, command)
    }
}
