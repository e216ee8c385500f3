//! The times of an SSD: registers, firmware, flash, write buffer, and the write rate on a long day.
//!
//! Calibrated on the measured time lines of a Samsung 970 Pro behind PCIe Gen2 x4
//! (published-figures, nvme-tsn). A read takes the firmware's time, then for each 4 KiB page the
//! time of the array in its die and the transfer over its channel. Each die and each channel serves
//! one page after another. A write is done when its data are in the buffer. The buffer drains to
//! flash at a rate that falls with the bytes written since the last rest, and writes wait while the
//! buffer is full.

use std::collections::VecDeque;

use engine::{Instant, Nanos, Rng};

/// Number of bytes that a die delivers at once.
const PAGE: u64 = 4096;
/// The largest number of writes in the buffer.
const DRAINS_MAX: usize = 1 << 16;

/// A rate of the flash, and the number of bytes written from which on the rate holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Number of bytes written since the last rest.
    pub after: u64,
    /// Rate in bytes a second at which the flash takes writes from then on.
    pub rate: u64,
}

/// How writes warm the device, and how warmth slows it down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thermal {
    /// Rise of the temperature in mK for each GiB written.
    pub rise_per_gib: u64,
    /// The time in which half of the difference to the surroundings is lost.
    pub half_life: Nanos,
    /// Difference to the surroundings in mK from which on the device is throttled.
    pub limit: u64,
    /// The rate of a throttled device in percent of its full rate.
    pub throttled_percent: u64,
}

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
    /// Time from the last byte of a command's data, in either direction, to its completion-queue
    /// entry.
    pub completion: Nanos,
    /// Size of the write buffer in bytes.
    pub buffer: u64,
    /// The rates at which the flash takes writes, by the number of bytes written since the last
    /// rest. Sorted; the first step begins at 0.
    pub steps: &'static [Step],
    /// The device has rested after this time without a write.
    pub rest: Nanos,
    /// Number of bytes written between two pauses; 0 means no pauses.
    pub pause_every: u64,
    /// Length of a pause.
    pub pause: Nanos,
    /// How the device warms up; `None` if warmth does not matter.
    pub thermal: Option<Thermal>,
}

impl Parameters {
    /// Samsung 970 Pro 512 GB. The times follow from the analyser's time lines (published-figures,
    /// nvme-tsn), each without the propagation of 50 ns a direction and the serialisation of
    /// [`super::pcie::Link::GEN2_X4`]:
    ///
    /// - `config_response`: a configuration read's 280 ns less 10 on the link and 2 x 50; spread as
    ///   its five samples.
    /// - `fetch`: `sqe_fetch_mrd` 460 less 12 and 2 x 50.
    /// - `firmware`: `data_first_mrd` 25,136 less the entry's arrival; NVMeVirt has 21.5 µs for the
    ///   same device.
    /// - `channel_rate`: `data_phase_length` 4852 is 15 pieces of 256 B and a last one's 140 ns;
    ///   NVMeVirt: 800 MB/s.
    /// - `array_read`: `data_first_mwr` 81,592 less what is before it, one piece included.
    /// - `array_spread`: "tens of microseconds from read to read".
    /// - `completion`: from the last CplD's arrival to `msix_interrupt`, less the entry's 20 ns.
    /// - `channels`, `dies`: NVMeVirt's ssd_config.h. `buffer`: 512 MB of DRAM, of which a
    ///   sixteenth (estimate).
    /// - `steps`: 2.3 GB/s (data sheet); MLC flash has no cache whose end would show.
    pub const SAMSUNG_970_PRO: Self = Self {
        name: "Samsung 970 Pro 512 GB",
        config_response: Nanos::new(170),
        config_spread: Nanos::new(14),
        register_response: Nanos::new(170),
        fetch: Nanos::new(348),
        firmware: Nanos::new(22_302),
        array_read: Nanos::new(56_142),
        array_spread: Nanos::from_micros(20),
        channels: 8,
        dies: 2,
        channel_rate: 814_950_000,
        piece: 256,
        completion: Nanos::new(608),
        buffer: 32 << 20,
        steps: &[Step { after: 0, rate: 2_300_000_000 }],
        rest: Nanos::from_secs(30),
        pause_every: 0,
        pause: Nanos::ZERO,
        thermal: None,
    };

