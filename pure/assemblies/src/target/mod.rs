//! Subsystems offered over a fabric: connections, associations, and one command core for
//! each subsystem.
//!
//! The world accepts connections and moves bytes. Received bytes come in by [`Input::Received`].
//! After [`Output::Send`] the world sends what [`Target::outbox`] shows and reports it by
//! [`Target::sent`]. Of a queue pair that has no byte stream, the world says when it may have news
//! ([`Input::Stirred`]). Requests to media go out by [`Output::Media`].

mod access;
mod association;
mod authentication;
mod ceiling;
mod command_core;
mod commands;
mod event;
mod fabrics;
mod gate;
mod guests;
mod lanes;
mod memory;
mod peer;
mod reauthentication;
mod status;
mod subsystem;
mod subsystems;
#[cfg(test)]
mod tests;
mod trail;
mod watched;

pub use event::{Accepted, Close, ConnectionId, Event, Handover, Input, Output, QueueDescription};
pub use gate::{PROOF_MAX, STRANGERS_MAX, StrangersStatus};
pub use guests::GuestStatus;
pub use lanes::{ReactorId, Ticket, TicketNumber, ToHome, ToLane};
pub use memory::{MEMORY_MAX, MemoryStatus, UNREAD_MAX, UNREAD_MAX_UNDER_PRESSURE};
pub use reauthentication::{Step, StepAnswer};
pub use status::{AssociationStatus, ConnectionStatus};

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use engine::{Engine, Entropy, Instant, Nanos, Origin, Outbox, Watch};
use nvme::subsystem::Config as SubsystemConfig;
use nvme_fabrics::authentication::Failure;
use nvme_fabrics::target as fabrics_target;
use nvme_fabrics::target::{AssociationKey, Directory, Subsystem, SubsystemKey};
use nvme_fabrics::transport::ControllerEnd;

use association::Member;
use ceiling::Ceilings;
use gate::{Gate, Verdict};
use guests::Guests;
use lanes::LaneTraffic;
use memory::Memory;
use peer::{Peer, Standing};
use subsystem::Served;
use subsystems::Subsystems;

use crate::fabric::controller;
use crate::watch::{Direction, Port};

/// Maximum number of connections at a time; further ones are closed.
pub const CONNECTIONS_MAX: u32 = 1 << 16;
/// The data that a capsule of an I/O queue may carry, in bytes.
pub const CAPSULE_DATA_MAX: u32 = 8 << 10;

/// The settings of a target.
#[derive(Clone, Debug)]
pub struct Config {
    /// Settings of every connection.
    pub connection: controller::Config,
    /// The subsystems, ports and hosts of the target. [`Target::add_subsystem`] brings the cores of
    /// the subsystems that are here.
    pub directory: Directory,
    /// Source of the identifiers for the lives of controllers (CIRN), and of the challenges and
    /// keys by which hosts authenticate. In production it must be the system's.
    pub rng: Entropy,
}

/// A target: its connections, their associations, and the cores of the subsystems that are here.
#[derive(Debug)]
pub struct Target {
    connection: controller::Config,
    fabrics: fabrics_target::Target,
    /// Indexed by connection.
    peers: Vec<Option<Peer>>,
    /// How many of them there are.
    connections: usize,
    /// Indexed by association.
    members: Vec<Option<Member>>,
    /// Indexed by subsystem.
    subsystems: Subsystems,
    /// Connections whose hosts have not proved who they are.
    gate: Gate,
    /// Connections that may have something to say.
    touched: Vec<ConnectionId>,
    memory: Memory,
    ceilings: Ceilings,
    /// Queues that have moved to lanes of other reactors.
    lanes: LaneTraffic,
    /// Hosts of other reactors' subsystems.
    guests: Guests,
    /// Number of commands that were taken so far.
    commands: u64,
    outputs: VecDeque<Output>,
    watch: Watch<Port>,
    rng: Entropy,
    now: Instant,
}

