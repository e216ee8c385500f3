//! The host of NVMe/TCP subsystems in the live world: an initiator, its sockets and dialling, in
//! one loop.

mod devices;

pub use devices::{Carrier, Reach};

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;

use assemblies::initiator::{ConnectionId, Initiator, Input, Output};
use assemblies::watch::Port;
use engine::{Engine, Instant, Nanos, Pool, Watch};
use nvme_fabrics::tls::Psk;
use nvme_tcp::SharedPool;

use super::{Received, Socket, tls};
use crate::carrier::LOOKS;
use crate::carrier::tcp::connect;
use crate::reactor::{Attention, Context, Driver, Pump, Shell, Sources, Turn};
use crate::sys::precedence::Precedence;
use devices::Devices;

/// The most pieces taken from a connection in a turn.
const PIECES_PER_TURN: usize = 4;
/// A connection that was silent for this long, and on which nothing is awaited, is looked at only
/// when the kernel has news of it.
const SILENT: Nanos = Nanos::from_millis(10);
/// How often the driver checks which connections are at rest.
const ATTEND_EVERY: Nanos = Nanos::from_millis(1);
/// The longest time that one attempt to connect may take.
const DIAL_MAX: Nanos = Nanos::from_secs(5);
/// The longest time that a TLS handshake may take.
const PROVE_MAX: Nanos = Nanos::from_secs(10);
/// How often an attempt is looked at when nothing else wakes the loop.
const LOOK_EVERY: Nanos = Nanos::from_millis(1);

/// A connection of the initiator.
#[derive(Debug)]
enum Connection {
    Dialling {
        id: ConnectionId,
        socket: socket2::Socket,
        until: Instant,
        look: Instant,
        registered: bool,
    },
    /// Both ends are proving that they have the same key.
    Proving {
        established: Established,
        until: Instant,
    },
    Established(Established),
}

/// An established connection.
#[derive(Debug)]
struct Established {
    id: ConnectionId,
    socket: Socket,
    /// When either side last sent something; `None` if it was just now.
    heard: Option<Instant>,
    /// How the connection ends a sleep.
    attention: Attention,
}

impl Established {
    /// Lets the kernel report news of a connection at rest; any other is looked at in each turn.
    fn attend(&mut self, now: Instant, sources: &Sources, pool: &mut Pool, is_awaited: bool) {
        let heard = *self.heard.get_or_insert(now);
        let wanted = match is_awaited || now - heard < SILENT {
            true => Attention::EachTurn,
            false => Attention::OnNews,
        };
        // The registration stays as it is when this fails.
        if wanted != self.attention && sources.change(self.socket.as_raw_fd(), wanted).is_ok() {
            self.attention = wanted;
            self.socket.rest(pool);
        }
    }

    /// Whether the connection is looked at in this turn.
    fn is_due(&self, news: bool) -> bool {
        news || self.heard.is_none() || self.attention == Attention::EachTurn
    }
}

impl Connection {
    const fn id(&self) -> ConnectionId {
        match self {
            Self::Dialling { id, .. }
            | Self::Proving { established: Established { id, .. }, .. }
            | Self::Established(Established { id, .. }) => *id,
        }
    }
}

/// The surroundings of the engine: connections, and how they are dialled.
#[derive(Debug)]
pub(crate) struct InitiatorShell {
    /// The addresses of each path. A path with several addresses tries them in turn.
    addresses: Vec<Vec<SocketAddr>>,
    attempts: Vec<usize>,
    connections: Vec<Connection>,
    /// Events that the application has not taken yet.
    pub(crate) events: VecDeque<Output>,
    /// The last failure to reach each path, if any.
    failures: Vec<Option<io::Error>>,
    /// How many attempts on each path, up to the latest one, the other end has ended by an alert of
    /// TLS against the key.
    denied: Vec<usize>,
    /// The keys that the host may prove by TLS; without any, it speaks without TLS.
    psks: Vec<Psk>,
    /// The devices that reach the paths by queue pairs, if any are reached so.
    devices: Option<Devices>,
    /// How much sooner than others the packets of TCP connections are carried.
    precedence: Precedence,
}

/// The driver of an initiator: it joins the engine to sockets and dialling.
#[derive(Debug)]
pub struct InitiatorDriver {
    initiator: Pump<Initiator>,
    pub(crate) shell: InitiatorShell,
    pool: SharedPool,
    /// The latest time that the engine got in a turn.
    now: Instant,
    attended_at: Instant,
    stopping: bool,
}

