//! A card that this process serves to another over vfio-user.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use engine::{Engine, Instant, Nanos, Pool};
use niq::{Counts, Fault, QUEUES};
use vfio_user::Input;
use vfio_user::server::{CloseReason, Server};

use super::shell::{CardShell, Exchange, config};
use super::shm::ROOM;
use super::wire::{Wire, WireError};
use super::{SLEEP_MAX, TEND_EVERY};
use crate::reactor::{Attention, Context, Driver, Glance, Pump, Sources, Turn};
use crate::sys::clock::Clock;
use crate::sys::unix::{Connection, Listener, Received};

/// Number of pieces taken from the client's connection in a turn.
const PIECES_PER_TURN: usize = 16;
/// Most clients that are accepted or turned away in a turn.
const CLIENTS_PER_TURN: usize = 16;
/// Most packets moved in each direction at a time.
const PACKETS_PER_TURN: usize = 64;

/// An event of a served card.
#[derive(Debug)]
pub enum Served {
    /// A client has come, from this process if the system knows it.
    Client(Option<i32>),
    /// The client has gone. If the card has sent it away, for this reason.
    Gone(Option<CloseReason>),
    /// A client was turned away, because another one uses the card.
    TurnedAway,
    /// A client was turned away, because the system has no descriptor or no memory for it.
    AcceptFailed(io::Error),
    /// The wire's other end has come (`true`) or gone.
    Link(bool),
    /// A fault of the client has stopped a queue.
    Fault(usize, Fault),
    /// The interrupts of a queue can't be signalled; their descriptor is given up.
    SignalFailed(usize, io::Error),
}

/// Serves a card: its client's socket, its window, its wire.
pub struct CardDriver<F> {
    listener: Listener,
    server: Pump<Server<OwnedFd>>,
    shell: CardShell<F>,
    faults: [Option<Fault>; QUEUES],
    wire: Wire,
    is_up: bool,
    /// The packet that leaves.
    leaving: Vec<u8>,
    /// The packet that comes, perhaps in parts. Packets that leave meanwhile have no place here.
    coming: Vec<u8>,
    pool: Pool,
    tended_at: Instant,
    now: Instant,
    /// How long the card looks for slots and packets before it says that it sleeps. From then on
    /// its host writes a register when it sends.
    spin: Nanos,
    /// Since when there has been nothing.
    quiet_since: Option<Instant>,
    /// Nothing was there since the card has said that it sleeps.
    has_looked: bool,
    is_stopping: bool,
}

impl<F: FnMut(Served)> CardDriver<F> {
    /// A card with `address` whose clients come to `listener`, and which is at an end of `wire`.
    /// It runs in a loop that spins for `spin`.
    ///
    /// # Errors
    /// When the system has no memory or descriptors left.
    pub fn new(listener: Listener, wire: Wire, address: [u8; 6], spin: Nanos, report: F) -> io::Result<Self> {
        Ok(Self {
            listener,
            server: Pump::new(Server::new(config())),
            shell: CardShell::new(address, report)?,
            faults: [None; QUEUES],
            wire,
            is_up: false,
            leaving: vec![0; ROOM],
            coming: vec![0; ROOM],
            pool: Pool::default(),
            tended_at: Instant::ZERO,
            now: Instant::ZERO,
            spin,
            quiet_since: None,
            has_looked: false,
            is_stopping: false,
        })
    }

    /// The counts of the card for all its clients.
    pub fn counts(&self) -> Counts {
        self.shell.counts()
    }

    /// Moves packets between the window and the wire; returns whether there were any.
    fn move_packets(&mut self) -> bool {
        let mut moved = false;
        for _ in 0..PACKETS_PER_TURN {
            if !self.wire.has_room() {
                break;
            }
            let Some(length) = self.shell.card.poll_transmit(
                &mut self.shell.window,
                &mut self.shell.memory,
                &mut self.leaving,
            ) else {
                break;
            };
            self.wire.send(&self.leaving[..length]);
            moved = true;
        }
        for _ in 0..PACKETS_PER_TURN {
            let Some(length) = self.wire.receive(&mut self.coming) else { break };
            self.shell.card.receive(&mut self.shell.window, &mut self.shell.memory, &self.coming[..length]);
            moved = true;
        }
        // The rest of an earlier packet may have left although no packet was moved.
        self.wire.wake();
        if moved {
            self.interrupt_client();
        }
        moved
    }

    /// Interrupts the client if it waits for a packet that has come.
    fn interrupt_client(&mut self) {
        while let Some(queue) = self.shell.card.poll_interrupt(&self.shell.window) {
            if let Err(error) = self.shell.vectors.signal(queue) {
                (self.shell.report)(Served::SignalFailed(queue, error));
            }
        }
    }

    /// Notes that there was something, or nothing. A card that was quiet for a while says that it
    /// sleeps, and looks once more.
    fn rest(&mut self, moved: bool) {
        if moved {
            self.quiet_since = None;
            self.say_asleep(false);
            return;
        }
        if self.shell.card.is_asleep() {
            self.has_looked = true;
        } else if self.now - *self.quiet_since.get_or_insert(self.now) >= self.spin {
            self.say_asleep(true);
        }
    }

