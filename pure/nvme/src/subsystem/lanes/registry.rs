//! The lanes that are attached to a subsystem, and what they have acknowledged.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::super::config::COMMANDS_MAX;
use super::super::controller::ControllerKey;
use super::super::flow::success_in;
use super::super::types::{CommandToken, CompletionResult, Output};
use super::message::{Ending, Hand, LaneId};

/// The acknowledgements of a lane.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Attached {
    seen: u64,
    quiet: u64,
}

/// The attached lanes, the commands that they have handed over, and what waits for them.
#[derive(Debug, Serialize, Deserialize)]
pub(in super::super) struct Lanes {
    attached: BTreeMap<LaneId, Attached>,
    next: u32,
    /// The version that the lanes were sent last.
    pub(super) published: u64,
    /// The version with which the lanes were held, while they are.
    pub(super) held_at: Option<u64>,
    /// The version with which a sanitize operation began to refuse I/O.
    pub(super) sanitize_at: u64,
    /// What the next publication has beside the views.
    pub(super) endings: Vec<Ending>,
    pub(super) wants_counts: bool,
    /// Commands that wait until all lanes have seen a version, or the next one.
    waiting: VecDeque<(Option<u64>, CommandToken)>,
    /// Controllers whose commands lanes end, and with which version.
    ended: Vec<(Option<u64>, ControllerKey)>,
    /// Completions that wait until all lanes have seen a version, in the order of versions.
    gated: VecDeque<(u64, Output)>,
    /// Number of lanes that were gone before they had reported their last counts.
    pub(super) lost: u64,
    /// The first token of a command that a lane has handed over.
    base: u32,
    /// Those commands, by token.
    handed: Vec<Option<(LaneId, Hand)>>,
    tokens: BTreeMap<(LaneId, Hand), CommandToken>,
    /// The key of each controller that was added since a lane was attached, and the version then.
    pub(in super::super) added: BTreeMap<ControllerKey, u64>,
    /// The version that made lanes end a controller's commands last: what lanes handed over before
    /// they had seen it has ended.
    pub(in super::super) ended_at: BTreeMap<ControllerKey, u64>,
}

impl Lanes {
    pub(super) fn new(version: u64, commands_max: u32) -> Self {
        Self {
            attached: BTreeMap::new(),
            next: 0,
            published: version,
            held_at: None,
            sanitize_at: 0,
            endings: Vec::new(),
            wants_counts: false,
            waiting: VecDeque::new(),
            ended: Vec::new(),
            gated: VecDeque::new(),
            lost: 0,
            base: commands_max,
            handed: Vec::new(),
            tokens: BTreeMap::new(),
            added: BTreeMap::new(),
            ended_at: BTreeMap::new(),
        }
    }

    /// Attaches a lane that has seen `version`.
    pub(super) fn attach(&mut self, version: u64) -> LaneId {
        let id = LaneId(self.next);
        self.next += 1;
        self.attached.insert(id, Attached { seen: version, quiet: version });
        id
    }

    /// Forgets a lane that has ended. Returns the commands that it had handed over.
    pub(super) fn forget(&mut self, id: LaneId) -> Vec<CommandToken> {
        self.attached.remove(&id);
        self.forget_ended();
        self.tokens.iter().filter(|((lane, _), _)| *lane == id).map(|(_, token)| *token).collect()
    }

