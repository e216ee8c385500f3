//! Where a far end listens beside TCP.

use engine::Instant;
use live::carrier::{datagrams, quic, shm};
use live::drivers::far::{Backing, Event, FarDriver};

use crate::args::{ExportArgs, Trusted};
use crate::error::{CarrierError, Error};

/// The listeners of a far end that the arguments ask for beside that for TCP.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    pub(super) quic: Option<quic::Listener>,
    pub(super) shm: Option<shm::Listener>,
    pub(super) udp: Option<datagrams::Listener>,
    pub(super) eth: Option<datagrams::Listener>,
}

impl Listeners {
    /// Listens where the arguments say. Only a process with a single far end can.
    ///
    /// # Errors
    /// When there are several far ends, hosts must prove a key and could not, a place is taken, or
    /// sent packets can't leave as requested.
    pub(super) fn open(args: &ExportArgs, trusted: &Trusted, now: Instant) -> Result<Self, Error> {
        let precedence = args.tcp.options()?.precedence;
        let options = datagrams::Options { precedence, launch: args.launch.launch()? };
        let quic = args.quic.listen(args.listen.len(), trusted.identity.as_ref(), precedence, now)?;
        let may = |option, place: String| match args.listen.len() {
            0 | 1 => Ok(()),
            count => Err(CarrierError::One { option, place, count }),
        };
        let acceptor = trusted.acceptor()?;
        let secured = |listener: datagrams::Listener| match acceptor.clone() {
            Some(acceptor) => listener.with_tls(acceptor),
            None => listener,
        };
        let shm = args.shm.as_ref().map(|path| {
            if trusted.admission.has_list() {
                return Err(CarrierError::NoKeys { option: "--shm" }.into());
            }
            may("--shm", path.display().to_string())?;
            shm::Listener::bind(path).map_err(|error| Error::Bind { path: path.clone(), error })
        });
        let udp = args.udp.map(|address| {
            may("--udp", address.to_string())?;
            options.warn_without_queue(&format!("udp://{address}"), None);
            let failed = |error| CarrierError::Listen { option: "--udp", address, error };
            datagrams::Listener::bind(address, &options, now).map(secured).map_err(failed)
        });
        let eth = args.eth.as_ref().map(|place| {
            may("--eth", place.to_string())?;
            options.warn_without_queue(&format!("eth:{place}"), Some(place));
            let listener = datagrams::Listener::at(place.clone(), &options, now);
            listener.map(secured).map_err(CarrierError::Frames)
        });
        Ok(Self { quic, shm: shm.transpose()?, udp: udp.transpose()?, eth: eth.transpose()? })
    }

    /// Has `driver` accept connections from these listeners as well.
    pub(super) fn join<F: FnMut(Event), B: Backing>(self, mut driver: FarDriver<F, B>) -> FarDriver<F, B> {
        if let Some(listener) = self.quic {
            driver = driver.with_quic(listener);
        }
        if let Some(listener) = self.shm {
            driver = driver.with_shm(listener);
        }
        for listener in self.udp.into_iter().chain(self.eth) {
            driver = driver.with_datagrams(listener);
        }
        driver
    }
}
