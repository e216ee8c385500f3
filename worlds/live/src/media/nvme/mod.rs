//! An NVMe controller of this machine as a medium: its namespaces, one after another, driven by our
//! own driver.

mod open;
mod port;
#[cfg(test)]
mod tests;

use std::fmt;
use std::os::fd::RawFd;

use engine::{Buffer, Engine, Instant, Nanos, Pool};
use nvme::host::Data as Moved;
use nvme::media::{Completion, Request};
use nvme::wire::SubmissionQueueEntry;
use nvme_pcie::host::{
    AsynchronousEvent, Completed, Data, Host, InitError, Input, Output, QueueId, ResetReason, Submission,
    SubmitError,
};
use pcie::memory::Memory;

use super::commands::{Commands, PIECE_BYTES, Refused};
use crate::reactor::{Pump, Shell};
use crate::sys::clock::Clock;
use crate::sys::vfio::Way;

pub use super::commands::Extent;
pub use open::{OpenError, open};
pub use port::{Port, VfioPort};

/// The most rounds of commands and completions in one `reap`, so that a fast device can't keep
/// the reactor.
const ROUNDS_MAX: usize = 16;
/// The interval at which completions are looked for when there are no interrupts and the reactor
/// would sleep.
const POLL_EVERY: Nanos = Nanos::from_millis(1);
/// The interval at which completions are looked for when there are interrupts, in case one is lost:
/// doorbells that free entries are rung late, and not every controller interrupts again
/// before that.
const POLL_BEHIND: Nanos = Nanos::from_millis(10);
/// The only I/O queue pair that is used.
const QUEUE: QueueId = QueueId(1);
/// An event of a controller that is worth reporting to a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The controller is being reset for this reason; commands wait.
    Resetting(ResetReason),
    /// The controller is up again after a reset.
    Back,
    /// The controller was given up; every request fails from now on.
    Failed(InitError),
    /// The controller reports an asynchronous event.
    Event(AsynchronousEvent),
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Resetting(ResetReason::Timeout { queue, command }) => {
                write!(
                    f,
                    "command {} of queue {} was not answered; resetting the controller",
                    command.0, queue.0
                )
            }
            Self::Resetting(_) => f.write_str("resetting the controller"),
            Self::Back => f.write_str("the controller is up again"),
            Self::Failed(error) => {
                write!(f, "the controller has failed: {error}; every request fails until a new start")
            }
            Self::Event(AsynchronousEvent { kind, information, log_page }) => {
                write!(f, "event {information:#04x} of type {kind}; log page {log_page:02x}h says more")
            }
        }
    }
}

/// A medium whose bytes are those of the namespaces of one NVMe controller, one after another.
pub struct NvmeMedium<P: Port = VfioPort> {
    host: Pump<Host>,
    port: P,
    clock: Clock,
    report: fn(Notice),
    pool: Pool,
    commands: Commands,
    /// The address where the memory for the data of commands begins: `PIECE_BYTES` for
    /// each command.
    slots_base: u64,
    reaped: Instant,
    resetting: bool,
    /// Why the controller was given up, if it was.
    failed: Option<InitError>,
}

impl NvmeMedium {
    /// The interface of the kernel through which the controller was taken.
    pub const fn way(&self) -> &Way {
        self.port.way()
    }
}

impl<P: Port> NvmeMedium<P> {
    /// The namespaces, in the order in which their bytes follow each other.
    pub fn extents(&self) -> &[Extent] {
        &self.commands.extents
    }

    /// The size in bytes of all namespaces together.
    pub fn size(&self) -> u64 {
        self.commands.size()
    }

    /// The number of requests that have not ended.
    pub fn in_flight(&self) -> usize {
        self.commands.in_flight()
    }

    /// The descriptors that become readable when `reap` has something to do.
    pub fn poll_fds(&self) -> impl Iterator<Item = RawFd> {
        self.port.interrupts()
    }

