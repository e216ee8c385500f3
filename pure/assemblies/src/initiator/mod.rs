//! The host of subsystems behind a fabric, assembled: several paths used as one. Each path is an
//! association, and each queue of the association is a connection.
//!
//! The caller dials where [`Output::Dial`] says, hands in the bytes that arrive, and sends the
//! bytes in [`Initiator::outbox`] of each connection.

#[cfg(test)]
mod tests;
mod types;
mod watched;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use engine::{Buffer, Engine, Instant, Outbox, Watch};
use nvme::host::{Command, Completed};
use nvme::wire::{CommandId, SubmissionQueueEntry};
use nvme_fabrics::host::multipath::{self, Dispatch, PathIndex, Request, SubmitError};
use nvme_fabrics::host::{self, Association, Multipath};
use nvme_rdma::wire::Request as PrivateData;

pub use types::{Config, ConnectionId, Input, Output};

use crate::fabric::Pair;
use crate::fabric::host::{self as end, Connection};
use crate::watch::{Direction, Ends, Port};

/// One queue's connection.
#[derive(Debug)]
struct QueueConnection {
    id: ConnectionId,
    /// The connection; `None` while it is being dialled.
    connection: Option<Box<Connection>>,
    config: end::Config,
    /// The addresses of its ends, once the world has passed them.
    ends: Option<Ends>,
    /// The agreed parameters, once the connection is initialised.
    parameters: Option<end::Parameters>,
    /// Commands that the connection has no room or no memory for until others end.
    held: VecDeque<Dispatch>,
}

/// The outcome of a command at a connection.
enum Taken {
    Sent(CommandId),
    /// The command is sent when others have ended.
    Held,
    /// The connection takes no commands.
    Refused,
}

impl QueueConnection {
    /// Sends a command, or holds it if the end of another command can make room.
    #[inline]
    fn take(&mut self, dispatch: Dispatch) -> Taken {
        let Some(connection) = self.connection.as_mut() else { return Taken::Refused };
        let Dispatch { token, entry, ref data, .. } = dispatch;
        // A command without data needs no memory: a Keep Alive does not wait for it.
        let submitted = if self.held.is_empty() || data.is_empty() {
            connection.submit(token, entry, data.clone())
        } else {
            Err(nvme::host::SubmitError::Busy)
        };
        match submitted {
            Ok(command_id) => Taken::Sent(command_id),
            Err(nvme::host::SubmitError::Busy) if connection.outstanding() > 0 => {
                self.held.push_back(dispatch);
                Taken::Held
            }
            Err(_) => Taken::Refused,
        }
    }
}

/// A host with several paths to a subsystem, and the connections of each path.
#[derive(Debug)]
pub struct Initiator {
    /// Settings of each path's connections.
    settings: Vec<end::Config>,
    multipath: Multipath,
    /// Connections by path and queue.
    connections: Vec<Vec<Option<QueueConnection>>>,
    generation: u32,
    outputs: VecDeque<Output>,
    watch: Watch<Port>,
    /// Time of the latest input.
    now: Instant,
}

impl Initiator {
    /// An initiator with one path for each of `associations`; [`Initiator::start`] connects
    /// the paths.
    ///
    /// # Panics
    /// When `associations` is empty or too long, or a configuration exceeds a limit that its
    /// fields name.
    pub fn new(config: Config, associations: Vec<host::Config>) -> Self {
        let count = associations.len();
        let multipath = Multipath::new(config.multipath, associations.into_iter().map(Association::new));
        Self {
            settings: vec![config.connection; count],
            multipath,
            connections: (0..count).map(|_| Vec::new()).collect(),
            generation: 0,
            outputs: VecDeque::new(),
            watch: Watch::new(),
            now: Instant::ZERO,
        }
    }

    /// Has the connections of `path` made with `connection`, and no longer with those settings that
    /// all paths have in common. So paths to a subsystem may be of several transports. Connections
    /// that exist stay as they are.
    ///
    /// # Panics
    /// When there is no such path.
    pub fn set_connection(&mut self, path: PathIndex, connection: end::Config) {
        self.settings[usize::from(path.0)] = connection;
    }

