//! The discovery controller: its answers to admin commands.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use engine::Instant;
use nvme::subsystem::KEEP_ALIVE_MAX_MILLISECONDS;
use nvme::wire::feature::{self, FeatureId};
use nvme::wire::identify::{IdentifyController, cns};
use nvme::wire::{
    AdminOpcode, Bits, CommandId, FusedOperation, Status, StatusCode, SubmissionQueueEntry, Text,
};

use super::{AssociationKey, QUEUE_ENTRIES_MAX, Served, Target};
use crate::wire::{
    DISCOVERY_LOG_CHANGED, DISCOVERY_LOG_CHANGED_ENABLE, DISCOVERY_LOG_PAGE, DiscoveryEntry, DiscoveryHeader,
    Nqn, TransportAddress, TransportType, property,
};

/// Maximum number of Asynchronous Event Requests outstanding.
const EVENT_REQUESTS_MAX: usize = 4;
/// Maximum number of bytes that one Get Log Page returns; MDTS reports the same limit.
const TRANSFER_BYTES_MAX: usize = 1 << 20;
/// MDTS: [`TRANSFER_BYTES_MAX`] in pages of 4 KiB, as a power of two.
const TRANSFER_PAGES_SHIFT: u8 = 8;
/// Controller Type (CNTRLTYPE): discovery.
const DISCOVERY_CONTROLLER: u8 = 2;
/// Log Page Attributes (LPA): Get Log Page has offsets and long lengths.
const EXTENDED_LOG_PAGES: u8 = 1 << 2;
/// Controller Attributes (CTRATT): Traffic Based Keep Alive.
const TRAFFIC_KEEP_ALIVE: u32 = 1 << 6;
/// Controller Attributes (CTRATT): Host Identifiers of 128 bits.
const LONG_HOST_IDENTIFIERS: u32 = 1 << 0;
/// SGL Support (SGLS): SGLs, SGLs longer than the data, in-capsule data at an offset, Transport SGL
/// Data Blocks.
const SGL_SUPPORT: u32 = 1 << 0 | 1 << 18 | 1 << 20 | 1 << 21;
/// SGL Support (SGLS) over RDMA: Keyed SGL Data Blocks instead of Transport SGL Data Blocks.
/// Linux's host insists on them.
const SGL_SUPPORT_RDMA: u32 = 1 << 0 | 1 << 2 | 1 << 18 | 1 << 20;
/// Keep Alive Support (KAS): a granularity of 100 ms.
const KEEP_ALIVE_GRANULARITY: u16 = 1;
/// Feature Identifier (FID) of the Keep Alive Timer.
const KEEP_ALIVE_TIMER: u8 = 0x0f;

/// Log Page Identifier (LID), in CDW10.
const LID: Bits = Bits::new(7, 0);
/// Retain Asynchronous Event (RAE), in CDW10.
const RETAIN_EVENT: Bits = Bits::bit(15);
/// Number of Dwords, low (NUMDL), in CDW10.
const DWORDS_LOW: Bits = Bits::new(31, 16);
/// Number of Dwords, high (NUMDU), in CDW11.
const DWORDS_HIGH: Bits = Bits::new(15, 0);
/// Offset Type (OT), in CDW14: the offset is an index of entries.
const OFFSET_IS_INDEX: Bits = Bits::bit(23);
/// CNS, in CDW10 of Identify.
const CNS: Bits = Bits::new(7, 0);

/// The state of a discovery controller.
#[derive(Debug)]
pub struct Discovery {
    /// The address that the host connected to.
    local: Option<TransportAddress>,
    /// The Asynchronous Event Configuration.
    events: u32,
    /// Asynchronous Event Requests that wait for an event.
    requests: VecDeque<CommandId>,
    /// The log has changed, and the host was not notified.
    changed: bool,
    /// The host was notified, and has not read the log since.
    notified: bool,
}

/// The result of an admin command of a discovery controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The command has ended, with this DW0.
    Done(u32),
    /// The command has ended, with these data for the host.
    Data(Vec<u8>),
    /// The command has failed.
    Failed(Status),
    /// The command ends with an event.
    Held,
}

fn failed(code: StatusCode) -> Reply {
    Reply::Failed(code.into())
}

impl Discovery {
    pub(super) const fn new(local: Option<TransportAddress>) -> Self {
        Self { local, events: 0, requests: VecDeque::new(), changed: false, notified: false }
    }

    /// Notes that the log has changed. Returns whether an event can be sent now.
    pub(super) fn on_log_changed(&mut self) -> bool {
        self.changed = DISCOVERY_LOG_CHANGED_ENABLE.is_set(self.events);
        self.has_event()
    }

    fn has_event(&self) -> bool {
        self.changed && !self.notified && !self.requests.is_empty()
    }

    fn reset(&mut self) {
        let local = self.local.take();
        *self = Self::new(local);
    }

