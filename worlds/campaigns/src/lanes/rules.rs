//! The states of the subsystem that a command may be judged by, from the times at which changes
//! began and ended.

use engine::Instant;
use nvme::wire::{IoOpcode, StatusCode};

/// Number of logical blocks of a namespace.
pub(super) const BLOCKS: u64 = 64;
/// Number of namespaces.
pub(super) const NAMESPACES: usize = 2;
/// The index that means every namespace that the host has.
pub(super) const EVERY: usize = usize::MAX;

/// The state of a namespace as far as it refuses commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Namespace {
    /// Whether a host has protected the namespace.
    pub(super) protected: bool,
    /// Whether the world has made the namespace read-only.
    pub(super) read_only: bool,
    /// The host that does not have the namespace attached.
    pub(super) detached: Option<usize>,
    pub(super) formatting: bool,
    /// Whether the world has removed the namespace.
    pub(super) absent: bool,
    pub(super) blocks: u64,
    /// The host that holds the reservation, and whether the reservation also excludes reads.
    pub(super) holder: Option<(usize, bool)>,
}

/// The state of the subsystem as far as it refuses commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) namespaces: [Namespace; NAMESPACES],
    /// The host that does not reach the namespaces.
    pub(super) unreached: Option<usize>,
    /// The host that may only read.
    pub(super) reader: Option<usize>,
    /// The host that has its write cache off, so that every write must be durable.
    pub(super) uncached: Option<usize>,
    /// The status with which a sanitize operation refuses commands: in progress, or failed.
    pub(super) sanitize: Option<StatusCode>,
}

impl State {
    pub(super) fn new() -> Self {
        let namespace = || Namespace {
            protected: false,
            read_only: false,
            detached: None,
            formatting: false,
            absent: false,
            blocks: BLOCKS,
            holder: None,
        };
        Self {
            namespaces: [namespace(), namespace()],
            unreached: None,
            reader: None,
            uncached: None,
            sanitize: None,
        }
    }

    /// The statuses with which a command may fail in this state; empty if it must not fail.
    pub(super) fn refusals(&self, access: &Access) -> Vec<StatusCode> {
        let Some(one) = self.namespaces.get(access.namespace) else {
            return self.refusals_of_all(access);
        };
        let reads = matches!(access.opcode, IoOpcode::Read | IoOpcode::Compare | IoOpcode::Verify);
        let changes = !reads && access.opcode != IoOpcode::Flush;
        let mut refusals = Vec::new();
        let mut refuse = |wanted: bool, code| refusals.extend(wanted.then_some(code));
        refuse(one.absent || one.detached == Some(access.host), StatusCode::InvalidField);
        refuse(self.unreached == Some(access.host), StatusCode::AsymmetricAccessInaccessible);
        let denies = |(holder, reading): (usize, bool)| holder != access.host && (!reads || reading);
        refuse(one.holder.is_some_and(denies), StatusCode::ReservationConflict);
        refuse(one.formatting, StatusCode::FormatInProgress);
        let only_reads = self.reader == Some(access.host);
        let protected = one.protected || one.read_only || only_reads;
        refuse(changes && protected, StatusCode::NamespaceWriteProtected);
        refuse(access.end > one.blocks, StatusCode::LbaOutOfRange);
        if let Some(code) = self.sanitize {
            if access.opcode == IoOpcode::Flush {
                refusals.clear();
            } else {
                refusals.push(code);
            }
        }
        refusals
    }

    /// The statuses with which a flush of all namespaces may fail. Only reservations refuse it, and
    /// those only while no sanitize operation makes every flush succeed.
    fn refusals_of_all(&self, access: &Access) -> Vec<StatusCode> {
        if let Some(code) = self.sanitize {
            return if access.opcode == IoOpcode::Flush { Vec::new() } else { vec![code] };
        }
        let has = |one: &&Namespace| !one.absent && one.detached != Some(access.host);
        let excludes = |one: &Namespace| one.holder.is_some_and(|(holder, _)| holder != access.host);
        let refused = self.namespaces.iter().filter(has).any(excludes);
        refused.then_some(StatusCode::ReservationConflict).into_iter().collect()
    }
}

/// What a command does, as far as states refuse it.
#[derive(Clone, Debug)]
pub(super) struct Access {
    pub(super) host: usize,
    /// The index of the namespace, or [`EVERY`].
    pub(super) namespace: usize,
    pub(super) opcode: IoOpcode,
    /// The block after the last one.
    pub(super) end: u64,
}

/// A state, and when commands may be judged by it.
#[derive(Clone, Debug)]
struct Epoch {
    state: State,
    from: Instant,
    /// The latest time, once it is known.
    until: Option<Instant>,
}

/// All states since the start.
#[derive(Debug)]
pub(super) struct Timeline(Vec<Epoch>);

impl Timeline {
    pub(super) fn new() -> Self {
        Self(vec![Epoch { state: State::new(), from: Instant::ZERO, until: None }])
    }

    /// The newest state.
    pub(super) fn newest(&self) -> &State {
        &self.0.last().expect("there is a first state").state
    }

    /// Begins a change: commands may be judged by the new state from now on. Returns its index.
    pub(super) fn begin(&mut self, now: Instant, state: State) -> usize {
        self.0.push(Epoch { state, from: now, until: None });
        self.0.len() - 1
    }

    /// Ends a change: no command that is sent from now on may be judged by an older state than the
    /// one at `index`.
    pub(super) fn end(&mut self, now: Instant, index: usize) {
        for epoch in &mut self.0[..index] {
            epoch.until.get_or_insert(now);
        }
    }

    /// Ends a change that failed: the state before it is the newest again.
    pub(super) fn fail(&mut self, now: Instant, index: usize) {
        let before = self.0[index - 1].state.clone();
        self.0.truncate(index + 1);
        self.0[index].until = Some(now);
        self.0.push(Epoch { state: before, from: now, until: None });
    }

    /// The states by which a command may be judged that was sent and ended at these times.
    fn possible(&self, sent: Instant, ended: Instant) -> impl Iterator<Item = &State> {
        let meets =
            move |epoch: &&Epoch| epoch.from <= ended && epoch.until.is_none_or(|until| until >= sent);
        self.0.iter().filter(meets).map(|epoch| &epoch.state)
    }

    /// Whether a change may begin now that is not durable when it ends.
    pub(super) fn may_be_volatile(&self, now: Instant) -> bool {
        self.possible(now, now).any(|state| state.uncached.is_none())
    }

    /// Whether a command may begin a step now.
    pub(super) fn may_step(&self, now: Instant, access: &Access) -> bool {
        self.possible(now, now).any(|state| state.refusals(access).is_empty())
    }

    /// Whether a command may have ended with this status.
    pub(super) fn allows(&self, sent: Instant, ended: Instant, access: &Access, code: StatusCode) -> bool {
        self.possible(sent, ended).map(|state| state.refusals(access)).any(|refusals| match code {
            StatusCode::SuccessfulCompletion => refusals.is_empty(),
            code => refusals.contains(&code),
        })
    }
}
