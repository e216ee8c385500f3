//! Connect: each way to refuse it, and the queue if it succeeds.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use engine::Instant;
use nvme::subsystem::KEEP_ALIVE_MAX_MILLISECONDS;
use nvme::wire::{Status, StatusCode};

use super::association::Queues;
use super::discovery::Discovery;
use super::properties::Properties;
use super::{
    Association, AssociationKey, Claim, ControllerModel, DiscoveryAccess, HostTerms, IO_QUEUES_MAX, Origin,
    QUEUE_ENTRIES_MAX, Served, Subsystem, SubsystemKey, Target, keep_alive,
};
use crate::tls::Identity;
use crate::wire::{
    ConnectCommand, ConnectData, ConnectResponse, ControllerChoice, ControllerId, FabricsStatus, Nqn,
    Parameter, PortId, QueueId, TransportAddress, WireError,
};

/// A queue that was connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connected {
    /// The association that the queue belongs to.
    pub association: AssociationKey,
    /// The subsystem; `None` for the discovery subsystem.
    pub subsystem: Option<SubsystemKey>,
    /// The queue. An Admin Queue makes a new association.
    pub queue: QueueId,
    /// The connection's claim to the queue.
    pub claim: Claim,
    /// Whether the queue may be used at once: the host has proved its identity, or need not.
    pub is_admitted: bool,
    /// Size of the queue in entries, 2..=[`QUEUE_ENTRIES_MAX`].
    pub entries: u16,
    /// Whether submission queue flow control is disabled.
    pub without_flow_control: bool,
    /// The response to the Connect.
    pub response: ConnectResponse,
}

/// How a host connected to the target.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// The port that the host connected to.
    pub port: PortId,
    /// The address that the host connected to, if it is known.
    pub local: Option<&'a TransportAddress>,
    /// The identity that the host has proved by TLS; `None` without TLS.
    pub proved: Option<&'a Identity>,
    /// The origin of the host's connection.
    pub origin: Origin,
    /// Whether hosts were admitted from there before.
    pub is_known: bool,
}

/// The result of a valid Connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The queue is connected.
    Connected(Connected),
    /// The subsystem belongs to another reactor. The connection must move there, with all messages
    /// of host and target so far.
    Elsewhere(SubsystemKey),
}

/// Why a Connect was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// The record format is not 0.
    Format(u16),
    /// The data are invalid.
    Data(WireError),
    /// The queue has too few or too many entries. Holds SQSIZE, which is 0's based.
    QueueSize(u16),
    /// The subsystem does not exist here, or not through this port.
    UnknownSubsystem(Nqn),
    /// The subsystem does not allow the host.
    HostNotAllowed,
    /// The requested controller does not exist, or has no Admin Queue of the host.
    Controller(u16),
    /// The controller belongs to another host.
    OtherHost,
    /// The static controller is in use, or all possible controllers exist already.
    Busy,
    /// The controller has no I/O queue of that number, or has no I/O queues.
    Queue(QueueId),
    /// The queue is connected already.
    QueueTwice(QueueId),
    /// The controller is not enabled.
    NotReady,
    /// The Keep Alive Timeout is longer than allowed; in milliseconds.
    KeepAlive(u32),
    /// The host must encrypt, and has connected without TLS.
    NotEncrypted(Nqn),
    /// The discovery service is switched off.
    DiscoveryClosed,
    /// The discovery service is for hosts with a key, and this one has none.
    DiscoveryKeyed(Nqn),
    /// The host has proved by TLS that it is another host, or that it means another subsystem.
    OtherIdentity {
        /// The identity that the host has proved.
        proved: Box<Identity>,
        /// The host that its Connect names.
        host: Nqn,
        /// The subsystem that its Connect names.
        subsystem: Nqn,
    },
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Format(format) => write!(f, "the record format is {format}, and 0 is known"),
            Self::Data(error) => error.fmt(f),
            Self::QueueSize(size) => {
                write!(f, "SQSIZE is {size}, and a queue has 2 to {QUEUE_ENTRIES_MAX} entries")
            }
            Self::UnknownSubsystem(name) => write!(f, "there is no subsystem {name} at this port"),
            Self::HostNotAllowed => f.write_str("the subsystem does not let this host in"),
            Self::Controller(id) => write!(f, "controller {id:#06x} is not available to it"),
            Self::OtherHost => f.write_str("the controller is another host's"),
            Self::Busy => f.write_str("no controller is free"),
            Self::Queue(queue) => write!(f, "there is no queue {queue}"),
            Self::QueueTwice(queue) => write!(f, "queue {queue} is connected already"),
            Self::KeepAlive(timeout) => {
                write!(
                    f,
                    "the Keep Alive Timeout is {timeout} ms, and {KEEP_ALIVE_MAX_MILLISECONDS} ms at most"
                )
            }
            Self::NotReady => f.write_str("the controller is not enabled"),
            Self::NotEncrypted(host) => write!(
                f,
                "{host} has a TLS key here, and has connected without TLS (Linux: nvme connect --tls; \
                 farlane: --tls-key-file FILE)"
            ),
            Self::DiscoveryClosed => {
                f.write_str("the discovery service is switched off (--discovery closed)")
            }
            Self::DiscoveryKeyed(host) => write!(
                f,
                "the discovery service demands a key (--discovery keyed), and {host} has proved none"
            ),
            Self::OtherIdentity { proved, host, subsystem } => write!(
                f,
                "the TLS key is of {} for {}, and the Connect is of {host} for {subsystem}",
                proved.host, proved.subsystem
            ),
        }
    }
}

