//! A connection: its queue, if it has one, and its commands under way.

use alloc::vec::Vec;
use core::net::SocketAddr;

use engine::{Buffer, Instant, Nanos, Origin};
use nvme::subsystem::{CommandToken, ControllerKey};
use nvme::wire::{CommandId, CompletionQueueEntry, QueueId, Status};
use nvme_fabrics::target::{AssociationKey, Claim, Connected, SubsystemKey};
use nvme_fabrics::tls::Identity;
use nvme_fabrics::transport::ControllerEnd;
use nvme_fabrics::wire::{AuthenticationCommand, ConnectCommand, PortId, TransportAddress};

use super::ceiling::CeilingIndex;
use super::event::Accepted;
use super::guests::OfGuest;
use super::lanes::Ticket;
use super::memory::Holder;
use super::trail::{Answer, Trail};
use crate::fabric::controller::{Config, Connection, Held, Parameters, Slot};

/// What a connection stands for.
#[derive(Debug)]
pub(super) enum Standing {
    /// The connection's queue is not known yet.
    AwaitingConnect(AwaitingConnect),
    /// A queue of an association.
    Queue(Queue),
    /// Nothing any more: the connection is sending its last bytes.
    Over,
}

/// A connection whose queue is not known.
#[derive(Debug, Default)]
pub(super) struct AwaitingConnect {
    /// The Connect command whose data are on their way.
    pub(super) command: Option<(Slot, ConnectCommand)>,
    /// The queue that the connection becomes, if the home of its subsystem has decided.
    pub(super) ticket: Option<Ticket>,
}

/// A queue of an association.
#[derive(Debug)]
pub(super) struct Queue {
    /// The association; meaningless for the queue of a guest.
    pub(super) association: AssociationKey,
    /// The guest that has the queue, if a lane executes its commands.
    pub(super) guest: Option<OfGuest>,
    pub(super) queue: QueueId,
    /// The connection's claim to the queue.
    pub(super) claim: Claim,
    /// Whether the queue is the connection's and may be used.
    pub(super) is_admitted: bool,
    pub(super) entries: u16,
    pub(super) without_flow_control: bool,
    /// SQ Head Pointer (SQHD): each command that ends advances it.
    head: u16,
    /// The Authentication Send whose data are on their way.
    pub(super) authenticating: Option<Slot>,
    /// The Authentication Receive that waits for work.
    pub(super) receiving: Option<(Slot, AuthenticationCommand)>,
    /// The Keep Alive Timeout of its Connect, in milliseconds.
    pub(super) keep_alive_milliseconds: u32,
    /// The ceiling on what the host does in I/O queues.
    pub(super) ceiling: Option<CeilingIndex>,
    pub(super) role: Role,
}

/// What answers the commands of a queue.
#[derive(Debug)]
pub(super) enum Role {
    /// A subsystem's core.
    Nvm(SubsystemKey, ControllerKey),
    /// Nothing yet: the host of this subsystem must authenticate first.
    Unproven(SubsystemKey),
    /// A discovery controller.
    Discovery(Discovery),
}

/// What a discovery controller's queue has.
#[derive(Debug, Default)]
pub(super) struct Discovery {
    /// The Asynchronous Event Requests that are held.
    pub(super) held: Vec<(CommandId, Slot)>,
    /// What the commands of a host that proves nothing have cost, less what time has paid since.
    debt: Nanos,
    /// When that was so.
    charged: Instant,
}

/// What a command of a host costs that asks the discovery service and proves nothing.
const DISCOVERY_COST: Nanos = Nanos::from_micros(62_500);
/// For how many bytes of an answer that is.
const DISCOVERY_BYTES: usize = 16 << 10;
/// How much of that such a host may have at once.
const DISCOVERY_BURST: Nanos = Nanos::from_secs(8);

