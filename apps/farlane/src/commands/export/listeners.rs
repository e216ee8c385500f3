//! Where a far end listens beside TCP.

use engine::Instant;
use live::carrier::{quic, shm};
use live::drivers::far::{Backing, Event, FarDriver};

use crate::args::{ExportArgs, Trusted};
use crate::error::{CarrierError, Error};

/// The listeners of a far end that the arguments ask for beside that for TCP.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    pub(super) quic: Option<quic::Listener>,
    pub(super) shm: Option<shm::Listener>,
}

impl Listeners {
    /// Listens where the arguments say. Only a process with a single far end can.
    ///
    /// # Errors
    /// When there are several far ends, hosts must prove a key and could not, or a place is taken.
    pub(super) fn open(args: &ExportArgs, trusted: &Trusted, now: Instant) -> Result<Self, Error> {
        let quic = args.quic.listen(args.listen.len(), trusted.identity.as_ref(), now)?;
        let shm = args.shm.as_ref().map(|path| {
            if trusted.admission.has_list() {
                return Err(CarrierError::NoKeys { option: "--shm" }.into());
            }
            if args.listen.len() > 1 {
                let place = path.display().to_string();
                return Err(CarrierError::One { option: "--shm", place, count: args.listen.len() }.into());
            }
            shm::Listener::bind(path).map_err(|error| Error::Bind { path: path.clone(), error })
        });
        Ok(Self { quic, shm: shm.transpose()? })
    }

    /// Has `driver` accept connections from these listeners as well.
    pub(super) fn join<F: FnMut(Event), B: Backing>(self, mut driver: FarDriver<F, B>) -> FarDriver<F, B> {
        if let Some(listener) = self.quic {
            driver = driver.with_quic(listener);
        }
        if let Some(listener) = self.shm {
            driver = driver.with_shm(listener);
        }
        driver
    }
}
