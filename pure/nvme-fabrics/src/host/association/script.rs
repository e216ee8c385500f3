//! Bringing a controller up, refreshing its identity, and shutting it down, as scripts of commands.

use alloc::boxed::Box;
use alloc::vec::Vec;

use engine::{Asker, Buffer, Nanos};
use nvme::host::{
    Data, NAMESPACES_MAX, Namespace, ana_states, command as host_command, queue_entries_max, ready_timeout,
    transfer_limit,
};
use nvme::wire::feature::{self, FeatureId};
use nvme::wire::identify::{IDENTIFY_LENGTH, IdentifyController, cns, namespace_list};
use nvme::wire::log::LogPage;
use nvme::wire::{AnaState, CompletionQueueEntry, NamespaceId, SubmissionQueueEntry};

use super::authentication::authenticate_if_needed;
use super::types::{Config, Failure};
use crate::host::{Identity, TRANSFER_BYTES_MAX};
use crate::wire::property::{self, SHUTDOWN_COMPLETE};
use crate::wire::{
    ConnectAttributes, ConnectCommand, ConnectData, ConnectResponse, DISCOVERY_LOG_CHANGED_ENABLE,
    FabricsCommand, PropertyGet, PropertySet, PropertySize, QueueId,
};

/// How often CSTS is read while a change is awaited.
const STATUS_POLL: Nanos = Nanos::from_millis(10);
/// How long a controller may take to shut down.
const SHUTDOWN_MAX: Nanos = Nanos::from_secs(5);
/// A request of a script to the association.
#[derive(Debug)]
pub(super) enum Question {
    Open { queue: QueueId, controller: u16, size: u16, capsule_data_max: u32 },
    Command { queue: QueueId, entry: SubmissionQueueEntry, data: Data },
    Sleep(Nanos),
}

/// An answer of the association. A loss ends the script, so no answer reports one.
#[derive(Debug)]
pub(super) enum Answer {
    Open,
    Completed(CompletionQueueEntry, Buffer),
    Woke,
}

/// The result of a script.
#[derive(Debug)]
pub(super) enum Outcome {
    Up(Box<Identity>),
    Refreshed(Box<Identity>),
    /// A queue of the live association did not authenticate again.
    Untrusted(Failure),
    Down,
}

/// The data to read again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Refresh {
    pub(super) namespaces: bool,
    pub(super) ana: bool,
    /// A log page that must be read only so that its event is reported again.
    pub(super) log_page: Option<u8>,
}

impl Refresh {
    pub(super) const fn is_needed(self) -> bool {
        self.namespaces || self.ana || self.log_page.is_some()
    }
}

pub(super) type Ask = Asker<Question, Answer>;
type Page = Box<[u8; IDENTIFY_LENGTH]>;

/// Executes a command that must succeed.
async fn command(
    ask: &Ask,
    what: &'static str,
    entry: SubmissionQueueEntry,
    data: Data,
) -> Result<(CompletionQueueEntry, Buffer), Failure> {
    let expected = if let Data::Read(length) = data { length as usize } else { 0 };
    match ask.ask(Question::Command { queue: QueueId::ADMIN, entry, data }).await {
        Answer::Completed(entry, data) if entry.status().is_success() => {
            if data.len() < expected {
                return Err(Failure::Short { what });
            }
            Ok((entry, data))
        }
        Answer::Completed(entry, _) => Err(Failure::Command { what, status: entry.status() }),
        Answer::Open | Answer::Woke => Err(Failure::Short { what }),
    }
}

async fn property_get(
    ask: &Ask,
    what: &'static str,
    offset: u32,
    size: PropertySize,
) -> Result<u64, Failure> {
    let entry = FabricsCommand::PropertyGet(PropertyGet { size, offset }).emit();
    let (entry, _) = command(ask, what, entry, Data::None).await?;
    Ok(u64::from(entry.dw0) | u64::from(entry.dw1) << 32)
}

async fn property_get_low(ask: &Ask, what: &'static str, offset: u32) -> Result<u32, Failure> {
    let value = property_get(ask, what, offset, PropertySize::Dword).await?;
    Ok(low_half(value))
}

async fn configure(ask: &Ask, value: u32) -> Result<(), Failure> {
    let set = PropertySet { size: PropertySize::Dword, offset: property::CONFIGURATION, value: value.into() };
    command(ask, "Property Set (CC)", FabricsCommand::PropertySet(set).emit(), Data::None).await?;
    Ok(())
}

async fn identify(ask: &Ask, what: &'static str, structure: u32, id: NamespaceId) -> Result<Page, Failure> {
    let entry = host_command::identify(structure, id);
    let length = u32::try_from(IDENTIFY_LENGTH).expect("4 KiB");
    let (_, data) = command(ask, what, entry, Data::Read(length)).await?;
    let mut page = Box::new([0; IDENTIFY_LENGTH]);
    page.copy_from_slice(&data[..IDENTIFY_LENGTH]);
    Ok(page)
}

