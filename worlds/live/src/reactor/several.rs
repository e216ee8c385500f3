//! Drivers that share a loop.

use std::io;

use engine::Instant;

use super::{Context, Driver, Glance, Sources, Turn};

/// Drivers that take their turns one after another, and end together.
#[derive(Debug)]
pub struct Several<D> {
    /// Each driver, and whether it has ended.
    drivers: Vec<(D, bool)>,
}

impl<D> Several<D> {
    /// The drivers, in the order in which they were collected.
    pub fn iter(&self) -> impl Iterator<Item = &D> {
        self.drivers.iter().map(|(driver, _)| driver)
    }

    /// The same drivers, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut D> {
        self.drivers.iter_mut().map(|(driver, _)| driver)
    }
}

impl<D: Driver> FromIterator<D> for Several<D> {
    fn from_iter<T: IntoIterator<Item = D>>(drivers: T) -> Self {
        Self { drivers: drivers.into_iter().map(|driver| (driver, false)).collect() }
    }
}

impl<D: Driver> Driver for Several<D> {
    fn start(&mut self, sources: &Sources) -> io::Result<()> {
        self.drivers.iter_mut().try_for_each(|(driver, _)| driver.start(sources))
    }

    fn turn(&mut self, context: &Context<'_>) -> io::Result<Turn> {
        let mut result = Turn::Done;
        for (driver, ended) in self.drivers.iter_mut().filter(|(_, ended)| !ended) {
            match (driver.turn(context)?, result) {
                (Turn::Done, _) => *ended = true,
                (Turn::Busy, _) => result = Turn::Busy,
                (Turn::Idle, Turn::Busy) => {}
                (Turn::Idle, _) => result = Turn::Idle,
            }
        }
        Ok(result)
    }

    fn glance(&mut self, context: &Context<'_>) -> Glance {
        let mut result = Glance::Blind;
        for (driver, _) in self.drivers.iter_mut().filter(|(_, ended)| !ended) {
            match driver.glance(context) {
                Glance::Blind => {}
                Glance::Nothing if result == Glance::Done => {}
                glance => result = glance,
            }
        }
        result
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.drivers.iter().filter(|(_, ended)| !ended).filter_map(|(driver, _)| driver.poll_timeout()).min()
    }

    fn on_stop(&mut self, now: Instant) {
        for (driver, _) in &mut self.drivers {
            driver.on_stop(now);
        }
    }
}
