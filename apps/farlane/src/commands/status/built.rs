//! From the drivers of a tunnel's ends to their statuses.

use std::path::Path as FilePath;

use ::status::{
    Admits, Callers, ControllerCounts, Copies, Datagrams, Export, FarEnd, FarReads, Guest, Host, Lane, Link,
    Path, Report, Seat, Slot, Status,
};
use assemblies::far::Far;
use engine::Instant;
use live::carrier::datagrams::{self, Info};
use live::drivers::far::{self, Backing, FarDriver};
use live::drivers::guest::{self, GuestDriver, LaneStatus};
use live::drivers::hot_plug::{Plug, Port, Statistics};
use nvme_pcie::controller::Controller;
use tunnel::Fingerprint;
use tunnel::downstream::Downstream;
use tunnel::session::{REPLAY_BYTES_MAX, Session};
use tunnel::upstream::PortIndex;

use crate::counters;

/// The status of the driver that serves a guest at the socket `place`, but for the counts of
/// namespaces. `url` is that of the far end, if there is a tunnel to one.
pub(crate) fn of_guest<F: FnMut(guest::Event)>(
    now: Instant,
    place: &FilePath,
    url: Option<String>,
    driver: &GuestDriver<F>,
) -> Slot {
    let guest = driver.guest();
    let upstream = guest.upstream();
    let session = upstream.and_then(|upstream| upstream.session(PortIndex(0)));
    let ours = guest.statistics();
    let far_reads = session.and_then(Session::tally).map(|(_, tally)| counters::far_reads(tally));
    let commands = upstream
        .and_then(|upstream| upstream.interposer())
        .map(|interposer| interposer.statistics().commands);
    let strands = upstream.into_iter().flat_map(|upstream| upstream.strands(PortIndex(0)));
    let lane = |LaneStatus { queues, commands, fetches, interrupts, processor }: LaneStatus| Lane {
        io_queues: queues,
        commands,
        fetches,
        interrupts,
        processor_ns: processor.get(),
    };
    let lanes: Vec<_> = driver.lanes().into_iter().map(lane).collect();
    Slot {
        vfio_user: place.to_string_lossy().into_owned(),
        url,
        client: guest.has_client(),
        port: None,
        link: session.map(|session| link(now, session)),
        connections: counters::connections(strands),
        tcp: driver.tcp_info().map(counters::tcp).collect(),
        datagrams: driver.datagrams().map(datagrams).collect(),
        commands,
        round_trips: commands.zip(far_reads).and_then(|(commands, reads)| reads.round_trips(commands)),
        lookahead: upstream.and_then(counters::lookahead),
        dma: upstream.map(counters::dma),
        far_reads,
        config_cache: upstream.and_then(counters::config_cache),
        guest: Guest {
            config_accesses: ours.config_accesses,
            register_accesses: ours.bar_accesses,
            interrupts: ours.signals + lanes.iter().map(|lane| lane.interrupts).sum::<u64>(),
            given_up: ours.given_up,
            waited: ours.waited,
        },
        controller: driver.statistics().map(counters::controller),
        lanes,
        health: driver.controller().map(|of| counters::health(&of.counters())),
        activity: Vec::new(),
    }
}

/// The status of the port of QEMU that a device is plugged into.
pub(crate) fn of_port(port: &Port) -> ::status::Port {
    let Statistics { plugs, unplugs, refusals } = port.statistics();
    let state = match port.plug() {
        Plug::Unknown => "unknown",
        Plug::Empty => "empty",
        Plug::Plugging => "plugging",
        Plug::Plugged => "plugged",
        Plug::Unplugging => "unplugging",
    };
    ::status::Port { id: port.name().to_owned(), state: state.to_owned(), plugs, unplugs, refusals }
}

