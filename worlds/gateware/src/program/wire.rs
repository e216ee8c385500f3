//! A circuit at a TCP socket, in one thread that waits for bytes or for the circuit's deadlines.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::{Duration, Instant as Clock};

use engine::{Buffer, Engine, Entropy, Instant, Nanos};
use gateware::port::{Pace, Port};
use pcie::wire::Packet;
use tunnel::frame::{Identity, Role};
use tunnel::session::{Config, Input, Output};

/// The longest wait for bytes.
const WAIT_MAX: Duration = Duration::from_millis(10);
/// How long the peer may refuse to take bytes.
const WRITE_MAX: Duration = Duration::from_secs(5);

/// Where connections come from.
pub(super) enum Peer {
    /// The address that the upstream end dials.
    Dialled(String),
    /// The socket at which the downstream end waits.
    Listener(TcpListener),
}

/// What happened at the circuit's PCI Express side, or to its link.
#[derive(Debug)]
pub(super) enum Event {
    Tlp(Packet),
    LinkUp,
    LinkDown,
    Interrupted,
    Resumed,
    Reset,
}

/// A circuit and its connection.
pub(super) struct Wire {
    pub(super) port: Port,
    peer: Peer,
    stream: Option<TcpStream>,
    began: Clock,
    block: Vec<u8>,
    /// Whether the circuit has asked for a connection that is not made yet.
    dials: bool,
}

impl Wire {
    /// A circuit called `name` with the role that `peer` implies, and time 0 at present.
    pub(super) fn new(peer: Peer, name: &str) -> Self {
        let role = if matches!(peer, Peer::Dialled(_)) { Role::Upstream } else { Role::Downstream };
        let identity = Identity { name: name.into(), ..Identity::default() };
        let config = Config { identity, digests: role == Role::Upstream, ..Config::default() };
        let port = Port::new(role, &config, Entropy::System(fill), Pace::none());
        Self { port, peer, stream: None, began: Clock::now(), block: vec![0; 64 << 10], dials: false }
    }

    pub(super) fn now(&self) -> Instant {
        Instant::ZERO + Nanos::from(self.began.elapsed())
    }

    /// Breaks the connection, as a bad network does.
    pub(super) fn cut(&mut self) {
        self.lose();
    }

    /// Handles deadlines, and every output of the circuit; events go to `on_event`.
    pub(super) fn settle(&mut self, mut on_event: impl FnMut(&mut Port, Instant, Event)) {
        let now = self.now();
        if self.port.poll_timeout().is_some_and(|at| at <= now) {
            self.port.handle_timeout(now);
        }
        while let Some(output) = self.port.poll_output() {
            let event = match output {
                Output::Transmit(bytes) => {
                    let sent = self.stream.as_mut().map_or(Ok(()), |stream| stream.write_all(&bytes));
                    if sent.is_err() {
                        self.lose();
                    }
                    continue;
                }
                Output::Connect => {
                    self.dials = true;
                    continue;
                }
                Output::CloseConnection => {
                    if let Some(stream) = self.stream.take() {
                        // Its end may have come already.
                        let _ = stream.shutdown(Shutdown::Write);
                    }
                    continue;
                }
                Output::Tlp { packet, .. } => Event::Tlp(packet),
                Output::LinkUp { .. } => Event::LinkUp,
                Output::LinkDown { .. } => Event::LinkDown,
                Output::Interrupted { .. } => Event::Interrupted,
                Output::Resumed => Event::Resumed,
                Output::Reset => Event::Reset,
                _ => continue,
            };
            on_event(&mut self.port, now, event);
        }
    }

    /// Waits for bytes or a connection, at most until `wake`, and hands them to the circuit.
    ///
    /// # Errors
    /// When the listener has failed.
    pub(super) fn wait(&mut self, wake: Option<Instant>) -> io::Result<()> {
        let now = self.now();
        let wake = wake.into_iter().chain(self.port.poll_timeout()).min();
        let left = wake.map_or(WAIT_MAX, |at| Duration::from_nanos((at - now).get()));
        let left = left.clamp(Duration::from_micros(10), WAIT_MAX);
        let Some(stream) = &mut self.stream else { return self.connect(left) };
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut self.block) {
            Ok(0) => self.lose(),
            Ok(length) => {
                let bytes = Buffer::copy_from_slice(&self.block[..length]);
                let now = self.now();
                self.port.handle_input(now, Input::Received(bytes));
            }
            Err(error)
                if [ErrorKind::WouldBlock, ErrorKind::TimedOut, ErrorKind::Interrupted]
                    .contains(&error.kind()) => {}
            Err(_) => self.lose(),
        }
        Ok(())
    }

    fn connect(&mut self, left: Duration) -> io::Result<()> {
        let result = match &self.peer {
            Peer::Dialled(address) if std::mem::take(&mut self.dials) => TcpStream::connect(address),
            Peer::Listener(listener) => listener.accept().map(|(stream, _)| stream),
            Peer::Dialled(_) => Err(ErrorKind::WouldBlock.into()),
        };
        let now = self.now();
        match result {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                stream.set_nonblocking(false)?;
                stream.set_write_timeout(Some(WRITE_MAX))?;
                self.stream = Some(stream);
                self.port.handle_input(now, Input::Connected);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(left),
            Err(error) if matches!(self.peer, Peer::Listener(_)) => return Err(error),
            Err(_) => self.port.handle_input(now, Input::Disconnected),
        }
        Ok(())
    }

    fn lose(&mut self) {
        if self.stream.take().is_some() {
            let now = self.now();
            self.port.handle_input(now, Input::Disconnected);
        }
    }
}

/// Fills `bytes` from the operating system's source.
fn fill(bytes: &mut [u8]) {
    let source = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(bytes));
    source.expect("the operating system gives random bytes at /dev/urandom");
}
