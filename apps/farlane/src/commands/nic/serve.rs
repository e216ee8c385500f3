//! `farlane nic serve`: a card that another process uses.

use engine::Nanos;
use live::drivers::nic::{CardDriver, Served, Wire, WireUrl};
use live::reactor::Reactor;
use live::sys::clock::Clock;
use live::sys::sandbox::Needs;
use live::sys::service;

use super::{address, no_wire};
use crate::args::NicServeArgs;
use crate::commands::guest::{announce, listen};
use crate::commands::{OPENED_BY_LISTENER, begin_serving, report_json};
use crate::error::Error;

pub(super) fn run(args: &NicServeArgs) -> Result<(), Error> {
    let (Some(socket), Some(url)) = (&args.socket, &args.wire) else {
        unreachable!("the options are required");
    };
    begin_serving(args.spin.cpu, OPENED_BY_LISTENER * 2)?;
    let mut needs = Needs { dials: true, ..Needs::default() };
    needs.change_beside(socket);
    if let WireUrl::Shm(path) = url {
        needs.change_beside(path);
    }
    needs.sends_frames = matches!(url, WireUrl::Eth(_));
    args.sandbox.confine(needs)?;
    let listener = listen(socket)?;
    let wire = Wire::open(url).map_err(|error| no_wire(url, error))?;
    let spin = Nanos::from(args.spin.spin);
    let mut reactor = Reactor::new(Clock::start(), spin).map_err(Error::System)?;
    reactor.stop().on_signals().map_err(Error::System)?;
    let text = format!("offering a low-latency network card on {url}");
    announce(args.output.json, listener.path(), &text)?;
    let mut driver = CardDriver::new(listener, wire, address(), spin, tell).map_err(Error::System)?;
    args.sandbox.renounce()?;
    service::ready(&text);
    reactor.serve();
    reactor.run(&mut driver).map_err(|error| Error::Child { what: "the card", error })?;
    let counts = driver.counts();
    info!(
        "{} packets sent and {} received; {} lost: link down {}, unwanted {}, misshapen {}, no room {}",
        counts.sent,
        counts.received,
        counts.link_down + counts.unwanted + counts.misshapen + counts.no_room,
        counts.link_down,
        counts.unwanted,
        counts.misshapen,
        counts.no_room
    );
    if args.output.json {
        report_json(&serde_json::json!({
            "sent": counts.sent,
            "received": counts.received,
            "link_down": counts.link_down,
            "unwanted": counts.unwanted,
            "misshapen": counts.misshapen,
            "no_room": counts.no_room,
            "faults": counts.faults,
        }))?;
    }
    Ok(())
}

/// Tells a person what happens, on standard error.
fn tell(event: Served) {
    match event {
        Served::Client(Some(process)) => info!("process {process} uses the card"),
        Served::Client(None) => info!("a process uses the card"),
        Served::Gone(None) => info!("the process that used the card has gone"),
        Served::Gone(Some(reason)) => warn!("the process that used the card was sent away: {reason}"),
        Served::TurnedAway => warn!("another process was turned away: the card is in use"),
        Served::AcceptFailed(error) => warn!("a process could not be let in: {error}"),
        Served::Link(true) => info!("link up"),
        Served::Link(false) => info!("link down: the wire's other end is not there"),
        Served::SignalFailed(queue, error) => warn!("queue {queue} interrupts nobody any more: {error}"),
        Served::Fault(queue, fault) => warn!("queue {queue} was stopped: {fault}"),
    }
}
