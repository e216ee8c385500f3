//! The block device by the kernel's own NVMe/TCP initiator, and a target on loopback in
//! this process.

use std::cell::Cell;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc::{Receiver, TryRecvError, channel};

use ::status::{Report, Status};
use assemblies::fabric::Fabric;
use daemon::{Opening, Reply};
use engine::{Instant, Nanos};
use live::carrier::tcp::Listener;
use live::drivers::fabrics::target::{Event, TargetDriver};
use live::media::remote::Place;
use live::media::{Media, RemoteMedium};
use live::reactor::{Context, Driver, JobSender, Sources, Turn};
use live::sys::clock::Clock;
use live::sys::{block_use, entropy};
use nvme::subsystem::{BlockSize, Config, NamespaceConfig, NamespaceIdentity, Subsystem as Core};
use nvme::wire::NamespaceId;
use nvme_fabrics::authentication::{Credentials, Secret};
use nvme_fabrics::target::{
    ControllerModel, Directory, DiscoveryAccess, HostTerms, Hosts, Port, Subsystem, SubsystemKey,
};
use nvme_fabrics::wire::{Nqn, PortId};

use super::block::BlockDriver;
use super::kernel::{self, Terms};
use super::{About, identity, status};
use crate::args::{ConnectArgs, Over};
use crate::capture::{Taps, What};
use crate::commands::capture::Capturable;
use crate::counters::{self, next_tallies};
use crate::error::{BlockError, Error};

/// The one subsystem, and the one port.
const KEY: SubsystemKey = SubsystemKey(0);
const PORT: PortId = PortId(1);
/// Most commands of the kernel under way at once.
const COMMANDS_MAX: u32 = 16 << 10;
/// How often a thread's result is looked for.
const LOOK_EVERY: Nanos = Nanos::from_millis(20);

/// The names of the kernel's controller and of its block device.
type Connected = (String, String);

/// A task of the kernel for this process, on a thread that waits for it.
enum Errand {
    /// The kernel connects.
    Connect(Receiver<io::Result<Connected>>),
    /// The kernel removes its controller.
    Delete(Receiver<io::Result<()>>),
    None,
}

/// The target, and the block device that the kernel makes of it.
pub(super) struct Served {
    target: TargetDriver<fn(Event)>,
    address: SocketAddr,
    connected: Option<Connected>,
    errand: Errand,
    /// Why the kernel has not connected.
    failed: Option<io::Error>,
    is_unwanted: Cell<bool>,
    now: Instant,
}

impl Served {
    /// The name of the block device, if it is there.
    pub(super) fn device(&self) -> Option<&str> {
        self.connected.as_ref().map(|(_, device)| device.as_str())
    }

    /// Where the target listens.
    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Why the far end refuses this host for good, if it does.
    fn refusal(&self) -> Option<&str> {
        self.target.media_of(KEY)?.refusal()
    }

    /// The subsystem that the kernel uses.
    pub(super) fn core(&self) -> Option<&Core> {
        self.target.target().subsystem(KEY)
    }

    /// Looks whether the kernel has finished its task. Returns whether it has.
    fn heed_errand(&mut self, now: Instant) -> bool {
        match &self.errand {
            Errand::Connect(answer) => match answer.try_recv() {
                Ok(Ok(connected)) => self.connected = Some(connected),
                Ok(Err(error)) => self.failed = Some(error),
                Err(TryRecvError::Empty) => return false,
                Err(TryRecvError::Disconnected) => self.failed = Some(io::ErrorKind::BrokenPipe.into()),
            },
            Errand::Delete(answer) => match answer.try_recv() {
                Err(TryRecvError::Empty) => return false,
                result => {
                    match result {
                        Ok(Ok(())) => info!("the block device was removed"),
                        Ok(Err(error)) => warn!("the block device could not be removed: {error}"),
                        Err(_) => {}
                    }
                    self.target.on_stop(now);
                }
            },
            Errand::None => return false,
        }
        self.errand = Errand::None;
        true
    }
}

