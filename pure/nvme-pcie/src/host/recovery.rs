//! The driver's recovery from commands without completions and from a lost device.

use engine::{Instant, Nanos};
use nvme::wire::{Status, StatusCode};

use super::initialise::InitError;
use super::queue::{Command, Owner};
use super::{Awaiting, Completed, Host, Origin, Output, Pending, QueueId, ResetReason, State, Timer};

impl Host {
    /// Resets the controller. Outstanding I/O commands are submitted again afterwards.
    pub fn request_reset(&mut self, now: Instant) {
        if self.is_ready() {
            self.reset(now, ResetReason::Requested);
        }
    }

    /// Handles commands that timed out: aborts an I/O command first, then resets the controller.
    pub(super) fn expire_commands(&mut self, now: Instant) {
        for number in 0..self.active {
            while let Some(slot) = self.queues.get_mut(number).and_then(|queue| queue.deadlines.expire(now)) {
                let index = u16::try_from(slot).expect("commands of a queue are numbered by 12 bits");
                self.on_command_timeout(now, number, index);
            }
        }
    }

    fn on_command_timeout(&mut self, now: Instant, number: usize, index: u16) {
        let Some(command) = self.queues[number].command(index) else { return };
        let id = command.entry.command_id;
        let queue = super::queue_id(u32::try_from(number).unwrap_or(0));
        if number == 0 {
            let script = command.owner == Owner::Script;
            if script {
                self.queues[0].remove(index);
                return self.on_init_failed(now, InitError::AdminTimeout);
            }
            return self.reset(now, ResetReason::Timeout { queue, command: id });
        }
        if command.aborted {
            return self.reset(now, ResetReason::Timeout { queue, command: id });
        }
        command.aborted = true;
        self.queues[number].deadlines.arm(u32::from(index), now + self.config.command_timeout);
        self.statistics.aborts += 1;
        self.pending.push(Pending::Abort { queue, command: id });
    }

    /// Takes the commands off the rings and brings the controller up anew.
    pub(super) fn reset(&mut self, now: Instant, reason: ResetReason) {
        self.statistics.resets += 1;
        // A reset that the caller requested does not count against the controller's health.
        self.resets_in_a_row += u32::from(reason != ResetReason::Requested);
        self.park(now);
        if self.resets_in_a_row > self.config.resets_max {
            return self.give_up(now, InitError::AdminTimeout);
        }
        self.outputs.push_back(Output::Resetting(reason));
        self.start(now);
    }

    /// Makes outstanding I/O commands wait. Admin commands fail, because they may not be repeated.
    fn park(&mut self, now: Instant) {
        self.end_watch();
        for queue in &mut self.queues {
            for index in queue.indices() {
                queue.deadlines.disarm(u32::from(index));
                if let Some(command) = queue.command(index) {
                    command.on_ring = false;
                    command.aborted = false;
                }
            }
        }
        self.abandon_admin(now);
    }

    pub(super) fn abandon_admin(&mut self, now: Instant) {
        for index in self.queues[0].indices() {
            self.give_up_command(now, 0, index);
        }
    }

    pub(super) fn give_up_command(&mut self, now: Instant, number: usize, index: u16) {
        let Some(Command { owner, entry, submitted, .. }) = self.queues[number].remove(index) else { return };
        let Owner::Caller(cookie) = owner else { return };
        self.statistics.completed += 1;
        self.outputs.push_back(Output::Completed(Completed {
            cookie,
            queue: QueueId(u16::try_from(number).expect("queues are numbered by 16 bits")),
            command: entry.command_id,
            status: Status::from(StatusCode::HostPathingError),
            dw0: 0,
            dw1: 0,
            origin: Origin::Host,
            submitted,
            completed: now,
        }));
    }

    /// Fails everything that is outstanding.
    pub(super) fn give_up(&mut self, now: Instant, error: InitError) {
        self.disarm_all();
        for number in 0..self.queues.len() {
            for index in self.queues[number].indices() {
                self.give_up_command(now, number, index);
            }
        }
        self.pending.clear();
        self.state = State::Failed;
        self.outputs.push_back(Output::Failed(error));
    }

    fn disarm_all(&mut self) {
        for timer in [Timer::Register, Timer::Sleep, Timer::Retry, Timer::Hold, Timer::Watch] {
            self.timers.disarm(timer);
        }
    }

    pub(super) fn on_init_failed(&mut self, now: Instant, error: InitError) {
        self.disarm_all();
        // A caller waits for the first attempt's result. Later, commands wait for another attempt.
        if self.identity.is_none() || self.resets_in_a_row >= self.config.resets_max {
            return self.give_up(now, error);
        }
        self.resets_in_a_row += 1;
        self.park(now);
        self.state = State::Retrying;
        self.timers.arm(Timer::Retry, now + self.config.retry_delay);
    }

    pub(super) fn on_register_timeout(&mut self, now: Instant) {
        if let State::Initialising { awaiting: Awaiting::Register(cookie), .. } = &self.state {
            let cookie = *cookie;
            self.on_register(now, cookie, None);
        }
    }

    pub(super) fn on_device_lost(&mut self, now: Instant) {
        if matches!(self.state, State::Failed | State::Idle | State::Away) {
            return;
        }
        self.disarm_all();
        self.park(now);
        self.pending.clear();
        self.active = 1;
        if self.config.hold == Nanos::ZERO {
            return self.give_up(now, InitError::Lost);
        }
        self.state = State::Away;
        self.timers.arm(Timer::Hold, now + self.config.hold);
    }

    pub(super) fn on_device_back(&mut self, now: Instant) {
        self.disarm_all();
        self.park(now);
        self.resets_in_a_row = 0;
        self.outputs.push_back(Output::Resetting(ResetReason::DeviceBack));
        self.start(now);
    }
}
