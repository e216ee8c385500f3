//! The commands of a capture in the order of their beginnings.

use std::collections::BTreeMap;

use engine::Instant;
use trace::Command;

use crate::Error;
use crate::commands::{Commands, Source};

/// Maximum number of waiting commands. A command that ends after this many younger ones follows
/// them.
const WAITING_MAX: usize = 1 << 18;

/// Commands that wait for older ones. In a capture, an admin command may end only with the capture
/// itself, and still comes first.
#[derive(Debug, Default)]
pub struct Queue {
    waiting: BTreeMap<(Instant, u64), Command>,
    seen: u64,
}

impl Queue {
    /// Adds a command that has ended. Returns the oldest once too many wait.
    #[must_use]
    pub fn add(&mut self, command: Command) -> Option<Command> {
        self.seen += 1;
        self.waiting.insert((command.begun().unwrap_or(Instant::ZERO), self.seen), command);
        if self.waiting.len() > WAITING_MAX { self.next() } else { None }
    }
}

/// The commands that wait, oldest first.
impl Iterator for Queue {
    type Item = Command;

    fn next(&mut self) -> Option<Command> {
        self.waiting.pop_first().map(|(_, command)| command)
    }
}

/// The commands of a capture, oldest first.
#[derive(Debug)]
pub struct Ordered {
    commands: Commands,
    queue: Queue,
    is_over: bool,
}

impl Ordered {
    /// The commands of a capture from its beginning.
    ///
    /// # Errors
    /// When the file does not exist or cannot be read.
    pub fn open(from: Source<'_>) -> Result<Self, Error> {
        Ok(Self { commands: Commands::open(from)?, queue: Queue::default(), is_over: false })
    }

    /// The time of the first packet, once a command was read; none for trace output.
    pub const fn began(&self) -> Option<Instant> {
        self.commands.began()
    }
}

impl Iterator for Ordered {
    type Item = Result<Command, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.is_over {
            match self.commands.next() {
                Some(Ok(command)) => {
                    if let Some(oldest) = self.queue.add(command) {
                        return Some(Ok(oldest));
                    }
                }
                Some(Err(error)) => return Some(Err(error)),
                None => self.is_over = true,
            }
        }
        self.queue.next().map(Ok)
    }
}
