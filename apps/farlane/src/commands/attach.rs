//! `farlane attach`: offers the SSD of a far end to a virtual machine.

use assemblies::guest::{Config, Guest};
use live::carrier::route::Way;
use live::client::AttachError;
use live::drivers::control::{Answering, Request};
use live::drivers::guest::GuestDriver;
use live::reactor::{Reactor, Working, jobs};
use live::sys::clock::Clock;
use live::sys::entropy;
use live::sys::sandbox::Needs;
use live::sys::service;

use crate::args::{AttachArgs, need_far};
use crate::commands::capture::Captures;
use crate::commands::guest::{announce, conclude, listen, metrics, report, spin};
use crate::commands::{OPENED_BY_LISTENER, begin_serving, control, status};
use crate::error::Error;

pub(crate) fn run(args: &AttachArgs) -> Result<(), Error> {
    begin_serving(args.spin.cpu, OPENED_BY_LISTENER)?;
    let transport = &args.tunnel.transport;
    args.tunnel.spread.check_far(&args.url, transport)?;
    let clock = Clock::start();
    let time = transport.ptp.network_time(&clock)?;
    let mut needs = Needs::default();
    need_far(&mut needs, transport.key_file());
    needs.sends_frames = args.url.way() == Way::Eth;
    transport.need(&mut needs);
    args.watch.need(&mut needs);
    needs.change_beside(&args.socket.path);
    control::need(&mut needs, "attach", args.control.control.as_ref());
    args.sandbox.confine(needs)?;
    let name = &args.url.name();
    let route = transport.checked()?.route(name);
    let route = route.map_err(|error| AttachError::without_route(name, error))?;
    let listener = listen(&args.socket.path)?;
    let control = control::bind("attach", args.control.control.as_ref())?;

    let mut entropy = entropy::system();
    let mut session = tunnel::session::Config {
        hold: args.hold.into(),
        tally: true,
        time,
        identity: tunnel::frame::Identity {
            name: format!("farlane attach {}", std::process::id()),
            vendor: "Farlane".to_owned(),
            device: "guest".to_owned(),
            ..tunnel::frame::Identity::default()
        },
        ..tunnel::session::Config::default()
    };
    args.tunnel.apply(&mut session);
    entropy.fill(&mut session.identity.instance.0);
    let mut config =
        Config { function: args.function, doorbells: args.socket.poll_doorbells, ..Config::default() };
    config.root.timeout = args.completion_timeout;
    let guest = Guest::over_tunnel(config, route.session(session), entropy);

    let mut reactor = Reactor::new(clock, spin(&args.socket, &args.spin)).map_err(Error::System)?;
    reactor.stop().on_signals().map_err(Error::System)?;
    let text = format!("attaching the function at {} to a guest", args.url);
    announce(args.output.json, listener.path(), &text)?;
    let driver = GuestDriver::over_tcp(guest, route, listener, report);
    let url = args.url.to_string();
    let (hirer, jobs) = jobs(reactor.stop());
    crate::metrics::serve(&args.watch, move |page| metrics::add(page, clock, &hirer))?;
    let driver = Working::new(driver, jobs);
    let mut captures = Captures::new(clock);
    let mut driver =
        Answering::new(driver, control, |driver: &mut Working<GuestDriver<_>>, asked: Request<'_>| {
            let place = &args.socket.path;
            captures.answer(asked, driver, |driver, line| {
                status::answer(line, || status::of_guest(clock.now(), place, Some(&url), driver.driver()))
            })
        });
    args.sandbox.renounce()?;
    service::ready(&text);
    reactor.serve();
    reactor.run(&mut driver).map_err(|error| Error::Child { what: "the guest's end", error })?;
    conclude(args.output.json, driver.driver().driver().guest(), None, "the guest's end")
}
