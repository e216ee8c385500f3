//! A crowd at a far end: strangers without its key, which never leave.

use engine::{Buffer, Engine, Instant, Nanos, Rng, settle};
use sim::stream::{ConnectionId, StreamEvent};
use sim::{Context, NodeId};
use tunnel::Session;
use tunnel::session::{Config, Input, Output};

use crate::session::instance;

/// The most connections of one stranger at once.
const CONNECTIONS_MAX: u64 = 40;
/// The longest pause between two actions of a stranger.
const PAUSE_MAX: Nanos = Nanos::from_millis(4);
/// The largest number of random bytes sent at once.
const NONSENSE_MAX: u64 = 300;

/// A stranger's treatment of its connections.
#[derive(Clone, Copy, Debug)]
enum Habit {
    /// It says nothing, and holds on.
    Silent,
    /// It sends a greeting byte by byte.
    Slow,
    /// It hangs up as soon as it is connected.
    Hasty,
    /// It sends whole greetings, of a new host each time.
    Greeting,
    /// It sends random bytes.
    Nonsense,
}

const HABITS: [Habit; 5] = [Habit::Silent, Habit::Slow, Habit::Hasty, Habit::Greeting, Habit::Nonsense];

/// A stranger with many connections.
#[derive(Debug)]
pub(super) struct CrowdNode {
    peer: NodeId,
    rng: Rng,
    habit: Habit,
    /// The connections, each with the unsent rest of a greeting.
    connections: Vec<(ConnectionId, Buffer)>,
    connections_max: usize,
    next_at: Instant,
}

impl CrowdNode {
    /// A stranger that dials `peer` from `begin` on.
    pub(super) fn new(peer: NodeId, begin: Instant, mut rng: Rng) -> Self {
        let habit = HABITS[usize::try_from(rng.below(HABITS.len() as u64)).expect("one of five")];
        let connections_max = 1 + usize::try_from(rng.below(CONNECTIONS_MAX)).expect("a few");
        Self { peer, rng, habit, connections: Vec::new(), connections_max, next_at: begin }
    }

    pub(super) fn handle<P>(
        &mut self,
        context: &mut Context<'_, P>,
        connection: ConnectionId,
        event: &StreamEvent,
    ) {
        match event {
            StreamEvent::Opened => self.speak(context, connection),
            StreamEvent::Closed(_) => self.connections.retain(|(one, _)| *one != connection),
            _ => {}
        }
    }

    pub(super) fn settle<P>(&mut self, context: &mut Context<'_, P>) -> Option<Instant> {
        if self.next_at <= context.now() {
            self.next_at = context.now() + Nanos::new(self.rng.below(PAUSE_MAX.get()) + 1);
            if self.connections.len() < self.connections_max {
                let greeting = greeting(&mut self.rng);
                self.connections.push((context.dial(self.peer), greeting));
            }
            let count = self.connections.len() as u64;
            let place = usize::try_from(self.rng.below(count)).expect("a few");
            let (connection, _) = self.connections[place];
            // A stranger whose places are all taken gives one up now and then.
            if count == self.connections_max as u64 && self.rng.one_in(4) {
                self.connections.swap_remove(place);
                context.close(connection);
            } else {
                self.speak(context, connection);
            }
        }
        Some(self.next_at)
    }

    /// Treats a connection by the stranger's habit.
    fn speak<P>(&mut self, context: &mut Context<'_, P>, connection: ConnectionId) {
        let Some(place) = self.connections.iter().position(|(one, _)| *one == connection) else { return };
        match self.habit {
            Habit::Silent => {}
            Habit::Hasty => {
                self.connections.swap_remove(place);
                context.close(connection);
            }
            Habit::Nonsense => {
                let mut bytes = vec![0; 1 + usize::try_from(self.rng.below(NONSENSE_MAX)).expect("a few")];
                self.rng.fill(&mut bytes);
                context.send(connection, &bytes);
            }
            Habit::Greeting | Habit::Slow => {
                let left = &mut self.connections[place].1;
                let length = if matches!(self.habit, Habit::Slow) { left.len().min(1) } else { left.len() };
                context.send(connection, &left[..length]);
                *left = left.slice(length..left.len());
            }
        }
    }
}

/// The first message of a new host.
pub(super) fn greeting(rng: &mut Rng) -> Buffer {
    let mut of = Rng::from_seed(rng.next_u64());
    let mut config = Config::default();
    config.identity.instance = instance(&mut of);
    let mut session = Session::upstream(config, of);
    let mut said = Buffer::EMPTY;
    settle(&mut session, Instant::ZERO, |_| ());
    session.handle_input(Instant::ZERO, Input::Connected);
    settle(&mut session, Instant::ZERO, |output| {
        if let Output::Transmit(bytes) = output {
            said = bytes;
        }
    });
    said
}
