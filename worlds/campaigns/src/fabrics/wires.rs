//! An initiator and its connections in the virtual world.

use assemblies::fabric::host::Closed;
use std::collections::BTreeMap;

use ::rdma::Disconnected;
use assemblies::initiator::{self, ConnectionId, Initiator, Input, Output};
use engine::{Buffer, Engine, Instant};
use nvme_fabrics::host as association;
use nvme_rdma::host as rdma;
use nvme_tcp::host as tcp;
use sim::stream::{self, Lane, StreamEvent};
use sim::{Context, NodeId};

use super::air::{Air, Parcel};

/// Number of last events that are kept for the report of a failed run.
const EVENTS_MAX: usize = 24;

/// The message of a device that has accepted a connection and got no acknowledgement.
const WAITED: &str = "it has waited too long for an answer";

/// Whether a connection may end for this reason between two ends that keep to the protocol: the
/// network may lose the first messages of a connection, and a target may end one in order.
fn may_happen(why: Closed) -> bool {
    match why {
        Closed::Tcp(why) => matches!(why, tcp::Closed::InitialiseTimeout),
        Closed::Rdma(rdma::Closed::Disconnected(Disconnected::Reported(why))) => why == WAITED,
        Closed::Rdma(why) => matches!(
            why,
            rdma::Closed::InitialiseTimeout
                | rdma::Closed::Disconnected(Disconnected::InOrder | Disconnected::TimedOut)
        ),
    }
}

/// A connection of the world.
#[derive(Debug)]
struct Connection {
    id: ConnectionId,
    open: bool,
}

/// An initiator whose paths are lanes to one node.
#[derive(Debug)]
pub(super) struct Wires {
    target: NodeId,
    config: initiator::Config,
    associations: Vec<association::Config>,
    /// Whether received data are placed directly into the initiator's landing buffers.
    lands: bool,
    pub(super) initiator: Initiator,
    is_started: bool,
    connections: BTreeMap<stream::ConnectionId, Connection>,
    /// The devices of RoCE that the paths take instead of streams, and the station that they
    /// lead to.
    air: Option<(Air, u8)>,
    /// Connections of these devices.
    pairs: Vec<ConnectionId>,
    events: Vec<String>,
}

impl Wires {
    pub(super) fn new(
        target: NodeId,
        config: initiator::Config,
        associations: Vec<association::Config>,
        lands: bool,
        air: Option<(Air, u8)>,
    ) -> Self {
        Self {
            target,
            air,
            pairs: Vec::new(),
            initiator: Initiator::new(config.clone(), associations.clone()),
            config,
            associations,
            lands,
            is_started: false,
            connections: BTreeMap::new(),
            events: Vec::new(),
        }
    }

    /// Handles an event of a connection; returns whether the connection is the initiator's.
    pub(super) fn handle(
        &mut self,
        now: Instant,
        connection: stream::ConnectionId,
        event: StreamEvent,
    ) -> bool {
        let Some(one) = self.connections.get_mut(&connection) else { return false };
        let id = one.id;
        match event {
            StreamEvent::Opened => {
                one.open = true;
                self.initiator.handle_input(now, Input::Connected(id));
            }
            StreamEvent::Data(bytes) => self.receive(now, id, bytes),
            StreamEvent::Closed(_) => {
                self.connections.remove(&connection);
                self.initiator.handle_input(now, Input::Closed(id));
            }
            StreamEvent::Writable | StreamEvent::Accepted { .. } => {}
        }
        true
    }

    /// The devices of RoCE, if the paths take them.
    pub(super) fn air_mut(&mut self) -> Option<&mut Air> {
        self.air.as_mut().map(|(air, _)| air)
    }

    /// Handles a datagram; returns whether it is for a device here.
    pub(super) fn handle_parcel(&mut self, now: Instant, parcel: &Parcel) -> bool {
        let is_ours = self.air.as_ref().is_some_and(|(air, _)| air.handle(now, parcel));
        if is_ours {
            self.stir(now);
        }
        is_ours
    }

    /// Lets connections of devices look for received messages.
    fn stir(&mut self, now: Instant) {
        for id in self.pairs.clone() {
            self.initiator.handle_input(now, Input::Stirred(id));
        }
    }

    fn receive(&mut self, now: Instant, id: ConnectionId, mut bytes: Buffer) {
        while self.lands
            && !bytes.is_empty()
            && let Some(place) = self.initiator.landing(id)
        {
            let count = place.len().min(bytes.len());
            place[..count].copy_from_slice(&bytes[..count]);
            bytes = bytes.slice(count..bytes.len());
            self.initiator.handle_input(now, Input::Landed { connection: id, count });
        }
        if !bytes.is_empty() {
            self.initiator.handle_input(now, Input::Received { connection: id, bytes });
        }
    }

