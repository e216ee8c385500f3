//! Wi-Fi (IEEE 802.11, distributed coordination function): stations that share one medium.
//!
//! A [`Station`] is one direction of a link. The stations of one [`Medium`] hear each other: one
//! frame is on the air at a time, each station draws a backoff, and two stations that start in the
//! same slot collide. A frame that is lost on the air is sent again by the link itself.

mod bursts;
#[cfg(test)]
mod tests;

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};

use engine::{Instant, Nanos, Rng};

use crate::frame::{CHECK_SEQUENCE, HEADER};
use crate::{Counts, Frame, Hop, Rate};

pub use bursts::Bursts;
use bursts::Channel;

/// Bytes around the payload of a data frame: MAC header 24, LLC and SNAP 8, check sequence 4 (IEEE
/// 802.11-2020 9.3.2.1; RFC 1042).
const AROUND: u32 = 24 + 8 + 4;
/// Length of an acknowledgement in bytes (IEEE 802.11-2020 9.3.1.4).
const ACKNOWLEDGEMENT: u32 = 14;
/// Bits that OFDM sends besides a frame: service field 16, tail 6 (IEEE 802.11-2020 17.3.2.2).
const SERVICE_AND_TAIL: u64 = 16 + 6;
/// Time of an OFDM symbol (IEEE 802.11-2020 table 17-5).
const SYMBOL: Nanos = Nanos::from_micros(4);
/// Rates of acknowledgements in Mbit/s: the mandatory rates of OFDM, highest first (IEEE
/// 802.11-2020 17.1.1 and 10.6.6.5.2).
const RESPONSE_RATES: [u64; 3] = [24, 12, 6];

/// Timing of a [`Station`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Rate of the data frames.
    pub rate: Rate,
    /// Time of a slot.
    pub slot: Nanos,
    /// Short interframe space: from the end of a frame to its acknowledgement.
    pub sifs: Nanos,
    /// Preamble and SIGNAL field before each frame.
    pub preamble: Nanos,
    /// Contention window of the first attempt: the backoff is 0 to this number of slots.
    pub cw_min: u32,
    /// Maximum contention window.
    pub cw_max: u32,
    /// Number of times that a frame is sent at most. After that it is lost.
    pub attempts: u32,
    /// Number of frames that the station holds; further frames are lost.
    pub queue_frames: usize,
    /// Losses on the air, if any.
    pub bursts: Option<Bursts>,
}

impl Settings {
    /// 802.11a, and 802.11g without 802.11b stations, at 54 Mbit/s: slot 9 µs, SIFS 16 µs, preamble
    /// and SIGNAL 20 µs, contention window 15 to 1023 (IEEE 802.11-2020 table 17-21), seven
    /// attempts (`dot11ShortRetryLimit`). 802.11g has a SIFS of 10 µs and 6 µs of silence at the
    /// end of each frame, which add up to the same.
    pub const OFDM: Self = Self {
        rate: Rate::from_megabits(54),
        slot: Nanos::from_micros(9),
        sifs: Nanos::from_micros(16),
        preamble: Nanos::from_micros(20),
        cw_min: 15,
        cw_max: 1023,
        attempts: 7,
        queue_frames: 1000,
        bursts: None,
    };

    /// The silence that a station waits for: SIFS and two slots (IEEE 802.11-2020 10.3.2.3.5).
    pub fn difs(&self) -> Nanos {
        self.sifs + self.slot * 2
    }

    /// Time of a data frame on the air that carries an Ethernet frame of `length` bytes.
    pub fn air_time(&self, length: u32) -> Nanos {
        let bytes = length.saturating_sub(HEADER + CHECK_SEQUENCE).saturating_add(AROUND);
        self.time_of(bytes, self.rate)
    }

    /// From the end of a data frame to the end of its acknowledgement. A station that hears none
    /// waits as long (EIFS less DIFS: IEEE 802.11-2020 10.3.2.3.7).
    pub fn acknowledgement(&self) -> Nanos {
        let mut rates = RESPONSE_RATES.into_iter().map(Rate::from_megabits);
        let rate = rates.find(|rate| *rate <= self.rate).unwrap_or(self.rate);
        self.sifs + self.time_of(ACKNOWLEDGEMENT, rate)
    }

