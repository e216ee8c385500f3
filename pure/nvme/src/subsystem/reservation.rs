//! Reservations: hosts that share a namespace register with it, and one host or all registrants may
//! keep others out.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::errors::{Failure, Location};
use super::record::{Registrant, ReservationRecord, ReservationType};
use super::view::Touch;
use crate::wire::{Bits, IoOpcode, NamespaceId, StatusCode, SubmissionQueueEntry, low_u8};

/// The most hosts that may be registered with a namespace.
pub const REGISTRANTS_MAX: usize = 128;
/// The most unread notifications that a controller keeps. The oldest are dropped first.
const NOTIFICATIONS_MAX: usize = 64;

/// Reservation Capabilities (RESCAP): persistence through power loss, all reservation types, and
/// Ignore Existing Key as of revision 1.3.
pub(super) const CAPABILITIES: u8 = 0xff;

/// The Host Identifier of a host without one: two controllers with it belong to different hosts.
const NO_HOST: [u8; 16] = [0; 16];

/// Action field of Register, Acquire and Release, in CDW10.
const ACTION: Bits = Bits::new(2, 0);
/// Ignore Existing Key (IEKEY), in CDW10.
const IGNORE_KEY: Bits = Bits::bit(3);
/// Reservation Type (RTYPE), in CDW10 of Acquire and Release.
const TYPE: Bits = Bits::new(15, 8);
/// Change Persist Through Power Loss State (CPTPL), in CDW10 of Register.
const CHANGE_PERSISTENCE: Bits = Bits::new(31, 30);
/// Extended Data Structure (EDS), in CDW11 of Report.
const EXTENDED: Bits = Bits::bit(0);
const REGISTER: u32 = 0;
const UNREGISTER: u32 = 1;
const REPLACE: u32 = 2;
const ACQUIRE: u32 = 0;
const PREEMPT: u32 = 1;
const PREEMPT_AND_ABORT: u32 = 2;
const RELEASE: u32 = 0;
const CLEAR: u32 = 1;

/// The kinds of notification in the Reservation Notification log (80h).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum News {
    RegistrationPreempted = 1,
    ReservationReleased = 2,
    ReservationPreempted = 3,
}

/// Reservation notifications that the host of a controller has not read.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Notices {
    waiting: VecDeque<(u64, News, NamespaceId)>,
    /// Reservation Notification Mask (82h) of each namespace: a set bit masks one kind of
    /// notification.
    masks: BTreeMap<NamespaceId, u32>,
    count: u64,
}

impl Notices {
    /// Keeps a notification, unless the host masks its kind. Returns whether it was kept.
    pub(super) fn add(&mut self, news: News, namespace: NamespaceId) -> bool {
        if self.mask(namespace) & 1 << news as u32 != 0 {
            return false;
        }
        self.count = self.count.wrapping_add(1).max(1);
        if self.waiting.len() == NOTIFICATIONS_MAX {
            self.waiting.pop_front();
        }
        self.waiting.push_back((self.count, news, namespace));
        true
    }

    /// Reservation Notification Mask of a namespace.
    pub(super) fn mask(&self, namespace: NamespaceId) -> u32 {
        self.masks.get(&namespace).copied().unwrap_or_default()
    }

    pub(super) fn set_mask(&mut self, namespace: NamespaceId, mask: u32) {
        self.masks.insert(namespace, mask);
    }

    /// Drops the oldest notification after it was read. Returns whether there are more.
    pub(super) fn pop(&mut self) -> bool {
        self.waiting.pop_front();
        !self.waiting.is_empty()
    }

    /// The Reservation Notification log (80h).
    pub(super) fn log(&self) -> Vec<u8> {
        let mut log = vec![0; 64];
        if let Some((count, news, namespace)) = self.waiting.front() {
            log[0..8].copy_from_slice(&count.to_le_bytes());
            log[8] = low_u8(*news as u32);
            log[9] = u8::try_from(self.waiting.len() - 1).unwrap_or(u8::MAX);
            log[12..16].copy_from_slice(&namespace.0.to_le_bytes());
        }
        log
    }
}

