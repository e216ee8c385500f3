//! One reliable stream over several paths: everything goes over all of them, and the first copy
//! wins.
//!
//! A path is a byte stream of its own, for example a TCP connection through another network. What
//! one path loses or delays, another path has already brought. A lost path leaves the stream whole
//! as long as another path lives, and the lost path may join again. A path that lags behind leaves
//! out the bytes that have been acknowledged meanwhile. Section 9 of `protocol.md`
//! specifies the format.
//!
//! The engine knows neither sessions nor sockets: [`Paths::send`] takes the bytes of the stream,
//! and [`Output::Deliver`] gives the bytes of the peer's stream.

#[doc(hidden)]
pub mod fuzz;
mod path;
#[cfg(test)]
mod tests;
mod wire;

pub use wire::{
    GroupId, MAGIC, Opening, PREAMBLE_LENGTH, PathError, PathIndex, Preamble, Token, VERSION, opening,
};

use alloc::collections::VecDeque;
use core::fmt;

use engine::{Buffer, Engine, Instant, Nanos, Pool};

use path::{Path, Piece};
use wire::{RECORD_LENGTH, Record};

/// The most paths of a stream.
pub const PATHS_MAX: usize = 4;
/// The most data in a record, in bytes.
pub const RECORD_MAX: u32 = 64 << 10;
/// The most bytes that are kept until acknowledged: more than a session ever has under way.
pub const KEPT_BYTES_MAX: u64 = 32 << 20;
/// The most pieces in which unacknowledged bytes are kept.
pub const KEPT_PIECES_MAX: usize = 1 << 16;
/// The most bytes that a path is given and has not taken. Bytes that are held back can be left out
/// if another path was faster.
const GIVEN_MAX: usize = 64 << 10;
/// After this many delivered bytes, an acknowledgement is sent without delay.
const ACKNOWLEDGE_BYTES: u64 = 64 << 10;
/// How long fewer bytes than [`ACKNOWLEDGE_BYTES`] wait for data that carries their
/// acknowledgement.
const ACKNOWLEDGE_DELAY: Nanos = Nanos::from_millis(5);
/// How often a path sends a sign of life when it has nothing else to send.
const SPEAK_INTERVAL: Nanos = Nanos::from_secs(1);
/// A path that brings nothing for this long is lost.
const SILENCE: Nanos = Nanos::from_secs(5);
/// A stream of which nothing is acknowledged for this long is over.
const STALL: Nanos = Nanos::from_secs(10);

/// Inputs of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A path exists: dialled, or accepted with its [`Preamble`] read. It replaces any earlier path
    /// of this number.
    Joined(PathIndex),
    /// A piece of a path's byte stream, cut anywhere.
    Received(PathIndex, Buffer),
    /// A path has taken all bytes that were to be transmitted.
    Drained(PathIndex),
    /// A path has ended.
    Lost(PathIndex),
}

/// Outputs of a stream: requests to the world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Append these bytes to a path. [`Input::Drained`] follows when the path has taken them.
    Transmit(PathIndex, Buffer),
    /// The next bytes of the peer's stream.
    Deliver(Buffer),
    /// End a path that is of no use. The path brings no further input, not even [`Input::Lost`].
    Drop(PathIndex, PathError),
    /// The stream and all its paths are over.
    End(EndReason),
}

/// Why a stream is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// No path is left.
    NoPath,
    /// The other end has begun another stream, because it lost all paths of this one.
    Forgotten,
    /// The other end acknowledges too few of the sent bytes, so that too many are kept.
    TooMuchKept,
    /// The other end is there but acknowledges nothing.
    Stalled,
}

impl fmt::Display for EndReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoPath => "no path is left",
            Self::Forgotten => "the other end has forgotten the stream",
            Self::TooMuchKept => "the other end acknowledges too little",
            Self::Stalled => "the other end acknowledges nothing",
        })
    }
}

/// Counters of the paths of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// For each path, how many bytes of the peer's stream it brought first.
    pub first: [u64; PATHS_MAX],
    /// For each path, how many bytes it brought that another path had brought before.
    pub again: [u64; PATHS_MAX],
    /// For each path, how many bytes it left out because another path had brought them.
    pub left_out: [u64; PATHS_MAX],
}

/// One end of a stream over several paths.
#[derive(Debug)]
pub struct Paths {
    group: GroupId,
    token: Option<Token>,
    /// Whether this end dials; the other end then answers with a preamble of its own.
    dials: bool,
    paths: [Option<Path>; PATHS_MAX],
    /// Pieces that are not acknowledged, each with its place in the stream.
    kept: VecDeque<Piece>,
    /// Length of our stream so far, in bytes.
    end: u64,
    acknowledged: u64,
    /// When the other end last acknowledged something, or had nothing to acknowledge.
    progress: Instant,
    /// Bytes of the peer's stream that have been delivered.
    delivered: u64,
    /// How many of the delivered bytes were acknowledged on every path that had room for it.
    confirmed: u64,
    acknowledge_at: Option<Instant>,
    outputs: VecDeque<Output>,
    pool: Pool,
    statistics: Statistics,
    over: bool,
}

