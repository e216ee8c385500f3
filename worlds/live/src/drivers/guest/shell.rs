//! The surroundings of the engines of a guest's device slot: its client, the client's memory and
//! interrupts, and the side on which the function is.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use assemblies::guest::{DmaMap, Errno, Guest, Output};
use engine::{Buffer, Engine, Instant, Nanos, Pool};
use nvme_pcie::function;
use tunnel::upstream::ConnectionIndex;

use super::Event;
use super::doorbells::Doorbells;
use super::lanes::{ForFunction, Lanes};
use super::local::Local;
use super::memory::errno_of;
use super::recorder::Recorder;
use super::signal::Signaller;
use crate::carrier::Link;
use crate::reactor::{Shell, Sources};
use crate::sys::shared::{Mapping, SharedMemory};
use crate::sys::unix::Connection;

/// How long the last bytes for a client may wait for it, before its connection is closed.
const CLOSING_MAX: Nanos = Nanos::from_secs(1);

/// Where the slot's function is.
pub(super) enum Side {
    Local(Box<Local>),
    /// The registers of a recorder in this process.
    Recorder(Box<Recorder>),
    /// At a far end, over these connections.
    Far(Vec<Link>),
}

pub(super) struct Client {
    pub(super) connection: Connection,
    /// The connection is to be closed when everything is sent, and at this time in any case.
    pub(super) closing: Option<Instant>,
    /// The client rings by stores and seldom sends bytes: its socket is looked at on news only.
    pub(super) at_rest: bool,
    /// Bytes may have stayed in the socket. The kernel does not report them again.
    pub(super) unread: bool,
}

impl Client {
    pub(super) const fn new(connection: Connection) -> Self {
        Self { connection, closing: None, at_rest: false, unread: false }
    }

    /// Closes the connection when everything is sent, or when that takes too long.
    pub(super) fn close(&mut self, now: Instant) {
        self.closing = self.closing.or(Some(now + CLOSING_MAX));
    }
}

/// The client, its memory, and the function's side.
pub(super) struct GuestShell<F> {
    pub(super) side: Side,
    pub(super) client: Option<Client>,
    pub(super) memory: SharedMemory,
    vectors: Vec<Option<Arc<Signaller>>>,
    pub(super) doorbells: Option<Doorbells>,
    /// A client may have the doorbells mapped, and then rings them without a message.
    pub(super) shared: bool,
    pub(super) pool: Pool,
    pub(super) report: F,
}

impl<F: FnMut(Event)> GuestShell<F> {
    pub(super) fn new(side: Side, report: F) -> Self {
        Self {
            side,
            client: None,
            memory: SharedMemory::new(),
            vectors: Vec::new(),
            doorbells: None,
            shared: false,
            pool: Pool::default(),
            report,
        }
    }

    pub(super) fn drop_client(&mut self, sources: &Sources) {
        if let Some(client) = self.client.take() {
            sources.remove(client.connection.as_raw_fd());
        }
        self.memory.clear();
        self.vectors.clear();
        if let Some(lanes) = self.lanes() {
            lanes.forget_client();
        }
        // The next client gets a file of its own: the former one may go on writing to its file.
        (self.doorbells, self.shared) = (None, false);
    }

    /// The file of doorbells, to be sent with the description of its region.
    fn share(&mut self, guest: &Guest<OwnedFd>) -> Vec<OwnedFd> {
        let Some(place) = guest.doorbells() else { return Vec::new() };
        if self.doorbells.as_ref().is_none_or(|doorbells| doorbells.place() != place) {
            match Doorbells::new(place) {
                Ok(doorbells) => {
                    if let Some(lanes) = self.lanes() {
                        lanes.set_doorbells(&doorbells.for_lanes());
                    }
                    self.doorbells = Some(doorbells);
                }
                Err(error) => (self.report)(Event::NoDoorbells(error)),
            }
        }
        let shared = self.doorbells.as_ref().and_then(|doorbells| doorbells.share().ok());
        self.shared |= shared.is_some();
        shared.into_iter().collect()
    }

    /// The threads that serve queues of a function in this process.
    pub(super) fn lanes(&mut self) -> Option<&mut Lanes> {
        match &mut self.side {
            Side::Local(local) => local.lanes.as_deref_mut(),
            Side::Recorder(_) | Side::Far(_) => None,
        }
    }

