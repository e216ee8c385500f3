//! Registers of a controller that the application reads and writes itself, beside the driver.

use alloc::vec::Vec;

use engine::Instant;
use pcie::requester::Busy;

use super::{ControllerIndex, Event, Near, Output, Work, driver};

/// A register read of the application, as far as its bytes have come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    cookie: u32,
    length: u32,
    bytes: [u8; 8],
}

/// The application's register reads that are under way.
pub(super) type Readings = Vec<Reading>;

impl Near {
    /// Reads `length` bytes (4 or 8) of a controller's registers in BAR0, from `offset` on;
    /// [`Event::RegisterRead`] follows. Cookies of reads under way differ.
    ///
    /// # Errors
    /// [`Busy`] when too many reads are under way, or there is no such controller.
    ///
    /// # Panics
    /// When `length` is neither 4 nor 8.
    pub fn register_read(
        &mut self,
        now: Instant,
        controller: ControllerIndex,
        (offset, length): (u32, u32),
        cookie: u32,
    ) -> Result<(), Busy> {
        assert!(matches!(length, 4 | 8), "a register of {length} bytes");
        self.note_time(now);
        let bar = self.drivers.get(controller.0).ok_or(Busy)?.bar;
        let address = bar + u64::from(offset);
        self.port.root_mut().read(now, driver::register_cookie(cookie), address, length)?;
        self.readings.push(Reading { cookie, length, bytes: [0; 8] });
        Ok(())
    }

    /// Writes a double word to a controller's registers in BAR0. The write is posted. It is dropped
    /// if there is no such controller.
    pub fn register_write(&mut self, now: Instant, controller: ControllerIndex, offset: u32, value: u32) {
        self.note_time(now);
        let Some(bar) = self.drivers.get(controller.0).map(|driver| driver.bar) else { return };
        let data = self.pool.copy(&value.to_le_bytes());
        self.port.root_mut().write(bar + u64::from(offset), &data);
    }

    /// Data of a register read have come: the driver's or the application's.
    pub(super) fn on_register_data(&mut self, name: u64, offset: u32, data: &[u8], last: bool) {
        self.work = Work::Drivers;
        let Some(cookie) = driver::register_cookie_of(name) else {
            if let Some(driver) = self.drivers.get_mut(driver::index_of_cookie(name)) {
                driver.on_register_data(self.now, name, offset, data, last);
            }
            return;
        };
        let start = offset as usize;
        if let Some(reading) = self.readings.iter_mut().find(|reading| reading.cookie == cookie)
            && let Some(place) = reading.bytes.get_mut(start..start + data.len())
        {
            place.copy_from_slice(data);
        }
        if last {
            self.end_reading(cookie, true);
        }
    }

    /// A register read has failed: the driver's or the application's.
    pub(super) fn on_register_failed(&mut self, name: u64) {
        self.work = Work::Drivers;
        match driver::register_cookie_of(name) {
            Some(cookie) => self.end_reading(cookie, false),
            None => {
                if let Some(driver) = self.drivers.get_mut(driver::index_of_cookie(name)) {
                    driver.on_register_failed(self.now, name);
                }
            }
        }
    }

    fn end_reading(&mut self, cookie: u32, is_whole: bool) {
        let Some(place) = self.readings.iter().position(|reading| reading.cookie == cookie) else { return };
        let Reading { length, bytes, .. } = self.readings.swap_remove(place);
        let value = u64::from_le_bytes(bytes);
        let value = if length == 4 { value & u64::from(u32::MAX) } else { value };
        let value = is_whole.then_some(value);
        self.outputs.push_back(Output::Event(Event::RegisterRead { cookie, value }));
    }
}
