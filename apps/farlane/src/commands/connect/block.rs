//! The daemon of a block device, whichever driver of the kernel has it.

use ::status::Report;
use daemon::{Daemon, Opening, Reply, Settings};
use engine::Instant;
use live::client::Url;
use live::media::RemoteMedium;
use live::media::remote::Place;
use live::reactor::{Driver, JobSender, Stop};
use live::sys::sandbox::Needs;
use serde_json::Value;

use super::{About, Request, about, announce, disconnect, need, place, reach, settings};
use crate::args::{ConnectArgs, Over};
use crate::commands::capture::{Capturable, Captures};
use crate::error::Error;

/// The driver of the kernel that has the block device, as this process serves it.
pub(super) trait BlockDriver {
    /// See [`Daemon::WHAT`].
    const WHAT: &'static str;
    /// See [`Daemon::ENDS`].
    const ENDS: &'static str = Self::WHAT;
    /// The way from the kernel to this process.
    const OVER: Over;
    /// Serves the kernel.
    type Served: Driver + Capturable;

    /// The number of hosts that the device at `url` gets.
    fn hosts(args: &ConnectArgs, url: &Url) -> usize {
        let _ = (args, url);
        1
    }

    /// Begins to serve `medium`. Further hosts reach its device at `place`.
    ///
    /// # Errors
    /// When the kernel does not take the block device.
    fn serve(
        &mut self,
        args: &ConnectArgs,
        opening: &Opening,
        place: Place,
        medium: RemoteMedium,
    ) -> Result<Self::Served, Error>;

    /// Whether the block device is there by now.
    ///
    /// # Errors
    /// When it never will be.
    fn is_there(args: &ConnectArgs, served: &Self::Served) -> Result<bool, Error>;
    /// The name of the block device; empty before it is there.
    fn name(served: &Self::Served) -> String;
    /// Whether the block device was there before, and another process has left it.
    fn is_taken_over(&self) -> bool {
        false
    }
    /// The status of the block device.
    fn status(about: &About, served: &Self::Served, sender: &JobSender<Self::Served>) -> Reply<Report>;
    /// Removes the block device when the process ends, even while it is in use.
    fn set_unwanted(served: &Self::Served);
}

/// A block device that has the bytes of a far SSD.
pub(super) struct Block<'a, D> {
    args: &'a ConnectArgs,
    url: Url,
    driver: D,
    about: Option<About>,
}

impl<'a, D> Block<'a, D> {
    pub(super) const fn new(args: &'a ConnectArgs, url: Url, driver: D) -> Self {
        Self { args, url, driver, about: None }
    }

    fn about(&self) -> &About {
        self.about.as_ref().expect("it is known once the medium is open")
    }
}

impl<D: BlockDriver> Daemon for Block<'_, D> {
    const KIND: &'static str = "connect";
    const WHAT: &'static str = D::WHAT;
    const ENDS: &'static str = D::ENDS;
    type Driver = D::Served;
    type Request = Request;
    type Status = Report;
    type Captures = Captures;
    type Error = Error;

    fn settings(&self) -> Settings {
        settings(self.args, D::hosts(self.args, &self.url))
    }

    fn needs(&self, needs: &mut Needs) {
        need(needs, self.args, &self.url);
    }

    fn open(&mut self, opening: &Opening) -> Result<D::Served, Error> {
        let args = self.args;
        let place = place(&self.url.for_one_of(D::hosts(args, &self.url)), args)?;
        let medium = reach(opening.clock, place.clone())?;
        self.about = Some(about(args, &self.url, D::OVER, &medium));
        self.driver.serve(args, opening, place, medium)
    }

    fn settle(&mut self, served: &mut D::Served) -> Result<bool, Error> {
        D::is_there(self.args, served)
    }

    fn announce(&mut self, served: &mut D::Served) -> Result<(), Error> {
        let name = D::name(served);
        if self.driver.is_taken_over() {
            info!("/dev/{name} continues where another process has left it");
        }
        announce(self.args.printing.is_json(), &name, self.about())
    }

    fn summary(&self, served: &D::Served) -> String {
        self.about().text(&D::name(served))
    }

    fn status(
        &mut self,
        served: &mut D::Served,
        _now: Instant,
        sender: &JobSender<D::Served>,
    ) -> Reply<Report> {
        D::status(self.about(), served, sender)
    }

    fn answer(&mut self, served: &mut D::Served, request: Request, stop: &Stop) -> Result<Value, String> {
        let Request::Disconnect { force } = request else {
            return Err("it is answered elsewhere".to_owned());
        };
        disconnect(&D::name(served), force, || {
            D::set_unwanted(served);
            stop.ask();
        })
    }

    fn end(self, _served: D::Served) -> Result<(), Error> {
        Ok(())
    }
}
