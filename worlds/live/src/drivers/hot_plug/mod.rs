//! A guest's device slot whose function is plugged into a port of QEMU, live: the slot, and the
//! socket of QEMU's monitor.

mod fuzz;
mod port;
mod problem;
mod qmp;
#[cfg(test)]
mod tests;

pub use fuzz::qmp as fuzz_qmp;
pub use port::{Config, Event, Plug, Port, Statistics};
pub use problem::Problem;
pub use qmp::LINE_MAX;

use std::fmt;
use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use engine::{Buffer, Engine, Instant, Pool};

use super::guest::{self, GuestDriver};
use crate::reactor::{Attention, Context, Driver, Glance, Pump, Shell, Sources, Turn};
use crate::sys::unix::{Connection, Received};
use port::{Input, Output};

/// Number of pieces taken from QEMU in a turn.
const PIECES_PER_TURN: usize = 16;

/// Drives a guest's device slot and, if there is one, the port that the function is plugged into.
pub struct HotPlugDriver<F> {
    slot: GuestDriver<F>,
    monitor: Option<Monitor>,
}

/// QEMU's monitor.
struct Monitor {
    port: Pump<Port>,
    line: Line,
    /// The function as it was last passed to the port.
    known: Option<(Option<bool>, bool)>,
}

/// The connection to QEMU's monitor, and the application's ear.
struct Line {
    path: PathBuf,
    connection: Option<Connection>,
    pool: Pool,
    report: Box<dyn FnMut(Event)>,
    /// Bytes of QEMU may wait in the socket.
    unread: bool,
}

impl<F: FnMut(guest::Event)> HotPlugDriver<F> {
    /// A slot whose client connects by itself.
    pub const fn cold(slot: GuestDriver<F>) -> Self {
        Self { slot, monitor: None }
    }

    /// A slot whose function is plugged into `port` of the QEMU whose monitor listens at `path`.
    /// `report` is called with each event of the port.
    pub fn hot(slot: GuestDriver<F>, port: Port, path: PathBuf, report: impl FnMut(Event) + 'static) -> Self {
        let line =
            Line { path, connection: None, pool: Pool::default(), report: Box::new(report), unread: false };
        let monitor = Monitor { port: Pump::new(port), line, known: None };
        Self { slot, monitor: Some(monitor) }
    }

    /// The slot.
    pub const fn slot(&self) -> &GuestDriver<F> {
        &self.slot
    }

    /// The slot, to be watched.
    pub const fn slot_mut(&mut self) -> &mut GuestDriver<F> {
        &mut self.slot
    }

    /// The port, if there is one.
    pub fn port(&self) -> Option<&Port> {
        self.monitor.as_ref().map(|monitor| monitor.port.engine())
    }
}

impl Monitor {
    /// Does all that can be done now; returns whether there was anything.
    fn turn(&mut self, now: Instant, function: (Option<bool>, bool), sources: &Sources) -> bool {
        let mut busy = self.receive(now, sources);
        self.line.unread = busy;
        if self.known.replace(function) != Some(function) {
            let (is_usable, has_client) = function;
            self.port.engine_mut().handle_input(now, Input::Function { is_usable, has_client });
        }
        let mut shell = Shelled { line: &mut self.line, sources: Some(sources) };
        busy |= self.port.exchange(now, &mut shell);
        busy |= self.port.settle(now, &mut shell);
        if self.line.connection.as_mut().is_some_and(|connection| connection.flush().is_err()) {
            self.line.lose(now, None, self.port.engine_mut());
        }
        busy
    }

