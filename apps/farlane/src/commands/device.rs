//! `farlane device`: offers an SSD of this machine to a virtual machine.

use assemblies::guest::{Config, Guest};
use live::drivers::control::{Answering, Request};
use live::drivers::guest::GuestDriver;
use live::reactor::{Reactor, Working, jobs};
use live::sys::clock::Clock;
use live::sys::sandbox::Needs;
use live::sys::service;
use nvme_pcie::controller::{self, Controller};
use nvme_pcie::function::{self, Function};

use crate::args::{DeviceArgs, need_served};
use crate::commands::capture::Captures;
use crate::commands::guest::{announce, conclude, listen, metrics, report, spin};
use crate::commands::served::{Ssd, finish, room};
use crate::commands::{OPENED_BY_LISTENER, OPENED_BY_NAMESPACE, begin_serving, control, status};
use crate::error::Error;

pub(crate) fn run(args: &DeviceArgs) -> Result<(), Error> {
    begin_serving(args.spin.cpu, OPENED_BY_LISTENER + OPENED_BY_NAMESPACE * args.served.media())?;
    room::check(args.served.memory())?;
    let mut needs = Needs::default();
    need_served(&mut needs, &args.served);
    args.watch.need(&mut needs);
    needs.change_beside(&args.socket.path);
    control::need(&mut needs, "device", args.control.control.as_ref());
    args.sandbox.confine(needs)?;
    let clock = Clock::start();
    let ssd = Ssd::build(clock, &args.served, &args.socket.path.to_string_lossy())?;
    let listener = listen(&args.socket.path)?;

    let device_serial = ssd.device_serial();
    let Ssd { config, media, store, serial, summary, .. } = ssd;
    let memory_buffer_bytes = args.memory_buffer.bytes();
    let controller = controller::Config { memory_buffer_bytes, ..controller::Config::new(config) };
    let mut config = function::Config::new(controller);
    config.serial_number = device_serial;
    let function = Function::new(clock.now(), config);
    let guest =
        Guest::direct(Config { doorbells: args.socket.poll_doorbells, ..Config::default() }, clock.now());

    let mut reactor = Reactor::new(clock, spin(&args.socket, &args.spin)).map_err(Error::System)?;
    reactor.stop().on_signals().map_err(Error::System)?;
    let text = format!("offering {summary} of SSD {serial} to a guest");
    announce(args.output.json, listener.path(), &text)?;
    let driver = GuestDriver::direct(guest, function, media, listener, report);
    let (hirer, jobs) = jobs(reactor.stop());
    crate::metrics::serve(&args.watch, move |page| metrics::add(page, clock, &hirer))?;
    let control = control::bind("device", args.control.control.as_ref())?;
    let driver = Working::new(driver, jobs);
    let mut captures = Captures::new(clock);
    let mut driver =
        Answering::new(driver, control, |driver: &mut Working<GuestDriver<_>>, asked: Request<'_>| {
            let place = &args.socket.path;
            captures.answer(asked, driver, |driver, line| {
                status::answer(line, || status::of_guest(clock.now(), place, None, driver.driver()))
            })
        });
    args.sandbox.renounce()?;
    service::ready(&text);
    reactor.serve();
    reactor.run(&mut driver).map_err(|error| Error::Child { what: "the device", error })?;
    let guest = driver.driver().driver();
    let controller = guest.controller().map(Controller::statistics);
    let concluded = conclude(args.output.json, guest.guest(), controller, "the device");
    drop(driver);
    finish(store).and(concluded)
}
