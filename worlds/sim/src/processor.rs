//! A processor that runs one connection's software: it does one thing after the other, and notices
//! arrivals by polling or after an interrupt.

use engine::{Instant, Nanos};

use crate::models::hca::Driver;

/// The software of one side of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Processor {
    driver: Driver,
    busy_until: Instant,
    /// When the software notices the latest arrival.
    notices: Instant,
}

impl Processor {
    /// An idle processor.
    pub const fn new(driver: Driver) -> Self {
        Self { driver, busy_until: Instant::ZERO, notices: Instant::ZERO }
    }

    /// The times of its software.
    pub const fn driver(&self) -> &Driver {
        &self.driver
    }

    /// When it has done everything that it was given.
    pub const fn busy_until(&self) -> Instant {
        self.busy_until
    }

    /// Adds work that takes `time`, and returns when it is done.
    pub fn work(&mut self, now: Instant, time: Nanos) -> Instant {
        self.busy_until = now.max(self.busy_until) + time;
        self.busy_until
    }

    /// When it notices an arrival at `now`, if it is idle then. A busy processor looks before it
    /// sleeps, and one that was woken finds everything that has arrived meanwhile.
    pub fn notice(&mut self, now: Instant) -> Instant {
        let Driver { look, poll, interrupt, .. } = self.driver;
        if self.notices <= now {
            self.notices = if self.busy_until > now {
                self.busy_until
            } else if now - self.busy_until <= poll {
                now + look
            } else {
                now + interrupt
            };
        }
        self.notices
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Instant = Instant::from_nanos(100_000);

    fn driver(poll: Nanos) -> Driver {
        Driver { poll, interrupt: Nanos::from_micros(5), ..Driver::POLLING }
    }

    #[test]
    fn software_that_polls_for_a_while_is_woken_only_after_it() {
        let late = |poll| Processor::new(driver(poll)).notice(AT) - AT;
        assert_eq!(late(Nanos::MAX), Driver::POLLING.look);
        assert_eq!(late(Nanos::ZERO), Nanos::from_micros(5));
        let mut processor = Processor::new(driver(Nanos::from_micros(3)));
        let done = processor.work(AT, Nanos::from_micros(1));
        assert_eq!(processor.notice(done + Nanos::from_micros(3)), done + Nanos::new(3_050));
        assert_eq!(processor.notice(done + Nanos::from_micros(9)), done + Nanos::from_micros(14));
        // Arrivals during the interrupt are found with it.
        assert_eq!(processor.notice(done + Nanos::from_micros(10)), done + Nanos::from_micros(14));
    }

    #[test]
    fn busy_software_looks_when_it_is_done() {
        let mut processor = Processor::new(driver(Nanos::ZERO));
        let done = processor.work(AT, Nanos::from_micros(2));
        assert_eq!(processor.work(AT, Nanos::from_micros(1)), done + Nanos::from_micros(1));
        assert_eq!(processor.notice(AT), done + Nanos::from_micros(1));
    }
}