    fn on_event_request(&mut self, command: CommandId) -> Reply {
        if self.requests.len() >= EVENT_REQUESTS_MAX {
            return failed(StatusCode::AsynchronousEventRequestLimitExceeded);
        }
        self.requests.push_back(command);
        Reply::Held
    }
}

impl Target {
    /// Executes an admin command, other than a fabrics command, of a discovery controller that is
    /// ready.
    ///
    /// # Panics
    /// When there is no such association, or its controller is not a discovery controller.
    pub fn discover(&mut self, now: Instant, key: AssociationKey, entry: &SubmissionQueueEntry) -> Reply {
        // No admin command is part of a fused operation.
        if entry.fused() != FusedOperation::Normal {
            return failed(StatusCode::InvalidField);
        }
        match AdminOpcode::from(entry.opcode) {
            AdminOpcode::Identify => self.identify_discovery(key, entry),
            AdminOpcode::GetLogPage => self.discovery_log(key, entry),
            AdminOpcode::KeepAlive => Reply::Done(0),
            AdminOpcode::SetFeatures => self.set_discovery_feature(now, key, entry),
            AdminOpcode::GetFeatures => self.discovery_feature(key, entry),
            AdminOpcode::AsynchronousEventRequest => {
                self.discovery_of(key).on_event_request(entry.command_id)
            }
            _ => failed(StatusCode::InvalidCommandOpcode),
        }
    }

    /// Takes an Asynchronous Event Request that ends now, and its DW0. `None` if there is no event
    /// to report.
    ///
    /// # Panics
    /// When there is no such association, or its controller is not a discovery controller.
    pub fn take_event(&mut self, key: AssociationKey) -> Option<(CommandId, u32)> {
        let discovery = self.discovery_of(key);
        if !discovery.has_event() {
            return None;
        }
        discovery.changed = false;
        discovery.notified = true;
        discovery.requests.pop_front().map(|request| (request, DISCOVERY_LOG_CHANGED))
    }

    /// Handles a reset of the discovery controller: forgets its event requests and its event
    /// configuration.
    ///
    /// # Panics
    /// When there is no such association, or its controller is not a discovery controller.
    pub fn reset_discovery(&mut self, key: AssociationKey) {
        self.discovery_of(key).reset();
    }

    fn discovery_of(&mut self, key: AssociationKey) -> &mut Discovery {
        match &mut self.of(key).served {
            Served::Discovery(discovery) => discovery,
            Served::Nvm(_) => unreachable!("the commands of an NVM subsystem are its core's"),
        }
    }

    fn identify_discovery(&mut self, key: AssociationKey, entry: &SubmissionQueueEntry) -> Reply {
        if CNS.of(entry.cdw10) != cns::CONTROLLER {
            return failed(StatusCode::InvalidField);
        }
        let port = self.of(key).port();
        let mut ports = self.directory.ports.iter();
        let is_rdma = ports.any(|one| one.id == port && one.address.transport == TransportType::Rdma);
        let identify = IdentifyController {
            serial_number: Text::padded_with_spaces("farlane"),
            model_number: Text::padded_with_spaces("Farlane discovery"),
            firmware_revision: Text::padded_with_spaces(env!("CARGO_PKG_VERSION")),
            maximum_data_transfer_size: TRANSFER_PAGES_SHIFT,
            controller_id: self.of(key).controller.0,
            version: property::VERSION_2_0,
            optional_events: DISCOVERY_LOG_CHANGED_ENABLE.put(1),
            attributes: LONG_HOST_IDENTIFIERS | TRAFFIC_KEEP_ALIVE,
            controller_type: DISCOVERY_CONTROLLER,
            event_request_limit: u8::try_from(EVENT_REQUESTS_MAX - 1).expect("few"),
            log_page_attributes: EXTENDED_LOG_PAGES,
            keep_alive: KEEP_ALIVE_GRANULARITY,
            maximum_commands: QUEUE_ENTRIES_MAX,
            sgl_support: if is_rdma { SGL_SUPPORT_RDMA } else { SGL_SUPPORT },
            subsystem_name: Text::padded_with_nuls(Nqn::DISCOVERY),
            ..IdentifyController::default()
        };
        let mut page = [0; IdentifyController::LENGTH];
        identify.emit(&mut page);
        Reply::Data(page.to_vec())
    }

