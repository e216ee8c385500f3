//! The views that I/O commands consult, compared with the state of the subsystem after each step of
//! random sequences.

use alloc::string::ToString;

use proptest::prelude::*;

use super::*;
use crate::subsystem::namespace::{Busy, Namespace};
use crate::subsystem::view::{NamespaceView, Touch, Verdict};
use crate::wire::AnaState;

const POOL: u64 = 256 << 10;
/// Identifiers that commands name. The highest is not valid.
const IDS: core::ops::RangeInclusive<u32> = 1..=6;
/// A token that no command of the sequences has.
const PROBE: CommandToken = CommandToken(1000);
/// A command of each kind: a read, a change, and one that reservations do not affect.
const OPCODES: [IoOpcode; 3] = [IoOpcode::Read, IoOpcode::Write, IoOpcode::ReservationReport];

/// A host's settings in the subsystem, apart from commands about namespaces.
struct Party {
    key: ControllerKey,
    /// The Host Identifier that a reset brings back.
    connected: [u8; 16],
    host: [u8; 16],
    states: BTreeMap<u32, AnaState>,
    write_cache: bool,
}

struct World {
    bench: Bench,
    parties: Vec<Party>,
    versions: BTreeMap<u32, NamespaceView>,
}

impl World {
    fn new() -> Self {
        let mut config = Config::new("S1").with_namespace(MediumId(0), DISK).with_pool(MediumId(1), POOL);
        (config.ana_groups, config.pool.as_mut().unwrap().namespaces_max) = (2, 5);
        let bench = Bench::with(config);
        let mut world = Self { bench, parties: Vec::new(), versions: BTreeMap::new() };
        world.join(world.bench.controller, [0; 16]);
        for id in [2, 3] {
            world.connect(id);
        }
        world
    }

    fn join(&mut self, key: ControllerKey, host: [u8; 16]) {
        let (connected, states) = (host, BTreeMap::new());
        self.parties.push(Party { key, connected, host, states, write_cache: true });
    }

    fn connect(&mut self, id: u16) {
        if self.bench.subsystem.controller_called(id).is_none() {
            let key = self.bench.connect(id);
            self.join(key, [id.to_le_bytes()[0]; 16]);
        }
    }

    fn admin(&mut self, id: u32, entry: SubmissionQueueEntry) {
        self.bench.send(ADMIN, SubmissionQueueEntry { namespace: NamespaceId(id), ..entry });
    }

    /// Performs one step: a command of some controller, or a change by the world.
    fn step(&mut self, kind: u8, who: u8, what: u8) {
        let who = usize::from(who) % self.parties.len();
        let key = self.parties[who].key;
        self.bench.of(key);
        // Half of the commands are for the namespace that exists from the start.
        let id = if what.is_multiple_of(2) { 1 } else { 1 + u32::from(what) % IDS.end() };
        let value = u32::from(what >> 4);
        let now = self.bench.now;
        match kind {
            0..8 => self.command_about_namespaces(kind, id, value),
            8..12 => self.reservation(kind - 8, id, value, self.parties[who].host[0]),
            12 => {
                let state =
                    [AnaState::Optimized, AnaState::Inaccessible, AnaState::PersistentLoss, AnaState::Change];
                let (group, state) = (1 + value % 2, state[(value / 2 % 4) as usize]);
                self.bench.subsystem.set_ana_state(now, key, group, state);
                self.parties[who].states.insert(group, state);
            }
            13 => drop(self.bench.subsystem.set_ana_group(now, NamespaceId(id), 1 + value % 2)),
            14 => {
                let host = [what % 3; 16];
                self.bench.host_data = host.to_vec();
                let extended = set(FeatureId::HostIdentifier, 1);
                let token = self.bench.send(ADMIN, extended);
                if self.bench.completed.get(&token.0).is_some_and(|one| one.status.is_success()) {
                    self.parties[who].host = host;
                }
            }
            15 => {
                self.bench.subsystem.reset(now, key);
                let party = &mut self.parties[who];
                (party.host, party.write_cache) = (party.connected, true);
            }
            16 if self.parties.len() > 1 => {
                self.bench.subsystem.remove_controller(now, key);
                self.parties.remove(who);
            }
            17 => self.connect(2 + u16::from(what) % 4),
            18 => self.bench.subsystem.set_read_only(now, NamespaceId(id), value % 2 == 0),
            19 => self.bench.subsystem.resize_namespace(now, NamespaceId(1), DISK - u64::from(value) * 4096),
            20 => {
                let token = self.bench.send(ADMIN, set(FeatureId::VolatileWriteCache, value % 2));
                if self.bench.completed.get(&token.0).is_some_and(|one| one.status.is_success()) {
                    self.parties[who].write_cache = value % 2 == 1;
                }
            }
            21 => self.bench.media_stuck = true,
            22 => self.bench.release_media(),
            23 => self.bench.media_error = (value % 4 == 0).then_some(MediaError::Write),
            24 => drop(self.bench.step()),
            _ => {
                // Abort a command that may be waiting to be alone.
                let last = self.bench.next.wrapping_sub(1 + value % 4);
                self.admin(0, SubmissionQueueEntry { cdw10: last << 16, ..admin(AdminOpcode::Abort) });
            }
        }
        self.bench.drain();
    }