impl InitiatorDriver {
    /// Drives `initiator`, whose paths are at `addresses`; received blocks come from `pool`. With
    /// `psks`, every connection speaks TLS and proves one of them.
    pub fn new(
        initiator: Initiator,
        addresses: Vec<Vec<SocketAddr>>,
        pool: SharedPool,
        psks: Vec<Psk>,
    ) -> Self {
        let count = addresses.len();
        let shell = InitiatorShell {
            addresses,
            attempts: vec![0; count],
            connections: Vec::new(),
            events: VecDeque::new(),
            failures: (0..count).map(|_| None).collect(),
            denied: vec![0; count],
            psks,
            devices: None,
            precedence: Precedence::default(),
        };
        Self {
            initiator: Pump::new(initiator),
            shell,
            pool,
            now: Instant::ZERO,
            attended_at: Instant::ZERO,
            stopping: false,
        }
    }

    /// Has the packets of TCP connections carried with `precedence`.
    pub const fn set_precedence(&mut self, precedence: Precedence) {
        self.shell.precedence = precedence;
    }

    /// Reaches paths by queue pairs if their settings are those of queue pairs. Other paths are
    /// reached over TCP connections.
    pub fn reach_by(&mut self, reach: Reach) {
        self.shell.devices = Some(Devices::new(reach, self.pool.clone()));
    }

    /// The engine, which speaks NVMe/TCP as a host.
    pub const fn initiator(&self) -> &Initiator {
        self.initiator.engine()
    }

    /// The engine, for commands. Its deadlines are looked at again afterwards.
    pub const fn initiator_mut(&mut self) -> &mut Initiator {
        self.initiator.engine_mut()
    }

    /// The watchers of the connections' bytes; `None` where a path is reached by queue pairs, whose
    /// messages are no bytes.
    pub fn watch(&mut self) -> Option<&mut Watch<Port>> {
        self.shell.devices.is_none().then(|| self.initiator.engine_mut().watch())
    }

    /// Why the path of this index could not be reached at the last attempt, if it failed.
    pub fn failure(&self, path: usize) -> Option<&io::Error> {
        self.shell.failures.get(path)?.as_ref()
    }

    /// Whether the other end of the path of this index has refused every key of this host, at each
    /// of its addresses, in the latest attempts.
    pub fn is_key_refused(&self, path: usize) -> bool {
        let attempts = |addresses: &Vec<SocketAddr>| addresses.len() * self.shell.psks.len();
        let needed = self.shell.addresses.get(path).map_or(0, attempts);
        needed > 0 && self.shell.denied.get(path).is_some_and(|denied| *denied >= needed)
    }

    /// Looks at the attempts to connect; returns whether any has ended.
    fn dialling(&mut self, now: Instant, sources: &Sources) -> bool {
        let mut busy = false;
        for index in (0..self.shell.connections.len()).rev() {
            let Connection::Dialling { id, socket, until, look, registered } =
                &mut self.shell.connections[index]
            else {
                continue;
            };
            if !*registered {
                *registered = true;
                // A socket that can't be registered is looked at by the clock.
                let _ = sources.add(socket.as_raw_fd(), Attention::OnNews);
            }
            *look = now + LOOK_EVERY;
            let (id, expired) = (*id, *until <= now);
            let outcome = match connect::outcome(socket) {
                Ok(false) if expired => Err(io::ErrorKind::TimedOut.into()),
                Ok(false) => continue,
                outcome => outcome,
            };
            busy = true;
            let Connection::Dialling { socket, .. } = self.shell.connections.swap_remove(index) else {
                continue;
            };
            let _ = sources.change(socket.as_raw_fd(), Attention::EachTurn);
            let begun = outcome
                .and_then(|_| Socket::new(TcpStream::from(socket)))
                .and_then(|socket| self.shell.encrypted(id, socket));
            match begun {
                Ok(socket) => {
                    let (heard, attention) = (None, Attention::EachTurn);
                    let established = Established { id, socket, heard, attention };
                    match established.socket.is_encrypted() {
                        true => {
                            let until = now + PROVE_MAX;
                            self.shell.connections.push(Connection::Proving { established, until });
                        }
                        false => self.begin(now, established),
                    }
                }
                Err(error) => {
                    self.shell.denied[usize::from(id.path.0)] = 0;
                    self.shell.on_failed(now, id, error, self.initiator.engine_mut());
                }
            }
        }
        busy
    }

