//! What goes wrong.

use engine::{Instant, Nanos};
use fleet::controller::Input;

use super::network::Place;
use super::{Event, World};

impl World {
    /// Something goes wrong, and later something else.
    pub(super) fn on_fault(&mut self) {
        let length = Nanos::from_millis(200 + self.rng.below(6_000));
        let (controller, machine) = (self.below(self.stations.len()), self.below(self.machines.len()));
        match self.rng.below(16) {
            0 => self.kill_controller(controller, length),
            1 => self.kill_agent(machine, length),
            2 => self.cut_power(machine, length),
            3 => self.restart_target(machine),
            4 => self.machines[machine].stopped = self.machines[machine].stopped.max(self.now + length),
            5 => self.part(Place::Controller(controller), Place::Store),
            6 | 7 => {
                let places = self.network.places();
                let (a, b) = (places[self.below(places.len())], places[self.below(places.len())]);
                self.part(a, b);
            }
            8 => self.network.store_is_away = !self.network.store_is_away,
            9 | 10 => self.store.compact(),
            11 if self.backup.is_none() || self.rng.one_in(3) => {
                self.backup = Some(self.store.content.clone());
            }
            12 if self.rng.one_in(6) => self.restore(),
            // No engine has a calendar: clocks only count, and a leader never asks its own.
            13 => self.store.jump(length),
            14 => self.jump(controller, machine),
            _ => self.network.join_all(),
        }
        if !self.healed() {
            let pause = Nanos::from_millis(200 + self.rng.below(4_000));
            self.after(pause, Event::Fault);
        }
    }

    fn healed(&self) -> bool {
        self.now >= Instant::ZERO + super::CHAOS
    }

    fn part(&mut self, a: Place, b: Place) {
        if a != b {
            self.network.part(a, b);
        }
    }

    /// The clock of a machine or a controller jumps ahead by minutes, as after a suspension.
    fn jump(&mut self, controller: usize, machine: usize) {
        let distance = Nanos::from_millis(self.rng.below(600_000));
        let clock = if self.rng.one_in(2) {
            &mut self.stations[controller].ahead
        } else {
            &mut self.machines[machine].ahead
        };
        *clock += distance;
    }

    fn kill_controller(&mut self, index: usize, length: Nanos) {
        let station = &mut self.stations[index];
        (station.engine, station.term) = (None, None);
        station.life += 1;
        self.network.break_of(Place::Controller(index));
        self.after(length, Event::Start { controller: true, index });
    }

    /// Kills an agent. The target and the devices of its machine go on.
    fn kill_agent(&mut self, index: usize, length: Nanos) {
        let machine = &mut self.machines[index];
        machine.agent = None;
        machine.life += 1;
        // What an agent was making is not there.
        machine.making.clear();
        self.network.break_of(Place::Machine(index));
        self.after(length, Event::Start { controller: false, index });
    }

    /// Cuts the power of a machine: only its disk keeps its content.
    fn cut_power(&mut self, index: usize, length: Nanos) {
        self.kill_agent(index, length);
        let machine = &mut self.machines[index];
        machine.is_down = true;
        machine.in_progress.clear();
        machine.devices.clear();
        machine.serving.clear();
    }

    /// Kills a target, which starts again from its file at once.
    fn restart_target(&mut self, index: usize) {
        let machine = &mut self.machines[index];
        if !machine.is_down {
            machine.in_progress.clear();
            machine.serving = machine.file.clone();
        }
    }

    /// Restores the store from the latest backup.
    fn restore(&mut self) {
        if let Some(backup) = self.backup.take() {
            self.store.restore(backup);
            self.restored = true;
            self.rules.on_restored();
            // Its controllers learn that their leases are gone.
            for index in 0..self.stations.len() {
                self.stations[index].term = None;
                self.input_controller(index, Input::Deposed);
            }
        }
    }

    /// Ends all faults.
    pub(super) fn end_faults(&mut self) {
        self.network.join_all();
        self.user.heal();
        for index in 0..self.machines.len() {
            if self.machines[index].is_old {
                self.kill_agent(index, Nanos::from_secs(1));
            }
        }
        self.events.retain(|_, event| !matches!(event, Event::Fault));
    }
}