    /// Connects every path; [`Output::PathUp`] or [`Output::PathEnded`] follows for each.
    pub fn start(&mut self, now: Instant) {
        self.multipath.start(now);
        self.exchange(now);
    }

    /// Shuts every path down in order; [`Output::PathEnded`] follows for each.
    pub fn shut_down(&mut self, now: Instant) {
        self.multipath.shut_down(now);
        self.exchange(now);
    }

    /// Authenticates the queues of every live path again whose controller demanded authentication.
    /// Returns whether that began on any path. [`Output::PathEnded`] follows where it fails.
    pub fn authenticate_again(&mut self, now: Instant) -> bool {
        let began = self.multipath.authenticate_again(now);
        self.exchange(now);
        began
    }

    /// The paths and their state.
    pub const fn multipath(&self) -> &Multipath {
        &self.multipath
    }

    /// Submits an I/O command; [`Output::Completed`] follows exactly once.
    ///
    /// # Errors
    /// When the command cannot be taken; it then never completes.
    #[inline]
    pub fn submit(&mut self, now: Instant, request: Request) -> Result<(), SubmitError> {
        self.now = now;
        if let Some(dispatch) = self.multipath.submit(now, request)?
            && !self.dispatch(now, dispatch)
        {
            self.exchange(now);
        }
        Ok(())
    }

    /// Submits an admin command; [`Output::AdminCompleted`] follows exactly once.
    ///
    /// # Errors
    /// When the command cannot be taken; it then never completes.
    pub fn submit_admin(&mut self, now: Instant, command: Command) -> Result<(), host::SubmitError> {
        self.now = now;
        self.multipath.submit_admin(now, command)?;
        self.exchange(now);
        Ok(())
    }

    /// The agreed parameters of a path's Admin Queue; `None` while the queue is not connected.
    pub fn parameters(&self, path: PathIndex) -> Option<end::Parameters> {
        self.connections.get(usize::from(path.0))?.first()?.as_ref()?.parameters
    }

