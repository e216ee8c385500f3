//! The draw of a seed before the first event: media, their vices, the recorder's configuration, and
//! the times of events.

use engine::{Instant, Nanos, Rng};
use record::format::{CHUNK_MIN, FIRST_SLOT, MEMBER_SLOT, Time, TimeSource};
use record::{Algorithm, Config, Keep, PinRange, RingConfig};

use super::disk::Vices;
use super::source::Source;
use super::{DRAIN, EARLIER, EPOCH, RECORDING, SET_BACK, record_well};
use crate::digest::crc32c;

/// How long sources may run.
const DAY: Nanos = Nanos::from_millis(250);
/// How long after the end was asked for a late power cut comes at most.
const LATE: Nanos = Nanos::from_millis(20);
/// The smallest medium in bytes.
pub(super) const MEDIUM_MIN: u64 = 160 << 10;
/// The largest number of media over which a recording is striped here.
const MEMBERS: u64 = 4;
/// The largest number of times that something is pinned or let go, mostly.
const PINS: u64 = 10;
/// The largest number otherwise: the list of pins takes several sectors then, and can be torn.
const PINS_MANY: u64 = 80;
/// The longest time for which bytes are kept until a trigger.
const KEEP_MAX: Nanos = Nanos::from_millis(120);
/// The time in which a user carries out all acts with a ring, if they come in a row.
const TOGETHER: Nanos = Nanos::from_millis(8);

/// How a recording lies on its media.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// On one medium, from its start to its end.
    Plain,
    /// On one medium, whose oldest is overwritten.
    Ring,
    /// On several media, as a ring or not.
    Striped,
    /// On one medium, behind a trigger.
    Triggered,
}

/// The plan of a run.
#[derive(Debug)]
pub(super) struct Plan {
    /// When a user asks the recording to end, if its sources have not.
    pub(super) stop: Instant,
    /// When the medium gets well.
    pub(super) heal: Instant,
    /// When the power fails, if it does.
    pub(super) cut: Option<Instant>,
    /// When the host's clock is set back, if it is.
    pub(super) set_back: Option<Instant>,
    /// The time of the trigger, if there is one.
    pub(super) trigger: Option<Instant>,
    /// For how long bytes are kept until then.
    pub(super) keep: Nanos,
}

impl Plan {
    pub(super) fn new(rng: &mut Rng) -> Self {
        let at = |rng: &mut Rng| Instant::ZERO + Nanos::new(rng.below(DAY.get()));
        let stop = at(rng) + Nanos::from_millis(5);
        let heal = if rng.one_in(2) { at(rng) } else { stop + DRAIN };
        let cut = rng.one_in(2).then(|| at(rng));
        let set_back = rng.one_in(4).then(|| at(rng));
        // The end of a recording is short, and is to see power cuts, too.
        let is_late = rng.one_in(3);
        let late = stop + Nanos::new(rng.below(LATE.get()));
        let cut = cut.map(|cut| if is_late { late } else { cut });
        Self { stop, heal, cut, set_back, trigger: None, keep: Nanos::ZERO }
    }

    /// The time by the host's clock.
    pub(super) fn time(&self, now: Instant) -> Time {
        let is_set_back = self.set_back.is_some_and(|at| now >= at);
        let nanos = EPOCH + now.as_nanos() - if is_set_back { SET_BACK } else { 0 };
        Time { nanos, source: TimeSource::Host }
    }

    /// The time of the trigger: any time, also just before the power fails, and now and then never.
    fn trigger(&self, rng: &mut Rng) -> Option<Instant> {
        let any = Instant::ZERO + Nanos::new(rng.below((self.stop - Instant::ZERO).get()));
        let late = self
            .cut
            .filter(|_| rng.one_in(3))
            .map(|cut| Instant::ZERO + Nanos::new(cut.as_nanos().saturating_sub(rng.below(TOGETHER.get()))));
        (!rng.one_in(8)).then(|| late.unwrap_or(any))
    }
}

