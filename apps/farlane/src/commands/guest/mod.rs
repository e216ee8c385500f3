//! The common parts of `farlane attach` and `farlane offer device`: a socket for a guest, and
//! reports about the guest.

use std::path::Path;

use assemblies::guest::{self, Guest};
use engine::Nanos;
use live::drivers::guest::Event;
use live::sys::unix::Listener;
use nvme_pcie::controller::Statistics;
use schemars::JsonSchema;
use serde::Serialize;
use status::{ConfigCache, Lookahead};

use crate::args::{Socket, Spin};
use crate::commands::listening::Listening;
use crate::commands::{print, print_json, report_json};
use crate::counters;
use crate::error::Error;

/// The time within which a busy client rings again.
const DOORBELL_SPIN: Nanos = Nanos::from_millis(10);

/// The work of the process, at its end.
#[derive(Serialize, JsonSchema)]
pub(crate) struct End {
    /// The work of the controller, if it is in this process.
    controller: Option<Executed>,
    /// The guest's accesses to the configuration space.
    config_accesses: u64,
    /// The guest's accesses to registers.
    register_accesses: u64,
    /// Doorbells that the guest rang in shared memory.
    shared_doorbells: u64,
    /// The function's reads of the guest's memory.
    memory_reads: u64,
    /// The function's writes to the guest's memory.
    memory_writes: u64,
    /// Those of them that were outside of the guest's memory.
    outside_memory: u64,
    interrupts: u64,
    /// Accesses that the function did not answer in time.
    given_up: u64,
    /// Requests of the function that were not answered in time.
    completion_timeouts: u64,
    /// The tunnel's account of data sent ahead; none without lookahead.
    lookahead: Option<Lookahead>,
    /// The tunnel's answers from near; none without a tunnel.
    shadow: Option<ConfigCache>,
    round_trips: RoundTrips,
}

/// Round trips over the tunnel, by their cause.
#[derive(Serialize, JsonSchema)]
struct RoundTrips {
    /// Those of the guest's accesses.
    accesses: u64,
    resets: u64,
    /// Those of the function's reads of memory.
    memory_reads: u64,
}

/// The work of a controller.
#[derive(Serialize, JsonSchema)]
struct Executed {
    commands: u64,
    /// Commands that were in the controller memory buffer.
    from_memory_buffer: u64,
    /// Reads that fetched the others.
    queue_reads: u64,
}

/// Listens on a Unix socket at `path`.
pub(crate) fn listen(path: &Path) -> Result<Listener, Error> {
    Listener::bind(path).map_err(|error| Error::Bind { path: path.to_owned(), error })
}

/// How long to spin after the last event where `socket` is served. A client that rings by a store
/// is waited for longer than it takes to ring again, since nothing else wakes this process.
pub(crate) fn spin(socket: &Socket, spin: &Spin) -> Nanos {
    let least = if socket.poll_doorbells { DOORBELL_SPIN } else { Nanos::ZERO };
    Nanos::from(spin.spin).max(least)
}

/// Announces to a person, or a machine, that a guest may connect to `path`. `text` describes the
/// device there.
pub(crate) fn announce(json: bool, path: &Path, text: &str) -> Result<(), Error> {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    if json {
        return print_json(&Listening::at(path.to_string_lossy()));
    }
    print(&format!("{text} at {}\n", path.display()))
}

/// Reports on standard error the commands that a controller in this process had to execute.
pub(crate) fn log_commands(of: Statistics) {
    let Statistics { commands, pushed, fetches, .. } = of;
    let from_buffer = "from the controller memory buffer";
    match (pushed, fetches) {
        (0, 0) => note!("the controller executed {commands} commands"),
        (0, _) => note!("the controller executed {commands} commands, fetched by {fetches} reads"),
        (_, 0) => note!("the controller executed {commands} commands, all {from_buffer}"),
        _ => note!(
            "the controller executed {commands} commands: {pushed} {from_buffer}, the others fetched by {fetches} reads"
        ),
    }
}