impl ReservationRecord {
    fn key_of(&self, host: [u8; 16]) -> Option<u64> {
        self.registrants.iter().find(|one| one.host == host && host != NO_HOST).map(|one| one.key)
    }

    fn is_holder(&self, host: [u8; 16]) -> bool {
        let holds = |(kind, holder): (ReservationType, [u8; 16])| {
            holder == host || kind.is_of_all() && self.key_of(host).is_some()
        };
        host != NO_HOST && self.reservation.is_some_and(holds)
    }

    pub(super) fn allows(&self, host: [u8; 16], touch: Touch) -> bool {
        let Some((kind, _)) = self.reservation else { return true };
        touch == Touch::Nothing
            || self.is_holder(host)
            || kind.lets_registrants() && self.key_of(host).is_some()
            || touch == Touch::Reads && kind.lets_others_read()
    }

    /// Removes registrants and returns their hosts. A reservation without a holder ends.
    fn unregister(&mut self, gone: impl Fn(&Registrant) -> bool) -> Vec<[u8; 16]> {
        let hosts = self.registrants.iter().filter(|one| gone(one)).map(|one| one.host).collect();
        self.registrants.retain(|one| !gone(one));
        let held = self.reservation.is_some_and(|(kind, holder)| {
            if kind.is_of_all() { !self.registrants.is_empty() } else { self.key_of(holder).is_some() }
        });
        self.reservation = self.reservation.filter(|_| held);
        hosts
    }

    fn hosts(&self) -> Vec<[u8; 16]> {
        self.registrants.iter().map(|one| one.host).collect()
    }
}

pub(super) type HostNews = Vec<([u8; 16], News)>;

/// The changes made by a reservation command, and their consequences.
pub(super) struct Outcome {
    /// The record after the command, if it changed.
    pub(super) changed: Option<ReservationRecord>,
    /// Whether the record persists through power loss, or has just ceased to.
    pub(super) lasting: bool,
    /// The hosts whose commands are to be aborted.
    pub(super) preempted: BTreeSet<[u8; 16]>,
    /// The hosts to notify.
    pub(super) host_news: HostNews,
}

/// Executes a reservation command of `host` with the keys in `data` on a namespace's record.
///
/// # Errors
/// Command Sequence Error for a host without an identifier, which must set it first: its
/// reservations would be those of every other such host.
pub(super) fn execute(
    record: Option<&ReservationRecord>,
    host: [u8; 16],
    entry: &SubmissionQueueEntry,
    data: &[u8],
) -> Result<Outcome, Failure> {
    if host == NO_HOST {
        return Err(Failure::new(StatusCode::CommandSequenceError));
    }
    let (words, _) = data.as_chunks::<8>();
    let key = |index: usize| words.get(index).map_or(0, |raw| u64::from_le_bytes(*raw));
    let before = record.cloned().unwrap_or_default();
    let mut record = ReservationRecord { namespace: entry.namespace, ..before.clone() };
    let (host_news, abort) = match IoOpcode::from(entry.opcode) {
        IoOpcode::ReservationRegister => (register(&mut record, host, entry, key(0), key(1))?, false),
        IoOpcode::ReservationAcquire => {
            let abort = ACTION.of(entry.cdw10) == PREEMPT_AND_ABORT;
            (acquire(&mut record, host, entry, key(0), key(1))?, abort)
        }
        _ => (release(&mut record, host, entry, key(0))?, false),
    };
    let gone = host_news.iter().filter(|(_, news)| abort && *news == News::RegistrationPreempted);
    let preempted = gone.map(|(host, _)| *host).collect();
    let lasting = record.persistent || before.persistent;
    Ok(Outcome { changed: (record != before).then_some(record), lasting, preempted, host_news })
}

/// Sets whether a record persists through power loss. Returns the record if it changed.
pub(super) fn set_persistence(
    record: Option<&ReservationRecord>,
    namespace: NamespaceId,
    persistent: bool,
) -> Option<ReservationRecord> {
    let mut record = ReservationRecord { namespace, ..record.cloned().unwrap_or_default() };
    let before = core::mem::replace(&mut record.persistent, persistent);
    (before != persistent).then_some(record)
}