impl Target {
    /// A target that offers what the directory of `config` says. The cores of its subsystems are
    /// still to be added.
    pub fn new(now: Instant, config: Config) -> Self {
        Self {
            connection: config.connection,
            fabrics: fabrics_target::Target::new(config.directory, config.rng.fork("authentication")),
            peers: Vec::new(),
            connections: 0,
            members: Vec::new(),
            subsystems: Subsystems::default(),
            gate: Gate::default(),
            touched: Vec::new(),
            memory: Memory::default(),
            ceilings: Ceilings::default(),
            lanes: LaneTraffic::default(),
            guests: Guests::default(),
            commands: 0,
            outputs: VecDeque::new(),
            watch: Watch::new(),
            rng: config.rng,
            now,
        }
    }

    /// Brings the core of a subsystem that the directory says is here.
    ///
    /// # Panics
    /// When the core is there already, or `config` exceeds a limit that its fields name.
    pub fn add_subsystem(&mut self, now: Instant, key: SubsystemKey, config: SubsystemConfig) {
        self.now = now;
        let index = key.0 as usize;
        self.subsystems.make_room(index);
        assert!(self.subsystems[index].is_none(), "{key:?} is here already");
        self.subsystems[index] = Some(Served::new(now, config));
        self.drain_core(key);
        self.work();
    }

    /// Replaces the directory. Associations end whose host is no longer allowed or whose subsystem
    /// is gone. A subsystem that is gone is forgotten.
    pub fn set_directory(&mut self, now: Instant, directory: Directory) {
        self.now = now;
        let changes = self.fabrics.set_directory(directory);
        self.on_offer(changes);
        self.apply_permits(None);
        for index in 0..self.subsystems.len() {
            self.forget_if_gone(SubsystemKey(u32::try_from(index).expect("keys have 32 bits")));
        }
        self.work();
    }

    /// Offers a subsystem, in the place of the one with its key if there is one, as
    /// [`Target::set_directory`] with this change does.
    pub fn put_subsystem(&mut self, now: Instant, subsystem: Subsystem) {
        self.now = now;
        let key = subsystem.key;
        let changes = self.fabrics.put_subsystem(subsystem);
        self.on_offer(changes);
        self.apply_permits(Some(key));
        self.forget_if_gone(key);
        self.work();
    }

    /// Offers a subsystem no longer, as [`Target::set_directory`] with this change does.
    pub fn remove_subsystem(&mut self, now: Instant, key: SubsystemKey) {
        self.now = now;
        let changes = self.fabrics.remove_subsystem(key);
        self.on_offer(changes);
        self.apply_permits(Some(key));
        self.forget_if_gone(key);
        self.work();
    }

    /// Sets whether more is meant to be offered, as [`Directory::is_partial`] says.
    pub const fn set_partial(&mut self, is_partial: bool) {
        self.fabrics.set_partial(is_partial);
    }

    /// Informs hosts of another offer, and ends the associations of those that it is not for.
    fn on_offer(&mut self, (notified, ended): (Vec<AssociationKey>, Vec<AssociationKey>)) {
        for key in ended {
            self.end_association(key, &Close::NotOffered);
        }
        for key in notified {
            self.report_event(key);
        }
    }

    /// Forgets a subsystem that is offered here no longer.
    fn forget_if_gone(&mut self, key: SubsystemKey) {
        let offered = self.fabrics.offered(key).is_some_and(|one| one.is_here);
        // The home of a lane ends the lane.
        if !offered && self.home_mut(key).is_some() {
            self.end_all_lanes_of(key);
            self.subsystems[key.0 as usize] = None;
        }
    }

    /// Gives strangers, which are connections whose hosts have not proved who they are, no more
    /// than `places` of the connections.
    pub const fn set_strangers_max(&mut self, places: usize) {
        self.gate.set_places(places);
    }

    /// Gives a host this long from its connection to the proof of who it is.
    pub const fn set_proof_max(&mut self, time: Nanos) {
        self.gate.set_proof_max(time);
    }

    /// Has the exponentiations of authentications done by the world ([`Output::Work`]), those for
    /// strangers with at most `share` thousandths of a processor.
    pub const fn work_outside(&mut self, share: u32) {
        self.fabrics.work_outside(share);
    }

    /// What strangers have, and what became of others.
    pub fn strangers(&self) -> StrangersStatus {
        self.gate.status(self.fabrics.work_status())
    }

    /// Counts a host that the world has refused, by a word for the reason.
    pub fn count_refused(&mut self, why: &'static str) {
        self.gate.count_refused(why);
    }