/// How a refused Connect ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The Status Field.
    pub status: Status,
    /// DW0: the parameter that Connect Invalid Parameters names.
    pub dw0: u32,
    /// The reason, for a person.
    pub why: Why,
}

impl Why {
    /// A word for the reason, for counts.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Format(_) | Self::Data(_) | Self::QueueSize(_) | Self::KeepAlive(_) => "malformed",
            Self::UnknownSubsystem(_) => "unknown_subsystem",
            Self::HostNotAllowed => "host_not_allowed",
            Self::Controller(_) | Self::OtherHost | Self::NotReady => "controller",
            Self::Busy => "busy",
            Self::Queue(_) | Self::QueueTwice(_) => "queue",
            Self::NotEncrypted(_) => "not_encrypted",
            Self::DiscoveryClosed | Self::DiscoveryKeyed(_) => "discovery",
            Self::OtherIdentity { .. } => "other_identity",
        }
    }
}

impl Refusal {
    fn new(status: impl Into<Status>, why: Why) -> Self {
        Self { status: status.into(), dw0: 0, why }
    }
    fn parameter(parameter: Parameter, why: Why) -> Self {
        Self { status: FabricsStatus::InvalidParameters.into(), dw0: parameter.dw0(), why }
    }
    /// Refuses an I/O queue of an association that has ended without the host's knowledge. Do Not
    /// Retry stays clear: with it, Linux would give the controller up for good and not reconnect.
    fn gone(controller: ControllerId) -> Self {
        let refusal = Self::parameter(Parameter::CONTROLLER, Why::Controller(controller.0));
        Self { status: refusal.status.with_do_not_retry(false), ..refusal }
    }
}

/// The result of connecting an Admin Queue.
struct Granted {
    served: Served,
    terms: HostTerms,
    controller: ControllerId,
}

impl Target {
    /// Executes a Connect command with its data, from a host that connected as in `arrival`.
    ///
    /// # Errors
    /// The refusal to answer with.
    pub fn connect(
        &mut self,
        now: Instant,
        arrival: Arrival<'_>,
        command: &ConnectCommand,
        data: &[u8],
    ) -> Result<Outcome, Refusal> {
        let port = arrival.port;
        if command.record_format != 0 {
            let why = Why::Format(command.record_format);
            return Err(Refusal::new(FabricsStatus::IncompatibleFormat, why));
        }
        let data = ConnectData::parse(data)
            .map_err(|(error, parameter)| Refusal::parameter(parameter, Why::Data(error)))?;
        let size = command.submission_queue_size;
        if !(1..QUEUE_ENTRIES_MAX).contains(&size) {
            return Err(Refusal::parameter(Parameter::SUBMISSION_QUEUE_SIZE, Why::QueueSize(size)));
        }
        check_identity(arrival.proved, &data)?;
        if data.subsystem.is_discovery() {
            return self.connect_to_discovery(now, arrival, command, data);
        }
        let Some(subsystem) = self.directory.find(&data.subsystem, port) else {
            let refusal = Refusal::parameter(Parameter::SUBSYSTEM, Why::UnknownSubsystem(data.subsystem));
            let is_final = refusal.status.do_not_retry() && !self.directory.is_partial;
            return Err(Refusal { status: refusal.status.with_do_not_retry(is_final), ..refusal });
        };
        if !subsystem.hosts.allow(&data.host) {
            return Err(Refusal::new(FabricsStatus::InvalidHost, Why::HostNotAllowed));
        }
        if subsystem.tls_of(&data.host).is_some() && arrival.proved.is_none() {
            return Err(Refusal::new(FabricsStatus::InvalidHost, Why::NotEncrypted(data.host)));
        }
        if !subsystem.is_here {
            return Ok(Outcome::Elsewhere(subsystem.key));
        }
        if !command.queue.is_admin() {
            let key = subsystem.key;
            return self.connect_io_queue(now, key, arrival, command, &data);
        }
        let key = subsystem.key;
        let controller = self.choose_controller(subsystem, &data)?;
        let terms = subsystem.terms_of(&data.host).cloned().unwrap_or_default();
        let granted = Granted { served: Served::Nvm(key), terms, controller };
        self.associate(now, granted, arrival, command, data)
    }