    /// Advances TLS handshakes; returns whether any has ended.
    fn proving(&mut self, now: Instant) -> bool {
        let mut busy = false;
        for index in (0..self.shell.connections.len()).rev() {
            let Connection::Proving { established, until } = &mut self.shell.connections[index] else {
                continue;
            };
            let id = established.id;
            let outcome = match established.socket.shake_hands() {
                Ok(false) if *until <= now => Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "TLS: the target did not finish the handshake in time; does it speak TLS?",
                )),
                Ok(false) => continue,
                outcome => outcome,
            };
            busy = true;
            let connection = self.shell.connections.swap_remove(index);
            match (outcome, connection) {
                (Ok(_), Connection::Proving { established, .. }) => self.begin(now, established),
                (Err(error), _) => {
                    let denied = &mut self.shell.denied[usize::from(id.path.0)];
                    *denied = if tls::is_denial(&error) { *denied + 1 } else { 0 };
                    self.shell.on_failed(now, id, error, self.initiator.engine_mut());
                }
                _ => {}
            }
        }
        busy
    }

    /// Uses a connection whose ends know each other.
    fn begin(&mut self, now: Instant, established: Established) {
        let id = established.id;
        self.shell.failures[usize::from(id.path.0)] = None;
        self.shell.denied[usize::from(id.path.0)] = 0;
        if let Some([host, controller]) = established.socket.ends() {
            self.initiator.engine_mut().set_ends(id, host, controller);
        }
        self.shell.connections.push(Connection::Established(established));
        self.initiator.engine_mut().handle_input(now, Input::Connected(id));
    }

    /// Takes received messages for queue pairs, and passes them on; returns whether there were any.
    fn receive_pairs(&mut self, context: &Context<'_>) -> io::Result<bool> {
        let Some(devices) = &mut self.shell.devices else { return Ok(false) };
        let now = context.clock.now();
        if !devices.receive(now, context.sources(), context.news)? {
            return Ok(false);
        }
        self.now = now;
        for id in devices.pairs() {
            self.initiator.engine_mut().handle_input(now, Input::Stirred(id));
        }
        self.initiator.exchange(now, &mut self.shell);
        Ok(true)
    }

    /// Sends the messages of queue pairs; returns whether there was anything to do.
    fn flush_pairs(&mut self, now: Instant) -> bool {
        self.shell.devices.as_mut().is_some_and(|devices| devices.flush(now))
    }

    /// Takes received bytes; returns whether there were any.
    fn receive(&mut self, context: &Context<'_>) -> bool {
        let mut busy = false;
        let mut index = self.shell.connections.len();
        while let Some(next) = index.checked_sub(1) {
            // Input on one connection may cause others to be closed.
            index = next.min(self.shell.connections.len());
            let Some(Connection::Established(line)) = self.shell.connections.get(index) else { continue };
            let id = line.id;
            if !line.is_due(context.news) {
                continue;
            }
            match self.receive_from(context, id) {
                Ok(moved) => busy |= moved,
                Err(error) => {
                    busy = true;
                    self.shell.failures[usize::from(id.path.0)] = Some(error);
                    self.shell.connections.retain(|line| line.id() != id);
                    self.now = context.clock.now();
                    self.initiator.engine_mut().handle_input(self.now, Input::Closed(id));
                }
            }
        }
        busy
    }

    fn receive_from(&mut self, context: &Context<'_>, id: ConnectionId) -> io::Result<bool> {
        let mut busy = false;
        for _ in 0..PIECES_PER_TURN {
            let Some(line) = connected(&mut self.shell.connections, id) else { return Ok(busy) };
            let place = self.initiator.engine_to_poll().landing(id);
            let (landed, bytes, is_all) = match line.socket.receive(&mut self.pool.borrow_mut(), place)? {
                Received::Nothing => break,
                Received::Closed => return Err(io::ErrorKind::ConnectionReset.into()),
                Received::Data { landed, bytes, is_all } => (landed, bytes, is_all),
            };
            busy = true;
            line.heard = None;
            let now = context.clock.now();
            self.now = now;
            if landed > 0 {
                self.initiator
                    .engine_mut()
                    .handle_input(now, Input::Landed { connection: id, count: landed });
            }
            if !bytes.is_empty() {
                self.initiator.engine_mut().handle_input(now, Input::Received { connection: id, bytes });
            }
            self.initiator.exchange(now, &mut self.shell);
            if is_all {
                break;
            }
        }
        Ok(busy)
    }

    /// Sends the waiting bytes of connections; returns whether any were taken.
    pub(crate) fn send(&mut self) -> bool {
        let mut busy = self.flush_pairs(self.now);
        busy |= self.send_streams();
        busy
    }

    /// Sends the waiting bytes of byte streams; returns whether any were taken.
    fn send_streams(&mut self) -> bool {
        let mut busy = false;
        for line in &mut self.shell.connections {
            if let Connection::Established(line) = line {
                busy |= send(self.initiator.engine_to_poll(), line);
            }
        }
        busy
    }

    /// Looks only now and then at connections that are at rest.
    fn attend(&mut self, now: Instant, sources: &Sources) {
        self.attended_at = now;
        let is_awaited = self.initiator().multipath().outstanding() > 0;
        for connection in &mut self.shell.connections {
            if let Connection::Established(line) = connection {
                let is_admin = line.id.queue.is_admin();
                line.attend(now, sources, &mut self.pool.borrow_mut(), is_awaited && !is_admin);
            }
        }
    }
}