    /// [`Parameters::SAMSUNG_970_PRO`] with another name, and flash that takes writes at the rates
    /// of `steps` (reviews; `docs/link-models.md`).
    pub const fn with_steps(name: &'static str, steps: &'static [Step]) -> Self {
        Self { name, steps, ..Self::SAMSUNG_970_PRO }
    }

    /// The model called `name` in scenario files.
    pub fn named(name: &str) -> Option<Self> {
        KNOWN
            .iter()
            .find(|(known, ..)| *known == name)
            .map(|(_, title, steps)| Self::with_steps(title, steps))
    }

    /// The names that [`Parameters::named`] knows.
    pub fn names() -> impl Iterator<Item = &'static str> {
        KNOWN.iter().map(|(name, ..)| *name)
    }
}

/// Number of bytes in a gigabyte, as reviews count.
const GB: u64 = 1_000_000_000;

/// Names, titles, and the rates that reviews measured by the bytes written since idle.
const KNOWN: [(&str, &str, &[Step]); 7] = [
    ("970-pro", "Samsung 970 Pro 512 GB", Parameters::SAMSUNG_970_PRO.steps),
    (
        "970-evo",
        "Samsung 970 EVO 500 GB",
        &[Step { after: 0, rate: 2 * GB }, Step { after: 22 * GB, rate: GB / 10 * 6 }],
    ),
    (
        "980-pro",
        "Samsung 980 PRO 1 TB",
        &[Step { after: 0, rate: 4 * GB }, Step { after: 113 * GB, rate: GB / 10 * 15 }],
    ),
    (
        "980",
        "Samsung 980 1 TB",
        &[Step { after: 0, rate: GB / 10 * 25 }, Step { after: 160 * GB, rate: GB / 10 * 5 }],
    ),
    ("sn580", "WD SN580", &[Step { after: 0, rate: 4 * GB }, Step { after: 341 * GB, rate: GB / 100 * 45 }]),
    (
        "mp700-elite",
        "Corsair MP700 Elite",
        &[
            Step { after: 0, rate: 6 * GB },
            Step { after: 407 * GB, rate: GB / 10 * 14 },
            Step { after: 1150 * GB, rate: GB / 10 * 7 },
        ],
    ),
    ("tlc", "a TLC device without a cache", &[Step { after: 0, rate: GB }]),
];

/// An SSD with the state of its dies, channels and write buffer.
#[derive(Debug)]
pub struct Ssd {
    parameters: Parameters,
    rng: Rng,
    dies: Vec<Instant>,
    channels: Vec<Instant>,
    /// When the drain of each write in the buffer ends, and its length in bytes.
    drains: VecDeque<(Instant, u64)>,
    buffered: u64,
    drained: Instant,
    /// Number of bytes written since the last rest.
    written: u64,
    since_pause: u64,
    last_write: Instant,
    /// Difference to the temperature of the surroundings in mK, at the last write.
    warmth: u64,
}

impl Ssd {
    /// A rested SSD, whose variations follow from `rng`.
    pub fn new(parameters: Parameters, rng: Rng) -> Self {
        Self {
            dies: vec![Instant::ZERO; (parameters.channels * parameters.dies) as usize],
            channels: vec![Instant::ZERO; parameters.channels as usize],
            parameters,
            rng,
            drains: VecDeque::new(),
            buffered: 0,
            drained: Instant::ZERO,
            written: 0,
            since_pause: 0,
            last_write: Instant::ZERO,
            warmth: 0,
        }
    }

    /// The parameters of the SSD.
    pub const fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// The time that this configuration request takes.
    pub fn config_response(&mut self) -> Nanos {
        let Parameters { config_response, config_spread, .. } = self.parameters;
        around(config_response, Nanos::new(self.rng.below(2 * config_spread.get() + 1)), config_spread)
    }

