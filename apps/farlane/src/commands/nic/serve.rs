//! `farlane measure nic serve`: a card that another process uses.

use std::path::Path;

use ::status::{Nic, Report, Status};
use daemon::{Daemon, NoCaptures, OnlyStatus, Opening, Reply, Settings};
use engine::{Instant, Nanos};
use live::drivers::nic::{CardDriver, Served, Wire, WireUrl};
use live::reactor::JobSender;
use live::sys::sandbox::Needs;
use niq::Counts;
use schemars::JsonSchema;
use serde::Serialize;

use super::{address, no_wire};
use crate::args::NicServeArgs;
use crate::commands::guest::{announce, listen};
use crate::commands::{OPENED_BY_LISTENER, report_json};
use crate::error::Error;

pub(super) fn run(args: &NicServeArgs) -> Result<(), Error> {
    let (Some(socket), Some(wire)) = (&args.socket, &args.wire) else {
        unreachable!("the options are required");
    };
    daemon::run(Card { args, socket, wire })
}

struct Card<'a> {
    args: &'a NicServeArgs,
    socket: &'a Path,
    wire: &'a WireUrl,
}

impl Card<'_> {
    fn spin(&self) -> Nanos {
        self.args.daemon.spin.spin.into()
    }

    /// The offer as text for people.
    fn text(&self) -> String {
        format!("offering a low-latency network card on {}", self.wire)
    }
}

impl Daemon for Card<'_> {
    const KIND: &'static str = "nic";
    const WHAT: &'static str = "the card";
    type Driver = CardDriver<fn(Served)>;
    type Request = OnlyStatus;
    type Status = Report;
    type Captures = NoCaptures;
    type Error = Error;

    fn settings(&self) -> Settings {
        self.args.daemon.settings(OPENED_BY_LISTENER * 2)
    }

    fn needs(&self, needs: &mut Needs) {
        needs.dials = true;
        needs.change_beside(self.socket);
        if let WireUrl::Shm(path) = self.wire {
            needs.change_beside(path);
        }
        needs.sends_frames = matches!(self.wire, WireUrl::Eth(_));
    }

    fn open(&mut self, _opening: &Opening) -> Result<Self::Driver, Error> {
        let listener = listen(self.socket)?;
        let wire = Wire::open(self.wire).map_err(|error| no_wire(self.wire, error))?;
        let report: fn(Served) = report;
        CardDriver::new(listener, wire, address(), self.spin(), report).map_err(Error::System)
    }

    fn announce(&mut self, _driver: &mut Self::Driver) -> Result<(), Error> {
        announce(self.args.output.json, self.socket, &self.text())
    }

    fn summary(&self, _driver: &Self::Driver) -> String {
        self.text()
    }

    fn status(
        &mut self,
        driver: &mut Self::Driver,
        _now: Instant,
        _sender: &JobSender<Self::Driver>,
    ) -> Reply<Report> {
        let Counts { sent, sent_bytes, received, received_bytes, .. } = driver.counts();
        let Counts { link_down, unwanted, misshapen, no_room, faults, .. } = driver.counts();
        let vfio_user = self.socket.to_string_lossy().into_owned();
        let wire = self.wire.to_string();
        Reply::Now(Report::of(Status::Nic(Nic {
            vfio_user,
            wire,
            sent,
            sent_bytes,
            received,
            received_bytes,
            link_down,
            unwanted,
            misshapen,
            no_room,
            faults,
        })))
    }

    fn end(self, driver: Self::Driver) -> Result<(), Error> {
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
        if self.args.output.json { report_json(&End::from(&counts)) } else { Ok(()) }
    }
}

/// The work of a card, at its end; its first line is as in listening.json.
#[derive(Serialize, JsonSchema)]
pub(crate) struct End {
    /// Packets that went to the wire.
    sent: u64,
    /// Packets that went to the host.
    received: u64,
    /// Packets of the host that were dropped because the link was down.
    link_down: u64,
    /// Packets of the wire that no filter took.
    unwanted: u64,
    /// Packets of the wire that were too short or too long for a packet.
    misshapen: u64,
    /// Packets of the wire for which the host had no line or no buffer free.
    no_room: u64,
    /// Queues that were stopped by a fault.
    faults: u64,
}

impl From<&Counts> for End {
    fn from(counts: &Counts) -> Self {
        let &Counts { sent, received, link_down, unwanted, misshapen, no_room, faults, .. } = counts;
        Self { sent, received, link_down, unwanted, misshapen, no_room, faults }
    }
}

/// Logs an event.
fn report(event: Served) {
    match event {
        Served::Client(Some(process)) => info!("process {process} uses the card"),
        Served::Client(None) => info!("a process uses the card"),
        Served::Gone(None) => info!("the process that used the card has gone"),
        Served::Gone(Some(reason)) => warn!("the process that used the card was disconnected: {reason}"),
        Served::TurnedAway => warn!("another process was rejected: the card is in use"),
        Served::AcceptFailed(error) => warn!("a process could not be let in: {error}"),
        Served::Link(true) => info!("link up"),
        Served::Link(false) => info!("link down: the wire's other end is not there"),
        Served::SignalFailed(queue, error) => warn!("queue {queue} sends no more interrupts: {error}"),
        Served::Fault(queue, fault) => warn!("queue {queue} was stopped: {fault}"),
    }
}
