//! The times of an SSD: registers, firmware, controller, flash, write buffer, and the write rate
//! over a long time.
//!
//! Calibrated on the measured time lines of a Samsung 970 Pro behind PCIe Gen2 x4
//! (published-figures, nvme-tsn), and on data sheets ([`SHEETS`]). A read takes the firmware's
//! time, then the time of the array in its plane, unless the page is in the plane's register, and
//! the transfer over its channel. A write is done when its data are in the buffer. The buffer is
//! programmed row by row, a row a die, first into flash of one bit a cell, then into the dense
//! flash, where space eventually must be reclaimed at the same time. Reads suspend programs.

mod cache;
mod collect;
pub mod drive;
pub mod fit;
mod flash;
pub mod jobs;
pub mod plan;
mod preset;
mod thermal;

use engine::{Instant, Nanos, Rng};

use cache::{Buffer, FastCells};
use collect::Collector;
use flash::{Flash, SECTOR, SectorPart};
pub use preset::{SHEETS, Sheet};
pub use thermal::Thermal;
use thermal::Warmth;

/// The parameters of an SSD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// The name of the device.
    pub name: &'static str,
    /// Time from a configuration request's arrival to its completion's first symbol.
    pub config_response: Nanos,
    /// The largest variation of [`Parameters::config_response`] in either direction.
    pub config_spread: Nanos,
    /// Time from the arrival of a read of a register in BAR0 to its completion's first symbol.
    pub register_response: Nanos,
    /// Time from a doorbell's arrival to the read of the submission-queue entry.
    pub fetch: Nanos,
    /// Time from the entry's arrival until the flash is read or the host's data are requested.
    pub firmware: Nanos,
    /// Time from the request to the die until the page is in the die's register.
    pub array_read: Nanos,
    /// The largest variation of [`Parameters::array_read`] in either direction; large variations
    /// are rarer.
    pub array_spread: Nanos,
    /// Number of channels, each with [`Parameters::dies`] dies.
    pub channels: u32,
    /// Number of dies of a channel.
    pub dies: u32,
    /// Rate of a channel in bytes a second.
    pub channel_rate: u64,
    /// Number of bytes that travel at once from the flash to the link.
    pub piece: u32,
    /// Time from the last byte of a command's data, in either direction, to its
    /// completion-queue entry.
    pub completion: Nanos,
    /// Number of planes of a die; each reads independently, and a program writes all of them.
    pub planes: u32,
    /// Number of bytes of a page, which a plane reads at once.
    pub page: u64,
    /// Number of rows (a page of each plane) of a block.
    pub block_rows: u32,
    /// Time to erase a block.
    pub erase: Nanos,
    /// Time to program a row of a die for good.
    pub program: Nanos,
    /// Time to program a row with one bit a cell.
    pub cache_program: Nanos,
    /// Number of bytes that are written with one bit a cell before the rest is written for good.
    pub cache: u64,
    /// Time until a program that a read interrupts has stopped.
    pub suspend: Nanos,
    /// The largest rate of the controller to the host, in bytes a second.
    pub read_rate: u64,
    /// The largest rate of the controller from the host, in bytes a second.
    pub write_rate: u64,
    /// The controller's time for each read, during which it begins no other one.
    pub read_command: Nanos,
    /// The controller's time for each write, during which it begins no other one.
    pub write_command: Nanos,
    /// The longest additional time until a write is accepted.
    pub accept_spread: Nanos,
    /// Size of the write buffer in bytes.
    pub buffer: u64,
    /// Number of bytes of the host that the flash holds.
    pub capacity: u64,
    /// Number of bytes of flash beyond [`Parameters::capacity`].
    pub spare: u64,
    /// Number of bytes that can be written before space must be reclaimed during programs; less if
    /// the flash has less free space.
    pub direct: u64,
    /// The time for reclaiming during each program, in percent of it, if no data are moved.
    pub reclaim_percent: u64,
    /// The device begins to fold and to reclaim after this time without a write.
    pub rest: Nanos,
    /// Number of bytes written between two pauses; 0 means no pauses.
    pub pause_every: u64,
    /// Length of a pause, during which the flash is not programmed.
    pub pause: Nanos,
    /// How the device warms up; `None` if temperature does not matter.
    pub thermal: Option<Thermal>,
}