/// Reports the work that was done: to a person on standard error, and to a machine as JSON if
/// asked. `controller` has the counts of one in this process.
pub(crate) fn conclude<D: 'static>(
    json: bool,
    guest: &Guest<D>,
    controller: Option<Statistics>,
) -> Result<(), Error> {
    let (ours, root) = (guest.statistics(), guest.root().statistics());
    let timeouts = guest.root().requester_statistics().timeouts;
    let outside = ours.reads_refused + ours.writes_dropped;
    info!(
        "{} accesses to the configuration space, {} to registers, {} doorbells in shared memory;",
        ours.config_accesses, ours.bar_accesses, ours.rings
    );
    info!(
        "{} reads and {} writes of the guest's memory, {outside} of them outside of it; {} interrupts;",
        root.memory_reads, root.memory_writes, ours.signals
    );
    info!(
        "{} round trips: {} of the guest's accesses, {} of resets, {} of the function's reads of memory",
        ours.round_trips(),
        ours.waited,
        ours.reset_trips,
        ours.read_trips
    );
    if let Some(controller) = controller {
        log_commands(controller);
    }
    let (lookahead, shadow) = tunnel_figures(guest.upstream());
    if timeouts > 0 {
        warn!("{timeouts} completion timeouts: requests of our root complex that were not answered in time");
    }
    if ours.given_up > 0 {
        warn!("{} accesses that the function did not answer in time", ours.given_up);
    }
    if !json {
        return Ok(());
    }
    report_json(&End {
        controller: controller.map(|of| Executed {
            commands: of.commands,
            from_memory_buffer: of.pushed,
            queue_reads: of.fetches,
        }),
        config_accesses: ours.config_accesses,
        register_accesses: ours.bar_accesses,
        shared_doorbells: ours.rings,
        memory_reads: root.memory_reads,
        memory_writes: root.memory_writes,
        outside_memory: outside,
        interrupts: ours.signals,
        given_up: ours.given_up,
        completion_timeouts: timeouts,
        lookahead,
        shadow,
        round_trips: RoundTrips {
            accesses: ours.waited,
            resets: ours.reset_trips,
            memory_reads: ours.read_trips,
        },
    })
}

/// Reports the tunnel's data sent ahead and its answers from near, as far as it has either. Returns
/// both.
fn tunnel_figures(upstream: Option<&assemblies::Upstream>) -> (Option<Lookahead>, Option<ConfigCache>) {
    let lookahead = upstream.and_then(counters::lookahead);
    if let Some(lookahead) = &lookahead {
        info!("lookahead: {lookahead}");
    }
    let shadow = upstream.and_then(counters::config_cache);
    if let Some(shadow) = &shadow {
        info!("{shadow}");
    }
    (lookahead, shadow)
}

/// Logs an event on standard error.
pub(crate) fn report(event: Event) {
    match event {
        Event::Guest(guest::Event::Link(tunnel::Event::LinkUp { peer })) => {
            info!(%peer, "link up with {peer}");
        }
        Event::Guest(event) => info!("{event}"),
        Event::DialFailed(address, error) => {
            warn!(far_end = %address, "no far end answers at {address}: {error}; trying again until one does");
        }
        Event::AcceptFailed(error) => warn!("a client could not be accepted: {error}"),
        Event::TurnedAway(process) => {
            let process = process.map(|process| format!(" (process {process})")).unwrap_or_default();
            warn!("a second client{process} was turned away: one guest at a time has the function");
        }
        Event::MapFailed(address, error) => {
            warn!("the guest's memory at {address:#x} can't be mapped: {error}");
        }
        Event::MemoryLost(address) => warn!(
            "the guest has cut its memory at {address:#x} short, which ends its session: nothing there can be trusted"
        ),
        Event::NoDoorbells(error) => {
            warn!("there is no shared memory for doorbells: {error}; the client rings by messages");
        }
        Event::LaneFailed => error!(
            "a thread of the device has failed: its queues are over, and the guest must reset the controller; \
             the other threads go on; please report the message of the panic above"
        ),
        Event::State(notice) => warn!("{notice}"),
        Event::SignalFailed(vector, error) => {
            warn!("the guest's interrupt {vector} can't be signalled: {error}");
        }
    }
}
