//! A capture that a command makes of its own controller (`--capture FILE`).

use std::path::{Path, PathBuf};

use assemblies::watch::Port;
use engine::{Instant, Watch};
use live::sys::files::{self, Kind};

use super::tap::What;
use super::writer::{Captured, Times, Wanted, capture};
use crate::error::Error;

/// A file that is written while a command runs.
#[derive(Debug)]
pub(crate) struct Tracing {
    path: PathBuf,
    captured: Captured,
}

impl Tracing {
    /// Writes the packets of a port to a new file at `path`, from now on. `now` is the time of the
    /// port's clock.
    ///
    /// # Errors
    /// When the file can't be made.
    pub(crate) fn begin(
        path: &Path,
        what: What,
        now: Instant,
        watch: &mut Watch<Port>,
    ) -> Result<Self, Error> {
        let fail = |error| Error::File { path: path.to_owned(), error };
        let file = files::write(path, Kind::Private).map_err(fail)?;
        let captured = capture(file, Times::OfEngines(now), Wanted::all(what)).map_err(fail)?;
        watch.add(captured.taps().tap(0));
        Ok(Self { path: path.to_owned(), captured })
    }

    /// Waits until all is written. The watched port is gone by then.
    ///
    /// # Errors
    /// When the file can't be written.
    pub(crate) fn finish(self) -> Result<(), Error> {
        let Self { path, captured } = self;
        let tally = captured.finish(None).map_err(|error| Error::File { path: path.clone(), error })?;
        info!("{} packets are in {}, {} were lost", tally.written(), path.display(), tally.lost);
        Ok(())
    }
}