    fn connect_to_discovery(
        &mut self,
        now: Instant,
        arrival: Arrival<'_>,
        command: &ConnectCommand,
        data: ConnectData,
    ) -> Result<Outcome, Refusal> {
        if !command.queue.is_admin() {
            return Err(Refusal::parameter(Parameter::QUEUE, Why::Queue(command.queue)));
        }
        if ControllerChoice::from(data.controller) != ControllerChoice::Dynamic {
            return Err(Refusal::parameter(Parameter::CONTROLLER, Why::Controller(data.controller)));
        }
        let terms = self.terms_of_discovery(arrival, &data.host)?;
        let ids = 1..=ControllerId::MAX.0;
        let controller = self.associations.free_controller(None, &ids, self.next_controller);
        let controller = controller.ok_or(Refusal::new(FabricsStatus::ControllerBusy, Why::Busy))?;
        let served = Served::Discovery(Discovery::new(arrival.local.cloned()));
        self.associate(now, Granted { served, terms, controller }, arrival, command, data)
    }

    /// The discovery service's terms for a host.
    fn terms_of_discovery(&self, arrival: Arrival<'_>, host: &Nqn) -> Result<HostTerms, Refusal> {
        match self.directory.discovery {
            DiscoveryAccess::Open => Ok(HostTerms::default()),
            DiscoveryAccess::Keyed if arrival.proved.is_some() => Ok(HostTerms::default()),
            DiscoveryAccess::Keyed => match self.directory.credentials_of(host) {
                Some(credentials) => Ok(credentials.clone().into()),
                None => Err(Refusal::new(FabricsStatus::InvalidHost, Why::DiscoveryKeyed(host.clone()))),
            },
            DiscoveryAccess::Closed => Err(Refusal::parameter(Parameter::SUBSYSTEM, Why::DiscoveryClosed)),
        }
    }

    /// The controller for an Admin Queue.
    fn choose_controller(&self, subsystem: &Subsystem, data: &ConnectData) -> Result<ControllerId, Refusal> {
        let asked = data.controller;
        let key = Some(subsystem.key);
        let next_free = |ids, from| self.associations.free_controller(key, ids, from);
        let busy = Refusal::new(FabricsStatus::ControllerBusy, Why::Busy);
        match (&subsystem.model, ControllerChoice::from(asked)) {
            (ControllerModel::Dynamic(ids), ControllerChoice::Dynamic) => {
                let is_free =
                    |id: &ControllerId| ids.contains(&id.0) && self.associations.is_free(subsystem.key, *id);
                let had = self.returning.of(subsystem.key, &data.host, data.host_id).find(is_free);
                had.or_else(|| next_free(ids, self.next_controller)).ok_or(busy)
            }
            (ControllerModel::Static(ids), ControllerChoice::AnyStatic) => {
                next_free(ids, *ids.start()).ok_or(busy)
            }
            (ControllerModel::Static(ids), ControllerChoice::This(id)) if ids.contains(&id.0) => {
                if self.associations.of_controller(key, id).is_some() { Err(busy) } else { Ok(id) }
            }
            _ => Err(Refusal::parameter(Parameter::CONTROLLER, Why::Controller(asked))),
        }
    }