    /// IEEE 802.11-2020 equation 17-11.
    fn time_of(&self, bytes: u32, rate: Rate) -> Nanos {
        let bits_per_symbol = (rate.bits().saturating_mul(SYMBOL.get()) / 1_000_000_000).max(1);
        let bits = SERVICE_AND_TAIL + u64::from(bytes) * 8;
        self.preamble + SYMBOL * bits.div_ceil(bits_per_symbol)
    }
}

/// The medium that the stations of a channel share. Clones are the same medium.
#[derive(Clone, Debug)]
pub struct Medium(Arc<Heard>);

/// Slots are counted only while the medium is idle, so a station's backoff is a slot's number.
#[derive(Debug)]
struct Heard {
    /// Number of slots counted before [`Heard::idle`].
    slots: AtomicU64,
    /// When slots are counted again: DIFS after the last exchange.
    idle: AtomicU64,
    /// When the last transmission began; the greatest number before the first.
    start: AtomicU64,
    /// When the last transmission began that collided, likewise.
    collision: AtomicU64,
}

impl Default for Medium {
    fn default() -> Self {
        let heard = |number| AtomicU64::new(number);
        let (slots, idle) = (heard(0), heard(0));
        Self(Arc::new(Heard { slots, idle, start: heard(u64::MAX), collision: heard(u64::MAX) }))
    }
}

impl Medium {
    /// A silent medium.
    pub fn new() -> Self {
        Self::default()
    }

    fn slots(&self) -> u64 {
        self.0.slots.load(Ordering::Relaxed)
    }

    fn idle(&self) -> Instant {
        Instant::from_nanos(self.0.idle.load(Ordering::Relaxed))
    }

    fn has_begun_at(&self, at: Instant) -> bool {
        self.0.start.load(Ordering::Relaxed) == at.as_nanos()
    }

    fn has_collided_at(&self, at: Instant) -> bool {
        self.0.collision.load(Ordering::Relaxed) == at.as_nanos()
    }

    /// A station begins at `now` to send, and slots are counted again from `idle` on.
    fn begin(&self, now: Instant, slot: Nanos, idle: Instant) {
        let passed = (now - self.idle()).get() / slot.get().max(1);
        self.0.slots.fetch_add(passed, Ordering::Relaxed);
        self.0.idle.store(idle.as_nanos(), Ordering::Relaxed);
        self.0.start.store(now.as_nanos(), Ordering::Relaxed);
    }

    /// A further station begins at `now`.
    fn collide(&self, now: Instant, idle: Instant) {
        self.0.collision.store(now.as_nanos(), Ordering::Relaxed);
        self.0.idle.fetch_max(idle.as_nanos(), Ordering::Relaxed);
    }
}

/// Counts of the frames of a [`Station`] on the air.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OnAir {
    /// Number of transmissions, repeated ones included.
    pub sent: u64,
    /// Number of transmissions that collided with another station's.
    pub collided: u64,
    /// Number of transmissions that were lost without a collision.
    pub lost: u64,
}

/// One direction of a Wi-Fi link. Frames keep their order.
#[derive(Clone, Debug)]
pub struct Station {
    settings: Settings,
    medium: Medium,
    rng: Rng,
    channel: Option<Channel>,
    /// When each frame arrived; the first is the one that is sent next or now.
    queue: VecDeque<(Instant, Frame)>,
    /// The slot from which on the station may send.
    backoff: u64,
    window: u32,
    /// Number of times that the first frame was sent.
    attempts: u32,
    /// When the first frame is sent if the medium stays idle.
    planned: Option<Instant>,
    sending: Option<Sending>,
    on_air: OnAir,
    counts: Counts,
}

#[derive(Clone, Copy, Debug)]
struct Sending {
    start: Instant,
    end: Instant,
    lost: bool,
}