impl Paths {
    /// Creates the end that dials, for a new stream with the random name `group`.
    pub fn dialling(group: GroupId) -> Self {
        Self::new(group, None, true)
    }

    /// Creates the end that accepts, for the stream whose first path named `group`. `token` is
    /// random.
    pub fn accepting(group: GroupId, token: Token) -> Self {
        Self::new(group, Some(token), false)
    }

    fn new(group: GroupId, token: Option<Token>, dials: bool) -> Self {
        Self {
            group,
            token,
            dials,
            paths: [const { None }; PATHS_MAX],
            kept: VecDeque::new(),
            end: 0,
            acknowledged: 0,
            progress: Instant::ZERO,
            delivered: 0,
            confirmed: 0,
            acknowledge_at: None,
            outputs: VecDeque::new(),
            pool: Pool::new(64 << 10),
            statistics: Statistics::default(),
            over: false,
        }
    }

    /// Whether a path that begins with `preamble` belongs to this stream.
    pub fn is_ours(&self, preamble: &Preamble) -> bool {
        self.group == preamble.group && preamble.token.is_none_or(|token| self.token == Some(token))
    }

    /// Whether the path with this number is there.
    pub fn has(&self, path: PathIndex) -> bool {
        self.paths.get(path.index()).is_some_and(Option::is_some)
    }

    /// The counters so far.
    pub const fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// Bytes of our stream that the other end has not acknowledged. Zero when the stream is over.
    pub const fn unacknowledged(&self) -> u64 {
        self.end - self.acknowledged
    }

    /// Whether a path still has bytes to take, so that [`Input::Drained`] is outstanding.
    pub fn is_filled(&self, path: PathIndex) -> bool {
        matches!(self.paths.get(path.index()), Some(Some(path)) if path.given > 0)
    }

    /// Acknowledges the received bytes now, when waiting for more is not worthwhile.
    pub fn conclude(&mut self, now: Instant) {
        if self.confirmed < self.delivered {
            self.acknowledge(now);
        }
    }

    /// Sends `bytes`, the next part of our stream.
    pub fn send(&mut self, now: Instant, bytes: Buffer) {
        if self.over || bytes.is_empty() {
            return;
        }
        if self.kept.is_empty() {
            self.progress = now;
        }
        let offset = self.end;
        self.end += bytes.len() as u64;
        self.kept.push_back(Piece { offset, bytes });
        if self.end - self.acknowledged > KEPT_BYTES_MAX || self.kept.len() > KEPT_PIECES_MAX {
            self.end(EndReason::TooMuchKept);
            return;
        }
        for index in 0..PATHS_MAX {
            self.fill(now, index);
        }
    }

    /// When to stop waiting for the other end to acknowledge.
    fn stalls_at(&self) -> Option<Instant> {
        (!self.kept.is_empty()).then(|| self.progress + STALL)
    }

    fn end(&mut self, reason: EndReason) {
        self.over = true;
        self.kept.clear();
        self.acknowledged = self.end;
        self.paths = [const { None }; PATHS_MAX];
        self.acknowledge_at = None;
        self.outputs.push_back(Output::End(reason));
    }

    fn join(&mut self, now: Instant, path: PathIndex) {
        let Some(slot) = self.paths.get_mut(path.index()) else { return };
        *slot = Some(Path::new(now, self.acknowledged, self.dials));
        let preamble = Preamble { group: self.group, path, token: self.token }.emit();
        self.outputs.push_back(Output::Transmit(path, self.pool.copy(&preamble)));
        self.fill(now, path.index());
    }

    /// Removes a path. The stream ends with its last path.
    fn remove(&mut self, index: usize) {
        let was_there = self.paths[index].take().is_some();
        if was_there && self.paths.iter().all(Option::is_none) {
            self.end(EndReason::NoPath);
        }
    }

    /// Gives a path as much as it has room for.
    fn fill(&mut self, now: Instant, index: usize) {
        let Some(path) = &mut self.paths[index] else { return };
        while path.given < GIVEN_MAX {
            if path.next < self.acknowledged {
                self.statistics.left_out[index] += self.acknowledged - path.next;
                path.next = self.acknowledged;
                path.owes = true;
            }
            let data = Piece::at(&self.kept, path.next);
            if data.is_none() && !path.owes {
                return;
            }
            let data = data.unwrap_or(Buffer::EMPTY);
            let length = u32::try_from(data.len()).expect("no more than a record's");
            let record = Record { offset: path.next, acknowledged: self.delivered, length }.emit();
            path.on_record(now, data.len(), self.delivered);
            let id = path_index(index);
            self.outputs.push_back(Output::Transmit(id, self.pool.copy(&record)));
            if !data.is_empty() {
                self.outputs.push_back(Output::Transmit(id, data));
            }
        }
    }