/// An act of a user with a ring.
#[derive(Clone, Copy, Debug)]
pub(super) enum Act {
    /// Pins a range. That of bytes is a part of the received bytes: its first byte and its length
    /// are given as parts of a million.
    Pin(PinRange),
    /// Lets go of all.
    Unpin,
}

/// The draw of the seed before the first event.
#[derive(Debug)]
pub(super) struct Draw {
    pub(super) members: Vec<(Vec<u8>, Vices)>,
    pub(super) config: Config,
    pub(super) plan: Plan,
    /// The acts with the ring, and their times; the last one first.
    pub(super) acts: Vec<(Instant, Act)>,
}

/// Draws the forbidden acts of a medium.
pub(super) fn vices(rng: &mut Rng) -> Vices {
    let lies = rng.one_in(3);
    let vice = |rng: &mut Rng, is_there: bool| if is_there && rng.one_in(2) { 3 + rng.below(60) } else { 0 };
    Vices {
        fails: vice(rng, true),
        fails_to_sync: if rng.one_in(8) { 1 + rng.below(6) } else { 0 },
        stalls: vice(rng, true),
        tears: vice(rng, lies),
        loses: vice(rng, lies),
        misdirects: vice(rng, lies),
        rots: vice(rng, lies),
    }
}

/// Draws the media, their vices and contents, and the recorder's configuration.
pub(super) fn draw(rng: &Rng, shape: Shape) -> Draw {
    let (mut rng, mut own) = (rng.fork("draw"), rng.fork("shape"));
    let vices = vices(&mut rng);
    let pages = (MEDIUM_MIN + rng.below(4 << 20)) / 4096;
    let chunk = if rng.one_in(4) { CHUNK_MIN * 2 } else { CHUNK_MIN };
    // A medium that lies about its first write would show its former contents.
    let is_used = !vices.lies() && rng.one_in(3);
    let earlier = rng.fork("earlier");
    let names = (0..=rng.below(4)).map(|number| format!("stream {number}")).collect();
    let mut config = Config::new(RECORDING, names);
    (config.chunk, config.crc32c) = (chunk, crc32c);
    config.buffer = 32 + usize::try_from(rng.below(32)).unwrap_or(0);
    config.flush = Nanos::from_millis(2 + rng.below(60));
    let is_fast = rng.fork("digest").one_in(2);
    config.algorithm = if is_fast { Algorithm::Blake3 } else { Algorithm::Sha256 };
    let counts_slots = rng.one_in(2);
    let count = if shape == Shape::Striped { 2 + own.below(MEMBERS - 1) } else { 1 };
    let is_ring = shape == Shape::Ring || shape == Shape::Striped && own.one_in(2);
    let mut lengths = vec![pages * 4096; usize::try_from(count).expect("a few")];
    if is_ring {
        config.ring = Some(ring(config.streams.len(), &mut own));
        let slots = RingConfig::slots_min(config.buffer) + own.below(64);
        lengths.fill(slots.div_ceil(count) * u64::from(chunk));
    }
    if count > 1 {
        // Each has its label, and they are not equally long.
        let first = (MEMBER_SLOT + 1) * u64::from(chunk);
        lengths.iter_mut().for_each(|length| *length += first + own.below(32) * 4096);
    }
    let shortest = lengths.iter().min().expect("a medium") / u64::from(chunk);
    let slots = if count == 1 { shortest } else { (shortest - MEMBER_SLOT - 1) * count };
    config.slots = (counts_slots || is_ring).then_some(slots);
    let members = lengths.iter().map(|length| {
        let medium = vec![0; usize::try_from(*length).expect("a few megabytes")];
        if is_used { used(medium, chunk, &earlier) } else { medium }
    });
    let members = members.zip(shares(vices, lengths.len(), &mut own)).collect();
    let mut plan = Plan::new(&mut rng);
    if shape == Shape::Triggered {
        plan.keep = Nanos::new(own.below(KEEP_MAX.get()));
        config.pre_trigger = Some(plan.keep);
        plan.trigger = plan.trigger(&mut own);
    }
    let acts = if is_ring { acts(config.streams.len(), &plan, &mut own) } else { Vec::new() };
    Draw { members, config, plan, acts }
}

