//! Where a recording's bytes come from: a peer that waits, one that does not, and a lossy network.

use engine::{Instant, Rng};
use network_models::Rate;
use record::format::Time;
use record::packing::Lane;
use record::{Algorithm, Hasher};

use super::network::{Network, came};

/// The longest piece of a stream that comes at once, in bytes.
const PIECE_MAX: u64 = 9_000;

/// The bytes at eight times this place.
const fn word(key: u64, number: u64) -> u64 {
    let mixed = (key ^ number).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ mixed >> 29).wrapping_mul(0x94d0_49bb_1331_11eb) | 0x0101_0101_0101_0101
}

/// Fills `bytes` with the bytes that a source makes from `offset` on.
fn make(key: u64, offset: u64, bytes: &mut [u8]) {
    let skipped = usize::try_from(offset % 8).unwrap_or(0);
    let head = bytes.len().min((8 - skipped) % 8);
    let (first, rest) = bytes.split_at_mut(head);
    first.copy_from_slice(&word(key, offset / 8).to_le_bytes()[skipped..][..head]);
    for (number, chunk) in (offset.div_ceil(8)..).zip(rest.chunks_mut(8)) {
        chunk.copy_from_slice(&word(key, number).to_le_bytes()[..chunk.len()]);
    }
}

/// How a source takes it that there is no room.
#[derive(Debug)]
enum Kind {
    /// It waits, as a peer over TCP does. This many bytes wait.
    Patient(u64),
    /// It goes on, and data without room are lost.
    Relentless,
    /// Its datagrams come to a socket, over a lossy network.
    Network(Box<Network>),
}

/// A source of one stream.
#[derive(Debug)]
pub(super) struct Source {
    kind: Kind,
    rng: Rng,
    /// From which the bytes follow that it makes: a function of the place, and never zero.
    key: u64,
    /// Number of bytes that came before the stream's first one.
    passed: u64,
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

impl Source {
    /// A source of any kind with this rate in bytes a second, which ends at `end`, if ever.
    /// `is_raw`: it is recorded without a container.
    pub(super) fn new(number: usize, rate: u64, end: Option<Instant>, is_raw: bool, rng: &Rng) -> Self {
        let mut rng = rng.fork(&format!("source {number}"));
        let kind = match rng.below(3) {
            0 => Kind::Patient(0),
            1 => Kind::Relentless,
            _ => Kind::Network(Box::new(Network::new(&mut rng, is_raw))),
        };
        let key = rng.next_u64();
        Self { kind, key, passed: 0, rate, next: Some(Instant::ZERO), end, came: 0, lost: Vec::new(), rng }
    }

    /// A source that waits for room, and ends after `bytes` at `rate`.
    pub(super) fn patient(bytes: u64, rate: u64, start: Instant, rng: &Rng) -> Self {
        let mut rng = rng.fork("patient source");
        let key = rng.next_u64();
        let (next, end) = (Some(start), Some(start + Rate::new(rate * 8).time_of(bytes)));
        Self { kind: Kind::Patient(0), key, passed: 0, rate, next, end, came: 0, lost: Vec::new(), rng }
    }

    /// Fills `bytes` with the stream's bytes from `offset` on.
    pub(super) fn fill(&self, offset: u64, bytes: &mut [u8]) {
        let offset = self.passed + offset;
        match &self.kind {
            Kind::Network(network) => {
                let all = &network.given.bytes;
                let from = usize::try_from(offset).unwrap_or(usize::MAX).min(all.len());
                let there = &all[from..all.len().min(from + bytes.len())];
                bytes[..there.len()].copy_from_slice(there);
            }
            Kind::Patient(_) | Kind::Relentless => make(self.key, offset, bytes),
        }
    }

    /// Whether `bytes` are the stream's bytes from `offset` on.
    pub(super) fn is(&self, offset: u64, bytes: &[u8]) -> bool {
        let mut expected = vec![0; bytes.len()];
        self.fill(offset, &mut expected);
        expected == bytes
    }

