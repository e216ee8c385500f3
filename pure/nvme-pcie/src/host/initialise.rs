//! The initialisation of a controller, as a script of register accesses and admin commands.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use engine::{Asker, Instant, Nanos};
use nvme::host::command::{
    create_completion_queue, create_submission_queue, granted_queues, identify, set_number_of_queues,
};
use nvme::host::{Identity, NAMESPACES_MAX, Namespace, queue_entries_max, ready_timeout, transfer_limit};
use nvme::wire::identify::{IdentifyController, cns, namespace_list};
use nvme::wire::{AdminOpcode, NamespaceId, QueueId, Status, SubmissionQueueEntry};
use serde::{Deserialize, Serialize};

use super::Config;
use super::layout::{ADMIN_ENTRIES, Layout};
use crate::registers::{admin_queue_attributes, capabilities, configuration, low_half, offset, status};

/// Interval between reads of CSTS while the script waits for a change of CSTS.RDY.
const READY_POLL: Nanos = Nanos::from_millis(1);

/// A request of the script to the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Question {
    Read {
        offset: u32,
        length: u32,
    },
    Write {
        offset: u32,
        value: u64,
        length: u32,
    },
    Sleep(Nanos),
    /// Empties all rings, which then use at most this number of entries.
    RestartQueues {
        entries: u32,
    },
    /// Submits an admin command. The data is in the driver's page if `with_page` is set, else at
    /// the address in the entry.
    Admin {
        entry: SubmissionQueueEntry,
        with_page: bool,
    },
}

/// The driver's answer to a question of the script.
#[derive(Debug)]
pub(super) enum Answer {
    Value(u64),
    Woke(Instant),
    Completed { status: Status, dw0: u32, page: Option<Box<[u8; 4096]>> },
    Failed,
}

/// The reason why a controller could not be brought up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum InitError {
    /// A register could not be read, because the device does not answer.
    Unreachable {
        /// Offset of the register in BAR0.
        offset: u32,
    },
    /// CSTS.RDY did not change within the time in CAP.TO.
    NotReady {
        /// The value of CSTS.RDY that the script waited for.
        awaited: bool,
    },
    /// The controller reports Controller Fatal Status (CSTS.CFS).
    Fatal,
    /// The controller lacks a capability that the driver needs.
    Unsupported {
        /// The value of CAP.
        capabilities: u64,
    },
    /// An admin command failed.
    Admin {
        /// The opcode of the command.
        opcode: AdminOpcode,
        /// The status of the command.
        status: Status,
    },
    /// An admin command was not answered in time.
    AdminTimeout,
    /// The memory given to the driver is not mapped.
    Memory,
    /// The device went away during the initialisation.
    Lost,
}

impl fmt::Display for InitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable { offset } => {
                write!(f, "the device does not answer a read of register {offset:#x}")
            }
            Self::NotReady { awaited } => {
                write!(f, "CSTS.RDY did not become {} within CAP.TO", u8::from(*awaited))
            }
            Self::Fatal => f.write_str("the controller reports a fatal error (CSTS.CFS)"),
            Self::Unsupported { capabilities } => {
                write!(
                    f,
                    "the controller (CAP {capabilities:#018x}) lacks 4 KiB pages, the NVM command set or usable queues"
                )
            }
            Self::Admin { opcode, status } => write!(f, "{opcode} failed: {status}"),
            Self::AdminTimeout => f.write_str("an admin command was not answered in time"),
            Self::Memory => f.write_str("the memory given to the driver is not mapped"),
            Self::Lost => f.write_str("the device went away"),
        }
    }
}

impl core::error::Error for InitError {}

type Ask = Asker<Question, Answer>;

async fn read(ask: &Ask, offset: u32, length: u32) -> Result<u64, InitError> {
    let gone = if length == 8 { u64::MAX } else { u64::from(u32::MAX) };
    match ask.ask(Question::Read { offset, length }).await {
        // A root complex returns all ones for an unanswered read.
        Answer::Value(value) if value != gone => Ok(value),
        _ => Err(InitError::Unreachable { offset }),
    }
}

async fn write(ask: &Ask, offset: u32, value: u64, length: u32) {
    ask.ask(Question::Write { offset, value, length }).await;
}

async fn admin(
    ask: &Ask,
    entry: SubmissionQueueEntry,
    with_page: bool,
) -> Result<(u32, Option<Box<[u8; 4096]>>), InitError> {
    match ask.ask(Question::Admin { entry, with_page }).await {
        Answer::Completed { status, dw0, page } if status.is_success() => Ok((dw0, page)),
        Answer::Completed { status, .. } => {
            Err(InitError::Admin { opcode: AdminOpcode::from(entry.opcode), status })
        }
        _ => Err(InitError::Memory),
    }
}

/// Waits until CSTS.RDY is `awaited`, for at most `limit`.
async fn ready(ask: &Ask, awaited: bool, limit: Nanos) -> Result<(), InitError> {
    let (mut start, mut is_late) = (None, false);
    loop {
        let value = read(ask, offset::STATUS, 4).await?;
        // A controller may be ready and failed at the same time.
        if awaited && status::FATAL.of(value) == 1 {
            return Err(InitError::Fatal);
        }
        if status::READY.of(value) == u64::from(awaited) {
            return Ok(());
        }
        if is_late {
            return Err(InitError::NotReady { awaited });
        }
        let Answer::Woke(now) = ask.ask(Question::Sleep(READY_POLL)).await else {
            return Err(InitError::Lost);
        };
        // A world that has slept for longer than intended looks once more.
        is_late = now - *start.get_or_insert(now) > limit;
    }
}