    /// Names the digests that were asked for but that the controller of a path has not enabled.
    /// `None` if none is missing or the Admin Queue is not connected.
    pub fn missing_digests(&self, path: PathIndex) -> Option<&'static str> {
        self.settings.get(usize::from(path.0))?.missing_digests(&self.parameters(path)?)
    }

    fn connection_of(&mut self, id: ConnectionId) -> Option<&mut QueueConnection> {
        let one =
            self.connections.get_mut(usize::from(id.path.0))?.get_mut(usize::from(id.queue.0))?.as_mut()?;
        (one.id == id).then_some(one)
    }

    /// The bytes to send on a connection; `None` when the connection does not exist any more.
    pub fn outbox(&mut self, id: ConnectionId) -> Option<&Outbox> {
        self.connection_of(id)?.connection.as_ref()?.outbox()
    }

    /// The first `count` bytes of the outbox were sent.
    pub fn sent(&mut self, id: ConnectionId, count: usize) {
        if self.watch.is_on() {
            self.show_sent(id, count);
        }
        if let Some(connection) = self.connection_of(id).and_then(|one| one.connection.as_mut()) {
            connection.sent(count);
        }
    }

    /// Where the next bytes of a connection belong, if they are data that are being assembled; see
    /// [`Connection::landing`]. Report bytes received there by [`Input::Landed`].
    pub fn landing(&mut self, id: ConnectionId) -> Option<&mut [u8]> {
        self.connection_of(id)?.connection.as_mut()?.landing()
    }

    /// Sends a command, or holds it until others have ended. Returns whether that was possible; if
    /// not, the path is notified and sends the command again.
    #[inline]
    fn dispatch(&mut self, now: Instant, dispatch: Dispatch) -> bool {
        let Dispatch { path, queue, entry, .. } = dispatch;
        let connections = self.connections.get_mut(usize::from(path.0));
        let one = connections.and_then(|connections| connections.get_mut(usize::from(queue.0))?.as_mut());
        match one.map_or(Taken::Refused, |one| one.take(dispatch)) {
            Taken::Sent(command_id) => {
                if self.watch.is_on() {
                    self.show_command(now, path, queue, &SubmissionQueueEntry { command_id, ..entry });
                }
                true
            }
            Taken::Held => true,
            Taken::Refused => {
                self.multipath.on_queue_lost(now, path, queue);
                false
            }
        }
    }

    /// Sends the commands that a connection holds, as far as it now takes them.
    #[cold]
    fn send_held(&mut self, now: Instant, id: ConnectionId) {
        let held = self.connection_of(id).map(|one| core::mem::take(&mut one.held));
        for dispatch in held.into_iter().flatten() {
            if !self.dispatch(now, dispatch) {
                return;
            }
        }
    }

    /// Passes the paths' requests to the connections and to the world, until there are none.
    fn exchange(&mut self, now: Instant) {
        loop {
            self.multipath.settle(now);
            let Some(output) = self.multipath.poll_output() else { return };
            self.on_multipath(now, output);
        }
    }

    fn on_multipath(&mut self, now: Instant, output: multipath::Output) {
        use multipath::Output as From;
        self.outputs.push_back(match output {
            From::Dispatch(dispatch) => {
                self.dispatch(now, dispatch);
                return;
            }
            From::OpenQueue { path, queue, controller, size, capsule_data_max } => {
                let agreed = self.parameters(path).filter(|_| !queue.is_admin());
                return self.open(path, end::Queue { id: queue, controller, size, capsule_data_max, agreed });
            }
            From::CloseQueues { path, abort } => return self.close_all(path, abort),
            From::PathUp(path) => Output::PathUp(path),
            From::PathLost(path, why) => Output::PathLost(path, why),
            From::PathEnded(path, why) => Output::PathEnded(path, why),
            From::Completed(completed) => Output::Completed(completed),
            From::AdminCompleted(completed) => Output::AdminCompleted(completed),
            From::Event(path, dw0) => Output::Event(path, dw0),
            From::IdentityChanged(path) => Output::IdentityChanged(path),
        });
    }

    fn open(&mut self, path: PathIndex, queue: end::Queue) {
        self.generation = self.generation.wrapping_add(1);
        let id = ConnectionId { path, queue: queue.id, generation: self.generation };
        let config = self.settings[usize::from(path.0)].for_queue(queue);
        let connections = &mut self.connections[usize::from(path.0)];
        let index = usize::from(queue.id.0);
        if connections.len() <= index {
            connections.resize_with(index + 1, || None);
        }
        let held = VecDeque::new();
        connections[index] =
            Some(QueueConnection { id, connection: None, config, ends: None, parameters: None, held });
        self.outputs.push_back(Output::Dial(id));
    }

    fn close_all(&mut self, path: PathIndex, abort: bool) {
        for one in self.connections[usize::from(path.0)].drain(..).flatten() {
            self.outputs.push_back(Output::Close { connection: one.id, abort, last: Buffer::EMPTY });
        }
    }

    /// The private data of a queue pair's request for a connection; `None` of a connection that
    /// does not exist any more, or that has a byte stream.
    pub fn private_data(&mut self, id: ConnectionId) -> Option<[u8; PrivateData::LENGTH]> {
        match &self.connection_of(id)?.config {
            end::Config::Pair(config) => Some(config.private_data()),
            end::Config::Tcp(_) | end::Config::Iwarp(_) => None,
        }
    }

    fn on_reached(&mut self, now: Instant, id: ConnectionId, pair: Box<dyn Pair>) {
        let Some(one) = self.connection_of(id) else { return };
        if let end::Config::Pair(config) = one.config.clone() {
            one.connection = Some(Box::new(Connection::over(now, config, pair)));
        }
    }

    fn on_closed(&mut self, now: Instant, id: ConnectionId) {
        if self.connection_of(id).is_some() {
            self.connections[usize::from(id.path.0)][usize::from(id.queue.0)] = None;
            self.multipath.on_queue_lost(now, id.path, id.queue);
        }
    }

    /// Passes a connection's outputs to the paths.
    #[inline]
    fn pump(&mut self, now: Instant, id: ConnectionId) {
        while let Some(connection) = self.connection_of(id).and_then(|one| one.connection.as_mut()) {
            match connection.poll_output() {
                None => break,
                Some(end::Output::Completed(Completed { cookie, entry, data })) => {
                    if self.watch.is_on() {
                        self.show_response(now, id, cookie, &entry);
                    }
                    if let Some(done) = self.multipath.on_completed(now, id.path, cookie, entry, data) {
                        self.outputs.push_back(Output::Completed(done));
                    }
                    if self.connection_of(id).is_some_and(|one| !one.held.is_empty()) {
                        self.send_held(now, id);
                    }
                }
                Some(end::Output::Initialized(parameters)) => {
                    if let Some(one) = self.connection_of(id) {
                        one.parameters = Some(parameters);
                    }
                    self.outputs.push_back(Output::Initialized(id, parameters));
                    if let Some(commands) = parameters.commands_max() {
                        self.multipath.limit_queue(id.path, id.queue, commands);
                    }
                    self.multipath.on_queue_open(now, id.path, id.queue);
                }
                Some(end::Output::Closed(why)) => {
                    let outbox = connection.outbox().filter(|outbox| outbox.len() <= LAST_BYTES_MAX);
                    let slices = outbox.into_iter().flat_map(Outbox::slices);
                    let last: Vec<u8> = slices.flatten().copied().collect();
                    self.outputs.push_back(Output::ProtocolError(id, why));
                    let last = Buffer::from(last);
                    self.outputs.push_back(Output::Close { connection: id, abort: false, last });
                    self.on_closed(now, id);
                }
            }
        }
        self.exchange(now);
    }
}