impl Driver for Served {
    fn start(&mut self, sources: &Sources) -> io::Result<()> {
        self.target.start(sources)
    }

    fn turn(&mut self, context: &Context<'_>) -> io::Result<Turn> {
        self.now = context.now;
        let heeded = self.heed_errand(context.now);
        match self.target.turn(context)? {
            Turn::Idle if heeded => Ok(Turn::Busy),
            turn => Ok(turn),
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let look = (!matches!(self.errand, Errand::None)).then(|| self.now + LOOK_EVERY);
        [self.target.poll_timeout(), look].into_iter().flatten().min()
    }

    fn on_stop(&mut self, now: Instant) {
        let Some((controller, device)) = self.connected.clone() else { return self.target.on_stop(now) };
        let users = block_use::users(&device);
        if !users.is_empty() && !self.is_unwanted.get() {
            let users = users.join(", ");
            warn!("/dev/{device} is {users}, so it stays: its I/O waits for another farlane connect");
            return self.target.on_stop(now);
        }
        let (report, reported) = channel();
        self.errand = Errand::Delete(reported);
        std::thread::spawn(move || report.send(kernel::delete(&controller)));
    }
}

/// The traffic between the kernel's initiator and the target of this process.
impl Capturable for Served {
    fn what(&self) -> What {
        What::Streams
    }

    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    fn tap(&mut self, taps: &Taps) -> Result<(), String> {
        self.target.watch().add(taps.tap(0));
        Ok(())
    }
}

/// The kernel's initiator.
pub(super) struct Initiator;

impl BlockDriver for Initiator {
    const WHAT: &'static str = "the target on loopback";
    const OVER: Over = Over::NvmeTcp;
    type Served = Served;

    fn serve(
        &mut self,
        args: &ConnectArgs,
        opening: &Opening,
        _place: Place,
        medium: RemoteMedium,
    ) -> Result<Served, Error> {
        let clock = opening.clock;
        let identity = identity(&medium);
        let (terms, known) = terms(args, identity)?;
        let mut served = target(args, clock, medium, &terms, identity)?;
        let terms = Terms { port: served.address.port(), ..terms };
        let (queues, depth, timeout) = (args.queues(), args.iodepth, args.timeout);
        let (report, reported) = channel();
        served.errand = Errand::Connect(reported);
        std::thread::spawn(move || {
            let name = match known {
                Some(name) => Ok(name),
                None => kernel::connect(&kernel::line(&terms, queues, depth, timeout)),
            };
            let result = name.and_then(|name| Ok((name.clone(), kernel::block_device(&name, timeout)?)));
            // The receiver is gone when this process ends.
            let _ = report.send(result);
        });
        Ok(served)
    }

    fn is_there(args: &ConnectArgs, served: &Served) -> Result<bool, Error> {
        match &served.failed {
            Some(error) => Err(refused(args, error)),
            None => Ok(served.connected.is_some()),
        }
    }

    fn name(served: &Served) -> String {
        served.device().unwrap_or_default().to_owned()
    }

    fn status(about: &About, served: &Served, sender: &JobSender<Served>) -> Reply<Report> {
        let (mut device, sender) =
            (status::of_target(about, served.device(), served.address(), served.refusal()), sender.clone());
        Reply::Later(Box::new(move || {
            let next = |driver: &mut Served, after| {
                driver.core().map(|core| next_tallies(core.tallies(), after)).unwrap_or_default()
            };
            device.activity = counters::activity(&sender, next)?;
            Some(Report::of(Status::Connect(device)))
        }))
    }

