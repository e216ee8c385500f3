//! A recorder's registers, on the slot's own link.

use std::fmt;

use assemblies::guest::{Guest, Input};
use assemblies::record_function::{self, RecordFunction};
use engine::{Engine, Instant, Nanos};
use pcie::wire::Packet;
use record::registers::{Command, Values};

use crate::reactor::{Pump, Shell};

/// How often a change that no driver asks for is looked for, so that it interrupts.
const LOOK_EVERY: Nanos = Nanos::from_millis(5);

/// The recorder behind its registers.
pub trait Panel {
    /// The present values of the registers.
    fn values(&mut self) -> Values;

    /// Carries out a command of a driver. A command that is impossible now has no effect; the
    /// registers then show no change.
    fn obey(&mut self, command: Command);
}

pub(super) struct Recorder {
    function: Pump<RecordFunction>,
    shown: Shown,
}

/// The recorder whose values the function shows.
struct Shown {
    panel: Box<dyn Panel>,
    looked_at: Instant,
}

impl Shown {
    /// Gives the function the present values.
    fn look(&mut self, now: Instant, function: &mut RecordFunction) {
        self.looked_at = now;
        function.handle_input(now, record_function::Input::Show(self.panel.values()));
    }
}

/// The surroundings of the function for one exchange.
struct Exchange<'a, D> {
    shown: &'a mut Shown,
    guest: &'a mut Guest<D>,
}

impl<D: 'static> Shell<RecordFunction> for Exchange<'_, D> {
    fn pass(&mut self, now: Instant, output: record_function::Output, function: &mut RecordFunction) {
        match output {
            record_function::Output::Packet(packet) => self.guest.handle_input(now, Input::Packet(packet)),
            record_function::Output::Command(command) => {
                self.shown.panel.obey(command);
                self.shown.look(now, function);
            }
        }
    }
}

impl Recorder {
    pub(super) fn new(mut panel: Box<dyn Panel>, serial_number: u64) -> Self {
        let function = Pump::new(RecordFunction::new(panel.values(), serial_number));
        Self { function, shown: Shown { panel, looked_at: Instant::ZERO } }
    }

    /// Hands the function a packet of the driver, which sees the present values.
    pub(super) fn receive(&mut self, now: Instant, packet: Packet) {
        let function = self.function.engine_mut();
        self.shown.look(now, function);
        function.handle_input(now, record_function::Input::Packet(packet));
    }

    /// Passes on the function's packets, and returns whether there were any.
    pub(super) fn exchange<D: 'static>(&mut self, now: Instant, guest: &mut Guest<D>) -> bool {
        self.function.exchange(now, &mut Exchange { shown: &mut self.shown, guest })
    }

    pub(super) fn fire(&mut self, now: Instant) -> bool {
        if now - self.shown.looked_at >= LOOK_EVERY {
            self.shown.look(now, self.function.engine_mut());
        }
        self.function.fire(now)
    }

    pub(super) fn next_wake(&self, now: Instant) -> Option<Instant> {
        Instant::earlier(self.function.next_wake(now), Some(self.shown.looked_at + LOOK_EVERY))
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("function", self.function.engine()).finish_non_exhaustive()
    }
}