const CONFLICT: Failure = Failure::new(StatusCode::ReservationConflict);
const INVALID: Failure = Failure::field(StatusCode::InvalidField, Location::CDW10);

/// Reservation Register: changes `record` and returns the notifications.
fn register(
    record: &mut ReservationRecord,
    host: [u8; 16],
    entry: &SubmissionQueueEntry,
    current: u64,
    new: u64,
) -> Result<HostNews, Failure> {
    let present = record.key_of(host);
    let ignore = IGNORE_KEY.is_set(entry.cdw10);
    let persistent = match CHANGE_PERSISTENCE.of(entry.cdw10) {
        0b00 => record.persistent,
        0b10 => false,
        0b11 => true,
        _ => return Err(INVALID),
    };
    let mut host_news = Vec::new();
    let action = ACTION.of(entry.cdw10);
    match (action, present) {
        (REGISTER | REPLACE, _) if new == 0 => {
            return Err(Failure::field(StatusCode::InvalidField, Location::DATA_POINTER));
        }
        (REGISTER, Some(key)) if key != new => return Err(CONFLICT),
        (REGISTER, Some(_)) => (),
        (UNREGISTER | REPLACE, None) if !(ignore && action == REPLACE) => return Err(CONFLICT),
        (REGISTER | REPLACE, None) if record.registrants.len() >= REGISTRANTS_MAX => {
            return Err(Failure::new(StatusCode::InternalError));
        }
        // With Ignore Existing Key, even a host that is not registered may replace its key.
        (REGISTER | REPLACE, None) => record.registrants.push(Registrant { host, key: new }),
        (UNREGISTER | REPLACE, Some(key)) if key != current && !ignore => return Err(CONFLICT),
        (UNREGISTER, Some(_)) => {
            let before = record.reservation;
            record.unregister(|one| one.host == host);
            if before.is_some_and(|(kind, _)| kind.lets_registrants()) && record.reservation.is_none() {
                host_news.extend(record.hosts().into_iter().map(|host| (host, News::ReservationReleased)));
            }
        }
        (REPLACE, Some(_)) => {
            let mine = record.registrants.iter_mut().filter(|one| one.host == host);
            mine.for_each(|one| one.key = new);
        }
        _ => return Err(INVALID),
    }
    record.persistent = persistent;
    record.generation = record.generation.wrapping_add(1);
    Ok(host_news)
}

/// Reservation Acquire: changes `record` and returns the notifications.
fn acquire(
    record: &mut ReservationRecord,
    host: [u8; 16],
    entry: &SubmissionQueueEntry,
    current: u64,
    preempted: u64,
) -> Result<HostNews, Failure> {
    let kind = ReservationType::parse(TYPE.of(entry.cdw10)).ok_or(INVALID)?;
    if IGNORE_KEY.is_set(entry.cdw10) {
        return Err(INVALID);
    }
    if record.key_of(host) != Some(current) {
        return Err(CONFLICT);
    }
    match ACTION.of(entry.cdw10) {
        ACQUIRE => match record.reservation {
            None => record.reservation = Some((kind, host)),
            Some((present, _)) if present == kind && record.is_holder(host) => (),
            Some(_) => return Err(CONFLICT),
        },
        PREEMPT | PREEMPT_AND_ABORT => return preempt(record, host, kind, preempted),
        _ => return Err(INVALID),
    }
    Ok(Vec::new())
}