    /// Starts the initiator the first time, and fires its deadline if it is due.
    pub(super) fn wake(&mut self, now: Instant) {
        if !std::mem::replace(&mut self.is_started, true) {
            self.initiator.start(now);
        }
        if self.initiator.poll_timeout().is_some_and(|at| at <= now) {
            self.initiator.handle_timeout(now);
        }
    }

    /// Handles outputs about connections, and returns the next other output.
    pub(super) fn poll(&mut self, context: &mut Context<'_, Parcel>) -> Option<Output> {
        while let Some(output) = self.initiator.poll_output() {
            match output {
                Output::Dial(id) if self.air.is_some() => self.reach(context.now(), id),
                Output::Dial(id) => {
                    let lane = Lane(u8::try_from(id.path.0).expect("few paths"));
                    let connection = context.dial_lane(self.target, lane);
                    self.connections.insert(connection, Connection { id, open: false });
                }
                Output::Close { connection: id, last, .. } => self.close(context, id, &last),
                Output::ProtocolError(id, why) if !may_happen(why) => panic!("{id:?}: {why}"),
                output => return Some(output),
            }
        }
        None
    }

    /// Asks for a connection of a device.
    fn reach(&mut self, now: Instant, id: ConnectionId) {
        let Some((air, station)) = &self.air else { return };
        let Some(private_data) = self.initiator.private_data(id) else { return };
        let lane = u8::try_from(id.path.0).expect("few paths");
        let pair = air.connect(lane, *station, &private_data).expect("few connections");
        self.pairs.push(id);
        self.initiator.handle_input(now, Input::Reached { connection: id, pair: Box::new(pair) });
    }

    fn close(&mut self, context: &mut Context<'_, Parcel>, id: ConnectionId, last: &[u8]) {
        self.pairs.retain(|one| *one != id);
        let found = self.connections.iter().find(|(_, one)| one.id == id);
        let Some((&connection, &Connection { open, .. })) = found else { return };
        if open {
            context.send(connection, last);
        }
        context.close(connection);
        self.connections.remove(&connection);
    }

    /// Sends as much as the connections take. Returns whether there may be more to do at once.
    pub(super) fn flush(&mut self, context: &mut Context<'_, Parcel>) -> bool {
        let has_news = self.air.as_mut().is_some_and(|(air, _)| air.exchange(context));
        if has_news {
            self.stir(context.now());
        }
        for (connection, one) in self.connections.iter().filter(|(_, one)| one.open) {
            let Some(outbox) = self.initiator.outbox(one.id) else { continue };
            let mut sent = 0;
            for slice in outbox.slices() {
                let taken = context.send(*connection, slice);
                sent += taken;
                if taken < slice.len() {
                    break;
                }
            }
            if sent > 0 {
                self.initiator.sent(one.id, sent);
            }
        }
        has_news
    }

    /// When there is something to do, even if nothing comes.
    pub(super) fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        let air = self.air.as_ref().and_then(|(air, _)| air.poll_timeout(now));
        self.initiator.poll_timeout().into_iter().chain(air).min()
    }

    /// Replaces the initiator by a new one, after the node was killed and is back.
    pub(super) fn restart(&mut self) {
        self.initiator = Initiator::new(self.config.clone(), self.associations.clone());
        self.is_started = false;
        self.connections.clear();
        self.pairs.clear();
        if let Some((air, _)) = &mut self.air {
            air.restart();
        }
    }

    /// Whether every path of the initiator is up.
    pub(super) fn is_whole(&self) -> bool {
        self.initiator.multipath().paths().all(|path| path.live)
    }

    /// Keeps an event for the report of a failed run.
    pub(super) fn note(&mut self, now: Instant, event: &Output) {
        if self.events.len() == EVENTS_MAX {
            self.events.remove(0);
        }
        let text: String = format!("{event:?}").chars().take(160).collect();
        self.events.push(format!("{}: {text}", now - Instant::ZERO));
    }

    pub(super) fn describe(&self) -> String {
        let mut text = String::new();
        for path in self.initiator.multipath().paths() {
            text += &format!("path live: {}, over: {}, {} on it; ", path.live, path.over, path.outstanding);
        }
        text + &format!("{} connections; latest events:\n    ", self.connections.len())
            + &self.events.join("\n    ")
    }
}
