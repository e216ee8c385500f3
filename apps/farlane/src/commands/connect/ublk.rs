//! The block device by the kernel's user-space block driver.

use live::drivers::control::{Answering, Request as Asked};
use live::drivers::ublk::{Event, Settings, UblkDriver, find};
use live::media::RemoteMedium;
use live::reactor::{Reactor, Stop, Working, jobs};
use live::sys::clock::Clock;
use live::sys::ublk::Control;
use live::sys::{block_use, service};
use serde_json::json;

use super::{About, Request, announce, identity, metrics, status};
use crate::args::ConnectArgs;
use crate::capture::{Taps, What};
use crate::commands::capture::{Capturable, Captures, notes_of_host};
use crate::commands::control;
use crate::error::{BlockError, Error};

pub(super) type Served = UblkDriver<fn(Event)>;

/// Serves a block device until it is removed, or this process is to end.
pub(super) fn serve(
    args: &ConnectArgs,
    clock: Clock,
    mut kernel: Control,
    mut medium: RemoteMedium,
    about: About,
) -> Result<(), Error> {
    let settings = Settings {
        mark: u64::from_be_bytes(identity(&medium).eui64),
        queues: args.queues,
        depth: args.iodepth,
        read_only: args.read_only,
    };
    let found = find(&mut kernel, settings, &mut medium).map_err(BlockError::Find)?;
    let mut reactor = Reactor::new(clock, args.spin.spin.into()).map_err(Error::System)?;
    reactor.stop().on_signals().map_err(Error::System)?;
    let driver = Served::new(clock, kernel, found, medium, report).map_err(BlockError::Ublk)?;
    let (hirer, jobs) = jobs(reactor.stop());
    crate::metrics::serve(&args.watch, move |page| metrics::of_requests(page, &hirer))?;
    let control = control::bind("connect", args.control.control.as_ref())?;
    let (stop, told, mut captures) = (reactor.stop(), about.clone(), Captures::new(clock));
    let mut driver = Answering::new(
        Working::new(driver, jobs),
        control,
        move |driver: &mut Working<Served>, asked: Asked<'_>| {
            captures.answer(asked, driver, |driver, line| answer(line, driver.driver(), &told, &stop))
        },
    );
    let served = |driver: &Answering<Working<Served>, _>| driver.driver().driver().is_live();
    let fail = |error| Error::Child { what: "the block device", error };
    reactor.run_until(&mut driver, None, |driver| served(driver)).map_err(fail)?;
    if !served(&driver) {
        return Err(Error::Interrupted);
    }
    let name = driver.driver().driver().name();
    if found.is_taken_over {
        info!("/dev/{name} goes on where another process has left it");
    }
    let text = announce(args.printing.is_json(), &name, &about)?;
    service::ready(&text);
    reactor.serve();
    reactor.run(&mut driver).map_err(fail)?;
    Ok(())
}

impl Capturable for Served {
    fn what(&self) -> What {
        if self.medium().is_fabric() { What::Streams } else { What::Packets }
    }

    fn notes(&self) -> Vec<String> {
        self.medium().near().map(notes_of_host).unwrap_or_default()
    }

    fn tap(&mut self, taps: &Taps) -> Result<(), String> {
        let passing = self.passing();
        passing.ok_or("the device is away, or nothing of it passes that can be shown")?.add(taps.tap(0));
        Ok(())
    }
}

fn answer(line: &str, driver: &Served, about: &About, stop: &Stop) -> String {
    let name = driver.name();
    control::answer(match serde_json::from_str(line) {
        Err(error) => Err(format!("that is no request: {error}")),
        Ok(Request::Status) => Ok(status::of_requests(about, driver)),
        Ok(Request::Disconnect { force }) => match block_use::users(&name) {
            users if !users.is_empty() && !force => {
                Err(BlockError::InUse { device: format!("/dev/{name}"), users }.to_string())
            }
            _ => {
                driver.set_unwanted();
                stop.ask();
                Ok(json!({ "device": format!("/dev/{name}") }))
            }
        },
    })
}

/// Tells a person about an event.
fn report(event: Event) {
    match event {
        Event::Live => {}
        Event::Refused(error) => warn!("the kernel has refused an answer: {error}"),
        Event::Left(users) => warn!(
            "the block device is {}, so it stays: its I/O waits for another farlane connect",
            users.join(", ")
        ),
        Event::Removed => info!("the block device was removed"),
        Event::NotRemoved(error) => warn!("the block device could not be removed: {error}"),
    }
}
