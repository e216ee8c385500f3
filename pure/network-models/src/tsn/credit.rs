//! The credit-based shaper (IEEE 802.1Qav; IEEE 802.1Q-2018, 8.6.8.2).

use engine::{Instant, Nanos};

use super::gates::GateSchedule;
use crate::Rate;

/// The credit of one queue. A frame may start while the credit is not negative. The credit grows by
/// the idle slope while frames wait or while it is negative. While a frame is sent, it shrinks by
/// the port's rate minus the idle slope.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Credit {
    /// Growth of the credit while the gate is open, in bits per second.
    slope: i128,
    /// The credit in 10^-9 bits.
    value: i128,
    /// When the credit had this value.
    at: Instant,
}

impl Credit {
    /// The credit of a queue that was promised `idle_slope`. If the gate is open only part of the
    /// time, the queue earns everything in this part: the slope is `idle_slope * cycle / open`
    /// (8.6.8.2 d).
    pub(crate) fn new(idle_slope: Rate, gates: Option<&GateSchedule>, queue: usize) -> Self {
        let promised = i128::from(idle_slope.bits());
        let slope = match gates {
            Some(gates) if gates.open_time(queue) > Nanos::ZERO => {
                promised * i128::from(gates.cycle().get()) / i128::from(gates.open_time(queue).get())
            }
            _ => promised,
        };
        Self { slope, value: 0, at: Instant::ZERO }
    }

    /// Advances the credit to `now`; `waiting` says whether frames have waited. The credit does not
    /// change while the gate is closed, and a queue without frames loses its saved credit.
    pub(crate) fn settle(&mut self, now: Instant, waiting: bool, gates: Option<&GateSchedule>, queue: usize) {
        if now > self.at {
            if waiting || self.value < 0 {
                let open = match gates {
                    Some(gates) => gates.open_between(queue, self.at, now),
                    None => now - self.at,
                };
                self.value += self.slope * i128::from(open.get());
            }
            self.at = now;
        }
        if !waiting {
            self.value = self.value.min(0);
        }
    }

    /// When a frame may start, not before `now`, for a credit that was advanced to `now`; `None` if
    /// the gate never opens.
    pub(crate) fn ready(&self, now: Instant, gates: Option<&GateSchedule>, queue: usize) -> Option<Instant> {
        if self.value >= 0 {
            return Some(now.max(self.at));
        }
        let missing = u128::try_from(-self.value).unwrap_or(0);
        let time = missing.div_ceil(u128::try_from(self.slope).unwrap_or(1).max(1));
        let time = Nanos::new(u64::try_from(time).unwrap_or(u64::MAX));
        match gates {
            Some(gates) => gates.after_open(queue, self.at, time),
            None => Some(self.at + time),
        }
    }

    /// Pays for a frame that occupies a port of `rate` for `picoseconds`, until `end`.
    pub(crate) fn send(&mut self, end: Instant, picoseconds: u64, rate: Rate) {
        self.value += (self.slope - i128::from(rate.bits())) * i128::from(picoseconds) / 1_000;
        self.at = end;
    }

    /// The credit in bits.
    #[cfg(test)]
    pub(crate) const fn bits(&self) -> i128 {
        self.value / 1_000_000_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tsn::gates::{GateEntry, GateStates};

    fn at(microseconds: u64) -> Instant {
        Instant::from_nanos(microseconds * 1_000)
    }

    #[test]
    fn credit_follows_its_slopes() {
        // 25 of 100 Mbit/s: a frame of 100 µs costs 75 µs of 100 bit/µs, and is earned back in 300
        // µs.
        let mut credit = Credit::new(Rate::from_megabits(25), None, 0);
        let port = Rate::from_megabits(100);
        credit.send(at(100), 100_000_000, port);
        assert_eq!(credit.bits(), -7_500);
        assert_eq!(credit.ready(at(100), None, 0), Some(at(400)));
        credit.settle(at(400), true, None, 0);
        assert_eq!(credit.bits(), 0);
        // Waiting for others saves credit; an empty queue loses it.
        credit.settle(at(440), true, None, 0);
        assert_eq!(credit.bits(), 1_000);
        credit.settle(at(440), false, None, 0);
        assert_eq!(credit.bits(), 0);
    }

    #[test]
    fn a_closed_gate_stops_the_credit_and_the_open_one_earns_for_both() {
        let entry = |states, micros| GateEntry {
            states: GateStates::from_bits(states),
            length: Nanos::from_micros(micros),
        };
        let gates = GateSchedule::new(Instant::ZERO, [entry(1, 250), entry(0, 750)]).unwrap();
        let mut credit = Credit::new(Rate::from_megabits(20), Some(&gates), 0);
        // 80 Mbit/s while the gate is open are 20 Mbit/s overall.
        credit.settle(at(10), true, Some(&gates), 0);
        assert_eq!(credit.bits(), 800);
        credit.settle(at(1_000), true, Some(&gates), 0);
        assert_eq!(credit.bits(), 20_000);
        credit.send(at(1_200), 200_000_000, Rate::from_megabits(200));
        assert_eq!(credit.bits(), -4_000);
        assert_eq!(credit.ready(at(1_200), Some(&gates), 0), Some(at(1_250)));
    }
}