impl InitiatorShell {
    /// Where a connection goes next. By queue pairs, the attempt of an Admin Queue is counted when
    /// it is made, and the other queues go to where the Admin Queue is.
    fn address(&self, id: ConnectionId, by_pair: bool) -> SocketAddr {
        let path = usize::from(id.path.0);
        let counted = usize::from(by_pair && !id.queue.is_admin());
        let addresses = &self.addresses[path];
        addresses[self.attempts[path].saturating_sub(counted) % addresses.len()]
    }

    fn dial(&mut self, now: Instant, id: ConnectionId, initiator: &mut Initiator) {
        let path = usize::from(id.path.0);
        let private_data = initiator.private_data(id);
        let address = self.address(id, private_data.is_some());
        if let Some(devices) = &mut self.devices
            && let Some(private_data) = private_data
        {
            match devices.reach(id, address, &private_data) {
                Ok(pair) => {
                    // Another address is tried if this one does not answer.
                    self.attempts[path] += usize::from(id.queue.is_admin());
                    initiator.handle_input(now, Input::Reached { connection: id, pair });
                }
                Err(error) => self.on_failed(now, id, error, initiator),
            }
            return;
        }
        match connect::begin(address, |socket| self.precedence.apply(socket)) {
            Ok(socket) => {
                let (until, look, registered) = (now + DIAL_MAX, now + LOOK_EVERY, false);
                self.connections.push(Connection::Dialling { id, socket, until, look, registered });
            }
            Err(error) => self.on_failed(now, id, error, initiator),
        }
    }

    /// Has a new connection speak TLS, if the host has a key. One identity of the key is offered:
    /// targets with GnuTLS end the handshake at the first identity that they do not know, so each
    /// attempt offers the next one, once every address of the path has failed.
    fn encrypted(&self, id: ConnectionId, mut socket: Socket) -> io::Result<Socket> {
        let path = usize::from(id.path.0);
        let round = self.attempts[path] / self.addresses[path].len().max(1);
        if let Some(psk) = self.psks.get(round % self.psks.len().max(1)) {
            socket.encrypt(psk)?;
        }
        Ok(socket)
    }

    fn on_failed(&mut self, now: Instant, id: ConnectionId, error: io::Error, initiator: &mut Initiator) {
        let path = usize::from(id.path.0);
        self.attempts[path] += 1;
        self.failures[path] = Some(error);
        initiator.handle_input(now, Input::Closed(id));
    }

    fn close(&mut self, id: ConnectionId, abort: bool, last: &[u8]) {
        if let Some(devices) = &mut self.devices {
            devices.forget(id);
        }
        let Some(index) = self.connections.iter().position(|one| one.id() == id) else { return };
        match self.connections.swap_remove(index) {
            Connection::Established(line) if abort => line.socket.abort(),
            Connection::Established(line) => line.socket.close(last),
            Connection::Dialling { .. } | Connection::Proving { .. } => {}
        }
    }
}