    /// Reads `length` bytes at `offset`. Calls `piece` with the time, the offset in the read and
    /// the length of each piece, and returns when all pieces are there.
    pub fn read(
        &mut self,
        now: Instant,
        offset: u64,
        length: u64,
        mut piece: impl FnMut(Instant, u64, u64),
    ) -> Instant {
        let mut end = now;
        let mut at = 0;
        while at < length {
            let page = (offset + at) / PAGE;
            let of_page = (PAGE - (offset + at) % PAGE).min(length - at);
            let die = usize::try_from(page % self.dies.len() as u64).expect("a die");
            let channel = die % self.channels.len();
            // The sum of two even distributions is triangular: values far from the mean are rare.
            let spread = self.parameters.array_spread;
            let varied = self.rng.below(spread.get() + 1) + self.rng.below(spread.get() + 1);
            let ready =
                now.max(self.dies[die]) + around(self.parameters.array_read, Nanos::new(varied), spread);
            self.dies[die] = ready;
            let begin = ready.max(self.channels[channel]);
            let mut done = 0;
            let mut when = begin;
            while done < of_page {
                let part = u64::from(self.parameters.piece).min(of_page - done);
                when = begin + transfer(done + part, self.parameters.channel_rate);
                piece(when, at + done, part);
                done += part;
            }
            self.channels[channel] = when;
            end = end.max(when);
            at += of_page;
        }
        end
    }

    /// Writes `length` bytes that have arrived; returns when they are in the buffer.
    pub fn write(&mut self, now: Instant, length: u64) -> Instant {
        if now - self.last_write >= self.parameters.rest {
            (self.written, self.since_pause) = (0, 0);
        }
        self.warm(now, length);
        self.last_write = now;
        let mut accepted = now;
        while let Some((at, bytes)) = self.drains.front().copied() {
            let full = self.buffered + length > self.parameters.buffer || self.drains.len() >= DRAINS_MAX;
            if at > accepted && !full {
                break;
            }
            accepted = accepted.max(at);
            self.buffered -= bytes;
            self.drains.pop_front();
        }
        let start = accepted.max(self.drained);
        self.drained = start + transfer(length, self.rate()) + self.pauses(length);
        self.written += length;
        self.buffered += length;
        self.drains.push_back((self.drained, length));
        accepted
    }

    /// When everything written is in the flash.
    pub fn flush(&self, now: Instant) -> Instant {
        now.max(self.drained)
    }

    /// Rate in bytes a second at which the flash takes writes now.
    pub fn rate(&self) -> u64 {
        let steps = self.parameters.steps;
        let step = steps.iter().rev().find(|step| step.after <= self.written).or(steps.first());
        let rate = step.map_or(1, |step| step.rate);
        match self.parameters.thermal {
            Some(thermal) if self.warmth >= thermal.limit => rate * thermal.throttled_percent / 100,
            _ => rate,
        }
        .max(1)
    }

    fn pauses(&mut self, length: u64) -> Nanos {
        let Parameters { pause_every, pause, .. } = self.parameters;
        self.since_pause += length;
        match self.since_pause.checked_div(pause_every) {
            None | Some(0) => Nanos::ZERO,
            Some(times) => {
                self.since_pause %= pause_every;
                pause * times
            }
        }
    }

