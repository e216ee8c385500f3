//! A medium with the times of an SSD, which fails, lies, fills up and loses its power.

use engine::{Buffer, Instant, Nanos, Rng};
use record::{Fault, Input};
use sim::models::ssd::{Parameters, Slowdowns, Ssd, Thermal};

/// Length in bytes of a sector, which a medium writes as a whole.
const SECTOR: usize = 512;

/// The rates of a medium's forbidden acts: each happens once in this many writes, and 0 is never.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Vices {
    /// The write fails, and was carried out, was not, or was in part.
    pub(super) fails: u64,
    /// A sync fails, and any of the data that it was to keep are gone.
    pub(super) fails_to_sync: u64,
    /// The write ends well, and only some of its sectors are there.
    pub(super) tears: u64,
    /// The write ends well, and is nowhere.
    pub(super) loses: u64,
    /// The write ends well, and is elsewhere.
    pub(super) misdirects: u64,
    /// The write ends well, and a bit of it is another.
    pub(super) rots: u64,
    /// The write takes [`Disk::STALL`] longer.
    pub(super) stalls: u64,
}

impl Vices {
    /// Whether the medium says that all is well when it is not.
    pub(super) const fn lies(&self) -> bool {
        self.tears + self.loses + self.misdirects + self.rots > 0
    }
}

/// A write or, without a name, a sync that is under way.
#[derive(Debug)]
struct Call {
    at: Instant,
    name: Option<u64>,
    write: Write,
    result: Result<(), Fault>,
    /// Of a sync: number of writes that it makes durable.
    covers: usize,
}

/// Bytes for a place on the medium.
#[derive(Clone, Debug)]
struct Write {
    offset: usize,
    data: Buffer,
}

/// Bytes that are on the medium until its power fails, and after it only by luck.
#[derive(Debug)]
struct Pending {
    offset: usize,
    data: Vec<u8>,
}

/// The medium of a recording.
#[derive(Debug)]
pub(super) struct Disk {
    ssd: Ssd,
    rng: Rng,
    pub(super) vices: Vices,
    /// Whether the medium has lied, or could have.
    lied: bool,
    /// Whether a write found no room, or a sync failed: the certificate may be missing then.
    pub(super) was_spoiled: bool,
    durable: Vec<u8>,
    pending: Vec<Pending>,
    calls: Vec<Call>,
    /// Number of writes that ended well, and number of those that ended badly.
    pub(super) counts: (u64, u64),
}

/// An SSD that is slow and small enough for its cache, its pauses and its warmth to matter within a
/// few megabytes.
fn parameters(capacity: u64, rng: &mut Rng) -> Parameters {
    let program = Nanos::from_micros(300 + rng.below(3_000));
    let pauses = rng.one_in(2);
    let is_warm = rng.one_in(2);
    Parameters {
        name: "a small SSD",
        channels: 1 << rng.below(3),
        block_rows: 16,
        program,
        cache_program: Nanos::new(program.get() / 4),
        cache: rng.below(2 << 20),
        buffer: (256 << 10) + rng.below(1 << 20),
        capacity,
        spare: capacity / 10,
        direct: rng.below(4 << 20),
        reclaim_percent: rng.below(300),
        rest: Nanos::from_millis(20),
        pause_every: if pauses { (128 << 10) + rng.below(1 << 20) } else { 0 },
        pause: Nanos::from_millis(rng.below(60)),
        thermal: is_warm.then(|| Thermal {
            rise_per_gib: 1_000_000,
            half_life: Nanos::from_millis(50),
            limit: 500 + rng.below(2_000),
            throttled_percent: 5 + rng.below(50),
        }),
        ..Parameters::SAMSUNG_970_PRO
    }
}

fn below(rng: &mut Rng, bound: usize) -> usize {
    usize::try_from(rng.below(bound.max(1) as u64)).expect("less than a length")
}

/// Some sectors of a write, and where they are in it: those up to one, those from one on, or any.
fn sectors(data: &[u8], rng: &mut Rng) -> Vec<(usize, Vec<u8>)> {
    let middle = below(rng, data.len() / SECTOR + 1);
    let how = rng.below(3);
    let mut kept = Vec::new();
    for (number, sector) in data.chunks_exact(SECTOR).enumerate() {
        let is_kept = match how {
            0 => number < middle,
            1 => number >= middle,
            _ => rng.one_in(2),
        };
        if is_kept {
            kept.push((number * SECTOR, sector.to_vec()));
        }
    }
    kept
}

/// The parts of a write that remain when the power failed during it, with their places: all,
/// nothing, or some sectors.
pub(super) fn torn(data: &[u8], rng: &mut Rng) -> Vec<(usize, Vec<u8>)> {
    match rng.below(3) {
        0 => Vec::new(),
        1 => vec![(0, data.to_vec())],
        _ => sectors(data, rng),
    }
}

impl Disk {
    /// How long a write takes that stalls.
    const STALL: Nanos = Nanos::from_millis(100);

    /// A medium with these bytes on it.
    pub(super) fn new(durable: Vec<u8>, vices: Vices, rng: &Rng) -> Self {
        let mut rng = rng.fork("disk");
        let ssd = Ssd::new(parameters(durable.len() as u64, &mut rng), rng.fork("ssd"));
        let lied = vices.lies();
        Self {
            ssd,
            rng,
            vices,
            lied,
            was_spoiled: false,
            durable,
            pending: Vec::new(),
            calls: Vec::new(),
            counts: (0, 0),
        }
    }

