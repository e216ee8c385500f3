//! Where a recording's bytes come from: a peer that waits, one that does not, and a lossy network.

use engine::{Buffer, Engine, Instant, Nanos, Rng};
use network_models::faults::{Behaviour, Jitter};
use network_models::network::{Config, Side};
use network_models::passage::{Packet, Passage};
use network_models::{AnyHop, Chance, Faults, Path, Rate, Wire};
use record::format::{Cause, Place, Time};
use record::{Algorithm, Hasher, Missed, RawRecorder, Recorder};

/// Length of a datagram's data in bytes.
const DATAGRAM: u64 = 1_200;
/// The longest piece of a stream that comes at once, in bytes.
const PIECE_MAX: u64 = 9_000;

/// The bytes of a stream: a function of the place, and never zero.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pattern {
    key: u64,
    /// Number of bytes of the source that came before the stream's first one.
    passed: u64,
}

impl Pattern {
    const fn word(self, number: u64) -> u64 {
        let mixed = (self.key ^ number).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ mixed >> 29).wrapping_mul(0x94d0_49bb_1331_11eb) | 0x0101_0101_0101_0101
    }

    /// Fills `bytes` with what the stream has from byte `offset` on.
    pub(super) fn fill(self, offset: u64, bytes: &mut [u8]) {
        let offset = self.passed + offset;
        let skipped = usize::try_from(offset % 8).unwrap_or(0);
        let head = bytes.len().min((8 - skipped) % 8);
        let (first, rest) = bytes.split_at_mut(head);
        first.copy_from_slice(&self.word(offset / 8).to_le_bytes()[skipped..][..head]);
        for (number, word) in (offset.div_ceil(8)..).zip(rest.chunks_mut(8)) {
            word.copy_from_slice(&self.word(number).to_le_bytes()[..word.len()]);
        }
    }

    /// Whether `bytes` are what the stream has from byte `offset` on.
    pub(super) fn is(self, offset: u64, bytes: &[u8]) -> bool {
        let mut expected = vec![0; bytes.len()];
        self.fill(offset, &mut expected);
        expected == bytes
    }

    /// The digest of the first `end` bytes without those in `gaps`, which are sorted.
    pub(super) fn digest(self, algorithm: Algorithm, end: u64, gaps: &[(u64, u64)]) -> [u8; 32] {
        let (mut all, mut at) = (Hasher::new(algorithm), 0);
        for (from, behind) in gaps.iter().copied().chain([(end, end)]) {
            let mut bytes = vec![0; usize::try_from(from.saturating_sub(at)).unwrap_or(0)];
            self.fill(at, &mut bytes);
            all.update(&bytes);
            at = at.max(behind);
        }
        all.finalize()
    }

    /// The digest of the digests of these chunks: where each begins and ends.
    pub(super) fn digest_of_chunks(
        self,
        algorithm: Algorithm,
        chunks: impl Iterator<Item = (u64, u64)>,
    ) -> [u8; 32] {
        let mut all = Hasher::new(algorithm);
        for (from, end) in chunks {
            let mut bytes = vec![0; usize::try_from(end - from).expect("a chunk")];
            self.fill(from, &mut bytes);
            let mut chunk = Hasher::new(algorithm);
            chunk.update(&bytes);
            all.update(&chunk.finalize());
        }
        all.finalize()
    }
}

/// How a source takes it that there is no room.
#[derive(Debug)]
enum Kind {
    /// It waits, as a peer over TCP does. So many bytes wait.
    Patient(u64),
    /// It goes on, and what finds no room is lost.
    Relentless,
    /// Its datagrams come over a network that loses some, doubles some and delays some.
    Network {
        passage: Box<Passage>,
        sent: u64,
        /// The number of the next datagram, by those that came.
        expected: u64,
    },
}

