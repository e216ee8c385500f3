//! A recorder's registers, on the slot's own link.

use std::fmt;

use assemblies::guest::{Guest, Input};
use assemblies::record_function::{self, RecordFunction};
use engine::{Engine, Instant, Nanos, fire, next_wake};
use pcie::wire::Packet;
use record::registers::{Command, Values};

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
    function: RecordFunction,
    panel: Box<dyn Panel>,
    looked_at: Instant,
}

impl Recorder {
    pub(super) fn new(mut panel: Box<dyn Panel>, serial_number: u64) -> Self {
        let function = RecordFunction::new(panel.values(), serial_number);
        Self { function, panel, looked_at: Instant::ZERO }
    }

    fn look(&mut self, now: Instant) {
        self.looked_at = now;
        let values = self.panel.values();
        self.function.handle_input(now, record_function::Input::Show(values));
    }

    /// Hands the function a packet of the driver, which sees the present values.
    pub(super) fn receive(&mut self, now: Instant, packet: Packet) {
        self.look(now);
        self.function.handle_input(now, record_function::Input::Packet(packet));
    }

    /// Passes on the function's packets, and returns whether there were any.
    pub(super) fn exchange<D: 'static>(&mut self, now: Instant, guest: &mut Guest<D>) -> bool {
        let mut moved = false;
        while let Some(output) = self.function.poll_output() {
            moved = true;
            match output {
                record_function::Output::Packet(packet) => guest.handle_input(now, Input::Packet(packet)),
                record_function::Output::Command(command) => {
                    self.panel.obey(command);
                    self.look(now);
                }
            }
        }
        moved
    }

    pub(super) fn fire(&mut self, now: Instant) -> bool {
        let is_due = now - self.looked_at >= LOOK_EVERY;
        if is_due {
            self.look(now);
        }
        fire(&mut self.function, now)
    }

    pub(super) fn next_wake(&self, now: Instant) -> Option<Instant> {
        Instant::earlier(next_wake(&self.function, now), Some(self.looked_at + LOOK_EVERY))
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("function", &self.function).finish_non_exhaustive()
    }
}