    /// The digest of the first `end` bytes without those in `gaps`, which are sorted.
    pub(super) fn digest(&self, algorithm: Algorithm, end: u64, gaps: &[(u64, u64)]) -> [u8; 32] {
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
        &self,
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

    /// The recording begins behind the first `passed` bytes: places count from there.
    pub(super) fn begin_at(&mut self, passed: u64) {
        self.passed += passed;
        self.came -= passed;
        self.lost.retain_mut(|(from, end)| {
            (*from, *end) = (from.saturating_sub(passed), end.saturating_sub(passed));
            *end > 0
        });
    }

    /// Whether the stream comes over a lossy network.
    pub(super) const fn is_network(&self) -> bool {
        matches!(self.kind, Kind::Network(_))
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
            Kind::Network(network) => network.is_empty(),
        };
        self.next.is_none() && is_empty
    }

    /// When something comes next.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let arrival = match &self.kind {
            Kind::Network(network) => network.poll_timeout(),
            _ => None,
        };
        self.next.into_iter().chain(arrival).min()
    }

    /// Gives the recorder the data that have come until now. The host's clock says `time`.
    pub(super) fn run(&mut self, lane: &mut Lane<'_>, time: Time) {
        let now = lane.now;
        while let Some(at) = self.next.filter(|at| *at <= now) {
            let is_over = self.end.is_some_and(|end| at >= end);
            let bytes = match &self.kind {
                Kind::Network(network) => network.length(&mut self.rng),
                _ => 1 + self.rng.below(PIECE_MAX),
            };
            self.next = (!is_over).then(|| at + Rate::new(self.rate * 8).time_of(bytes));
            match &mut self.kind {
                _ if is_over => {}
                Kind::Patient(waiting) => *waiting += bytes,
                Kind::Relentless => self.deliver(lane, time, bytes),
                Kind::Network(network) => network.send(at, bytes),
            }
        }
        if let Kind::Patient(waiting) = self.kind {
            self.kind = Kind::Patient(waiting - self.put(lane, time, waiting));
        }
        self.on_network(|network| network.run(lane, time));
    }

    /// The recording ends. Its recorder gets the waiting datagrams.
    pub(super) fn finish(&mut self, lane: &mut Lane<'_>, time: Time) {
        self.on_network(|network| network.finish(lane, time));
    }

    /// Does something with the network, if the source has one, and updates the account of the
    /// recorder's data.
    fn on_network(&mut self, act: impl FnOnce(&mut Network)) {
        let Kind::Network(network) = &mut self.kind else { return };
        let gaps = network.given.gaps.len();
        act(network);
        let passed = self.passed;
        self.came = network.given.bytes.len() as u64 - passed;
        let gaps = &network.given.gaps[gaps..];
        self.lost.extend(gaps.iter().map(|(from, end)| (from - passed, end - passed)));
    }

    /// The faults of the datagrams that the recorder got.
    pub(super) fn wrong(&self) -> Vec<String> {
        match &self.kind {
            Kind::Network(network) => network.wrong(),
            _ => Vec::new(),
        }
    }

    /// Whether a socket has dropped datagrams.
    pub(super) fn has_dropped(&self) -> bool {
        matches!(&self.kind, Kind::Network(network) if network.has_dropped())
    }

    /// Gives the recorder as many of the next `bytes` as it has room for; returns how many.
    fn put(&mut self, lane: &mut Lane<'_>, time: Time, mut bytes: u64) -> u64 {
        let before = self.came;
        while bytes > 0
            && let Some(room) = lane.room()
        {
            let length = room.len().min(usize::try_from(bytes).unwrap_or(usize::MAX));
            self.fill(self.came, &mut room[..length]);
            lane.filled(length, time);
            self.came += length as u64;
            bytes -= length as u64;
        }
        self.came - before
    }

    /// Gives the recorder the next `bytes`, and declares bytes without room as lost.
    fn deliver(&mut self, lane: &mut Lane<'_>, time: Time, bytes: u64) {
        let left = bytes - self.put(lane, time, bytes);
        let before = came(lane.taker);
        if left > 0 {
            lane.lose(left, time.nanos);
        }
        // A recording that ends takes no more.
        let taken = came(lane.taker) - before;
        if taken > 0 {
            self.lost.push((self.came, self.came + taken));
            self.came += taken;
        }
    }
}
