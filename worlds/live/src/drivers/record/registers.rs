//! The registers of a recorder or replayer beside it, for guests over vfio-user.

use std::path::Path;

use assemblies::guest::{Config, Guest};
use record::registers::{Account, Command, Direction, State as Shown, Values};

use super::handle::{Handle, State, Status};
use crate::drivers::driver_thread::DriverThread;
use crate::drivers::guest::{Event, GuestDriver, Panel};
use crate::sys::unix::{BindError, Listener};

impl Panel for Handle {
    fn values(&mut self) -> Values {
        values(&self.status())
    }

    fn obey(&mut self, command: Command) {
        // The registers take commands for the direction that they show alone.
        match command {
            Command::Start { first_address, maximum_address, chunks_max, .. } => {
                self.start_between(first_address, maximum_address, chunks_max);
            }
            Command::Stop(_) => self.stop(),
            Command::Trigger => {
                self.trigger();
            }
        }
    }
}

const fn shown(state: State) -> Shown {
    match state {
        State::Idle => Shown::Idle,
        State::Armed => Shown::Armed,
        State::Running => Shown::Running,
        State::Ending => Shown::Ending,
        State::Ended => Shown::Ended,
        State::Failed => Shown::Failed,
    }
}

fn values(status: &Status) -> Values {
    let progress = &status.progress;
    let account = Account {
        state: shown(status.state),
        first_address: status.start_address,
        maximum_address: status.maximum_address,
        chunks_max: status.chunks_max,
        last_address: status.last_address,
        bytes: progress.bytes_in,
        bytes_stored: progress.stored,
        bytes_lost: progress.lost,
        gaps: status.gaps,
        fill: progress.fill,
        high_water: progress.high_water,
    };
    let chunks = status.buffer.checked_div(u64::from(status.chunk)).unwrap_or(0);
    let (write, read) = match status.direction {
        Direction::Write => (Some(account), None),
        Direction::Read => (None, Some(account)),
    };
    Values {
        media_bytes: status.medium.bytes,
        model: status.medium.model.clone().into_bytes(),
        chunk: status.chunk,
        chunks: u32::try_from(chunks).unwrap_or(u32::MAX),
        can_trigger: status.pre_trigger.is_some(),
        can_address: status.can_address,
        write,
        read,
    }
}

/// Offers the registers of the recorder or replayer of `handle` to the clients of a socket at
/// `path`, until the result is dropped. `report` is called with what happens there.
///
/// # Errors
/// When the path is taken or can't be created, or the system has no thread or descriptor left.
pub fn offer_registers(
    path: &Path,
    handle: &Handle,
    report: impl FnMut(Event) + Send + 'static,
) -> Result<DriverThread, BindError> {
    let (path, handle) = (path.to_owned(), handle.clone());
    DriverThread::start("registers", move |clock| {
        let config = Config { function: Some(0), ..Config::default() };
        let guest = Guest::direct(config, clock.now());
        let listener = Listener::bind(&path)?;
        Ok(GuestDriver::recorder(guest, Box::new(handle), 0, listener, report))
    })
}