impl Station {
    /// A station at `medium`. Backoffs and losses come from `rng`.
    pub fn new(settings: Settings, medium: &Medium, rng: &Rng) -> Self {
        Self {
            settings,
            medium: medium.clone(),
            rng: rng.fork("backoff"),
            channel: settings.bursts.map(|bursts| Channel::new(bursts, rng.fork("bursts"))),
            queue: VecDeque::new(),
            backoff: 0,
            window: settings.cw_min,
            attempts: 0,
            planned: None,
            sending: None,
            on_air: OnAir::default(),
            counts: Counts::default(),
        }
    }

    /// The settings that the station was built with.
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Whether `other` uses the same medium.
    pub fn shares_medium_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.medium.0, &other.medium.0)
    }

    /// Counters of the transmissions so far.
    pub const fn on_air(&self) -> OnAir {
        self.on_air
    }

    fn draw(&mut self) {
        self.backoff = self.medium.slots() + self.rng.below(u64::from(self.window) + 1);
    }

    /// Plans the first frame's next attempt.
    fn plan(&mut self) {
        let wait = self.settings.slot * self.backoff.saturating_sub(self.medium.slots());
        let from = self.medium.idle() + wait;
        self.planned = self.queue.front().map(|(ready, _)| from.max(*ready));
    }

    /// The time of the planned attempt has come: sends, or waits if another station was earlier.
    fn attempt(&mut self, planned: Instant) {
        let Some((_, frame)) = self.queue.front() else { return };
        let end = planned + self.settings.air_time(frame.length);
        let idle = end + self.settings.acknowledgement() + self.settings.difs();
        if self.medium.has_begun_at(planned) {
            self.medium.collide(planned, idle);
        } else {
            self.plan();
            if self.planned != Some(planned) {
                self.defer();
                return;
            }
            self.medium.begin(planned, self.settings.slot, idle);
        }
        let lost = self.channel.as_mut().is_some_and(|channel| channel.loses(planned));
        self.planned = None;
        self.sending = Some(Sending { start: planned, end, lost });
    }

    /// The medium is busy. A station without a backoff draws one; others go on counting later.
    fn defer(&mut self) {
        if self.backoff <= self.medium.slots() {
            self.draw();
        }
        self.plan();
    }

    /// The transmission is over. Returns the frame if it has arrived.
    fn finish(&mut self, Sending { start, lost, .. }: Sending) -> Option<Frame> {
        let collided = self.medium.has_collided_at(start);
        self.attempts += 1;
        self.on_air.sent += 1;
        self.on_air.collided += u64::from(collided);
        self.on_air.lost += u64::from(lost && !collided);
        let arrived = !collided && !lost;
        let frame = if arrived || self.attempts >= self.settings.attempts {
            self.attempts = 0;
            self.window = self.settings.cw_min;
            self.counts.left += u64::from(arrived);
            self.counts.lost += u64::from(!arrived);
            self.queue.pop_front().map(|(_, frame)| frame)
        } else {
            self.window = self.window.saturating_mul(2).saturating_add(1).min(self.settings.cw_max);
            None
        };
        self.draw();
        self.plan();
        frame.filter(|_| arrived)
    }
}

impl Hop for Station {
    fn enter(&mut self, now: Instant, mut frame: Frame) {
        self.counts.entered += 1;
        if self.queue.len() >= self.settings.queue_frames {
            self.counts.lost += 1;
            return;
        }
        // The whole frame must have arrived.
        let ready = now + core::mem::take(&mut frame.tail);
        self.queue.push_back((ready, frame));
        if self.queue.len() > 1 {
            return;
        }
        if ready < self.medium.idle() { self.defer() } else { self.plan() }
    }

    fn poll(&mut self, now: Instant) -> Option<Frame> {
        loop {
            if let Some(sending) = self.sending {
                if sending.end > now {
                    return None;
                }
                self.sending = None;
                if let Some(frame) = self.finish(sending) {
                    return Some(frame);
                }
            }
            let planned = self.planned.filter(|planned| *planned <= now)?;
            self.attempt(planned);
        }
    }

    fn next(&self) -> Option<Instant> {
        self.sending.map(|sending| sending.end).or(self.planned)
    }

    fn counts(&self) -> Counts {
        self.counts
    }
}