/// Who records.
#[derive(Debug)]
pub(super) enum Taker<'a> {
    Framed(&'a mut Recorder),
    Raw(&'a mut RawRecorder),
}

impl Taker<'_> {
    fn room(&mut self, now: Instant, stream: usize) -> Option<&mut [u8]> {
        match self {
            Self::Framed(recorder) => recorder.room(now, stream),
            Self::Raw(recorder) => recorder.room(now),
        }
    }

    fn filled(&mut self, now: Instant, stream: usize, bytes: usize, time: Time) {
        match self {
            Self::Framed(recorder) => recorder.filled(now, stream, bytes, time),
            Self::Raw(recorder) => recorder.filled(bytes),
        }
    }

    /// Declares lost bytes. Returns how many were taken: a recording that ends takes no more.
    fn lose(&mut self, now: Instant, stream: usize, missed: Missed) -> u64 {
        let before = self.came();
        match self {
            Self::Framed(recorder) => {
                let Missed { bytes, when, place, .. } = missed;
                recorder.lose(now, stream, bytes, when, place, Cause::Overflow);
            }
            Self::Raw(recorder) => recorder.miss(missed),
        }
        self.came() - before
    }

    /// Bytes that have come, those included that were let go before a trigger.
    const fn came(&self) -> u64 {
        let progress = match self {
            Self::Framed(recorder) => recorder.progress(),
            Self::Raw(recorder) => recorder.progress(),
        };
        progress.bytes_in + progress.passed
    }
}

/// A recorder, and which of its streams bytes are for.
#[derive(Debug)]
pub(super) struct Lane<'a> {
    pub(super) recorder: Taker<'a>,
    pub(super) stream: usize,
    pub(super) now: Instant,
    /// What the host's clock says.
    pub(super) time: Time,
}

/// A source of one stream.
#[derive(Debug)]
pub(super) struct Source {
    kind: Kind,
    rng: Rng,
    pub(super) pattern: Pattern,
    /// Bytes a second.
    rate: u64,
    /// When the next piece comes, unless the source has ended.
    next: Option<Instant>,
    /// When the source ends, if ever.
    end: Option<Instant>,
    /// Bytes that came or were declared as lost, by our own account.
    pub(super) came: u64,
    /// Bytes that we declared as lost: where they begin and end.
    pub(super) lost: Vec<(u64, u64)>,
}

fn lossy(rng: &mut Rng) -> Passage {
    let behaviour = Behaviour {
        loss: Chance::parts_per_million(u32::try_from(rng.below(50_000)).unwrap_or(0)),
        corruption: Chance::parts_per_million(u32::try_from(rng.below(5_000)).unwrap_or(0)),
        duplication: Chance::percent(1),
        reorder: Chance::percent(1),
        reorder_by: Nanos::from_micros(300),
        jitter: Jitter::Uniform(Nanos::from_micros(100)),
        ..Behaviour::default()
    };
    let path = |rng: &mut Rng| {
        let wire = Wire::new(Nanos::from_micros(50), Some(Rate::from_gigabits(1)));
        Path::new([AnyHop::from(wire), AnyHop::from(Faults::new(behaviour, rng.fork("faults")))])
    };
    Passage::new(&Config::default(), [path(rng), path(rng)])
}

impl Source {
    /// A source of any kind with this rate in bytes a second, which ends at `end`, if ever.
    pub(super) fn new(number: usize, rate: u64, end: Option<Instant>, rng: &Rng) -> Self {
        let mut rng = rng.fork(&format!("source {number}"));
        let kind = match rng.below(3) {
            0 => Kind::Patient(0),
            1 => Kind::Relentless,
            _ => Kind::Network { passage: Box::new(lossy(&mut rng)), sent: 0, expected: 0 },
        };
        let pattern = Pattern { key: rng.next_u64(), passed: 0 };
        Self { kind, pattern, rate, next: Some(Instant::ZERO), end, came: 0, lost: Vec::new(), rng }
    }

    /// A source that waits for room, and ends after `bytes` at `rate`.
    pub(super) fn patient(bytes: u64, rate: u64, start: Instant, rng: &Rng) -> Self {
        let mut rng = rng.fork("patient source");
        let pattern = Pattern { key: rng.next_u64(), passed: 0 };
        let (next, end) = (Some(start), Some(start + Rate::new(rate * 8).time_of(bytes)));
        Self { kind: Kind::Patient(0), pattern, rate, next, end, came: 0, lost: Vec::new(), rng }
    }

    /// The recording begins behind the first `passed` bytes: places count from there.
    pub(super) fn begin_at(&mut self, passed: u64) {
        self.pattern.passed += passed;
        self.came -= passed;
        self.lost.retain_mut(|(from, end)| {
            (*from, *end) = (from.saturating_sub(passed), end.saturating_sub(passed));
            *end > 0
        });
    }