    /// The time at which `reap` has to be called even when no descriptor is readable.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let every = if self.port.interrupts().next().is_some() { POLL_BEHIND } else { POLL_EVERY };
        let poll = (self.in_flight() > 0).then(|| self.reaped + every);
        Instant::earlier(poll, self.host.due())
    }

    /// Takes a request. The controller sees the request in the next `reap`, so that several
    /// requests cost one doorbell. With too many requests under way, another one fails.
    pub fn submit(&mut self, request: Request) {
        self.commands.submit(request);
    }

    /// Hands over the results of requests, without waiting. Returns how much was done; 0 means that
    /// there is nothing to do until one of [`NvmeMedium::poll_fds`] is readable or
    /// [`NvmeMedium::poll_timeout`] is due.
    pub fn reap(&mut self, out: &mut impl FnMut(Completion)) -> usize {
        let now = self.clock.now();
        self.reaped = now;
        let mut done = self.commands.take_ended(out);
        if self.host.due().is_some_and(|at| at <= now) {
            // While this process did not run, commands may have ended in time.
            self.host.engine_mut().poll_completions(now, self.port.memory());
            done += usize::from(self.with_shell(out, |host, shell| host.settle(now, shell)));
        }
        for _ in 0..ROUNDS_MAX {
            let moved = self.exchange(now, out) + self.fill(now, out);
            done += moved;
            if moved == 0 {
                return done;
            }
        }
        // Rings the doorbell for the commands submitted last.
        done + self.exchange(now, out)
    }

    /// Carries out the requests of the driver and passes on their results; returns 0 if there were
    /// none.
    fn exchange(&mut self, now: Instant, out: &mut impl FnMut(Completion)) -> usize {
        self.host.engine_mut().poll_completions(now, self.port.memory());
        usize::from(self.with_shell(out, |host, shell| host.exchange(now, shell)))
    }

    /// Has the engine and its surroundings do `what`.
    fn with_shell<O: FnMut(Completion)>(
        &mut self,
        out: &mut O,
        what: impl FnOnce(&mut Pump<Host>, &mut Exchange<'_, P, O>) -> bool,
    ) -> bool {
        let Self { host, port, commands, pool, report, resetting, failed, .. } = self;
        let (slots_base, report) = (self.slots_base, *report);
        what(host, &mut Exchange { port, commands, pool, slots_base, report, resetting, failed, out })
    }

    /// Submits commands as long as there is room; returns how many.
    fn fill(&mut self, now: Instant, out: &mut impl FnMut(Completion)) -> usize {
        let Self { commands, host, port, slots_base, .. } = self;
        let submit = |piece, entry, data| {
            submit(now, host.engine_mut(), port.memory(), slot(*slots_base, piece), piece, entry, &data)
        };
        // A controller that was given up refuses every command.
        commands.fill(submit, out).unwrap_or(0)
    }
}

/// The surroundings of the driver for one exchange.
struct Exchange<'a, P, O> {
    port: &'a mut P,
    commands: &'a mut Commands,
    pool: &'a mut Pool,
    slots_base: u64,
    report: fn(Notice),
    resetting: &'a mut bool,
    failed: &'a mut Option<InitError>,
    out: &'a mut O,
}

impl<P: Port, O: FnMut(Completion)> Shell<Host> for Exchange<'_, P, O> {
    fn pass(&mut self, now: Instant, output: Output, host: &mut Host) {
        match output {
            Output::RegisterRead { cookie, offset, length } => {
                let bytes = self.port.read_register(offset, length);
                let bytes = bytes.as_ref().and_then(|bytes| bytes.get(..length as usize));
                host.handle_input(now, Input::RegisterRead { cookie, bytes });
            }
            Output::RegisterWrite { offset, bytes } => self.port.write_register(offset, &bytes),
            Output::Completed(completed) => self.on_completed(&completed),
            Output::Ready(_) => {
                if std::mem::take(self.resetting) {
                    (self.report)(Notice::Back);
                }
            }
            Output::Failed(error) => {
                *self.failed = Some(error);
                (self.report)(Notice::Failed(error));
            }
            Output::Event(event) => (self.report)(Notice::Event(event)),
            Output::Resetting(reason) => {
                *self.resetting = true;
                (self.report)(Notice::Resetting(reason));
            }
        }
    }
}

impl<P: Port, O: FnMut(Completion)> Exchange<'_, P, O> {
    fn on_completed(&mut self, completed: &Completed) {
        let piece = u32::try_from(completed.cookie).unwrap_or(u32::MAX);
        let result = match completed.status {
            status if !status.is_success() => Err(status),
            _ => Ok(match self.commands.read_length(piece) {
                None => Buffer::EMPTY,
                Some(length) => {
                    let mut buffer = self.pool.take(length as usize);
                    let address = slot(self.slots_base, piece);
                    self.port.memory().read(address, &mut buffer).expect("slots lie in the memory");
                    self.pool.seal(buffer)
                }
            }),
        };
        self.commands.on_ended(piece, result, self.out);
    }
}

/// The address of the data of the command named `piece`.
fn slot(base: u64, piece: u32) -> u64 {
    base + u64::from(piece) * u64::from(PIECE_BYTES)
}

/// Submits a command whose data are at `address`.
fn submit(
    now: Instant,
    host: &mut Host,
    memory: &mut impl Memory,
    address: u64,
    piece: u32,
    entry: SubmissionQueueEntry,
    data: &Moved,
) -> Result<(), Refused> {
    let length = match data {
        Moved::None => 0,
        Moved::Read(length) => *length,
        Moved::Write(bytes) => {
            memory.write(address, bytes).map_err(|_| Refused::Impossible)?;
            u32::try_from(bytes.len()).map_err(|_| Refused::Impossible)?
        }
    };
    let data = (length > 0).then_some(Data { address, length });
    let submission = Submission { queue: QUEUE, entry, data, cookie: u64::from(piece) };
    match host.submit(now, memory, submission) {
        Ok(_) => Ok(()),
        Err(SubmitError::Busy) => Err(Refused::Busy),
        Err(_) => Err(Refused::Impossible),
    }
}

impl<P: Port> fmt::Debug for NvmeMedium<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NvmeMedium")
            .field("extents", &self.extents())
            .field("in_flight", &self.in_flight())
            .finish_non_exhaustive()
    }
}