    fn discovery_log(&mut self, key: AssociationKey, entry: &SubmissionQueueEntry) -> Reply {
        let dwords = u64::from(DWORDS_HIGH.of(entry.cdw11)) << 16 | u64::from(DWORDS_LOW.of(entry.cdw10));
        let length = usize::try_from((dwords + 1) * 4).ok().filter(|length| *length <= TRANSFER_BYTES_MAX);
        let offset = u64::from(entry.cdw12) | u64::from(entry.cdw13) << 32;
        let (Some(length), false) = (length, OFFSET_IS_INDEX.is_set(entry.cdw14)) else {
            return failed(StatusCode::InvalidField);
        };
        let page = LID.of(entry.cdw10);
        let is_discovery = page == u32::from(DISCOVERY_LOG_PAGE);
        let data = if is_discovery {
            self.log_of(key, offset, length)
        } else if page == 0 {
            part_of(&supported_pages(), offset, length)
        } else {
            return failed(StatusCode::InvalidLogPage);
        };
        let Some(data) = data.filter(|_| offset.is_multiple_of(4)) else {
            return failed(StatusCode::InvalidField);
        };
        // The event is about this page: reading another one does not clear it.
        if is_discovery && !RETAIN_EVENT.is_set(entry.cdw10) {
            self.discovery_of(key).notified = false;
        }
        Reply::Data(data)
    }

    /// `length` bytes from `offset` on of the log as the association's host may see it, with zeroes
    /// behind its end; `None` if the offset is behind its end. Of thousands of entries, those of
    /// this part alone are made.
    fn log_of(&mut self, key: AssociationKey, offset: u64, length: usize) -> Option<Vec<u8>> {
        const ENTRY: u64 = DiscoveryEntry::LENGTH as u64;
        let local = self.discovery_of(key).local.clone();
        let host = self.of(key).host.clone();
        // The header is as long as an entry, and stands before the first one.
        let end = offset.checked_add(length as u64)?.div_ceil(ENTRY);
        let wanted = (offset / ENTRY).saturating_sub(1)..end.saturating_sub(1);
        let (entries, records) = self.directory.part_of_log(&host, local.as_ref(), wanted);
        if offset > (records + 1) * ENTRY {
            return None;
        }
        let mut part = Vec::with_capacity((entries.len() + 1) * DiscoveryEntry::LENGTH);
        if offset < ENTRY {
            let generation = self.directory.generation;
            part.extend_from_slice(&DiscoveryHeader { generation, records, record_format: 0 }.emit());
        }
        for entry in &entries {
            part.extend_from_slice(&entry.emit());
        }
        part_of(&part, offset % ENTRY, length)
    }

    fn set_discovery_feature(
        &mut self,
        now: Instant,
        key: AssociationKey,
        entry: &SubmissionQueueEntry,
    ) -> Reply {
        if feature::SAVE.is_set(entry.cdw10) {
            return failed(StatusCode::FeatureNotSaveable);
        }
        match feature_of(entry) {
            FeatureId::AsynchronousEventConfiguration => {
                self.discovery_of(key).events = entry.cdw11 & DISCOVERY_LOG_CHANGED_ENABLE.put(1);
                Reply::Done(0)
            }
            other if u8::from(other) == KEEP_ALIVE_TIMER => {
                if entry.cdw11 > KEEP_ALIVE_MAX_MILLISECONDS {
                    return failed(StatusCode::KeepAliveTimeoutInvalid);
                }
                self.set_keep_alive(now, key, entry.cdw11);
                Reply::Done(0)
            }
            _ => failed(StatusCode::InvalidField),
        }
    }

    fn discovery_feature(&mut self, key: AssociationKey, entry: &SubmissionQueueEntry) -> Reply {
        const CHANGEABLE: u32 = 1 << 2;
        let value = match feature_of(entry) {
            FeatureId::AsynchronousEventConfiguration => self.discovery_of(key).events,
            other if u8::from(other) == KEEP_ALIVE_TIMER => {
                let timeout = self.of(key).keep_alive.map_or(0, |timeout| timeout.get() / 1_000_000);
                u32::try_from(timeout).unwrap_or(u32::MAX)
            }
            _ => return failed(StatusCode::InvalidField),
        };
        match feature::SELECT.of(entry.cdw10) {
            0 => Reply::Done(value),
            1 | 2 => Reply::Done(0),
            3 => Reply::Done(CHANGEABLE),
            _ => failed(StatusCode::InvalidField),
        }
    }
}

fn feature_of(entry: &SubmissionQueueEntry) -> FeatureId {
    let [identifier, ..] = feature::FID.of(entry.cdw10).to_le_bytes();
    FeatureId::from(identifier)
}

/// `length` bytes of a page from `offset` on, with zeroes behind its end; `None` if the offset is
/// behind its end.
fn part_of(page: &[u8], offset: u64, length: usize) -> Option<Vec<u8>> {
    let rest = page.get(usize::try_from(offset).ok()?..)?;
    let mut data = vec![0; length];
    let count = rest.len().min(length);
    data[..count].copy_from_slice(&rest[..count]);
    Some(data)
}

/// Supported Log Pages (00h).
fn supported_pages() -> Vec<u8> {
    const SUPPORTED: u8 = 1;
    let mut pages = vec![0; 1024];
    for page in [0, usize::from(DISCOVERY_LOG_PAGE)] {
        pages[page * 4] = SUPPORTED;
    }
    pages
}
