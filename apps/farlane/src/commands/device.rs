//! `farlane offer device`: offers an SSD of this machine to a virtual machine.

use ::status::{Report, Slot, Status};
use assemblies::guest::{Config, Guest};
use daemon::{Daemon, OnlyStatus, Opening, Reply, Settings};
use engine::Instant;
use live::drivers::guest::{Event, GuestDriver, Threads};
use live::media::state::Store;
use live::reactor::JobSender;
use live::sys::clock::Clock;
use live::sys::sandbox::Needs;
use nvme_pcie::controller;
use nvme_pcie::function::{self, Function};

use crate::args::{DeviceArgs, need_served};
use crate::commands::capture::Captures;
use crate::commands::guest::{announce, conclude, listen, report, spin};
use crate::commands::served::{Ssd, finish, room};
use crate::commands::{OPENED_BY_LISTENER, OPENED_BY_NAMESPACE, status};
use crate::counters::{self, next_tallies};
use crate::error::Error;

pub(crate) fn run(args: &DeviceArgs) -> Result<(), Error> {
    daemon::run(Device { args, text: String::new(), store: None })
}

struct Device<'a> {
    args: &'a DeviceArgs,
    /// The offer as text for people.
    text: String,
    /// Where the SSD's state is kept.
    store: Option<Store>,
}

impl Daemon for Device<'_> {
    const KIND: &'static str = "device";
    const WHAT: &'static str = "the device";
    type Driver = GuestDriver<fn(Event)>;
    type Request = OnlyStatus;
    type Status = Report;
    type Captures = Captures;
    type Error = Error;

    fn settings(&self) -> Settings {
        let args = self.args;
        let cores = args.cores();
        let opened = OPENED_BY_LISTENER * cores + OPENED_BY_NAMESPACE * args.served.media() * cores;
        Settings { spin: spin(&args.socket, &args.daemon.spin), ..args.daemon.settings(opened) }
    }

    fn prepare(&mut self, _clock: Clock) -> Result<(), Error> {
        room::check(self.args.served.memory())
    }

    fn needs(&self, needs: &mut Needs) {
        need_served(needs, &self.args.served);
        needs.change_beside(&self.args.socket.path);
    }

    fn open(&mut self, opening: &Opening) -> Result<Self::Driver, Error> {
        let (args, clock) = (self.args, opening.clock);
        let ssd = Ssd::build(clock, &args.served, &args.socket.path.to_string_lossy())?;
        let listener = listen(&args.socket.path)?;
        let device_serial = ssd.device_serial();
        let Ssd { config, media, store, serial, summary, .. } = ssd;
        self.text = format!("offering {summary} of SSD {serial} to a guest");
        self.store = store;
        let memory_buffer_bytes = args.memory_buffer.bytes();
        let controller = controller::Config { memory_buffer_bytes, ..controller::Config::new(config) };
        let mut config = function::Config::new(controller);
        config.serial_number = device_serial;
        let function = Function::new(clock.now(), config);
        let doorbells = args.socket.poll_doorbells;
        let guest = Guest::direct(Config { doorbells, ..Config::default() }, clock.now());
        let mut driver = GuestDriver::direct(guest, function, media, listener, report as fn(Event));
        let threads = Threads {
            clock,
            spin: self.settings().spin,
            processor: args.daemon.spin.cpu,
            home: opening.stop.clone(),
        };
        let further = args.cores() - 1;
        if driver.spread(further, &threads).map_err(Error::System)? < further && args.cores.is_some() {
            warn!(
                "one thread serves all queues: a namespace on a VFIO controller or a far one has one thread"
            );
        }
        Ok(driver)
    }

    fn announce(&mut self, _driver: &mut Self::Driver) -> Result<(), Error> {
        announce(self.args.output.json, &self.args.socket.path, &self.text)
    }

    fn summary(&self, _driver: &Self::Driver) -> String {
        self.text.clone()
    }

    fn status(
        &mut self,
        driver: &mut Self::Driver,
        now: Instant,
        sender: &JobSender<Self::Driver>,
    ) -> Reply<Report> {
        let slot = status::of_guest(now, &self.args.socket.path, None, driver);
        let sender = sender.clone();
        Reply::Later(Box::new(move || {
            let next = |driver: &mut Self::Driver, after| {
                driver.controller().map(|one| next_tallies(one.tallies(), after)).unwrap_or_default()
            };
            let activity = counters::activity(&sender, next)?;
            Some(Report::of(Status::Device(Slot { activity, ..slot })))
        }))
    }

    fn end(self, driver: Self::Driver) -> Result<(), Error> {
        let controller = driver.statistics();
        let concluded = conclude(self.args.output.json, driver.guest(), controller);
        drop(driver);
        finish(self.store).and(concluded)
    }
}