    fn command_about_namespaces(&mut self, kind: u8, id: u32, value: u32) {
        let manage = admin(AdminOpcode::NamespaceManagement);
        self.bench.host_data = vec![0; 4096];
        match kind {
            0 => {
                let blocks = (1 + value) * 8;
                for at in [0, 8] {
                    self.bench.host_data[at..at + 4].copy_from_slice(&blocks.to_le_bytes());
                }
                self.admin(0, manage);
            }
            1 => self
                .admin(if value == 0 { u32::MAX } else { id }, SubmissionQueueEntry { cdw10: 1, ..manage }),
            2 | 3 => {
                let chosen = self.parties.iter().enumerate().filter(|(index, _)| value & 1 << index != 0);
                let mut ids: Vec<_> =
                    chosen.map(|(_, one)| self.bench.subsystem.controller(one.key).controller_id).collect();
                ids.sort_unstable();
                self.bench.host_data[0] = ids.len().to_le_bytes()[0];
                for (at, id) in ids.into_iter().enumerate() {
                    self.bench.host_data[2 + 2 * at..][..2].copy_from_slice(&id.to_le_bytes());
                }
                let attach = admin(AdminOpcode::NamespaceAttachment);
                self.admin(id, SubmissionQueueEntry { cdw10: u32::from(kind - 2), ..attach });
            }
            4 => {
                let id = if value > 12 { u32::MAX } else { id };
                self.admin(id, SubmissionQueueEntry { cdw10: value % 2, ..admin(AdminOpcode::FormatNvm) });
            }
            5 => {
                self.admin(if value > 12 { u32::MAX } else { id }, set(FeatureId::WriteProtection, value % 2))
            }
            6 => {
                let sanitize =
                    SubmissionQueueEntry { cdw10: (1 + value % 2) | 1 << 3, ..admin(AdminOpcode::Sanitize) };
                self.admin(0, sanitize);
                self.bench.settle();
            }
            _ => {
                let opcodes = [IoOpcode::WriteUncorrectable, IoOpcode::Write, IoOpcode::WriteZeroes];
                let opcode = opcodes[(value % 3) as usize];
                self.bench.send(IO, io(opcode, id, u64::from(value) % 4, 1 + value % 4));
            }
        }
    }

    /// Registers, and acquires, preempts, releases or clears. The key follows from the host.
    fn reservation(&mut self, kind: u8, id: u32, value: u32, host: u8) {
        let key = u64::from(host) + 1;
        let other = u64::from(value % 4) + 1;
        let kind_of_reservation = (1 + value % 6) << 8;
        let register = (IoOpcode::ReservationRegister, u32::from(kind == 3 && value > 12) | 1 << 3, [0, key]);
        let then = match kind {
            0 => None,
            1 => Some((IoOpcode::ReservationAcquire, kind_of_reservation, [key, 0])),
            2 => Some((IoOpcode::ReservationAcquire, kind_of_reservation | (1 + value % 2), [key, other])),
            _ => Some((IoOpcode::ReservationRelease, kind_of_reservation | u32::from(value > 12), [key, 0])),
        };
        for (opcode, cdw10, keys) in [Some(register), then].into_iter().flatten() {
            self.bench.host_data = keys.into_iter().flat_map(u64::to_le_bytes).collect();
            self.bench.send(IO, SubmissionQueueEntry { cdw10, ..io(opcode, id, 0, 1) });
        }
    }

    /// The check of a command, computed from the state without views.
    fn direct(&self, party: &Party, id: NamespaceId, opcode: IoOpcode) -> Result<&Namespace, StatusCode> {
        let namespaces = &self.bench.subsystem.namespaces;
        let valid = (1..=5).contains(&id.0);
        let missing = if valid { StatusCode::InvalidField } else { StatusCode::InvalidNamespaceOrFormat };
        let namespace = namespaces.find(id).filter(|one| one.busy != Some(Busy::Creating)).ok_or(missing)?;
        if !namespace.is_attached_to(party.key) {
            return Err(missing);
        }
        let state = party.states.get(&namespace.ana_group).copied().unwrap_or_default();
        if let Some(code) = state.refusal() {
            return Err(code);
        }
        if namespace.reservations.as_ref().is_some_and(|record| !record.allows(party.host, Touch::of(opcode)))
        {
            return Err(StatusCode::ReservationConflict);
        }
        match namespace.busy {
            None => (),
            Some(Busy::Formatting) => return Err(StatusCode::FormatInProgress),
            Some(Busy::Creating | Busy::Deleting) => return Err(missing),
        }
        let protected = namespace.read_only || namespace.protection == WriteProtection::Protected;
        if opcode == IoOpcode::Write && protected {
            return Err(StatusCode::NamespaceWriteProtected);
        }
        Ok(namespace)
    }