pub(super) fn low_half(value: u64) -> u32 {
    let [a, b, c, d, ..] = value.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// Opens a queue and connects it.
async fn connect(
    ask: &Ask,
    config: &Config,
    queue: QueueId,
    size: u16,
    controller: u16,
    capsule_data_max: u32,
) -> Result<ConnectResponse, Failure> {
    let named = if queue.is_admin() { 0 } else { controller };
    ask.ask(Question::Open { queue, controller: named, size, capsule_data_max }).await;
    let milliseconds = u32::try_from(config.keep_alive.get() / 1_000_000).unwrap_or(u32::MAX);
    let connect = ConnectCommand {
        record_format: 0,
        queue,
        submission_queue_size: size - 1,
        attributes: ConnectAttributes(ConnectAttributes::DISABLE_FLOW_CONTROL),
        keep_alive_timeout: if queue.is_admin() { milliseconds } else { 0 },
    };
    let data = ConnectData {
        host_id: config.host_id,
        controller,
        subsystem: config.subsystem.clone(),
        host: config.host.clone(),
    };
    let data = Data::Write(Buffer::copy_from_slice(&data.emit()));
    let entry = FabricsCommand::Connect(connect).emit();
    match ask.ask(Question::Command { queue, entry, data }).await {
        Answer::Completed(entry, _) if entry.status().is_success() => {
            Ok(ConnectResponse::from_dw0(entry.dw0))
        }
        Answer::Completed(entry, _) => {
            Err(Failure::Connect { queue, status: entry.status(), dw0: entry.dw0 })
        }
        Answer::Open | Answer::Woke => Err(Failure::Short { what: "Connect" }),
    }
}

/// Sets CC.EN and waits for CSTS.RDY.
async fn enable(ask: &Ask, capabilities: u64) -> Result<(), Failure> {
    let configuration = property::ENABLE.put(1)
        | property::SUBMISSION_ENTRY_SIZE.put(6)
        | property::COMPLETION_ENTRY_SIZE.put(4);
    configure(ask, configuration).await?;
    let limit = ready_timeout(capabilities);
    let mut waited = Nanos::ZERO;
    loop {
        let status = property_get_low(ask, "Property Get (CSTS)", property::STATUS).await?;
        if property::FATAL.is_set(status) {
            return Err(Failure::Fatal);
        }
        if property::READY.is_set(status) {
            return Ok(());
        }
        if waited > limit {
            return Err(Failure::NotReady);
        }
        ask.ask(Question::Sleep(STATUS_POLL)).await;
        waited += STATUS_POLL;
    }
}

/// Connects the queues and brings the controller up.
pub(super) async fn bring_up(ask: Ask, mut config: Config) -> Result<Outcome, Failure> {
    let wanted = config.controller.into();
    let capsule = ADMIN_CAPSULE_DATA_MAX;
    let (queue, size) = (QueueId::ADMIN, config.admin_queue_size);
    let connected = connect(&ask, &config, queue, size, wanted, capsule).await?;
    let authenticated = authenticate_if_needed(&ask, &mut config, queue, connected).await?;
    let admin = connected.controller;
    let offset = property::CAPABILITIES;
    let capabilities = property_get(&ask, "Property Get (CAP)", offset, PropertySize::Quad).await?;
    let version = property_get_low(&ask, "Property Get (VS)", property::VERSION).await?;
    enable(&ask, capabilities).await?;
    let page = identify(&ask, "Identify (controller)", cns::CONTROLLER, NamespaceId::NONE).await?;
    let controller = Box::new(IdentifyController::parse(&page));
    let mut events = controller.optional_events;
    let transfer_bytes_max = transfer_limit(&controller, capabilities, TRANSFER_BYTES_MAX);
    let reported = nvme::host::Identity {
        version,
        capabilities,
        controller,
        namespaces: Vec::new(),
        io_queues: 0,
        transfer_bytes_max,
    };
    let mut identity =
        Identity { reported, controller_id: admin, ana: Vec::new(), authenticated, queue_size: 0 };
    if config.subsystem.is_discovery() {
        events &= DISCOVERY_LOG_CHANGED_ENABLE.put(1);
    } else {
        events &= feature::EVENT_NAMESPACE_ATTRIBUTE.put(1) | feature::EVENT_ASYMMETRIC_ACCESS.put(1);
        connect_io_queues(&ask, &mut config, &mut identity).await?;
        identity.reported.namespaces = namespaces(&ask).await?;
        if identity.reported.has_ana() {
            identity.ana = ana(&ask, &identity.reported).await?;
        }
    }
    if events != 0 {
        let entry = host_command::set_features(FeatureId::AsynchronousEventConfiguration, events);
        // Without events, the next command that fails shows the change.
        let _ = command(&ask, "Set Features (events)", entry, Data::None).await;
    }
    Ok(Outcome::Up(Box::new(identity)))
}

/// In-capsule data in bytes that every controller accepts on its Admin Queue (NVMe/TCP 1.0).
const ADMIN_CAPSULE_DATA_MAX: u32 = 8192;

async fn connect_io_queues(ask: &Ask, config: &mut Config, identity: &mut Identity) -> Result<(), Failure> {
    let entry = host_command::set_number_of_queues(config.io_queues);
    let (granted, _) = command(ask, "Set Features (Number of Queues)", entry, Data::None).await?;
    let granted = host_command::granted_queues(granted.dw0);
    let entries = queue_entries_max(identity.reported.capabilities);
    let mut size = config.queue_size.min(u16::try_from(entries).unwrap_or(u16::MAX));
    size = size.min(identity.reported.commands_max().unwrap_or(u16::MAX)).max(2);
    let queues = config.io_queues.min(granted);
    for queue in 1..=queues {
        let capsule = identity.capsule_data_max();
        let (queue, controller) = (QueueId(queue), identity.controller_id.0);
        let connected = connect(ask, config, queue, size, controller, capsule).await?;
        authenticate_if_needed(ask, config, queue, connected).await?;
    }
    (identity.reported.io_queues, identity.queue_size) = (queues, size);
    Ok(())
}

async fn namespaces(ask: &Ask) -> Result<Vec<Namespace>, Failure> {
    let what = "Identify (active namespaces)";
    let page = identify(ask, what, cns::ACTIVE_NAMESPACES, NamespaceId::NONE).await?;
    let ids: Vec<NamespaceId> = namespace_list(&page[..]).take(NAMESPACES_MAX).collect();
    let mut namespaces = Vec::new();
    for id in ids {
        match identify(ask, "Identify (namespace)", cns::NAMESPACE, id).await {
            Ok(page) => namespaces.extend(Namespace::parse(id, &page)),
            // The namespace went away in between.
            Err(Failure::Command { .. }) => {}
            Err(failure) => return Err(failure),
        }
    }
    Ok(namespaces)
}

async fn ana(ask: &Ask, reported: &nvme::host::Identity) -> Result<Vec<(NamespaceId, AnaState)>, Failure> {
    let length = reported.ana_log_bytes();
    let entry = host_command::get_log_page(NamespaceId::NONE, LogPage::AsymmetricAccess.into(), 0, length);
    let (_, log) = command(ask, "Get Log Page (ANA)", entry, Data::Read(length)).await?;
    Ok(ana_states(&log))
}

/// Reads the changed data of an event again. Namespaces whose data the controller fails to return
/// stay unchanged. ANA states must be read, because commands may wait for them.
pub(super) async fn refresh(
    ask: Ask,
    mut identity: Box<Identity>,
    what: Refresh,
) -> Result<Outcome, Failure> {
    if let Some(page) = what.log_page {
        let _ = command(
            &ask,
            "Get Log Page",
            host_command::get_log_page(NamespaceId::ALL, page, 0, 512),
            Data::Read(512),
        )
        .await;
    }
    if what.namespaces {
        // Reading the list has the event reported again. The changes are found by reading all
        // namespaces.
        let log = host_command::get_log_page(NamespaceId::ALL, LogPage::ChangedNamespaces.into(), 0, 4096);
        let _ = command(&ask, "Get Log Page (changed namespaces)", log, Data::Read(4096)).await;
        if let Ok(found) = namespaces(&ask).await {
            identity.reported.namespaces = found;
        }
    }
    if identity.reported.has_ana() && (what.ana || what.namespaces) {
        identity.ana = ana(&ask, &identity.reported).await?;
    }
    Ok(Outcome::Refreshed(identity))
}

/// Shuts the controller down. Acknowledged writes are durable afterwards.
pub(super) async fn shut_down(ask: Ask) -> Result<Outcome, Failure> {
    let before = property_get_low(&ask, "Property Get (CC)", property::CONFIGURATION).await?;
    configure(&ask, property::SHUTDOWN.replace(before, 1)).await?;
    let mut waited = Nanos::ZERO;
    while waited < SHUTDOWN_MAX {
        let status = property_get_low(&ask, "Property Get (CSTS)", property::STATUS).await?;
        if property::SHUTDOWN_STATUS.of(status) == SHUTDOWN_COMPLETE {
            break;
        }
        ask.ask(Question::Sleep(STATUS_POLL)).await;
        waited += STATUS_POLL;
    }
    Ok(Outcome::Down)
}