impl Discovery {
    /// When the next command may begin; `None` if it may now.
    pub(super) fn opens(&self, now: Instant) -> Option<Instant> {
        let over = Nanos::new(self.debt.get().saturating_sub(DISCOVERY_BURST.get()));
        Some(self.charged + over).filter(|at| *at > now)
    }

    /// A command begins, or an answer of some bytes is given.
    pub(super) fn charge(&mut self, now: Instant, bytes: usize) {
        let cost = DISCOVERY_COST.get() * (1 + (bytes / DISCOVERY_BYTES) as u64);
        let left = self.debt.get().saturating_sub((now - self.charged).get());
        (self.debt, self.charged) = (Nanos::new(left + cost), now);
    }
}

impl Queue {
    pub(super) const fn new(
        connected: &Connected,
        keep_alive_milliseconds: u32,
        ceiling: Option<CeilingIndex>,
        role: Role,
    ) -> Self {
        Self {
            association: connected.association,
            guest: None,
            queue: connected.queue,
            claim: connected.claim,
            is_admitted: connected.is_admitted,
            entries: connected.entries,
            without_flow_control: connected.without_flow_control,
            head: 0,
            authenticating: None,
            receiving: None,
            keep_alive_milliseconds,
            ceiling,
            role,
        }
    }

    /// Whether a command that authenticates the host is under way.
    pub(super) const fn is_in_step(&self) -> bool {
        self.authenticating.is_some() || self.receiving.is_some()
    }

    /// The host that memory of the queue is held for.
    #[inline]
    pub(super) const fn holder(&self) -> Holder {
        match &self.guest {
            None => Holder::Association(self.association),
            Some(guest) => Holder::Guest(guest.index),
        }
    }
}

#[derive(Debug)]
pub(super) struct Peer {
    pub(super) connection: Connection,
    pub(super) port: PortId,
    pub(super) address: SocketAddr,
    /// The address that the host connected to.
    pub(super) reached: SocketAddr,
    pub(super) local: TransportAddress,
    /// What the host has proved by TLS.
    pub(super) proved: Option<Identity>,
    pub(super) parameters: Option<Parameters>,
    pub(super) standing: Standing,
    /// What another reactor needs to begin again, while the connection may go there.
    pub(super) trail: Option<Trail>,
    /// The commands that a core has, by slot.
    tokens: Vec<Option<CommandToken>>,
    /// Bytes sent to the host so far, by any reactor.
    pub(super) sent: u64,
    /// Bytes of the outbox that another reactor has sent already.
    pub(super) skip: usize,
    /// The world knows that there are bytes to send.
    pub(super) is_sending: bool,
    pub(super) is_touched: bool,
    /// What the target's budget counts as held by this connection.
    pub(super) counted: Held,
    /// The connection is among those that wait for memory.
    pub(super) is_waiting: bool,
    /// The connection is among those that wait for their host's ceiling.
    pub(super) is_slowed: bool,
    /// The connection takes no bytes from its host at present.
    pub(super) is_deaf: bool,
    /// When the host last took something of what waits for it, or when that began to wait.
    pub(super) taken: Instant,
    /// When the host last sent something.
    pub(super) given: Instant,
}

impl Peer {
    pub(super) fn new(now: Instant, config: &Config, accepted: Accepted) -> Self {
        // What a queue pair has said is not bytes that another reactor could hear again.
        let trail = accepted.pair.is_none().then(Trail::default);
        let skip = accepted.resume.as_ref().map_or(0, |handover| handover.sent);
        let ticket = accepted.resume.and_then(|handover| handover.ticket);
        let awaiting = AwaitingConnect { ticket, ..AwaitingConnect::default() };
        Self {
            connection: Connection::new(now, accepted.fabric, config, accepted.pair),
            port: accepted.port,
            address: accepted.peer,
            reached: accepted.local,
            local: accepted.local.into(),
            proved: accepted.proved,
            parameters: None,
            standing: Standing::AwaitingConnect(awaiting),
            trail,
            tokens: Vec::new(),
            sent: skip as u64,
            skip,
            is_sending: false,
            is_touched: false,
            counted: Held::default(),
            is_waiting: false,
            is_slowed: false,
            is_deaf: false,
            taken: now,
            given: now,
        }
    }