/// Removes the registrations with `key`. If the reservation belongs to one of them, `host` takes it
/// over with type `kind`.
fn preempt(
    record: &mut ReservationRecord,
    host: [u8; 16],
    kind: ReservationType,
    key: u64,
) -> Result<HostNews, Failure> {
    let before = record.reservation;
    let of_all = before.is_some_and(|(kind, _)| kind.is_of_all());
    let holder_key = before.and_then(|(_, holder)| record.key_of(holder));
    let takes_over = if of_all { key == 0 } else { before.is_some() && holder_key == Some(key) };
    if key == 0 && !takes_over {
        return Err(Failure::field(StatusCode::InvalidField, Location::DATA_POINTER));
    }
    let is_meant = |one: &Registrant| if takes_over && of_all { true } else { one.key == key };
    if !record.registrants.iter().any(is_meant) {
        return Err(CONFLICT);
    }
    // A host that preempts its own key loses its registration only when it takes over no
    // reservation.
    let spared = |one: &Registrant| one.host == host && takes_over;
    let gone = record.unregister(|one| is_meant(one) && !spared(one));
    let gone = gone.into_iter().filter(|gone| *gone != host);
    let mut host_news: HostNews = gone.map(|gone| (gone, News::RegistrationPreempted)).collect();
    if takes_over {
        record.reservation = Some((kind, host));
    }
    if before.is_some_and(|(before, _)| takes_over && before != kind) {
        let others = record.hosts().into_iter().filter(|other| *other != host);
        host_news.extend(others.map(|other| (other, News::ReservationReleased)));
    }
    record.generation = record.generation.wrapping_add(1);
    Ok(host_news)
}

/// Reservation Release: changes `record` and returns the notifications.
fn release(
    record: &mut ReservationRecord,
    host: [u8; 16],
    entry: &SubmissionQueueEntry,
    current: u64,
) -> Result<HostNews, Failure> {
    if IGNORE_KEY.is_set(entry.cdw10) {
        return Err(INVALID);
    }
    if record.key_of(host) != Some(current) {
        return Err(CONFLICT);
    }
    let others = |record: &ReservationRecord| record.hosts().into_iter().filter(move |other| *other != host);
    match ACTION.of(entry.cdw10) {
        RELEASE => {
            let Some((kind, _)) = record.reservation.filter(|_| record.is_holder(host)) else {
                return Ok(Vec::new());
            };
            if u32::from(kind.value()) != TYPE.of(entry.cdw10) {
                return Err(INVALID);
            }
            record.reservation = None;
            let host_news = others(record).map(|other| (other, News::ReservationReleased));
            Ok(if kind.lets_registrants() { host_news.collect() } else { Vec::new() })
        }
        CLEAR => {
            let host_news = others(record).map(|other| (other, News::ReservationPreempted)).collect();
            record.unregister(|_| true);
            record.generation = record.generation.wrapping_add(1);
            Ok(host_news)
        }
        _ => Err(INVALID),
    }
}

/// The Reservation Status data structure that the command requests, and the number of bytes to
/// send.
pub(super) fn on_report(
    record: Option<&ReservationRecord>,
    entry: &SubmissionQueueEntry,
    transfer_bytes_max: u32,
) -> Result<(Vec<u8>, u32), Failure> {
    let length = (u64::from(entry.cdw10) + 1) * 4;
    let length = u32::try_from(length).ok().filter(|bytes| *bytes <= transfer_bytes_max);
    let length = length.ok_or(Failure::field(StatusCode::InvalidField, Location::CDW10))?;
    // Hosts over fabrics have identifiers of 128 bits, which only the extended structure has room
    // for.
    if !EXTENDED.is_set(entry.cdw11) {
        return Err(Failure::field(StatusCode::HostIdentifierInconsistentFormat, Location::CDW11));
    }
    Ok((report(&record.cloned().unwrap_or_default()), length))
}

/// The extended Reservation Status data structure.
fn report(record: &ReservationRecord) -> Vec<u8> {
    let mut report = vec![0; 64];
    report[0..4].copy_from_slice(&record.generation.to_le_bytes());
    report[4] = record.reservation.map_or(0, |(kind, _)| kind.value());
    let count = u16::try_from(record.registrants.len()).expect("REGISTRANTS_MAX bounds them");
    report[5..7].copy_from_slice(&count.to_le_bytes());
    report[9] = u8::from(record.persistent);
    for registrant in &record.registrants {
        let mut bytes = [0; 64];
        // Hosts are registered through no controller in particular (FFFFh).
        bytes[0..2].copy_from_slice(&[0xff; 2]);
        bytes[2] = u8::from(record.is_holder(registrant.host));
        bytes[8..16].copy_from_slice(&registrant.key.to_le_bytes());
        bytes[16..32].copy_from_slice(&registrant.host);
        report.extend_from_slice(&bytes);
    }
    report
}