    /// Whether the stream comes over a lossy network.
    pub(super) const fn is_network(&self) -> bool {
        matches!(self.kind, Kind::Network { .. })
    }

    /// Whether the source neither waits nor ends.
    pub(super) const fn is_endless(&self) -> bool {
        matches!(self.kind, Kind::Relentless) && self.end.is_none()
    }

    /// Whether everything has come.
    pub(super) fn is_over(&self) -> bool {
        let is_empty = match &self.kind {
            Kind::Patient(waiting) => *waiting == 0,
            Kind::Relentless => true,
            Kind::Network { passage, .. } => passage.poll_timeout().is_none(),
        };
        self.next.is_none() && is_empty
    }

    /// When something comes next.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let arrival = match &self.kind {
            Kind::Network { passage, .. } => passage.poll_timeout(),
            _ => None,
        };
        self.next.into_iter().chain(arrival).min()
    }

    /// Gives the recorder what has come until now.
    pub(super) fn run(&mut self, lane: &mut Lane<'_>) {
        let now = lane.now;
        while let Some(at) = self.next.filter(|at| *at <= now) {
            let is_over = self.end.is_some_and(|end| at >= end);
            let bytes = if self.is_network() { DATAGRAM } else { 1 + self.rng.below(PIECE_MAX) };
            self.next = (!is_over).then(|| at + Rate::new(self.rate * 8).time_of(bytes));
            match &mut self.kind {
                _ if is_over => {}
                Kind::Patient(waiting) => *waiting += bytes,
                Kind::Relentless => self.deliver(lane, bytes),
                Kind::Network { passage, sent, .. } => {
                    let mut data = Buffer::zeroed(usize::try_from(DATAGRAM).unwrap_or(0));
                    let number = data.try_mut().expect("a new buffer");
                    number[..8].copy_from_slice(&sent.to_le_bytes());
                    *sent += 1;
                    passage.handle_input(at, Packet { side: Side::Near, data });
                }
            }
        }
        if let Kind::Patient(waiting) = self.kind {
            self.kind = Kind::Patient(waiting - self.put(lane, waiting));
        }
        for missing in self.arrived(now) {
            self.lose(lane, missing * DATAGRAM, Place::Wire);
            self.deliver(lane, DATAGRAM);
        }
    }

    /// The datagrams that have come: how many are missing before each.
    fn arrived(&mut self, now: Instant) -> Vec<u64> {
        let mut arrived = Vec::new();
        if let Kind::Network { passage, expected, .. } = &mut self.kind {
            passage.handle_timeout(now);
            while let Some(packet) = passage.poll_output() {
                let number = packet.data.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
                // What comes late was declared as lost, and what comes twice is there.
                if number >= *expected {
                    arrived.push(number - *expected);
                    *expected = number + 1;
                }
            }
        }
        arrived
    }

    /// Gives the recorder as many of the next `bytes` as it has room for; returns how many.
    fn put(&mut self, lane: &mut Lane<'_>, mut bytes: u64) -> u64 {
        let Lane { now, time, stream, .. } = *lane;
        let before = self.came;
        while bytes > 0
            && let Some(room) = lane.recorder.room(now, stream)
        {
            let length = room.len().min(usize::try_from(bytes).unwrap_or(usize::MAX));
            self.pattern.fill(self.came, &mut room[..length]);
            lane.recorder.filled(now, stream, length, time);
            self.came += length as u64;
            bytes -= length as u64;
        }
        self.came - before
    }

    /// Gives the recorder the next `bytes`, and declares what finds no room.
    fn deliver(&mut self, lane: &mut Lane<'_>, bytes: u64) {
        let taken = self.put(lane, bytes);
        self.lose(lane, bytes - taken, Place::Ring);
    }

    fn lose(&mut self, lane: &mut Lane<'_>, bytes: u64, place: Place) {
        let Lane { now, time, stream, .. } = *lane;
        let missed = Missed { packets: 0, bytes, when: time.nanos, place };
        let taken = if bytes > 0 { lane.recorder.lose(now, stream, missed) } else { 0 };
        if taken > 0 {
            self.lost.push((self.came, self.came + taken));
            self.came += taken;
        }
    }
}
