//! A medium without room for a whole chunk: as much of the chunk as fits is stored.

use super::flight::{Next, Search, State};
use super::{Fault, Recorder};
use crate::format::{Cause, Header};

impl Recorder {
    /// Begins to find out how much of the first parked chunk fits. Of one that has a single page,
    /// nothing does, and the next one is looked at.
    pub(super) fn search(&mut self) {
        while self.search.is_none() {
            let mut flights = (self.first..).zip(&self.flights);
            let Some((name, flight)) = flights.find(|(_, flight)| flight.state == State::Parked) else {
                return;
            };
            let mut search = Search::new(name, flight);
            let next = search.next(None);
            self.search = Some(search);
            self.on_next(name, next);
        }
    }

    pub(super) fn on_tried(&mut self, name: u64, result: Result<(), Fault>) {
        let Some(mut search) = self.search else { return };
        let next = search.next(Some(result.is_ok()));
        self.search = Some(search);
        self.on_next(name, next);
    }

    fn on_next(&mut self, name: u64, next: Next) {
        let (crc, whole) = (self.config.crc32c, self.search.map_or(0, |search| search.whole));
        let Some(flight) = self.flight(name) else { return };
        let Some(header) = &mut flight.header else { return };
        match next {
            Next::Try(length) => {
                header.length = length;
                flight.seal(crc);
                self.to_write.push_back(name);
            }
            Next::Stored(length) => {
                let header = Header { length: whole, ..*header };
                flight.state = State::Stored;
                self.lose_rest(&header, length, Cause::Full);
                self.search = None;
            }
            Next::Nothing => {
                header.length = whole;
                self.lose_flight(name, Cause::Full);
                self.search = None;
            }
        }
    }
}