    fn on_received(&mut self, now: Instant, index: usize, bytes: &Buffer) -> Result<(), PathError> {
        let mut at = 0;
        while at < bytes.len() {
            let Some(path) = self.paths.get_mut(index).and_then(Option::as_mut) else { return Ok(()) };
            path.heard = now;
            if path.body > 0 {
                let count = (bytes.len() - at).min(usize::try_from(path.body).unwrap_or(usize::MAX));
                let offset = path.on_body(count);
                self.deliver(now, index, offset, bytes.slice(at..at + count));
                at += count;
            } else if path.is_greeted {
                let (taken, head) = path.head::<RECORD_LENGTH>(&bytes[at..]);
                at += taken;
                if let Some(head) = head {
                    self.on_record(now, index, &Record::parse(&head)?)?;
                }
            } else {
                let (taken, head) = path.head::<PREAMBLE_LENGTH>(&bytes[at..]);
                at += taken;
                if let Some(head) = head {
                    self.on_answer(index, &Preamble::parse(&head)?)?;
                }
            }
        }
        Ok(())
    }

    fn on_answer(&mut self, index: usize, answer: &Preamble) -> Result<(), PathError> {
        let Some(token) = answer.token else { return Err(PathError::Stranger) };
        if answer.group != self.group || answer.path != path_index(index) {
            return Err(PathError::Stranger);
        }
        if *self.token.get_or_insert(token) != token {
            self.end(EndReason::Forgotten);
        } else if let Some(path) = &mut self.paths[index] {
            path.is_greeted = true;
        }
        Ok(())
    }

    fn on_record(&mut self, now: Instant, index: usize, record: &Record) -> Result<(), PathError> {
        let Record { offset, acknowledged, length } = *record;
        if offset > self.delivered {
            return Err(PathError::Gap { offset, delivered: self.delivered });
        }
        if acknowledged > self.end {
            return Err(PathError::Acknowledged(acknowledged));
        }
        if let Some(path) = &mut self.paths[index] {
            (path.body, path.body_offset) = (length, offset);
        }
        if acknowledged > self.acknowledged {
            (self.acknowledged, self.progress) = (acknowledged, now);
            while self.kept.front().is_some_and(|piece| piece.end() <= acknowledged) {
                self.kept.pop_front();
            }
        }
        Ok(())
    }

    /// Delivers the part of `bytes` that has not come before. `bytes` begin at `offset` of the
    /// stream.
    fn deliver(&mut self, now: Instant, index: usize, offset: u64, bytes: Buffer) {
        let known = usize::try_from(self.delivered - offset).unwrap_or(usize::MAX).min(bytes.len());
        self.statistics.again[index] += known as u64;
        if known == bytes.len() {
            return;
        }
        let news = bytes.slice(known..bytes.len());
        self.statistics.first[index] += news.len() as u64;
        self.delivered += news.len() as u64;
        self.acknowledge_at.get_or_insert(now + ACKNOWLEDGE_DELAY);
        self.outputs.push_back(Output::Deliver(news));
    }

    /// Acknowledges the received bytes on every path. A busy path acknowledges with its next
    /// record.
    fn acknowledge(&mut self, now: Instant) {
        (self.acknowledge_at, self.confirmed) = (None, self.delivered);
        for index in 0..PATHS_MAX {
            if let Some(path) = &mut self.paths[index] {
                path.owes |= path.confirmed < self.delivered;
            }
            self.fill(now, index);
        }
    }
}

/// The number of the path at `index`.
fn path_index(index: usize) -> PathIndex {
    PathIndex(u8::try_from(index).expect("there are four paths at most"))
}

impl Engine for Paths {
    type Input<'a> = Input;
    type Output = Output;

    fn handle_input(&mut self, now: Instant, input: Input) {
        if self.over {
            return;
        }
        match input {
            Input::Joined(path) => self.join(now, path),
            Input::Lost(path) => {
                if self.has(path) {
                    self.remove(path.index());
                }
            }
            Input::Drained(path) => {
                if let Some(Some(drained)) = self.paths.get_mut(path.index()) {
                    drained.given = 0;
                    self.fill(now, path.index());
                }
            }
            Input::Received(path, bytes) => {
                if let Err(error) = self.on_received(now, path.index(), &bytes) {
                    self.outputs.push_back(Output::Drop(path, error));
                    self.remove(path.index());
                }
                if self.delivered - self.confirmed >= ACKNOWLEDGE_BYTES {
                    self.acknowledge(now);
                }
            }
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        if self.stalls_at().is_some_and(|at| at <= now) {
            self.end(EndReason::Stalled);
        }
        if self.acknowledge_at.is_some_and(|at| at <= now) {
            self.acknowledge(now);
        }
        for index in 0..PATHS_MAX {
            let Some(path) = &mut self.paths[index] else { continue };
            if path.silent_at() <= now {
                self.outputs.push_back(Output::Drop(path_index(index), PathError::Silent));
                self.remove(index);
            } else if path.speak_at().is_some_and(|at| at <= now) {
                path.owes = true;
                self.fill(now, index);
            }
        }
    }

    fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let of_path = |path: &Path| path.speak_at().map_or(path.silent_at(), |at| at.min(path.silent_at()));
        self.paths.iter().flatten().map(of_path).chain(self.acknowledge_at).chain(self.stalls_at()).min()
    }
}