    /// Whether the host of a connection has proved who it is, or need not.
    pub fn is_admitted(&self, connection: ConnectionId) -> bool {
        !self.gate.has(connection)
    }

    /// Number of commands that hosts have sent to queues here, fabrics commands apart.
    pub const fn commands(&self) -> u64 {
        self.commands
    }

    /// The directory: what the target offers.
    pub const fn directory(&self) -> &Directory {
        self.fabrics.directory()
    }

    /// The subsystem with that key, if it is offered.
    pub fn offered(&self, key: SubsystemKey) -> Option<&Subsystem> {
        self.fabrics.offered(key)
    }

    /// The core of a subsystem, if it is here.
    pub fn subsystem(&self, key: SubsystemKey) -> Option<&nvme::subsystem::Subsystem> {
        self.subsystems.get(key.0 as usize)?.as_ref()?.core.home()
    }

    /// Whether commands for a subsystem are executed here, by its core or by a lane.
    pub fn serves(&self, key: SubsystemKey) -> bool {
        self.subsystems.get(key.0 as usize).is_some_and(Option::is_some)
    }

    /// The core of a subsystem whose home is here.
    fn home_mut(&mut self, key: SubsystemKey) -> Option<&mut nvme::subsystem::Subsystem> {
        self.subsystems.get_mut(key.0 as usize)?.as_mut()?.core.home_mut()
    }

    /// Calls `change` with the core of a subsystem, for changes to its namespaces. `None` if the
    /// core is not here.
    pub fn with_subsystem<T>(
        &mut self,
        now: Instant,
        key: SubsystemKey,
        change: impl FnOnce(&mut nvme::subsystem::Subsystem) -> T,
    ) -> Option<T> {
        self.now = now;
        let result = change(self.home_mut(key)?);
        self.drain_core(key);
        self.work();
        Some(result)
    }

    /// The bytes to send on a connection; `None` if the connection does not exist.
    pub fn outbox(&mut self, connection: ConnectionId) -> Option<&Outbox> {
        self.peer(connection)?.connection.outbox()
    }

    /// The first `count` bytes of the outbox were sent.
    pub fn sent(&mut self, now: Instant, connection: ConnectionId, count: usize) {
        self.now = now;
        if self.watch.is_on() {
            self.show_sent(connection, count);
        }
        let Some(peer) = self.peer(connection) else { return };
        peer.connection.sent(count);
        peer.sent += count as u64;
        if count > 0 {
            peer.taken = now;
        }
        if !peer.connection.has_bytes() {
            peer.is_sending = false;
        }
        self.touch(connection);
        self.work();
    }

    /// Whether bytes from the host are wanted now.
    pub fn wants_input(&self, connection: ConnectionId) -> bool {
        let peer = self.peers.get(connection.0 as usize).and_then(Option::as_ref);
        peer.is_some_and(|peer| peer.connection.wants_input())
    }

    /// Where the next bytes from the host belong, if they are data that are being assembled;
    /// see [`controller::Connection::landing`].
    pub fn landing(&mut self, connection: ConnectionId) -> Option<&mut [u8]> {
        let peer = self.peer(connection)?;
        // Bytes that are kept for another reactor must come by [`Input::Received`].
        let is_kept = peer.trail.is_some() || !matches!(peer.standing, Standing::Queue(_));
        (!is_kept).then(|| peer.connection.landing())?
    }

    /// The first `count` bytes of [`Target::landing`] were received.
    ///
    /// # Panics
    /// When [`Target::landing`] has fewer than `count` bytes.
    pub fn landed(&mut self, now: Instant, connection: ConnectionId, count: usize) {
        self.now = now;
        if self.watch.is_on() {
            self.show_landed(connection, count);
        }
        let Some(peer) = self.peer(connection) else { return };
        peer.connection.landed(count);
        peer.given = now;
        self.touch(connection);
        self.work();
    }

    /// Ends every association in good order: each connection is closed once its pending answers
    /// are sent.
    pub fn shut_down(&mut self, now: Instant) {
        self.now = now;
        for index in 0..self.members.len() {
            if self.members[index].is_some() {
                let key = AssociationKey(u32::try_from(index).expect("associations are few"));
                self.end_association(key, &Close::ShuttingDown);
            }
        }
        for index in 0..self.peers.len() {
            let id = ConnectionId(u32::try_from(index).expect("connections are fewer than 2^32"));
            if self.peers[index].as_ref().is_some_and(|peer| !peer.is_over()) {
                self.retire(id, &Close::ShuttingDown);
            }
        }
        self.end_lanes();
        self.work();
    }