    /// Gives the function what its lanes have said. Returns whether that was anything.
    pub(super) fn take_news(&mut self, now: Instant, guest: &mut Guest<OwnedFd>) -> bool {
        let mut busy = false;
        while let Some(news) = self.lanes().and_then(Lanes::next_news) {
            busy = true;
            let Side::Local(local) = &mut self.side else { break };
            let function = local.function.engine_mut();
            match news {
                ForFunction::Engine(lane, message) => {
                    function.handle_input(now, function::Input::FromLane(lane, message));
                }
                ForFunction::Interrupt(vector) => guest.interrupt(vector),
                ForFunction::Heeded => {}
                ForFunction::SignalFailed(vector, error) => self.signal_failed(vector, error),
                ForFunction::Gone(lane, number) => {
                    function.lane_gone(now, lane);
                    if let Some(doorbells) = &self.doorbells {
                        doorbells.take_over(number);
                    }
                    (self.report)(Event::LaneFailed);
                }
            }
        }
        busy
    }

    fn map(&mut self, map: DmaMap, descriptor: OwnedFd) -> Result<(), Errno> {
        let DmaMap { readable, writable, offset, address, length } = map;
        let mapping = Mapping { address, length, offset, readable, writable };
        let mapped = self.memory.map_for_all(descriptor, mapping).map_err(|error| {
            let errno = errno_of(&error);
            (self.report)(Event::MapFailed(address, error));
            errno
        });
        if let (Ok(region), Some(lanes)) = (&mapped, self.lanes()) {
            lanes.map(region);
        }
        mapped.map(|_| ())
    }

    fn set_vector(&mut self, vector: usize, descriptor: Option<OwnedFd>) {
        if vector >= self.vectors.len() {
            self.vectors.resize_with(vector + 1, || None);
        }
        let signaller = descriptor.map(|descriptor| Arc::new(Signaller::new(descriptor)));
        if let Some(lanes) = self.lanes() {
            lanes.set_vector(vector, signaller.as_ref());
        }
        self.vectors[vector] = signaller;
    }

    fn signal_failed(&mut self, vector: usize, error: io::Error) {
        // One report is enough.
        if self.vectors.get_mut(vector).and_then(Option::take).is_some() {
            (self.report)(Event::SignalFailed(vector, error));
        }
    }

    fn signal(&mut self, vector: usize) {
        let Some(Some(signaller)) = self.vectors.get(vector) else { return };
        if let Err(error) = signaller.signal() {
            self.signal_failed(vector, error);
        }
    }

    /// Sends waiting bytes, and closes a client's connection that is to end.
    pub(super) fn flush(&mut self, sources: &Sources) -> bool {
        let mut busy = false;
        if let Some(client) = &mut self.client {
            let sent = client.connection.flush();
            busy |= sent.as_ref().is_ok_and(|sent| *sent > 0);
            if client.closing.is_some() && (sent.is_err() || client.connection.unsent() == 0) {
                self.drop_client(sources);
                busy = true;
            }
        }
        if let Side::Far(far) = &mut self.side {
            for link in far {
                busy |= link.flush(sources);
            }
        }
        busy
    }

    /// Closes a client's connection that is to end and has not taken its last bytes in time.
    /// Returns whether there was such a client.
    pub(super) fn close_late(&mut self, now: Instant, sources: &Sources) -> bool {
        let is_late = self.closing_at().is_some_and(|at| at <= now);
        if is_late {
            self.drop_client(sources);
        }
        is_late
    }

    /// When the client's connection is closed even if bytes for it are unsent.
    pub(super) fn closing_at(&self) -> Option<Instant> {
        self.client.as_ref().and_then(|client| client.closing)
    }

    pub(super) fn reap(&mut self, now: Instant) -> io::Result<bool> {
        let Side::Local(local) = &mut self.side else { return Ok(false) };
        if let Some(notice) = local.notice() {
            (self.report)(Event::State(notice));
        }
        local.reap(now)
    }

    pub(super) fn has_ended(&self) -> bool {
        self.client.is_none()
            && match &self.side {
                Side::Local(local) => !local.is_busy(),
                Side::Recorder(_) => true,
                Side::Far(far) => !far.iter().any(Link::is_connected),
            }
    }

    /// Sends `bytes` to the client, with the file of doorbells if they describe it.
    fn reply(&mut self, bytes: Buffer, describes_doorbells: bool, guest: &Guest<OwnedFd>) {
        let descriptors = if describes_doorbells { self.share(guest) } else { Vec::new() };
        if let Some(client) = &mut self.client
            && client.connection.send(bytes, descriptors).is_err()
        {
            // The client no longer reads; the next receive finds the end of the connection.
            client.connection.abort();
        }
    }

    /// The connection to the far end that the engines call `connection`.
    fn link(&mut self, connection: ConnectionIndex) -> Option<&mut Link> {
        match &mut self.side {
            Side::Far(far) => Some(&mut far[usize::from(connection.0)]),
            Side::Local(_) | Side::Recorder(_) => None,
        }
    }
}

