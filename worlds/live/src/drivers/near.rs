//! The near host in the live world: its connections or its own function, and the engines, in one
//! loop.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::SocketAddr;

use assemblies::near::{Event, Input, Near, Output};
use engine::{Engine, Instant, Pool};
use nvme::media;
use nvme_pcie::function::{self, Function};
use tunnel::upstream::ConnectionIndex;

use crate::carrier::route::Route;
use crate::carrier::{Dial, LOOKS, Link};
use crate::media::Media;
use crate::reactor::blocking::Application;
use crate::reactor::{Attention, Context, Driver, Glance, Pump, Shell, Sources, Turn};

/// The most pieces taken from one connection in a turn, so that none starves the others.
const PIECES_PER_TURN: usize = 16;
/// A piece shorter than this was probably the last. The application may wait for it, so the
/// application comes before another look.
const SHORT: usize = 16 << 10;

struct Port {
    link: Link,
    /// Why the latest attempt to connect failed, if it did.
    failure: Option<(SocketAddr, io::Error)>,
}

/// A function in the same process, on the root port's own link.
struct Local {
    function: Pump<Function>,
    media: Media,
    completions: VecDeque<media::Completion>,
}

/// The surroundings of the engines of a near host.
struct NearShell {
    ports: Vec<Port>,
    local: Option<Box<Local>>,
    events: VecDeque<Event>,
}

/// The driver of a near host: it joins the engines to connections or to a local function.
pub struct NearDriver {
    near: Pump<Near>,
    shell: NearShell,
    pool: Pool,
    /// The application may have given the engines something to do.
    touched: bool,
    stopping: bool,
}

impl NearDriver {
    /// Drives a host whose far ends are reached by `routes`, one for each port.
    pub fn over_tcp(near: Near, mut routes: Vec<Route>) -> Self {
        let ports = routes.len();
        if let Some(upstream) = near.upstream() {
            for index in ports..upstream.connections() {
                let index = u8::try_from(index).expect("32 ports have at most 256 connections");
                routes.push(routes[usize::from(upstream.port_of(ConnectionIndex(index)).0)].clone());
            }
        }
        let port = |route| Port { link: Link::new(route), failure: None };
        Self::new(near, routes.into_iter().map(port).collect(), None)
    }

    /// Drives a host with a function in the same process.
    pub fn direct(near: Near, function: Function, media: Media) -> Self {
        let local = Local { function: Pump::new(function), media, completions: VecDeque::new() };
        Self::new(near, Vec::new(), Some(Box::new(local)))
    }

    fn new(near: Near, ports: Vec<Port>, local: Option<Box<Local>>) -> Self {
        Self {
            near: Pump::new(near),
            shell: NearShell { ports, local, events: VecDeque::new() },
            pool: Pool::default(),
            touched: true,
            stopping: false,
        }
    }

    /// The engines of the host.
    pub const fn near(&self) -> &Near {
        self.near.engine()
    }
    /// The engines of the host, for commands. The next turn passes on their outputs.
    pub const fn near_mut(&mut self) -> &mut Near {
        self.touched = true;
        self.near.engine_mut()
    }
    /// Why a far end could not be reached at the latest attempt, if one could not.
    pub fn dial_failure(&self) -> Option<&(SocketAddr, io::Error)> {
        self.shell.ports.iter().find_map(|port| port.failure.as_ref())
    }

    /// Whether trying further to find the far ends is useless, because something else answers.
    fn is_hopeless(&self) -> bool {
        self.near().topology().is_none()
            && self.dial_failure().is_some_and(|(_, error)| is_somebody_else(error))
    }

    /// Returns events to the front of the queue, so that they come again before all others.
    pub(crate) fn report_again(&mut self, events: Vec<Event>) {
        events.into_iter().rev().for_each(|event| self.shell.events.push_front(event));
    }