/// The status of a device's end of a tunnel, but for the counts of namespaces. `controller_of` is
/// the controller of a host's place, if the device is ours.
pub(crate) fn of_far<F: FnMut(far::Event), B: Backing>(
    now: Instant,
    driver: &FarDriver<F, B>,
    controller_of: fn(&Far<B::Device>) -> Option<&Controller>,
) -> FarEnd {
    let far = driver.far();
    let places = far.seats();
    let only = if let [only] = places { Some(only.downstream()) } else { None };
    let links: Vec<_> = places.iter().map(|place| link(now, place.downstream().session())).collect();
    let counts =
        places.iter().map(|place| controller_of(place).map(|of| counters::controller(of.statistics())));
    let controller = counts.collect::<Option<Vec<_>>>();
    let controller = controller.map(|all| ControllerCounts::together(all.into_iter()));
    let reads = places.iter().map(|place| counters::far_reads(place.downstream().store().tally()));
    // The subsystem is at one place, and the same for all.
    let core = controller_of(far.present()).map(Controller::core);
    let callers = far.callers();
    FarEnd {
        listening: driver.address().to_string(),
        admits: if driver.admission().has_list() { Admits::ListedKeys } else { Admits::Anyone },
        host: only.and_then(Downstream::owner).map(|key| host(driver, key)),
        link: Link::together(&links),
        seats: if only.is_none() { seats(driver, links, controller_of) } else { Vec::new() },
        connections: only.map(|only| counters::connections(only.strands())).unwrap_or_default(),
        tcp: driver.tcp_info().map(counters::tcp).collect(),
        callers: Callers {
            waiting: callers.waiting as u64,
            accepted: callers.accepted,
            admitted: callers.admitted,
            refused: callers.refused,
            late: callers.late,
            displaced: callers.displaced,
        },
        datagrams: driver.datagrams().map(datagrams).collect(),
        commands: controller.map(|of| of.commands),
        space_errors: core.map(|of| of.counters().space_errors),
        controller,
        health: core.map(|of| counters::health(&of.counters())),
        ssd: core.map(|of| counters::ssd(of.config())),
        namespaces: core.map(counters::namespaces),
        activity: None,
        far_reads: FarReads::together(reads),
    }
}

/// The places of the hosts, whose links are `links`.
fn seats<F: FnMut(far::Event), B: Backing>(
    driver: &FarDriver<F, B>,
    links: Vec<Link>,
    controller_of: fn(&Far<B::Device>) -> Option<&Controller>,
) -> Vec<Seat> {
    let seat = |(place, link): (&Far<B::Device>, Link)| {
        let (downstream, controller) = (place.downstream(), controller_of(place)?);
        Some(Seat {
            controller_id: controller.id(),
            host: downstream.owner().map(|key| host(driver, key)),
            link,
            connections: counters::connections(downstream.strands()),
            controller: counters::controller(controller.statistics()),
            far_reads: counters::far_reads(downstream.store().tally()),
        })
    };
    driver.far().seats().iter().zip(links).filter_map(seat).collect()
}

/// The host that has the device: its key, and its name in the list.
fn host<F: FnMut(far::Event), B: Backing>(driver: &FarDriver<F, B>, key: Fingerprint) -> Host {
    Host { key: key.to_string(), name: driver.admission().name_of(key).map(str::to_owned) }
}

/// The status of a process that exports devices: that of each of its far ends.
pub(crate) fn of_far_ends(far_ends: Vec<FarEnd>) -> Report {
    Report::of(Status::Export(Export { far_ends }))
}

/// The status of the tunnel itself.
fn link(now: Instant, session: &Session) -> Link {
    let (statistics, up) = (session.statistics(), session.up_since().map(|since| now - since));
    Link {
        peer: session.peer().map(ToString::to_string),
        connected: session.is_open(),
        up_s: up.map(|length| length.get() / 1_000_000_000),
        up_ns: up.map(|length| length.get()),
        round_trip_ns: session.round_trip().map(|length| length.get()),
        packets_sent: statistics.tlps_sent,
        packets_received: statistics.tlps_received,
        bytes_sent: statistics.bytes_sent,
        bytes_received: statistics.bytes_received,
        resumptions: statistics.resumptions,
        sent_again: statistics.frames_replayed,
        dropped: statistics.dropped,
        waiting_bytes: session.queued_bytes() as u64,
        unacknowledged_bytes: session.unacknowledged_bytes() as u64,
        unacknowledged_bytes_max: REPLAY_BYTES_MAX as u64,
    }
}

/// The outcome of the datagrams of a connection.
fn datagrams(info: Info) -> Datagrams {
    let path = |path: &datagrams::Path| Path {
        interface: path.interface.clone(),
        dropped: path.dropped,
        failing: path.is_failing,
        copies: path.copies.as_ref().map(copies),
    };
    Datagrams {
        sent: info.datagrams.sent,
        received: info.datagrams.received,
        lost: info.datagrams.lost,
        again: info.datagrams.again,
        late: info.late,
        round_trip_ns: info.round_trip.get(),
        window_bytes: info.window,
        under_way_bytes: info.under_way,
        datagram_bytes: info.datagram_bytes as u64,
        paths: info.paths.iter().map(path).collect(),
        copies: info.copies.as_ref().map(copies),
    }
}

/// The outcome of frames that were sent over several paths (IEEE 802.1CB).
const fn copies(copies: &datagrams::Copies) -> Copies {
    Copies {
        passed: copies.passed,
        eliminated: copies.discarded,
        out_of_order: copies.out_of_order,
        rogue: copies.rogue,
        lost: copies.lost,
        resets: copies.resets,
        latent_errors: copies.latent_errors,
    }
}
