//! `farlane export --vfio-user`: a far end whose device is in another process.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;

use assemblies::external_device::{self, Config, ExternalDevice, Summary};
use assemblies::far::Far;
use engine::Nanos;
use live::carrier::tcp::Listener;
use live::drivers::control::{Answering, Request};
use live::drivers::far::{Event, FarDriver, Server};
use live::reactor::{Outcome, Reactor, Working, jobs};
use live::sys::clock::Clock;
use live::sys::entropy;
use live::sys::service;
use live::sys::unix::PATH_MAX;
use tunnel::frame::NetworkTime;

use super::listeners::Listeners;
use super::metrics::Told;
use super::{Places, open_trust, report, session, with_tls};
use crate::args::ExportArgs;
use crate::commands::capture::Captures;
use crate::commands::{control, print, print_json, status};
use crate::error::Error;

/// What is known of the device so far.
#[derive(Debug, Default)]
struct Known {
    summary: Option<Summary>,
    /// Why there is no summary yet.
    trouble: Option<String>,
}

impl Known {
    fn learn(&mut self, event: &Event) {
        match event {
            Event::ExternalDevice(external_device::Event::Ready(summary)) => self.summary = Some(*summary),
            Event::ExternalDevice(external_device::Event::Without(_)) => {}
            Event::ExternalDevice(event) => self.trouble = Some(event.to_string()),
            Event::NoServer(error) => self.trouble = Some(error.to_string()),
            _ => {}
        }
    }
}

/// Checks that one host at a time can reach the device at `path`.
///
/// # Errors
/// When `args` offer it at several addresses.
pub(super) fn check(args: &ExportArgs, path: &Path) -> Result<(), Error> {
    match args.listen.len() {
        1 => Ok(()),
        count => Err(Error::OneDevice { path: path.to_owned(), count }),
    }
}

pub(super) fn run(
    args: &ExportArgs,
    path: &Path,
    clock: Clock,
    time: Option<NetworkTime>,
) -> Result<(), Error> {
    let absent = |why| Error::NoDevice { path: path.to_owned(), why };
    let length = path.as_os_str().len();
    if length > PATH_MAX {
        return Err(absent(format!("the path has {length} bytes, a socket's at most {PATH_MAX}")));
    }
    let &[listen] = args.listen.as_slice() else {
        return Err(Error::OneDevice { path: path.to_owned(), count: args.listen.len() });
    };
    let listener = Listener::bind(listen).map_err(|error| Error::Listen { address: listen, error })?;
    let trusted = open_trust(args)?;
    // Another process has the namespaces, if there are any.
    let admission = trusted.admission.clone().only_whole()?;
    let listener = with_tls(listener.with(args.tcp.options()?), trusted.acceptor()?);
    let address = listener.address();

    let listeners = Listeners::open(args, &trusted, clock.now())?;
    let places = Places::of(address, &listeners, &trusted);
    let mut entropy = entropy::system();
    let name = format!("farlane export {}", path.display());
    let mut session = session(args.hold.into(), &mut entropy, name, "PCIe device of another process");
    session.time = time;
    let device = ExternalDevice::new(Config::default());
    let far = Far::around(clock.now(), session, device, entropy);
    let server = Server::new(path).map_err(Error::Output)?;

    let known = Rc::new(RefCell::new(Known::default()));
    let learning = known.clone();
    let control = control::bind("export", args.control.control.as_ref())?;
    let driver = FarDriver::external_device(far, listener, server, move |event| {
        learning.borrow_mut().learn(&event);
        report(event);
    })
    .with_admission(clock.now(), admission);
    let mut reactor = Reactor::new(clock, Nanos::from(args.spin.spin)).map_err(Error::System)?;
    reactor.stop().on_signals().map_err(Error::System)?;
    let (hirer, jobs) = jobs(reactor.stop());
    crate::metrics::serve(&args.watch, move |page| {
        hirer.run(move |driver| Told::of(clock, driver)).map(|told| told.add(page)).is_some()
    })?;
    let driver = Working::new(listeners.join(driver), jobs);
    let mut captures = Captures::new(clock);
    let mut driver =
        Answering::new(driver, control, |driver: &mut Working<FarDriver<_, _>>, asked: Request<'_>| {
            captures.answer(asked, driver, |driver, line| {
                let far_end = || status::of_far(clock.now(), driver.driver(), None);
                status::answer(line, || status::of_far_ends(vec![far_end()]))
            })
        });
    let child = |error| Error::Child { what: "the far end", error };
    let deadline = clock.now() + Nanos::from(args.timeout);
    let is_known = |_: &mut _| known.borrow().summary.is_some();
    match reactor.run_until(&mut driver, Some(deadline), is_known).map_err(child)? {
        Outcome::Met => {}
        Outcome::TimedOut => {
            let why = known.borrow_mut().trouble.take();
            return Err(absent(why.unwrap_or_else(|| "its server does not answer".to_owned())));
        }
        Outcome::Done | Outcome::Abandoned => return Err(Error::Interrupted),
    }
    if let Some(summary) = known.borrow().summary {
        announce(args, &places, path, &summary)?;
    }
    args.sandbox.renounce()?;
    service::ready(&format!("the device at {}", path.display()));
    reactor.serve();
    reactor.run(&mut driver).map_err(child)?;
    info!("the far end has shut down");
    Ok(())
}

fn announce(args: &ExportArgs, places: &Places, path: &Path, summary: &Summary) -> Result<(), Error> {
    if args.output.json {
        let mut said = serde_json::json!({
            "device": format!("{:04x}:{:04x}", summary.vendor, summary.device),
            "class": summary.class.to_string(),
            "socket": path.to_string_lossy(),
        });
        places.add_to(&mut said);
        print_json(&said)?;
    } else {
        print(&format!("exporting {summary} of {} at {}\n", path.display(), places.urls()))?;
    }
    places.warn("this device");
    Ok(())
}