impl Parameters {
    /// Number of bytes of a row, which a die programs at once.
    pub const fn row(&self) -> u64 {
        self.page * self.planes as u64
    }

    /// The rates in bytes a second at which the flash accepts writes after a rest, by the number of
    /// bytes written since.
    pub fn steps(&self) -> Vec<plan::Step> {
        let mut steps = Vec::new();
        let reclaim = self.program + self.program * self.reclaim_percent / 100;
        if self.cache > 0 {
            steps.push(plan::Step { after: 0, rate: self.flash_rate(self.cache_program) });
        }
        if self.direct > self.cache {
            steps.push(plan::Step { after: self.cache, rate: self.flash_rate(self.program) });
        }
        if self.reclaim_percent > 0 || steps.is_empty() {
            let after = self.direct.max(self.cache) * u64::from(!steps.is_empty());
            steps.push(plan::Step { after, rate: self.flash_rate(reclaim) });
        }
        steps
    }

    /// The rate of all dies that program a row in `time`, no more than the controller's.
    fn flash_rate(&self, time: Nanos) -> u64 {
        let time = time + Nanos::new(self.erase.get() / u64::from(self.block_rows.max(1)));
        let bytes = u128::from(self.row()) * u128::from(self.channels) * u128::from(self.dies);
        let rate = bytes * 1_000_000_000 / u128::from(time.get().max(1));
        u64::try_from(rate).unwrap_or(u64::MAX).min(self.write_rate)
    }
}

/// The causes of an SSD's slowdown since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slowdowns {
    /// Number of pauses.
    pub pauses: u64,
    /// Number of writes that found the SSD throttled.
    pub throttled: u64,
    /// Number of rows that were programmed while space was reclaimed.
    pub reclaimed: u64,
}

/// An SSD with the state of its dies, channels, write buffer and free space.
#[derive(Debug)]
pub struct Ssd {
    parameters: Parameters,
    rng: Rng,
    /// For writes, so that writes do not change the variations of reads.
    write_rng: Rng,
    flash: Flash,
    buffer: Buffer,
    cells: FastCells,
    collector: Collector,
    warmth: Warmth,
    since_pause: u64,
    slowdowns: Slowdowns,
    last_write: Instant,
    /// When the controller begins the next read, and the next write.
    next_read: Instant,
    next_write: Instant,
    /// When the path of writes from the host is free.
    path: Instant,
    /// Number of bytes accepted since the beginning.
    accepted: u64,
}

impl Ssd {
    /// A rested SSD without data, whose variations follow from `rng`.
    pub fn new(parameters: Parameters, rng: Rng) -> Self {
        Self {
            flash: Flash::new(&parameters),
            parameters,
            write_rng: rng.fork("writes"),
            rng,
            buffer: Buffer::default(),
            cells: FastCells::default(),
            collector: Collector::default(),
            warmth: Warmth::default(),
            since_pause: 0,
            slowdowns: Slowdowns::default(),
            last_write: Instant::ZERO,
            next_read: Instant::ZERO,
            next_write: Instant::ZERO,
            path: Instant::ZERO,
            accepted: 0,
        }
    }

    /// The SSD after a long life: its cache is full, all of its capacity holds data, and no space
    /// was reclaimed in advance. `scattered`: the data were overwritten at random.
    #[must_use]
    pub fn aged(mut self, scattered: bool) -> Self {
        self.cells.fill(self.parameters.cache);
        self.collector.age(&self.parameters, scattered);
        self
    }

    /// The parameters of the SSD.
    pub const fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// Number of bytes that were accepted since the beginning.
    pub const fn accepted(&self) -> u64 {
        self.accepted
    }

    /// The causes of the SSD's slowdown since the beginning.
    pub const fn slowdowns(&self) -> Slowdowns {
        self.slowdowns
    }

    /// The time that this configuration request takes.
    pub fn config_response(&mut self) -> Nanos {
        let Parameters { config_response, config_spread, .. } = self.parameters;
        around(config_response, Nanos::new(self.rng.below(2 * config_spread.get() + 1)), config_spread)
    }