    fn dial(&mut self, now: Instant, sources: &Sources) -> bool {
        let mut busy = false;
        for (port, index) in self.shell.ports.iter_mut().zip(0..) {
            let Some(dialled) = port.link.dial(now, sources) else { continue };
            let connection = ConnectionIndex(index);
            let (input, failure) = match dialled {
                Dial::Path { path, is_away } => {
                    let event = tunnel::Event::of_path(tunnel::paths::PathIndex(path), is_away);
                    let Some(upstream) = self.near.engine().upstream() else { continue };
                    self.shell.events.push_back(Event::Link { port: upstream.port_of(connection), event });
                    continue;
                }
                Dial::Failed(address, error) => (Input::Disconnected(connection), Some((address, error))),
                Dial::Connected => (Input::Connected(connection), None),
            };
            port.failure = failure;
            busy = true;
            self.near.engine_mut().handle_input(now, input);
            if let Some(bytes) = port.link.segment_max() {
                self.near.engine_mut().set_segment_max(connection, bytes);
            }
        }
        busy
    }

    /// Takes bytes from the far ends; returns whether there were any.
    fn receive(&mut self, context: &Context<'_>) -> bool {
        let (clock, sources) = (context.clock, context.sources());
        // The turn's own time suffices, unless a watcher records when things happen.
        let mut now = context.now;
        let mut busy = false;
        for index in 0..self.shell.ports.len() {
            let id = ConnectionIndex(u8::try_from(index).expect("32 ports have at most 256 connections"));
            for _ in 0..PIECES_PER_TURN {
                let (input, short) = match self.shell.ports[index].link.receive(&mut self.pool, sources) {
                    None => break,
                    Some(Ok(bytes)) => {
                        let short = bytes.len() < SHORT;
                        (Input::Received(id, bytes), short)
                    }
                    Some(Err(())) => (Input::Disconnected(id), false),
                };
                busy = true;
                let near = self.near.engine_mut();
                if near.is_timed() {
                    now = clock.now();
                }
                near.handle_input(now, input);
                if near.is_timed() {
                    now = clock.now();
                    near.advance(now);
                }
                // An answer leaves before anything else is looked at.
                self.near.exchange(now, &mut self.shell);
                self.shell.flush(sources);
                // An application that gets an event submits more commands. The far end need not
                // wait for those commands until all its bytes are handled.
                if short || !self.shell.events.is_empty() {
                    break;
                }
            }
        }
        busy
    }
}

impl NearShell {
    /// Sends waiting bytes, and ends connections that are to end.
    fn flush(&mut self, sources: &Sources) -> bool {
        let mut busy = false;
        for port in &mut self.ports {
            busy |= port.link.flush(sources);
        }
        busy
    }

    /// Whether everything that can come shows in memory.
    fn is_polled(&self) -> bool {
        self.local.is_none() && self.ports.iter().all(|port| port.link.is_polled())
    }

    /// Takes the completions of the local function's media.
    fn reap(&mut self) -> io::Result<bool> {
        self.local.as_mut().map_or(Ok(false), |local| local.reap())
    }
}

impl Shell<Near> for NearShell {
    fn pass(&mut self, now: Instant, output: Output, _: &mut Near) {
        match output {
            Output::Transmit(port, bytes) => self.ports[usize::from(port.0)].link.send(bytes),
            Output::Connect(port) => self.ports[usize::from(port.0)].link.connect(now),
            Output::Close(port) => self.ports[usize::from(port.0)].link.close(),
            Output::Packet(packet) => {
                if let Some(local) = &mut self.local {
                    local.function.engine_mut().handle_input(now, function::Input::Packet(packet));
                }
            }
            Output::Event(event) => self.events.push_back(event),
        }
    }

    fn answer(&mut self, now: Instant, near: &mut Near) -> bool {
        self.local.as_mut().is_some_and(|local| local.exchange(now, near))
    }

    fn fire(&mut self, now: Instant) -> bool {
        self.local.as_mut().is_some_and(|local| local.function.fire(now))
    }

    fn next_wake(&self, now: Instant) -> Option<Instant> {
        self.local.as_ref().and_then(|local| local.function.next_wake(now))
    }
}

/// Whether dialling has failed because something else answered, and not because there was no
/// answer.
pub(crate) fn is_somebody_else(error: &io::Error) -> bool {
    let said_by_us = error.raw_os_error().is_none();
    said_by_us && matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported)
}