impl<F: FnMut(Event)> Shell<Guest<OwnedFd>> for GuestShell<F> {
    #[inline]
    fn poll(&mut self, guest: &mut Guest<OwnedFd>) -> Option<Output<OwnedFd>> {
        if self.is_blocked() { None } else { guest.poll_output() }
    }

    /// Outputs wait while lanes have yet to heed a change of the guest's memory or interrupts.
    #[inline]
    fn is_blocked(&self) -> bool {
        matches!(&self.side, Side::Local(local) if local.is_fenced())
    }

    fn pass(&mut self, now: Instant, output: Output<OwnedFd>, guest: &mut Guest<OwnedFd>) {
        match output {
            Output::ReadMemory { token, address, length } => {
                let length = usize::try_from(length).expect("at most 4 KiB");
                let mut bytes = self.pool.take(length);
                let data = self.memory.read(address, &mut bytes).ok().map(|()| self.pool.seal(bytes));
                guest.memory_read_done(token, address, length, data);
            }
            Output::WriteMemory { address, data } => {
                if self.memory.write(address, &data).is_err() {
                    guest.memory_write_failed(address, data.len());
                }
            }
            Output::Signal { vector } => self.signal(vector),
            Output::Packet(packet) => match &mut self.side {
                Side::Local(local) => {
                    local.function.engine_mut().handle_input(now, function::Input::Packet(packet));
                }
                Side::Recorder(recorder) => recorder.receive(now, packet),
                Side::Far(_) => {}
            },
            Output::Transmit(port, bytes) => {
                if let Some(link) = self.link(port) {
                    link.send(bytes);
                }
            }
            Output::Connect(port) => {
                if let Some(link) = self.link(port) {
                    link.connect(now);
                }
            }
            Output::Close(port) => {
                if let Some(link) = self.link(port) {
                    link.close();
                }
            }
            Output::Reply { bytes, shared } => self.reply(bytes, shared.is_some(), guest),
            Output::CloseClient => {
                if let Some(client) = &mut self.client {
                    client.close(now);
                }
            }
            Output::Map { token, map, descriptor } => guest.map_done(token, self.map(map, descriptor)),
            Output::Unmap { address, length } => {
                self.memory.unmap(address, length);
                if let Some(lanes) = self.lanes() {
                    lanes.unmap(address, length);
                }
            }
            Output::Vector { vector, descriptor } => self.set_vector(vector, descriptor),
            Output::ClearDoorbells => {
                if let Some(doorbells) = &self.doorbells {
                    doorbells.clear();
                }
            }
            Output::Event(event) => (self.report)(Event::Guest(event)),
        }
    }

    fn answer(&mut self, now: Instant, guest: &mut Guest<OwnedFd>) -> bool {
        match &mut self.side {
            Side::Local(local) => local.exchange(now, guest, &self.memory),
            Side::Recorder(recorder) => recorder.exchange(now, guest),
            Side::Far(_) => false,
        }
    }

    fn fire(&mut self, now: Instant) -> bool {
        match &mut self.side {
            Side::Local(local) => local.function.fire(now),
            Side::Recorder(recorder) => recorder.fire(now),
            Side::Far(_) => false,
        }
    }

    fn next_wake(&self, now: Instant) -> Option<Instant> {
        match &self.side {
            Side::Local(local) => local.function.next_wake(now),
            // Without a driver, there is no interrupt.
            Side::Recorder(recorder) => self.client.as_ref().and_then(|_| recorder.next_wake(now)),
            Side::Far(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reactor::Reactor;
    use crate::sys::clock::Clock;
    use crate::sys::unix::Listener;

    #[test]
    fn a_closed_client_that_never_reads_is_dropped_in_time() {
        let folder = tempfile::tempdir().unwrap();
        let listener = Listener::bind(&folder.path().join("guest")).unwrap();
        let _peer = Connection::connect(listener.path()).unwrap();
        let connection = listener.accept().unwrap().expect("the client waits");
        let reactor = Reactor::new(Clock::start(), Nanos::ZERO).unwrap();
        let mut shell = GuestShell::new(Side::Far(Vec::new()), |_| ());
        let client = shell.client.insert(Client::new(connection));
        client.connection.send(Buffer::zeroed(4 << 20), Vec::new()).unwrap();
        let now = Instant::from_nanos(1_000);
        client.close(now);
        shell.flush(reactor.sources());
        let end = now + CLOSING_MAX;
        assert_eq!(shell.closing_at(), Some(end));
        assert!(!shell.close_late(now, reactor.sources()) && shell.client.is_some());
        assert!(shell.close_late(end, reactor.sources()) && shell.client.is_none());
    }
}