    /// The check of a command as the lane performs it.
    fn executor(
        &mut self,
        key: ControllerKey,
        id: NamespaceId,
        opcode: IoOpcode,
    ) -> Result<NamespaceView, StatusCode> {
        let entry = io(opcode, id.0, 0, 1);
        let subsystem = &mut self.bench.subsystem;
        subsystem.flow.slots.start(Instant::ZERO, key, PROBE, IO, entry);
        let lane = subsystem.executor();
        let found = match opcode {
            IoOpcode::Write => lane.writable(PROBE, &entry),
            _ => lane.ready(PROBE, &entry),
        };
        let found = found.cloned().map_err(|failure| failure.status.code());
        subsystem.flow.slots.retire(PROBE);
        found
    }

    /// Whether no controller needs a second look at the namespace.
    fn is_plain(&self, namespace: &Namespace) -> bool {
        let reached =
            |one: &Party| one.states.get(&namespace.ana_group).is_none_or(|one| one.refusal().is_none());
        let reserved = |record: &ReservationRecord| record.reservation.is_some();
        namespace.is_attached_to_all()
            && self.parties.iter().all(reached)
            && !namespace.reservations.as_deref().is_some_and(reserved)
            && namespace.busy.is_none()
            && !self.bench.subsystem.unreadable.has(namespace.id)
    }

    fn check_view(&self, id: NamespaceId) -> Result<(), TestCaseError> {
        let namespaces = &self.bench.subsystem.namespaces;
        let view = namespaces.views().find(id);
        let Some(namespace) = namespaces.find(id) else {
            prop_assert!(view.is_none());
            return Ok(());
        };
        let view = view.ok_or_else(|| TestCaseError::fail(id.to_string()))?;
        let place = (namespace.medium, namespace.offset, namespace.block, namespace.blocks);
        prop_assert_eq!((view.medium, view.offset, view.block, view.blocks), place);
        prop_assert_eq!(namespace.blocks, namespace.bytes / u64::from(namespace.block.bytes()));
        prop_assert_eq!(view.busy, namespace.busy.is_some());
        prop_assert_eq!(view.plain, self.is_plain(namespace));
        let none: &[Verdict] = &[];
        prop_assert!(!view.plain || view.verdicts == none);
        Ok(())
    }

    /// Compares everything that is published with the state.
    fn check(&mut self) -> Result<(), TestCaseError> {
        for id in IDS.chain([0, 5, 6, u32::MAX]).map(NamespaceId) {
            self.check_view(id)?;
            for index in 0..self.parties.len() {
                let key = self.parties[index].key;
                for opcode in OPCODES {
                    let lane =
                        self.executor(key, id, opcode).map(|view| (view.medium, view.offset, view.blocks));
                    let direct = self.direct(&self.parties[index], id, opcode);
                    let direct = direct.map(|one| (one.medium, one.offset, one.blocks));
                    prop_assert_eq!(lane, direct, "{:?} of {:?} to {}", opcode, key, id);
                }
            }
            self.check_version(id)?;
        }
        let views = self.bench.subsystem.namespaces.views();
        let through = !self.parties.iter().all(|one| one.write_cache);
        prop_assert_eq!(views.is_write_through(), through);
        let record = self.bench.notified.iter().rev().find_map(|notified| match notified {
            Notification::SanitizeChanged(record) => Some(*record),
            _ => None,
        });
        let record = record.unwrap_or_default();
        let refusal = match record.status {
            SanitizeStatus::InProgress => Some(StatusCode::SanitizeInProgress),
            SanitizeStatus::Failed => Some(StatusCode::SanitizeFailed),
            _ => None,
        };
        prop_assert_eq!((views.sanitize(), views.is_erased()), (refusal, record.data_erased));
        Ok(())
    }

    /// A view that differs from the previous one has another version, and only such a view.
    fn check_version(&mut self, id: NamespaceId) -> Result<(), TestCaseError> {
        let view = self.bench.subsystem.namespaces.views().find(id).cloned();
        let before = view.clone().and_then(|view| self.versions.insert(id.0, view));
        if let (Some(view), Some(before)) = (view, before) {
            let same = NamespaceView { version: before.version, ..view.clone() } == before;
            let newer = view.version > before.version;
            // Removing and creating a namespace may publish an equal view again.
            prop_assert!(newer || same && view.version == before.version);
        }
        Ok(())
    }
}

proptest! {
    #[test]
    fn views_agree_with_the_state(steps in prop::collection::vec((0..26_u8, any::<u8>(), any::<u8>()), 1..100)) {
        let mut world = World::new();
        world.check()?;
        for (kind, who, what) in steps {
            world.step(kind, who, what);
            world.check()?;
        }
    }
}