impl Local {
    /// Passes on the function's outputs; returns whether there were any.
    fn exchange(&mut self, now: Instant, near: &mut Near) -> bool {
        let Self { function, media, completions } = self;
        function.exchange(now, &mut Exchange { near, media, completions })
    }

    fn reap(&mut self) -> io::Result<bool> {
        let completions = &mut self.completions;
        Ok(self.media.reap(&mut |completion| completions.push_back(completion))? > 0)
    }
}

/// The surroundings of a local function for one exchange.
struct Exchange<'a> {
    near: &'a mut Near,
    media: &'a mut Media,
    completions: &'a mut VecDeque<media::Completion>,
}

impl Shell<Function> for Exchange<'_> {
    fn pass(&mut self, now: Instant, output: function::Output, _: &mut Function) {
        match output {
            function::Output::Packet(packet) => self.near.handle_input(now, Input::Packet(packet)),
            function::Output::Media(request) => {
                self.media.submit(request, &mut |completion| self.completions.push_back(completion));
            }
            function::Output::Notify(_) => {}
            function::Output::ToLane(..) => unreachable!("no lane is attached"),
        }
    }

    fn answer(&mut self, now: Instant, function: &mut Function) -> bool {
        let is_any = !self.completions.is_empty();
        while let Some(completion) = self.completions.pop_front() {
            function.handle_input(now, function::Input::Media(completion));
        }
        is_any
    }
}

impl Driver for NearDriver {
    fn start(&mut self, sources: &Sources) -> io::Result<()> {
        let mut media = self.shell.local.iter().flat_map(|local| local.media.poll_fds());
        media.try_for_each(|descriptor| sources.add(descriptor, Attention::EachTurn))
    }

    fn turn(&mut self, context: &Context<'_>) -> io::Result<Turn> {
        let now = context.now;
        let sources = context.sources();
        let mut busy = core::mem::take(&mut self.touched);
        if busy {
            self.near.engine_mut().advance(now);
            self.near.exchange(now, &mut self.shell);
            self.shell.flush(sources);
        }
        let dialled = self.dial(now, sources);
        busy |= dialled;
        // Nothing else comes soon from elsewhere. Glances find changes that show in memory.
        let is_local = self.shell.local.is_some();
        let looks = if busy || is_local || self.shell.is_polled() { 1 } else { LOOKS };
        busy |= (0..looks).any(|_| self.receive(context));
        // The engines have got later times since the turn began, and their time never goes back.
        // Received bytes should not also wait for a look at the clock.
        let later = |busy| if busy { context.clock.now() } else { now };
        busy |= self.shell.reap()?;
        // The outputs of a local function. Deadlines are looked at only when no other work waits.
        if dialled || is_local {
            busy |= self.near.exchange(later(busy), &mut self.shell);
        }
        if self.near.wants_settling(now, busy) {
            busy |= self.near.settle(later(busy), &mut self.shell);
        }
        busy |= self.shell.flush(sources);
        busy |= self.shell.reap()?;
        let done = || self.shell.ports.iter().all(|port| !port.link.is_connected());
        if self.stopping && done() {
            return Ok(Turn::Done);
        }
        Ok(if busy { Turn::Busy } else { Turn::Idle })
    }

    fn glance(&mut self, context: &Context<'_>) -> Glance {
        // A watcher that records when things happen needs the clock, which a glance does not read.
        if self.touched || !self.shell.is_polled() || self.near().is_timed() {
            return Glance::Blind;
        }
        if self.receive(context) { Glance::Done } else { Glance::Nothing }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let dialling = self.shell.ports.iter().filter_map(|port| port.link.poll_timeout());
        self.near.poll_timeout().into_iter().chain(dialling).min()
    }

    fn on_stop(&mut self, now: Instant) {
        self.stopping = true;
        self.near.engine_mut().close(now, "the host is done");
        self.near.exchange(now, &mut self.shell);
    }
}

impl Application for NearDriver {
    type Event = Event;

    fn poll_event(&mut self) -> Option<Event> {
        self.shell.events.pop_front()
    }
    fn has_events(&self) -> bool {
        !self.shell.events.is_empty() || self.is_hopeless()
    }
}

impl fmt::Debug for NearDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NearDriver").field("near", self.near.engine()).finish_non_exhaustive()
    }
}