    fn say_asleep(&mut self, asleep: bool) {
        if self.shell.card.is_asleep() != asleep {
            self.shell.card.sleep(&mut self.shell.window, asleep);
            self.wire.sleep(asleep);
            self.has_looked = false;
        }
    }

    fn tend(&mut self, now: Instant, has_news: bool) -> Result<(), WireError> {
        if !has_news && now - self.tended_at < TEND_EVERY {
            return Ok(());
        }
        self.tended_at = now;
        self.wire.tend(now)?;
        let is_up = self.wire.is_up();
        if core::mem::replace(&mut self.is_up, is_up) != is_up {
            self.shell.card.set_link(is_up);
            (self.shell.report)(Served::Link(is_up));
        }
        for (queue, known) in self.faults.iter_mut().enumerate() {
            let fault = self.shell.card.fault(queue);
            if let Some(fault) = fault.filter(|_| fault != *known) {
                (self.shell.report)(Served::Fault(queue, fault));
            }
            *known = fault;
        }
        Ok(())
    }

    /// Accepts the clients that have come: one is served, others are turned away. Returns whether
    /// there were any.
    fn accept(&mut self, now: Instant, sources: &Sources) -> bool {
        for count in 0..CLIENTS_PER_TURN {
            match self.listener.accept() {
                Ok(None) => return count > 0,
                Ok(Some(_)) if self.shell.connection.as_ref().is_some_and(|one| !one.is_closed_by_peer()) => {
                    (self.shell.report)(Served::TurnedAway);
                }
                Ok(Some(connection)) => {
                    self.lose_client(now, sources);
                    if let Err(error) = self.admit(now, connection, sources) {
                        (self.shell.report)(Served::AcceptFailed(error));
                    }
                }
                Err(error) => {
                    (self.shell.report)(Served::AcceptFailed(error));
                    return count > 0;
                }
            }
        }
        true
    }

    /// Serves a client.
    fn admit(&mut self, now: Instant, connection: Connection, sources: &Sources) -> io::Result<()> {
        self.shell.admit(connection, sources)?;
        self.server.engine_mut().handle_input(now, Input::Connected);
        Ok(())
    }

    /// Forgets the client.
    fn lose_client(&mut self, now: Instant, sources: &Sources) {
        self.shell.lose_client(sources, None);
        self.server.engine_mut().handle_input(now, Input::Disconnected);
    }

    fn receive_client(&mut self, clock: Clock, sources: &Sources) -> bool {
        for piece in 0..PIECES_PER_TURN {
            let Some(connection) = &mut self.shell.connection else { return piece > 0 };
            let received = connection.receive(&mut self.pool).unwrap_or(Received::Closed);
            if let Received::Nothing = received {
                return piece > 0;
            }
            let now = clock.now();
            if let Received::Data(bytes, descriptors) = received {
                let input = Input::Received { bytes: &bytes, descriptors };
                self.server.engine_mut().handle_input(now, input);
            } else {
                self.lose_client(now, sources);
            }
            self.server.exchange(now, &mut Exchange { shell: &mut self.shell, sources });
            self.shell.flush();
        }
        true
    }
}

impl<F: FnMut(Served)> Driver for CardDriver<F> {
    fn start(&mut self, sources: &Sources) -> io::Result<()> {
        sources.add(self.listener.as_raw_fd(), Attention::OnNews)?;
        sources.add(self.wire.as_fd().as_raw_fd(), Attention::OnNews)
    }

    fn turn(&mut self, context: &Context<'_>) -> io::Result<Turn> {
        let sources = context.sources();
        self.now = context.now;
        if self.is_stopping {
            return Ok(Turn::Done);
        }
        let mut busy = false;
        if context.news {
            busy |= self.accept(context.now, sources);
            busy |= self.receive_client(context.clock, sources);
            // The socket may have room again for answers that found none.
            self.shell.flush();
        }
        if self.shell.memory.lost().is_some() {
            self.lose_client(context.now, sources);
        }
        if self.server.wants_settling(context.now, busy) {
            // The requests of the turn were answered with later times.
            let now = if busy { context.clock.now() } else { context.now };
            self.server.settle(now, &mut Exchange { shell: &mut self.shell, sources });
            self.shell.flush();
        }
        self.tend(context.now, context.news).map_err(io::Error::other)?;
        let moved = self.move_packets();
        // A client that writes a register has woken the card, and stores more.
        self.rest(moved || busy);
        busy |= moved;
        Ok(if busy { Turn::Busy } else { Turn::Idle })
    }

    fn glance(&mut self, _: &Context<'_>) -> Glance {
        if self.move_packets() {
            self.rest(true);
            return Glance::Done;
        }
        Glance::Nothing
    }

    fn poll_timeout(&self) -> Option<Instant> {
        // A card that has not said that it sleeps is not woken, so it must not wait.
        let may_wait = self.shell.card.is_asleep() && self.has_looked;
        let look = if may_wait { SLEEP_MAX } else { Nanos::ZERO };
        Instant::earlier(Some(self.now + look), self.server.poll_timeout())
    }

    fn on_stop(&mut self, _: Instant) {
        self.is_stopping = true;
    }
}

impl<F> fmt::Debug for CardDriver<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CardDriver")
            .field("card", &self.shell.card)
            .field("wire", &self.wire)
            .finish_non_exhaustive()
    }
}