    pub(super) fn has(&self, id: LaneId) -> bool {
        self.attached.contains_key(&id)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.attached.is_empty()
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = LaneId> {
        self.attached.keys().copied()
    }

    /// The version that every lane has seen.
    pub(super) fn seen(&self) -> u64 {
        self.attached.values().map(|lane| lane.seen).min().unwrap_or(u64::MAX)
    }

    /// How many lanes may still have requests with media that they sent before they had seen
    /// `version`.
    pub(in super::super) fn unquiet_since(&self, version: u64) -> usize {
        self.attached.values().filter(|lane| lane.quiet < version).count()
    }

    /// The version since which every lane is quiet.
    pub(in super::super) fn quiet(&self) -> u64 {
        self.attached.values().map(|lane| lane.quiet).min().unwrap_or(u64::MAX)
    }

    /// Whether lanes leave the media to the command that is alone.
    pub(in super::super) fn are_quiet(&self) -> bool {
        self.is_empty() || self.held_at.is_some_and(|at| self.quiet() >= at)
    }

    /// Whether lanes have ended all requests that they sent before a sanitize operation.
    pub(in super::super) fn are_quiet_for_sanitize(&self) -> bool {
        self.quiet() >= self.sanitize_at
    }

    /// Notes the version with which a sanitize operation refuses I/O.
    pub(in super::super) const fn set_sanitize_at(&mut self, version: u64) {
        self.sanitize_at = version;
    }

    /// Makes lanes end commands with the next publication.
    pub(in super::super) fn end(&mut self, ending: Ending) {
        if let Ending::Controller(key) = &ending {
            self.ended.push((None, *key));
        }
        self.endings.push(ending);
    }

    /// Makes a command wait until lanes have seen the next publication.
    pub(super) fn await_seen(&mut self, token: CommandToken) {
        self.waiting.push_back((None, token));
    }

    /// Whether the next publication has anything beside the views.
    pub(super) fn have_news(&self) -> bool {
        self.wants_counts || !self.endings.is_empty() || self.waiting.iter().any(|(at, _)| at.is_none())
    }

    /// Notes that `version` is sent to all lanes.
    pub(super) fn publish(&mut self, version: u64) {
        self.published = version;
        self.waiting.iter_mut().for_each(|(at, _)| *at = at.or(Some(version)));
        self.ended.iter_mut().for_each(|(at, _)| *at = at.or(Some(version)));
        self.forget_ended();
    }

    pub(super) fn acknowledge(&mut self, id: LaneId, seen: u64, quiet: u64) {
        if let Some(lane) = self.attached.get_mut(&id) {
            lane.seen = lane.seen.max(seen);
            lane.quiet = lane.quiet.max(quiet);
        }
        self.forget_ended();
    }

    /// Forgets the lives of controllers that lanes have ended.
    fn forget_ended(&mut self) {
        let quiet = self.quiet();
        self.ended.retain(|(at, _)| at.is_none_or(|at| at > quiet));
    }

    /// Takes a command that all lanes have made its publication seen for.
    pub(super) fn take_seen(&mut self) -> Option<CommandToken> {
        let (at, token) = *self.waiting.front()?;
        if at? > self.seen() {
            return None;
        }
        self.waiting.pop_front();
        Some(token)
    }

    /// How many of the controller's lives lanes have not ended yet.
    pub(in super::super) fn ending(&self, key: ControllerKey) -> usize {
        if self.is_empty() { 0 } else { self.ended.iter().filter(|(_, one)| *one == key).count() }
    }

    /// A token for a command that a lane hands over; `None` if there are too many.
    pub(super) fn begin(&mut self, lane: LaneId, hand: Hand) -> Option<CommandToken> {
        let index = self.handed.iter().position(Option::is_none).unwrap_or(self.handed.len());
        let token = self.base.checked_add(u32::try_from(index).ok()?).filter(|one| *one < COMMANDS_MAX)?;
        if index == self.handed.len() {
            self.handed.push(None);
        }
        self.handed[index] = Some((lane, hand));
        self.tokens.insert((lane, hand), CommandToken(token));
        Some(CommandToken(token))
    }

    pub(super) fn token_of(&self, lane: LaneId, hand: Hand) -> Option<CommandToken> {
        self.tokens.get(&(lane, hand)).copied()
    }

    /// The lane that has handed a command over, and the command's name there.
    pub(super) fn hand_of(&self, token: CommandToken) -> Option<(LaneId, Hand)> {
        let index = usize::try_from(token.0.checked_sub(self.base)?).ok()?;
        *self.handed.get(index)?
    }

    /// Frees the token of a command that a lane has handed over.
    pub(super) fn free(&mut self, token: CommandToken) -> Option<(LaneId, Hand)> {
        let index = usize::try_from(token.0.checked_sub(self.base)?).ok()?;
        let found = self.handed.get_mut(index)?.take()?;
        self.tokens.remove(&found);
        Some(found)
    }

    /// Keeps a completion until all lanes have seen what was published. Returns it if they have.
    pub(super) fn gate(&mut self, output: Output) -> Option<Output> {
        if self.gated.is_empty() && self.seen() >= self.published {
            return Some(output);
        }
        self.gated.push_back((self.published, output));
        None
    }

    /// Takes a completion that need not wait any longer.
    pub(super) fn ungate(&mut self) -> Option<Output> {
        let (at, _) = self.gated.front()?;
        if *at > self.seen() {
            return None;
        }
        self.gated.pop_front().map(|(_, output)| output)
    }

    /// The completion of a command that has succeeded, if it waits.
    pub(in super::super) fn success_of(&mut self, token: CommandToken) -> Option<&mut CompletionResult> {
        self.gated.iter_mut().find_map(|(_, output)| success_in(output, token))
    }

    /// Forgets commands that end without completions.
    pub(in super::super) fn drop_commands(&mut self, is_gone: impl Fn(CommandToken) -> bool) {
        self.gated.retain(|(_, output)| !matches!(output, Output::Complete { token, .. } if is_gone(*token)));
        self.waiting.retain(|(_, token)| !is_gone(*token));
        let tokens: Vec<_> = self.tokens.values().copied().filter(|token| is_gone(*token)).collect();
        for token in tokens {
            self.free(token);
        }
    }
}