    /// Updates the warmth. It falls by half each half-life, linearly in between, and rises with the
    /// bytes written.
    fn warm(&mut self, now: Instant, length: u64) {
        let Some(thermal) = self.parameters.thermal else { return };
        let (elapsed, half) = ((now - self.last_write).get(), thermal.half_life.get().max(1));
        let halves = u32::try_from(elapsed / half).unwrap_or(u32::MAX).min(63);
        self.warmth >>= halves;
        let rest = u128::from(elapsed % half) * u128::from(self.warmth / 2) / u128::from(half);
        self.warmth -= u64::try_from(rest).unwrap_or(0);
        let rise = u128::from(thermal.rise_per_gib) * u128::from(length) / (1 << 30);
        self.warmth += u64::try_from(rise).unwrap_or(0);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn ssd(parameters: Parameters) -> Ssd {
        Ssd::new(parameters, Rng::from_seed(1))
    }

    #[test]
    fn a_page_comes_in_pieces_at_the_channels_rate() {
        let mut ssd = ssd(Parameters { array_spread: Nanos::ZERO, ..Parameters::SAMSUNG_970_PRO });
        let mut times = Vec::new();
        ssd.read(Instant::ZERO, 0, 4096, |at, offset, length| times.push((at, offset, length)));
        assert_eq!(times.len(), 16);
        assert_eq!(times[0].0.as_nanos(), 56_142 + 315);
        // The published data phase: 15 pieces after the first one, and 140 ns of the last piece on
        // the link.
        assert!((times[15].0 - times[0].0).get().abs_diff(4_852 - 140) <= 2);
        assert_eq!((times[15].1, times[15].2), (3840, 256));
    }

    #[test]
    fn one_die_serves_one_page_after_the_other_and_sixteen_serve_side_by_side() {
        let mut ssd = ssd(Parameters { array_spread: Nanos::ZERO, ..Parameters::SAMSUNG_970_PRO });
        let one = ssd.read(Instant::ZERO, 0, 4096, |_, _, _| ());
        let other = ssd.read(Instant::ZERO, 16 * 4096, 4096, |_, _, _| ());
        assert!(other >= one + Nanos::new(56_142 - 5_100));
        let mut ssd =
            super::tests::ssd(Parameters { array_spread: Nanos::ZERO, ..Parameters::SAMSUNG_970_PRO });
        let all = ssd.read(Instant::ZERO, 0, 16 * 4096, |_, _, _| ());
        assert!(all < one + Nanos::from_micros(6), "{all:?} for 16 pages, {one:?} for one");
    }

    /// 2 GB/s until 22 GB are written, then 0.6 GB/s; after a rest 2 GB/s again.
    #[test]
    fn the_write_rate_drops_off_and_a_rest_restores_it() {
        let mut ssd = ssd(Parameters::named("970-evo").unwrap());
        let mut now = Instant::ZERO;
        let rate_of = |now: &mut Instant, ssd: &mut Ssd, megabytes: u64| {
            let begin = *now;
            for _ in 0..megabytes {
                *now = ssd.write(*now, 1_000_000);
            }
            megabytes * 1_000_000_000 / (*now - begin).get().max(1)
        };
        let fresh = rate_of(&mut now, &mut ssd, 20_000);
        rate_of(&mut now, &mut ssd, 3_000);
        let full = rate_of(&mut now, &mut ssd, 3_000);
        now = now + Nanos::from_secs(31);
        let rested = rate_of(&mut now, &mut ssd, 10_000);
        // In MB/s. The first write fills the buffer at once, which makes the rate a little higher.
        let near = |rate: u64, expected: u64| rate.abs_diff(expected) * 50 < expected;
        let rates = [fresh, full, rested];
        assert!(near(fresh, 2_000) && near(full, 600) && near(rested, 2_000), "{rates:?}");
    }

    #[test]
    fn pauses_and_warmth_take_their_share() {
        let pauses = Parameters {
            pause_every: 1_000_000_000,
            pause: Nanos::from_millis(500),
            ..Parameters::with_steps("", &[Step { after: 0, rate: 1_000_000_000 }])
        };
        let run = |parameters| {
            let mut ssd = ssd(parameters);
            let end = (0..10_000).fold(Instant::ZERO, |now, _| ssd.write(now, 1_000_000));
            ((end - Instant::ZERO).get() / 1_000_000, ssd)
        };
        let (slow, _) = run(pauses);
        assert!((14_400..=15_000).contains(&slow), "{slow} ms");
        let thermal = Some(Thermal {
            rise_per_gib: 100_000,
            half_life: Nanos::from_secs(20),
            limit: 1_000,
            throttled_percent: 50,
        });
        let (warm, ssd) = run(Parameters { thermal, pause_every: 0, ..pauses });
        assert!(warm > 15_000 && ssd.rate() == 500_000_000, "{warm} ms, {} K", ssd.warmth / 1000);
    }
}