    fn associate(
        &mut self,
        now: Instant,
        granted: Granted,
        arrival: Arrival<'_>,
        command: &ConnectCommand,
        data: ConnectData,
    ) -> Result<Outcome, Refusal> {
        let timeout = command.keep_alive_timeout;
        if timeout > KEEP_ALIVE_MAX_MILLISECONDS {
            return Err(Refusal::new(StatusCode::KeepAliveTimeoutInvalid, Why::KeepAlive(timeout)));
        }
        let Granted { served, terms, controller } = granted;
        // A host that discovers without a key stays unproven.
        let is_stranger = matches!(served, Served::Discovery(_)) && arrival.proved.is_none();
        let association = Association {
            is_proven: !is_stranger && terms.credentials.is_none(),
            served,
            controller,
            host: data.host,
            host_id: data.host_id,
            port: arrival.port,
            queues: Queues::default(),
            io_queues: IO_QUEUES_MAX,
            properties: Properties::default(),
            keep_alive: keep_alive::timeout(command.keep_alive_timeout),
            terms,
            claimants: Vec::new(),
            next_claim: 0,
            heard: now,
            disabled: Some(now),
        };
        let subsystem = association.subsystem();
        let busy = Refusal::new(FabricsStatus::ControllerBusy, Why::Busy);
        let key = self.associations.insert(association).ok_or(busy)?;
        self.next_controller = controller.0.wrapping_add(1);
        let claim = self.of(key).claim(command.queue, arrival);
        let demand = self.demand_authentication(now, key, claim);
        self.look_again(key);
        Ok(Outcome::Connected(connected((key, claim), subsystem, command, controller, demand)))
    }

    /// Connects an I/O queue, or lets a host that must authenticate begin with that: until then,
    /// the queue stays with its holder. A host that has proved its identity takes the queue from an
    /// earlier connection, which may be lost without the target's knowledge.
    fn connect_io_queue(
        &mut self,
        now: Instant,
        subsystem: SubsystemKey,
        arrival: Arrival<'_>,
        command: &ConnectCommand,
        data: &ConnectData,
    ) -> Result<Outcome, Refusal> {
        let id = ControllerId(data.controller);
        let found = self.associations.of_controller(Some(subsystem), id);
        let Some(key) = found else { return Err(Refusal::gone(id)) };
        let association = self.of(key);
        if association.host != data.host {
            return Err(Refusal::parameter(Parameter::HOST, Why::OtherHost));
        }
        if !association.is_ready() {
            return Err(Refusal::new(StatusCode::CommandSequenceError, Why::NotReady));
        }
        let queue = command.queue;
        if queue.0 > association.io_queues {
            return Err(Refusal::parameter(Parameter::QUEUE, Why::Queue(queue)));
        }
        let proves = association.terms.credentials.is_some() || arrival.proved.is_some();
        if association.has_queue(queue) && !proves {
            // The holder of the queue may be about to lose it.
            let status = Status::from(StatusCode::CommandSequenceError).with_do_not_retry(false);
            return Err(Refusal::new(status, Why::QueueTwice(queue)));
        }
        let claim = association.claim(queue, arrival);
        if association.terms.credentials.is_none() {
            association.heard = now;
        }
        let demand = self.demand_authentication(now, key, claim);
        self.look_again(key);
        Ok(Outcome::Connected(connected((key, claim), Some(subsystem), command, id, demand)))
    }
}

/// Checks that a Connect names the host and the subsystem of the connection's TLS key.
///
/// # Errors
/// Connect Invalid Host if it does not.
fn check_identity(proved: Option<&Identity>, data: &ConnectData) -> Result<(), Refusal> {
    let Some(proved) = proved else { return Ok(()) };
    if proved.host == data.host && proved.subsystem == data.subsystem {
        return Ok(());
    }
    let (host, subsystem) = (data.host.clone(), data.subsystem.clone());
    let why = Why::OtherIdentity { proved: Box::new(proved.clone()), host, subsystem };
    Err(Refusal::new(FabricsStatus::InvalidHost, why))
}

const fn connected(
    (association, claim): (AssociationKey, Claim),
    subsystem: Option<SubsystemKey>,
    command: &ConnectCommand,
    controller: ControllerId,
    authentication: u16,
) -> Connected {
    Connected {
        association,
        subsystem,
        queue: command.queue,
        claim,
        is_admitted: authentication == 0,
        entries: command.submission_queue_size + 1,
        without_flow_control: command.attributes.disables_flow_control(),
        response: ConnectResponse { controller, authentication },
    }
}