    /// The causes that have slowed writes down until now.
    pub(super) const fn slowdowns(&self) -> Slowdowns {
        self.ssd.slowdowns()
    }

    /// Whether the medium could say that all was well when it was not.
    pub(super) const fn lied(&self) -> bool {
        self.lied
    }

    /// Begins a write.
    pub(super) fn write(&mut self, now: Instant, name: u64, offset: u64, data: Buffer) {
        let Parameters { fetch, firmware, completion, .. } = *self.ssd.parameters();
        let mut at = self.ssd.write(now + fetch + firmware, offset, data.len() as u64) + completion;
        if self.rng.one_in(self.vices.stalls) {
            at = at + Self::STALL;
        }
        let offset = usize::try_from(offset).expect("a place that memory has");
        let result = if offset + data.len() > self.durable.len() {
            self.was_spoiled = true;
            Err(Fault::Full)
        } else if self.rng.one_in(self.vices.fails) {
            Err(Fault::Failed)
        } else {
            Ok(())
        };
        self.calls.push(Call { at, name: Some(name), write: Write { offset, data }, result, covers: 0 });
    }

    /// Writes something before the recording, and waits for it.
    pub(super) fn put(&mut self, offset: usize, data: &Buffer) {
        self.carry_out(&Write { offset, data: data.clone() }, Ok(()));
    }

    /// Begins to make written data durable.
    pub(super) fn sync(&mut self, now: Instant) {
        let failed = self.rng.one_in(self.vices.fails_to_sync);
        self.was_spoiled |= failed;
        let result = if failed { Err(Fault::Failed) } else { Ok(()) };
        let write = Write { offset: 0, data: Buffer::zeroed(0) };
        let (at, covers) = (self.ssd.flush(now), self.pending.len());
        self.calls.push(Call { at, name: None, write, result, covers });
    }

    /// When the next call ends.
    pub(super) fn next(&self) -> Option<Instant> {
        self.calls.iter().map(|call| call.at).min()
    }

    /// A call that has ended at `now`. Its data are dropped.
    pub(super) fn poll(&mut self, now: Instant) -> Option<Input> {
        let due = self.calls.iter().enumerate().filter(|(_, call)| call.at <= now);
        let (at, _) = due.min_by_key(|(_, call)| call.at)?;
        let Call { name, write, result, covers, .. } = self.calls.swap_remove(at);
        let Some(name) = name else {
            let kept: Vec<_> = self.pending.drain(..covers).collect();
            for Pending { offset, data } in kept {
                if result.is_ok() || self.rng.one_in(2) {
                    self.durable[offset..offset + data.len()].copy_from_slice(&data);
                }
            }
            return Some(Input::Synced(result));
        };
        self.counts.0 += u64::from(result.is_ok());
        self.counts.1 += u64::from(result.is_err());
        self.carry_out(&write, result);
        Some(Input::Written { name, result })
    }

    /// Carries out a write with the medium's vices.
    fn carry_out(&mut self, write: &Write, result: Result<(), Fault>) {
        let (mut offset, mut data) = (write.offset, write.data.to_vec());
        data.truncate(self.durable.len().saturating_sub(offset));
        if result.is_err() {
            match self.rng.below(3) {
                0 => return,
                1 => return self.tear(offset, &data),
                _ => {}
            }
        } else if self.rng.one_in(self.vices.loses) {
            return;
        } else if self.rng.one_in(self.vices.tears) {
            return self.tear(offset, &data);
        } else if self.rng.one_in(self.vices.rots) {
            let at = self.below(data.len());
            data[at] ^= 1 << self.rng.below(8);
        } else if self.rng.one_in(self.vices.misdirects) {
            let places = (self.durable.len() - data.len()) / 4096 + 1;
            offset = self.below(places) * 4096;
        }
        if !data.is_empty() {
            self.pending.push(Pending { offset, data });
        }
    }

    /// Keeps some sectors of a write.
    fn tear(&mut self, offset: usize, data: &[u8]) {
        let kept = sectors(data, &mut self.rng);
        self.pending.extend(kept.into_iter().map(|(at, data)| Pending { offset: offset + at, data }));
    }

    fn below(&mut self, bound: usize) -> usize {
        below(&mut self.rng, bound)
    }

    /// The power fails. Data that no sync had made durable are there, are not, or are in part.
    /// Returns the medium and the number of writes that were under way.
    pub(super) fn cut(mut self) -> (Vec<u8>, u64) {
        let calls = std::mem::take(&mut self.calls);
        let mut under_way = 0;
        for Call { write, .. } in calls.into_iter().filter(|call| call.name.is_some()) {
            under_way += 1;
            // As a write that failed: carried out, not, or in part.
            self.carry_out(&write, Err(Fault::Failed));
        }
        for Pending { offset, data } in std::mem::take(&mut self.pending) {
            match self.rng.below(3) {
                0 => {}
                1 => self.durable[offset..offset + data.len()].copy_from_slice(&data),
                _ => {
                    let end = self.below(data.len() / SECTOR + 1) * SECTOR;
                    self.durable[offset..offset + end].copy_from_slice(&data[..end]);
                }
            }
        }
        (self.durable, under_way)
    }

    /// The length of the medium in bytes.
    pub(super) const fn bytes(&self) -> u64 {
        self.durable.len() as u64
    }

    /// The contents of the medium while it has power.
    pub(super) fn contents(mut self) -> Vec<u8> {
        for Pending { offset, data } in self.pending {
            self.durable[offset..offset + data.len()].copy_from_slice(&data);
        }
        self.durable
    }
}