/// Brings the controller up, and returns its identity.
pub(super) async fn initialise(ask: Ask, config: Config, layout: Layout) -> Result<Identity, InitError> {
    let capabilities = read(&ask, offset::CAPABILITIES, 8).await?;
    let version = low_half(read(&ask, offset::VERSION, 4).await?);
    let supported = capabilities::NVM_COMMAND_SET.of(capabilities) == 1
        && capabilities::PAGE_SIZE_MIN.of(capabilities) == 0
        && capabilities::DOORBELL_STRIDE.of(capabilities) == 0
        // A queue has at least two entries, one of which stays empty.
        && capabilities::QUEUE_ENTRIES_MAX.of(capabilities) >= 1;
    if !supported {
        return Err(InitError::Unsupported { capabilities });
    }
    enable(&ask, &layout, capabilities).await?;
    let (_, page) = admin(&ask, identify(cns::CONTROLLER, NamespaceId::NONE), true).await?;
    let controller =
        Box::new(page.map_or_else(IdentifyController::default, |page| IdentifyController::parse(&page)));
    let io_queues = create_queues(&ask, &config, &layout, capabilities).await?;
    let namespaces = namespaces(&ask).await?;
    let transfer_bytes_max = transfer_limit(&controller, capabilities, config.transfer_bytes_max);
    Ok(Identity { version, capabilities, controller, namespaces, io_queues, transfer_bytes_max })
}

async fn enable(ask: &Ask, layout: &Layout, capabilities: u64) -> Result<(), InitError> {
    let limit = ready_timeout(capabilities);
    let before = read(ask, offset::CONFIGURATION, 4).await?;
    if configuration::ENABLE.of(before) == 1 {
        write(ask, offset::CONFIGURATION, configuration::ENABLE.replace(before, 0), 4).await;
    }
    ready(ask, false, limit).await?;
    let entries = queue_entries_max(capabilities);
    if !matches!(ask.ask(Question::RestartQueues { entries }).await, Answer::Value(_)) {
        return Err(InitError::Memory);
    }
    let admin_entries = u64::from(ADMIN_ENTRIES.min(entries)) - 1;
    let attributes = admin_queue_attributes::SUBMISSION_ENTRIES.put(admin_entries)
        | admin_queue_attributes::COMPLETION_ENTRIES.put(admin_entries);
    write(ask, offset::ADMIN_QUEUE_ATTRIBUTES, attributes, 4).await;
    let queue = layout.queue(0);
    write(ask, offset::ADMIN_SUBMISSION_QUEUE, queue.submission, 8).await;
    write(ask, offset::ADMIN_COMPLETION_QUEUE, queue.completion, 8).await;
    let configured = configuration::ENABLE.put(1)
        | configuration::SUBMISSION_ENTRY_SIZE.put(6)
        | configuration::COMPLETION_ENTRY_SIZE.put(4);
    write(ask, offset::CONFIGURATION, configured, 4).await;
    ready(ask, true, limit).await
}

/// Sets Number of Queues and creates the I/O queues. Returns the number of queue pairs.
async fn create_queues(
    ask: &Ask,
    config: &Config,
    layout: &Layout,
    capabilities: u64,
) -> Result<u16, InitError> {
    let (granted, _) = admin(ask, set_number_of_queues(config.queue_pairs), false).await?;
    let pairs = config.queue_pairs.min(granted_queues(granted));
    let entries = config.queue_entries.min(queue_entries_max(capabilities));
    for pair in 1..=pairs {
        let queue = layout.queue(pair);
        let id = QueueId(pair);
        let vector = config.interrupts.then_some(pair);
        admin(ask, create_completion_queue(id, queue.completion, entries, vector), false).await?;
        admin(ask, create_submission_queue(id, queue.submission, entries), false).await?;
    }
    Ok(pairs)
}

async fn namespaces(ask: &Ask) -> Result<Vec<Namespace>, InitError> {
    let (_, page) = admin(ask, identify(cns::ACTIVE_NAMESPACES, NamespaceId::NONE), true).await?;
    let ids: Vec<NamespaceId> =
        page.iter().flat_map(|page| namespace_list(&page[..])).take(NAMESPACES_MAX).collect();
    let mut namespaces = Vec::new();
    for id in ids {
        let (_, page) = admin(ask, identify(cns::NAMESPACE, id), true).await?;
        let Some(page) = page else { continue };
        namespaces.extend(Namespace::parse(id, &page));
    }
    Ok(namespaces)
}

#[cfg(test)]
mod tests {
    use engine::{Script, Step};

    use super::*;

    #[test]
    fn a_controller_that_became_ready_during_a_long_sleep_is_ready() {
        let limit = Nanos::from_secs(1);
        for (last, wanted) in [(1, Ok(())), (0, Err(InitError::NotReady { awaited: true }))] {
            let (mut script, first) = Script::start(|ask: Ask| async move { ready(&ask, true, limit).await });
            let look = Step::Ask(Question::Read { offset: offset::STATUS, length: 4 });
            let sleep = Step::Ask(Question::Sleep(READY_POLL));
            assert_eq!(first, look);
            assert_eq!(script.answer(Answer::Value(0)), sleep);
            assert_eq!(script.answer(Answer::Woke(Instant::ZERO)), look);
            assert_eq!(script.answer(Answer::Value(0)), sleep);
            assert_eq!(script.answer(Answer::Woke(Instant::ZERO + limit * 2)), look);
            assert_eq!(script.answer(Answer::Value(last)), Step::Done(wanted));
        }
    }
}