    fn receive(&mut self, now: Instant, sources: &Sources) -> bool {
        for count in 0..PIECES_PER_TURN {
            let Some(connection) = &mut self.line.connection else { return count > 0 };
            let port = self.port.engine_mut();
            match connection.receive(&mut self.line.pool) {
                Ok(Received::Nothing) => return count > 0,
                Ok(Received::Data(bytes, _)) => port.handle_input(now, Input::Received(&bytes)),
                Ok(Received::Closed) => self.line.lose(now, None, port),
                Err(error) => self.line.lose(now, Some(error.to_string()), port),
            }
            self.port.exchange(now, &mut Shelled { line: &mut self.line, sources: Some(sources) });
        }
        true
    }

    /// Asks for the device to be unplugged, and leaves QEMU.
    fn let_go(&mut self, now: Instant) {
        self.port.engine_mut().let_go(now);
        self.port.exchange(now, &mut Shelled { line: &mut self.line, sources: None });
        if let Some(connection) = &mut self.line.connection {
            // The process ends: QEMU gets what it takes.
            let _ = connection.flush();
        }
    }
}

impl Line {
    fn connect(&mut self, now: Instant, sources: &Sources, port: &mut Port) {
        let connected = Connection::connect(&self.path).and_then(|connection| {
            sources.add(connection.as_raw_fd(), Attention::OnNews)?;
            Ok(connection)
        });
        match connected {
            Ok(connection) => {
                (self.connection, self.unread) = (Some(connection), true);
                port.handle_input(now, Input::Connected);
            }
            Err(error) => self.lose(now, Some(error.to_string()), port),
        }
    }

    fn lose(&mut self, now: Instant, error: Option<String>, port: &mut Port) {
        self.connection = None;
        port.handle_input(now, Input::Disconnected(error));
    }
}

/// The world around the port. Without sources, no further connection is made.
struct Shelled<'a> {
    line: &'a mut Line,
    sources: Option<&'a Sources>,
}

impl Shell<Port> for Shelled<'_> {
    fn pass(&mut self, now: Instant, output: Output, port: &mut Port) {
        match output {
            Output::Connect => {
                if let Some(sources) = self.sources {
                    self.line.connect(now, sources, port);
                }
            }
            Output::Send(bytes) => {
                let sent = |connection: &mut Connection| {
                    connection.send(Buffer::copy_from_slice(&bytes), Vec::new()).is_ok()
                };
                if !self.line.connection.as_mut().is_some_and(sent) {
                    self.line.lose(now, None, port);
                }
            }
            Output::Close => self.line.connection = None,
            Output::Event(event) => (self.line.report)(event),
        }
    }
}

impl<F: FnMut(guest::Event)> Driver for HotPlugDriver<F> {
    fn start(&mut self, sources: &Sources) -> io::Result<()> {
        self.slot.start(sources)
    }

    fn turn(&mut self, context: &Context<'_>) -> io::Result<Turn> {
        let turn = self.slot.turn(context)?;
        let Some(monitor) = self.monitor.as_mut().filter(|_| turn != Turn::Done) else { return Ok(turn) };
        let guest = self.slot.guest();
        let function = (guest.is_usable(), guest.has_client());
        let is_due = monitor.port.due().is_some_and(|at| at <= context.now);
        if !context.news && !monitor.line.unread && !is_due && monitor.known == Some(function) {
            return Ok(turn);
        }
        let busy = monitor.turn(context.now, function, context.sources());
        Ok(if busy { Turn::Busy } else { turn })
    }

    fn glance(&mut self, context: &Context<'_>) -> Glance {
        self.slot.glance(context)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let port = self.monitor.as_ref().and_then(|monitor| monitor.port.due());
        self.slot.poll_timeout().into_iter().chain(port).min()
    }

    fn on_stop(&mut self, now: Instant) {
        if let Some(mut monitor) = self.monitor.take() {
            monitor.let_go(now);
        }
        self.slot.on_stop(now);
    }
}

impl<F> fmt::Debug for HotPlugDriver<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let port = self.monitor.as_ref().map(|monitor| monitor.port.engine());
        f.debug_struct("HotPlugDriver").field("slot", &self.slot).field("port", &port).finish()
    }
}