    /// Keeps bytes of the host for another reactor, as long as the connection may go there.
    pub(super) fn remember(&mut self, bytes: &[u8]) {
        let sent = self.sent;
        self.trail = self.trail.take().and_then(|trail| trail.with_bytes(bytes, sent));
    }

    /// Keeps the answer to a command that authenticates the host, as [`Peer::remember`] does.
    pub(super) fn remember_answer(&mut self, answer: impl FnOnce() -> Answer) {
        self.trail = self.trail.take().and_then(|trail| trail.with_answer(answer()));
    }

    /// Where the connection comes from.
    pub(super) fn origin(&self) -> Origin {
        Origin::of(self.address.ip())
    }

    pub(super) const fn is_over(&self) -> bool {
        matches!(self.standing, Standing::Over)
    }

    pub(super) const fn is_awaiting(&self) -> bool {
        matches!(self.standing, Standing::AwaitingConnect(_))
    }

    pub(super) const fn queue(&self) -> Option<&Queue> {
        match &self.standing {
            Standing::Queue(queue) => Some(queue),
            _ => None,
        }
    }

    pub(super) const fn subsystem(&self) -> Option<SubsystemKey> {
        match self.queue() {
            Some(Queue { role: Role::Nvm(subsystem, _) | Role::Unproven(subsystem), .. }) => Some(*subsystem),
            _ => None,
        }
    }

    /// The ceiling on what the host does in this queue.
    pub(super) fn ceiling(&self) -> Option<CeilingIndex> {
        self.queue()?.ceiling
    }

    pub(super) fn set_token(&mut self, slot: Slot, token: Option<CommandToken>) {
        let index = usize::from(slot.0);
        if self.tokens.len() <= index {
            self.tokens.resize(index + 1, None);
        }
        self.tokens[index] = token;
    }

    pub(super) fn token(&self, slot: Slot) -> Option<CommandToken> {
        *self.tokens.get(usize::from(slot.0))?
    }

    /// Takes the connection's commands that a core has; the connection forgets them.
    pub(super) fn take_tokens(&mut self) -> impl Iterator<Item = CommandToken> + use<> {
        core::mem::take(&mut self.tokens).into_iter().flatten()
    }

    /// Ends the command of `slot`.
    #[inline]
    pub(super) fn complete(&mut self, slot: Slot, status: Status, dw0: u32, dw1: u32) {
        let mut entry = CompletionQueueEntry { dw0, dw1, ..CompletionQueueEntry::default() };
        if let Standing::Queue(queue) = &mut self.standing {
            queue.head = if queue.head + 1 >= queue.entries { 0 } else { queue.head + 1 };
            if !queue.without_flow_control {
                entry.submission_queue_head = queue.head;
            }
            entry.submission_queue = queue.queue;
        }
        self.connection.complete(slot, entry.with_status(status, false));
    }

    /// Answers an Authentication Receive.
    pub(super) fn give_message(&mut self, slot: Slot, message: Vec<u8>) {
        let total = u32::try_from(message.len()).expect("a message is short");
        let pushed = self.connection.push(slot, 0, total, Buffer::from(message));
        if pushed.is_err() {
            self.trail = None;
        }
        self.complete(slot, pushed.err().unwrap_or(Status::SUCCESS), 0, 0);
    }

    /// Ends the Connect command of `slot`, without advancing SQHD.
    pub(super) fn complete_connect(&mut self, slot: Slot, dw0: u32, head: u16) {
        let entry =
            CompletionQueueEntry { dw0, submission_queue_head: head, ..CompletionQueueEntry::default() };
        self.connection.complete(slot, entry);
    }
}