/// Limit on the bytes that are still sent when a connection breaks down, with the reason at its
/// end: as much as a socket takes at once.
const LAST_BYTES_MAX: usize = 16 << 10;

impl Engine for Initiator {
    type Input<'a> = Input;
    type Output = Output;

    fn handle_input(&mut self, now: Instant, input: Input) {
        self.now = now;
        match input {
            Input::Connected(id) => {
                if let Some(one) = self.connection_of(id) {
                    one.connection = Some(Box::new(Connection::new(now, one.config.clone())));
                }
            }
            Input::Reached { connection: id, pair } => self.on_reached(now, id, pair),
            Input::Stirred(id) => {
                let connection = self.connection_of(id).and_then(|one| one.connection.as_ref());
                if connection.is_some_and(|connection| connection.has_news()) {
                    self.pump(now, id);
                }
            }
            Input::Received { connection: id, bytes } => {
                if self.watch.is_on() {
                    self.show_bytes(now, Direction::Up, id, &bytes);
                }
                if let Some(connection) = self.connection_of(id).and_then(|one| one.connection.as_mut()) {
                    connection.received(now, bytes);
                    self.pump(now, id);
                }
            }
            Input::Landed { connection: id, count } => {
                if self.watch.is_on() {
                    self.show_landed(now, id, count);
                }
                if let Some(connection) = self.connection_of(id).and_then(|one| one.connection.as_mut()) {
                    connection.landed(count);
                    self.pump(now, id);
                }
            }
            Input::Closed(id) => {
                self.on_closed(now, id);
                self.exchange(now);
            }
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.now = now;
        let due: Vec<ConnectionId> = self
            .connections
            .iter_mut()
            .flatten()
            .flatten()
            .filter_map(|one| {
                let connection = one.connection.as_mut()?;
                connection.poll_timeout().filter(|at| *at <= now)?;
                connection.handle_timeout(now);
                Some(one.id)
            })
            .collect();
        for id in due {
            self.pump(now, id);
        }
        if self.multipath.poll_timeout().is_some_and(|at| at <= now) {
            self.multipath.handle_timeout(now);
        }
        self.exchange(now);
    }

    #[inline]
    fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let connections = self.connections.iter().flatten().flatten();
        let connections = connections.filter_map(|one| one.connection.as_ref()?.poll_timeout());
        connections.chain(self.multipath.poll_timeout()).min()
    }
}