    fn peer(&mut self, connection: ConnectionId) -> Option<&mut Peer> {
        self.peers.get_mut(connection.0 as usize)?.as_mut()
    }

    fn touch(&mut self, connection: ConnectionId) {
        if let Some(peer) = self.peer(connection)
            && !core::mem::replace(&mut peer.is_touched, true)
        {
            self.touched.push(connection);
        }
    }

    /// Goes on until no connection has anything more to say.
    fn work(&mut self) {
        while let Some(connection) = self.touched.pop() {
            if let Some(peer) = self.peer(connection) {
                peer.is_touched = false;
            }
            self.poll_connection(connection);
            if let Some(subsystem) = self.peer(connection).and_then(|peer| peer.subsystem()) {
                self.drain_core(subsystem);
            }
            self.announce(connection);
            self.count(connection);
            self.listen_again(connection);
        }
    }

    /// Has the world listen to a connection whose bytes were not wanted for a while and are now:
    /// those that came meanwhile raise no further event.
    fn listen_again(&mut self, connection: ConnectionId) {
        let Some(peer) = self.peer(connection) else { return };
        let wants = peer.connection.wants_input();
        if core::mem::replace(&mut peer.is_deaf, !wants) && wants {
            self.outputs.push_back(Output::Listen(connection));
        }
    }

    /// Announces once that a connection has something to send.
    fn announce(&mut self, connection: ConnectionId) {
        let now = self.now;
        if let Some(peer) = self.peer(connection)
            && !peer.is_sending
            && peer.connection.has_bytes()
        {
            peer.is_sending = true;
            peer.taken = now;
            self.watch_for_reading();
            self.outputs.push_back(Output::Send(connection));
        }
    }

    fn log(&mut self, event: Event) {
        self.outputs.push_back(Output::Event(event));
    }

    fn on_accepted(&mut self, accepted: event::Accepted) {
        let id = accepted.connection;
        let index = id.0 as usize;
        assert!(id.0 < CONNECTIONS_MAX, "{id:?} is beyond {CONNECTIONS_MAX}");
        if self.peers.len() <= index {
            self.peers.resize_with(index + 1, || None);
        }
        assert!(self.peers[index].is_none(), "{id:?} is in use");
        let resume = accepted.resume.as_ref().map(|handover| handover.received.clone());
        let is_guest = accepted.resume.as_ref().is_some_and(|handover| handover.ticket.is_some());
        let origin = Origin::of(accepted.peer.ip());
        self.peers[index] = Some(Peer::new(self.now, &self.connection, accepted));
        self.connections += 1;
        let verdict = if is_guest { Verdict::Room } else { self.gate.accept(self.now, id, origin) };
        match verdict {
            Verdict::Room => {}
            Verdict::InsteadOf(victim) => {
                self.drop_connection(victim, &Close::Crowded);
                self.report_crowded(victim);
            }
            Verdict::Full => {
                self.drop_connection(id, &Close::Crowded);
                return self.report_crowded(id);
            }
        }
        for received in resume.into_iter().flatten() {
            self.on_received(id, engine::Buffer::from(received));
        }
    }

    /// Reports that strangers are turned away for others, once until that has ceased.
    fn report_crowded(&mut self, id: ConnectionId) {
        if self.gate.report_crowded(self.now)
            && let Some(peer) = self.peer(id).map(|peer| peer.address)
        {
            self.log(Event::Crowded { peer });
        }
    }

    fn on_received(&mut self, id: ConnectionId, bytes: engine::Buffer) {
        let now = self.now;
        if self.watch.is_on() {
            self.show_bytes(Direction::Down, id, &bytes);
        }
        let Some(peer) = self.peer(id) else { return };
        peer.remember(&bytes);
        if peer.is_awaiting() {
            self.gate.on_heard(id);
        }
        let Some(peer) = self.peer(id) else { return };
        peer.given = now;
        peer.connection.received(now, bytes);
        self.touch(id);
        self.work();
        self.skip_sent(id);
    }