impl Shell<Initiator> for InitiatorShell {
    fn pass(&mut self, now: Instant, output: Output, initiator: &mut Initiator) {
        match output {
            Output::Dial(id) => self.dial(now, id, initiator),
            Output::Close { connection, abort, last } => self.close(connection, abort, &last),
            event => self.events.push_back(event),
        }
    }
}

fn connected(connections: &mut [Connection], wanted: ConnectionId) -> Option<&mut Established> {
    connections.iter_mut().find_map(|one| match one {
        Connection::Established(line) if line.id == wanted => Some(line),
        _ => None,
    })
}

/// Sends the bytes of a connection, as far as the system takes them at once. The next receive sees
/// a failure.
fn send(initiator: &mut Initiator, line: &mut Established) -> bool {
    let mut busy = false;
    while let Some(outbox) = initiator.outbox(line.id).filter(|outbox| !outbox.is_empty()) {
        match line.socket.send(outbox) {
            Ok(0) => break,
            Ok(sent) => {
                busy = true;
                line.heard = None;
                initiator.sent(line.id, sent);
            }
            Err(_) => {
                line.socket.give_up();
                break;
            }
        }
    }
    busy
}

impl Driver for InitiatorDriver {
    fn start(&mut self, _sources: &Sources) -> io::Result<()> {
        Ok(())
    }

    fn turn(&mut self, context: &Context<'_>) -> io::Result<Turn> {
        self.now = self.now.max(context.now);
        let mut busy = self.initiator.exchange(self.now, &mut self.shell);
        busy |= self.dialling(self.now, context.sources());
        busy |= self.proving(self.now);
        // Nothing else comes soon from anywhere.
        let looks = if busy { 1 } else { LOOKS };
        for _ in 0..looks {
            if self.receive_pairs(context)? | self.receive(context) {
                busy = true;
                break;
            }
        }
        busy |= self.initiator.exchange(self.now, &mut self.shell);
        let now = self.now;
        let settles = self.initiator.wants_settling(now, busy);
        if settles {
            busy |= self.initiator.settle(now, &mut self.shell);
        }
        if settles || now - self.attended_at >= ATTEND_EVERY {
            self.attend(now, context.sources());
        }
        busy |= self.send_streams();
        // An event lets the application submit more commands. They leave at once when it waits
        // again, and acknowledgements go behind them.
        if self.shell.events.is_empty() || self.stopping {
            busy |= self.flush_pairs(now);
        }
        if self.stopping && self.initiator().multipath().is_over() {
            self.shell.events.clear();
            return Ok(Turn::Done);
        }
        Ok(if busy { Turn::Busy } else { Turn::Idle })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let looks = self.shell.connections.iter().filter_map(|line| match line {
            Connection::Dialling { look, .. } => Some(*look),
            Connection::Proving { until, .. } => Some(*until),
            Connection::Established(_) => None,
        });
        let devices = self.shell.devices.as_ref().and_then(Devices::poll_timeout);
        looks.chain(self.initiator.poll_timeout()).chain(devices).min()
    }

    fn on_stop(&mut self, now: Instant) {
        self.stopping = true;
        self.initiator.engine_mut().shut_down(now);
    }
}

#[cfg(test)]
mod tests {
    use nvme_fabrics::host::multipath::PathIndex;
    use nvme_fabrics::wire::QueueId;

    use super::*;

    #[test]
    fn the_queue_pairs_of_a_path_go_to_one_address() {
        let addresses = ["192.0.2.1:4420", "192.0.2.2:4420"].map(|text| text.parse::<SocketAddr>().unwrap());
        let mut shell = InitiatorShell {
            addresses: vec![addresses.to_vec()],
            attempts: vec![0],
            connections: Vec::new(),
            events: VecDeque::new(),
            failures: vec![None],
            denied: vec![0],
            psks: Vec::new(),
            devices: None,
            precedence: Precedence::default(),
        };
        let id = |queue| ConnectionId { path: PathIndex(0), queue: QueueId(queue), generation: 1 };
        for address in [addresses[0], addresses[1], addresses[0]] {
            assert_eq!(shell.address(id(0), true), address);
            // The attempt is counted when the queue pair is asked for.
            shell.attempts[0] += 1;
            assert_eq!([1, 2].map(|queue| shell.address(id(queue), true)), [address; 2]);
        }
        // TCP counts attempts that have failed.
        assert_eq!([0, 1].map(|queue| shell.address(id(queue), false)), [addresses[1]; 2]);
    }
}