    /// Reads `length` bytes at `offset`. Calls `piece` with the time, the offset in the read and
    /// the length of each piece, and returns when all pieces are available.
    pub fn read(
        &mut self,
        now: Instant,
        offset: u64,
        length: u64,
        mut piece: impl FnMut(Instant, u64, u64),
    ) -> Instant {
        let begin = now.max(self.next_read);
        self.next_read = begin + self.parameters.read_command;
        let rate = self.parameters.read_rate * self.percent() / 100;
        let (mut end, mut at) = (begin, 0);
        while at < length {
            let part = (SECTOR - (offset + at) % SECTOR).min(length - at);
            let sector = SectorPart { offset: offset + at, length: part, path_rate: rate };
            let done =
                self.flash.read(&self.parameters, &mut self.rng, begin, sector, |when, from, bytes| {
                    piece(when, at + from, bytes);
                });
            end = end.max(done);
            at += part;
        }
        end
    }

    /// Writes `length` bytes at `offset` that have arrived; returns when they are in the buffer.
    pub fn write(&mut self, now: Instant, offset: u64, length: u64) -> Instant {
        let idle = now - self.last_write.min(now);
        if idle >= self.parameters.rest {
            let rate = self.parameters.flash_rate(self.parameters.program);
            self.cells.fold(idle.saturating_sub(self.parameters.rest), rate);
            self.collector.reclaim(idle.saturating_sub(self.parameters.rest), rate);
            self.since_pause = 0;
        }
        if let Some(thermal) = &self.parameters.thermal {
            self.warmth.advance(thermal, idle, length);
        }
        self.slowdowns.throttled += u64::from(self.percent() < 100);
        let begin = now.max(self.next_write).max(self.path);
        self.next_write = begin + self.parameters.write_command;
        self.path = begin + transfer(length, self.parameters.write_rate * self.percent() / 100);
        let spread = self.parameters.accept_spread.get() / 2;
        let varied = self.write_rng.below(spread + 1) + self.write_rng.below(spread + 1);
        let room = self.buffer.room(begin, length, self.parameters.buffer);
        self.path = self.path.max(room);
        self.last_write = self.last_write.max(room);
        self.collector.write(offset, length);
        self.buffer.accept(length);
        self.accepted += length;
        while self.buffer.open >= self.parameters.row() {
            self.program(room, self.parameters.row());
        }
        room + Nanos::new(varied)
    }

    /// Programs the incomplete row; returns when all written data are in the flash.
    pub fn flush(&mut self, now: Instant) -> Instant {
        if self.buffer.open > 0 {
            self.program(now, self.buffer.open);
        }
        now.max(self.flash.idle())
    }

    /// Programs a row that holds `bytes` of the buffer.
    fn program(&mut self, now: Instant, bytes: u64) {
        let row = self.parameters.row();
        let Parameters { pause_every, pause, .. } = self.parameters;
        self.since_pause += row;
        if let Some(times @ 1..) = self.since_pause.checked_div(pause_every) {
            self.since_pause %= pause_every;
            self.slowdowns.pauses += times;
            self.flash.pause(now, pause * times);
        }
        let fast = self.cells.take(row, self.parameters.cache);
        let share = self.collector.take(&self.parameters, row);
        self.slowdowns.reclaimed += u64::from(share > 0);
        let time = if fast { self.parameters.cache_program } else { self.parameters.program };
        let time = time * 100 / self.percent();
        let extra = self.parameters.program * share / 100 * 100 / self.percent();
        let at = self.flash.program(&self.parameters, now, time, extra);
        self.buffer.programmed(at, bytes);
    }

    /// The device's rate in percent of its full rate.
    fn percent(&self) -> u64 {
        self.warmth.percent(self.parameters.thermal.as_ref())
    }
}

/// `mean` varied by `varied - spread`; `varied` is between 0 and twice `spread`.
fn around(mean: Nanos, varied: Nanos, spread: Nanos) -> Nanos {
    (mean + varied).saturating_sub(spread)
}

/// The time that `bytes` take at `rate` bytes a second.
fn transfer(bytes: u64, rate: u64) -> Nanos {
    let nanos = (u128::from(bytes) * 1_000_000_000).div_ceil(u128::from(rate.max(1)));
    Nanos::new(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// Number of bytes that pass in `time` at `rate` bytes a second.
fn transferred(time: Nanos, rate: u64) -> u64 {
    u64::try_from(u128::from(time.get()) * u128::from(rate) / 1_000_000_000).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