    /// Looks at a queue pair of which there may be news.
    fn on_stirred(&mut self, id: ConnectionId) {
        let now = self.now;
        let Some(peer) = self.peer(id) else { return };
        if peer.connection.has_news() {
            // Completions say that the host has taken something.
            (peer.given, peer.taken) = (now, now);
            if peer.is_awaiting() {
                self.gate.on_heard(id);
            }
            self.touch(id);
            self.work();
        }
    }

    /// Skips the bytes that another reactor has sent already.
    fn skip_sent(&mut self, id: ConnectionId) {
        let Some(peer) = self.peer(id) else { return };
        if peer.skip > 0 {
            let count = peer.skip.min(peer.connection.outbox().map_or(0, Outbox::len));
            peer.skip -= count;
            peer.connection.sent(count);
            peer.is_sending &= peer.connection.has_bytes();
        }
    }

    /// The world has closed a connection, or found it closed.
    fn on_closed(&mut self, id: ConnectionId) {
        if self.peer(id).is_some_and(|peer| !peer.is_over()) {
            self.release(id, &Close::Lost);
        }
        self.uncount(id);
        self.forget_peer(id);
        self.work();
    }

    fn forget_peer(&mut self, id: ConnectionId) {
        self.gate.remove(id);
        if self.peers.get_mut(id.0 as usize).and_then(Option::take).is_some() {
            self.connections -= 1;
        }
    }
}

impl Engine for Target {
    type Input<'a> = Input;
    type Output = Output;

    #[inline]
    fn handle_input(&mut self, now: Instant, input: Input) {
        self.now = now;
        match input {
            Input::Received { connection, bytes } => self.on_received(connection, bytes),
            Input::Media { subsystem, completion } => {
                if let Some(served) = self.subsystems.get_mut(subsystem.0 as usize).and_then(Option::as_mut) {
                    served.core.handle_input(now, nvme::subsystem::Input::Media(completion));
                    self.drain_core(subsystem);
                    self.work();
                }
            }
            Input::Accepted(accepted) => {
                self.on_accepted(accepted);
                self.work();
            }
            Input::Worked { id, product, spent } => self.on_worked(id, product, spent),
            Input::Proved { connection, identity } => {
                if let Some(peer) = self.peer(connection) {
                    peer.proved = Some(identity);
                }
            }
            Input::FromHome { subsystem, message } => self.on_home_message(subsystem, message),
            Input::FromLane { subsystem, reactor, message } => {
                self.on_lane_message(subsystem, reactor, message);
            }
            Input::Stirred(connection) => self.on_stirred(connection),
            Input::Closed(connection) => self.on_closed(connection),
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.now = now;
        while let Some(id) = self.gate.expire(now) {
            let is_awaiting = self.peer(id).is_some_and(|peer| peer.is_awaiting());
            let late = Close::Unauthenticated(Failure::TimedOut);
            self.retire(id, if is_awaiting { &Close::NoConnect } else { &late });
        }
        self.end_unauthenticated();
        for key in self.fabrics.expired(now) {
            let found = self.fabrics.association(key);
            let why = if found.is_some_and(|one| one.authentication_is_overdue(now)) {
                Close::Unauthenticated(Failure::TimedOut)
            } else if found.is_some_and(|one| one.keep_alive_has_expired(now)) {
                Close::KeepAlive
            } else {
                Close::Idle
            };
            self.end_association(key, &why);
        }
        self.end_unread();
        self.open_ceilings(false);
        self.offer_work();
        for index in self.subsystems.expired(now) {
            let due = |served: &&mut Served| served.core.poll_timeout().is_some_and(|at| at <= now);
            if let Some(served) = self.subsystems[index].as_mut().filter(due) {
                served.core.handle_timeout(now);
                self.drain_core(SubsystemKey(u32::try_from(index).expect("keys have 32 bits")));
            }
        }
        self.work();
    }

    #[inline]
    fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let strangers = self.gate.poll_timeout().into_iter().chain(self.fabrics.next_work());
        let cores = self.subsystems.poll_timeout().into_iter();
        let ceilings = self.ceilings.poll_timeout();
        let memory = self.memory.poll_timeout();
        cores.chain(strangers).chain(self.fabrics.poll_timeout()).chain(memory).chain(ceilings).min()
    }
}