/// How a ring is kept: mostly the oldest data of all streams go.
fn ring(streams: usize, rng: &mut Rng) -> RingConfig {
    let keep = |rng: &mut Rng| Keep {
        time: rng.one_in(3).then(|| Nanos::from_millis(rng.below(300))),
        bytes: rng.one_in(3).then(|| rng.below(2 << 20)),
    };
    let is_kept = rng.one_in(3);
    RingConfig { keep: if is_kept { (0..streams).map(|_| keep(rng)).collect() } else { Vec::new() } }
}

/// Which member has which vices. Of a set, one stalls, one fails and one lies.
fn shares(all: Vices, count: usize, rng: &mut Rng) -> Vec<Vices> {
    if count == 1 {
        return vec![all];
    }
    let mut pick = || usize::try_from(rng.below(count as u64)).expect("a few members");
    let (stalls, fails, lies) = (pick(), pick(), pick());
    let mut shares = vec![Vices::default(); count];
    shares[stalls].stalls = all.stalls;
    (shares[fails].fails, shares[fails].fails_to_sync) = (all.fails, all.fails_to_sync);
    let share = &mut shares[lies];
    (share.tears, share.loses, share.misdirects, share.rots) =
        (all.tears, all.loses, all.misdirects, all.rots);
    shares
}

/// The acts of a user with a ring, the last one first.
fn acts(streams: usize, plan: &Plan, rng: &mut Rng) -> Vec<(Instant, Act)> {
    let length = (plan.stop - Instant::ZERO).get();
    let most = if rng.one_in(4) { PINS_MANY } else { PINS };
    let mut acts: Vec<_> = (0..rng.below(most + 1))
        .map(|_| {
            let at = Instant::ZERO + Nanos::new(rng.below(length));
            let stream = u32::try_from(rng.below(streams as u64)).expect("a few streams");
            let act = match rng.below(most + 2) {
                0 => Act::Unpin,
                1..4 => Act::Pin(PinRange::Last(Nanos::from_millis(rng.below(40)))),
                _ => {
                    let (from, bytes) = (rng.below(1_000_000), 1 + rng.below(150_000));
                    Act::Pin(PinRange::Bytes { stream, from, bytes })
                }
            };
            (at, act)
        })
        .collect();
    // Several in a row, too, also just before the power fails: a medium's account of a ring is then
    // written again and again.
    let any = rng.below(length);
    let end = plan.cut.filter(|_| rng.one_in(2)).map_or(any, Instant::as_nanos);
    if rng.one_in(2) {
        let start = Instant::ZERO + Nanos::new(end.saturating_sub(TOGETHER.get()));
        acts.iter_mut().for_each(|act| act.0 = start + Nanos::new(rng.below(TOGETHER.get())));
    }
    acts.sort_by_key(|act| std::cmp::Reverse(act.0));
    acts
}

/// A medium with an earlier recording on it.
fn used(medium: Vec<u8>, chunk: u32, rng: &Rng) -> Vec<u8> {
    let mut config = Config::new(EARLIER, vec!["earlier".into()]);
    (config.chunk, config.crc32c) = (chunk, crc32c);
    record_well(medium, config, rng).media.contents().joined.expect("one medium")
}

/// The sources of this many streams; `is_raw` ones are recorded without a container.
pub(super) fn sources(streams: usize, is_raw: bool, rng: &Rng) -> Vec<Source> {
    let mut rng = rng.fork("sources");
    let make = |number| {
        let rate = 1_000_000 + rng.below(60_000_000);
        let end = rng.one_in(2).then(|| Instant::ZERO + Nanos::new(rng.below(DAY.get())));
        Source::new(number, rate, end, is_raw, &rng)
    };
    (0..streams).map(make).collect()
}

const _: () = assert!(MEDIUM_MIN > FIRST_SLOT * CHUNK_MIN as u64 * 2);
