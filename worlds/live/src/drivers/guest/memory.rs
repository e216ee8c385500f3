//! A client's memory that cannot be mapped, or is taken away.

use assemblies::guest::{Errno, Input};
use engine::{Engine, Instant};

use super::{Event, GuestDriver};
use crate::reactor::Sources;
use crate::sys::shared::MapError;

impl<F: FnMut(Event)> GuestDriver<F> {
    /// Ends the session of a client that has taken its memory away: bytes read there would not be
    /// the bytes that the client wrote.
    pub(super) fn heed_lost_memory(&mut self, now: Instant, sources: &Sources) -> bool {
        let Some(address) = self.shell.memory.lost() else { return false };
        (self.shell.report)(Event::MemoryLost(address));
        self.shell.drop_client(sources);
        self.guest.engine_mut().handle_input(now, Input::ClientDisconnected);
        self.guest.exchange(now, &mut self.shell);
        true
    }
}

/// The error number for a client whose mapping failed.
pub(in crate::drivers) fn errno_of(error: &MapError) -> Errno {
    match error {
        MapError::Overlap => Errno::EEXIST,
        MapError::Range | MapError::BeyondEnd { .. } => Errno::EINVAL,
        MapError::NotMemory => Errno::ENODEV,
        MapError::Io(error) => {
            error.raw_os_error().and_then(|number| u32::try_from(number).ok()).map_or(Errno::EIO, Errno)
        }
    }
}