    fn set_unwanted(served: &Served) {
        served.is_unwanted.set(true);
    }
}

/// Why the kernel does not connect.
fn refused(args: &ConnectArgs, error: &io::Error) -> Error {
    // An initiator that was built without authentication does not know the word.
    if error.kind() == io::ErrorKind::InvalidInput && !args.insecure {
        return BlockError::NoAuthentication.into();
    }
    BlockError::Initiator(io::Error::new(error.kind(), error.to_string())).into()
}

/// The terms on which the kernel connects: those of a controller that is there, or else new ones.
/// Returns the controller's name, too.
fn terms(args: &ConnectArgs, identity: NamespaceIdentity) -> Result<(Terms, Option<String>), Error> {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let wrong = |_| BlockError::Initiator(io::ErrorKind::InvalidData.into());
    let subsystem: Nqn =
        format!("nqn.2026-01.io.farlane:block:{}", hex(&identity.eui64)).parse().map_err(wrong)?;
    let [id, b, c, d, e] = [0..4, 4..6, 6..8, 8..10, 10..16].map(|part| hex(&identity.uuid[part]));
    let host_id = format!("{id}-{b}-{c}-{d}-{e}");
    let host = format!("nqn.2014-08.org.nvmexpress:uuid:{host_id}").parse().map_err(wrong)?;
    let known = kernel::find(&subsystem);
    let (port, secret, name) = match known {
        Some(known) => (known.port, known.secret, Some(known.name)),
        None => {
            let secret = (!args.insecure).then(|| Secret::generate(None, &mut entropy::system()));
            (0, secret, None)
        }
    };
    Ok((Terms { subsystem, port, secret, host, host_id }, name))
}

/// A target for the kernel alone, that offers the namespace of `medium`.
fn target(
    args: &ConnectArgs,
    clock: Clock,
    medium: RemoteMedium,
    terms: &Terms,
    identity: NamespaceIdentity,
) -> Result<Served, Error> {
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, terms.port));
    let listener = Listener::bind(listen).map_err(|error| Error::Listen { address: listen, error })?;
    let address = listener.address();
    let credentials = terms.secret.clone().map(|secret| {
        let origin = "this process".to_owned();
        Credentials { origin, ..Credentials::new(secret) }
    });
    let subsystem = Subsystem {
        key: KEY,
        name: terms.subsystem.clone(),
        hosts: Hosts::Listed(vec![terms.host.clone()]),
        terms: vec![(terms.host.clone(), HostTerms { credentials, ..HostTerms::default() })],
        model: ControllerModel::default(),
        ports: vec![PORT],
        is_here: true,
    };
    let port = Port { id: PORT, address: Fabric::Tcp.address(address), is_any: false };
    let directory = Directory {
        subsystems: vec![subsystem],
        ports: vec![port],
        discovery: DiscoveryAccess::Closed,
        ..Directory::default()
    };
    let (bytes, block) = (medium.size(), BlockSize::from_bytes(medium.block()).unwrap_or_default());
    let cache = medium.limits().volatile_cache;
    let mut media = Media::new();
    let medium = media.add(medium)?;
    let serial = identity.eui64.iter().map(|byte| format!("{byte:02X}")).collect::<String>();
    let mut core = Config::new(&serial);
    core.subsystem_name = terms.subsystem.to_string();
    core.commands_max = COMMANDS_MAX;
    core.volatile_write_cache = cache;
    let namespace = NamespaceConfig::new(NamespaceId(1), medium, bytes, block, identity);
    core.namespaces.push(NamespaceConfig { read_only: args.read_only, ..namespace });
    let mut target = TargetDriver::new(clock.now(), directory, report as fn(Event));
    target.set_memory_max(live::sys::memory::budget_default());
    target.add_port(PORT, Fabric::Tcp, listener);
    target.add_subsystem(clock.now(), KEY, core, media);
    Ok(Served {
        target,
        address,
        connected: None,
        errand: Errand::None,
        failed: None,
        is_unwanted: Cell::new(false),
        now: clock.now(),
    })
}

/// Logs an event of the target.
fn report(event: Event) {
    match event {
        Event::Target(event) => debug!("{event}"),
        Event::AcceptFailed(error) => warn!("the kernel's connection could not be accepted: {error}"),
        _ => {}
    }
}
