//! Computes the activity between two looks at the daemons.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use engine::Nanos;
use nvme::subsystem::LATENCY_BOUNDS;
use serde::Serialize;
use status::{Activity, BlockQueue, Controller, Counts, FarEnd, FarEndState, Link, Status, Way};

use super::row::{BlockDeviceRow, FarEndRow, HostRow, NamespaceRow, Row, ThreadRow, Top};
use crate::commands::control::{self, Daemon};

/// The kind of objects that a look shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum View {
    FarEnds,
    Namespaces,
    Hosts,
    Threads,
    BlockDevices,
}

impl View {
    pub(super) const ALL: [Self; 5] =
        [Self::FarEnds, Self::Namespaces, Self::Hosts, Self::Threads, Self::BlockDevices];

    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::FarEnds => "far ends",
            Self::Namespaces => "namespaces",
            Self::Hosts => "hosts",
            Self::Threads => "threads",
            Self::BlockDevices => "block devices",
        }
    }

    /// The key that shows it.
    pub(super) const fn key(self) -> char {
        match self {
            Self::FarEnds => 'f',
            Self::Namespaces => 'n',
            Self::Hosts => 'h',
            Self::Threads => 't',
            Self::BlockDevices => 'b',
        }
    }

    pub(super) const fn head(self) -> &'static [&'static str] {
        match self {
            Self::FarEnds => {
                &["PLACE", "LINK", "PEER", "ROUND TRIP", "COMMANDS/S", "IN MB/S", "OUT MB/S", "RESUMED"]
            }
            Self::Namespaces => {
                &["OF", "NSID", "READS/S", "WRITES/S", "READ MB/S", "WRITTEN MB/S", "P50", "P99", "ERRORS"]
            }
            Self::Hosts => {
                &["OF", "HOST", "STATE", "QUEUES", "COMMANDS/S", "READ MB/S", "WRITTEN MB/S", "ERRORS"]
            }
            Self::Threads => &["OF", "THREAD", "PROCESSOR %", "CONNECTIONS", "I/O QUEUES", "COMMANDS/S"],
            Self::BlockDevices => {
                &["DEVICE", "QUEUE", "FAR END", "UNDER WAY", "REQUESTS/S", "MB/S", "ERRORS"]
            }
        }
    }
}

/// All daemons at one moment.
pub(in crate::commands) struct Look {
    at: Instant,
    daemons: Vec<Daemon>,
}

impl Look {
    pub(in crate::commands) fn now() -> Self {
        // Without a folder of their own, daemons have no sockets by which they could be found.
        Self { at: Instant::now(), daemons: control::look().unwrap_or_default().daemons }
    }

    #[cfg(test)]
    pub(super) fn of(at: Instant, statuses: &[Status]) -> Self {
        let report = |status: &Status| ::status::Report::of(status.clone());
        let daemon = |status| Daemon { socket: "socket".into(), report: report(status) };
        Self { at, daemons: statuses.iter().map(daemon).collect() }
    }

    /// The status of each daemon, with the path of its socket.
    fn statuses(&self) -> impl Iterator<Item = (String, &Status)> {
        self.daemons.iter().map(|one| (one.socket.to_string_lossy().into_owned(), &one.report.status))
    }
}

/// Something that has counters: its identity from one look to the next, its owner, and its status.
struct Thing<T> {
    key: String,
    of: String,
    status: T,
}

/// The activity between `before` and `after`.
pub(in crate::commands) fn top(before: &Look, after: &Look) -> Top {
    let passed = after.at.saturating_duration_since(before.at);
    Top {
        far_ends: compared((far_ends(before), far_ends(after)), passed, far_end),
        namespaces: compared((namespaces(before), namespaces(after)), passed, namespace),
        hosts: compared((hosts(before), hosts(after)), passed, host),
        threads: compared((threads(before), threads(after)), passed, thread),
        block_devices: compared((block_devices(before), block_devices(after)), passed, block_device),
    }
}

/// The cells of `view`: the activity between `before` and `after`.
pub(super) fn rows(view: View, before: &Look, after: &Look) -> Vec<Vec<String>> {
    let Top { far_ends, namespaces, hosts, threads, block_devices } = top(before, after);
    match view {
        View::FarEnds => far_ends.into_iter().map(Row::cells).collect(),
        View::Namespaces => namespaces.into_iter().map(Row::cells).collect(),
        View::Hosts => hosts.into_iter().map(Row::cells).collect(),
        View::Threads => threads.into_iter().map(Row::cells).collect(),
        View::BlockDevices => block_devices.into_iter().map(Row::cells).collect(),
    }
}

/// A row for each thing that is there after.
fn compared<T, R>(
    (before, after): (Vec<Thing<T>>, Vec<Thing<T>>),
    passed: Duration,
    row: fn(String, &Since<'_, T>) -> R,
) -> Vec<R> {
    let former: HashMap<_, _> = before.into_iter().map(|thing| (thing.key, thing.status)).collect();
    let row = |thing: Thing<T>| {
        let since = Since { former: former.get(&thing.key), now: &thing.status, passed };
        row(thing.of, &since)
    };
    after.into_iter().map(row).collect()
}

/// A thing's counters at two looks.
struct Since<'a, T> {
    former: Option<&'a T>,
    now: &'a T,
    passed: Duration,
}

impl<T> Since<'_, T> {
    /// The growth of a counter a second; 0 for a counter that was not there before.
    fn rate(&self, counter: impl Fn(&T) -> Option<u64>) -> f64 {
        let former = self.former.and_then(&counter);
        let grown = former.zip(counter(self.now)).map_or(0, |(former, now)| now.saturating_sub(former));
        grown as f64 / self.passed.as_secs_f64().max(1e-3)
    }

    /// A rate of bytes, in MB a second.
    fn megabytes(&self, counter: impl Fn(&T) -> Option<u64>) -> String {
        format!("{:.1}", self.rate(counter) / 1e6)
    }
}

impl Since<'_, &Activity> {
    /// Which time `share` of the commands took at most, by the bounds of the classes.
    fn quantile(&self, share: f64) -> String {
        let Some(former) = self.former else { return "-".to_owned() };
        let class = |(class, count): (usize, &u64)| {
            count.saturating_sub(former.took.get(class).copied().unwrap_or(0))
        };
        let counts: Vec<u64> = self.now.took.iter().enumerate().map(class).collect();
        let all: u64 = counts.iter().sum();
        if all == 0 {
            return "-".to_owned();
        }
        let mut below = 0;
        let class = counts.iter().position(|count| {
            below += count;
            below as f64 >= share * all as f64
        });
        match class.and_then(|class| LATENCY_BOUNDS.get(class)) {
            Some(bound) => format!("<={bound}"),
            None => format!(">{}", LATENCY_BOUNDS[LATENCY_BOUNDS.len() - 1]),
        }
    }
}

/// Far ends as both ends of their tunnels see them: the commands, and the tunnel.
fn far_ends(look: &Look) -> Vec<Thing<(Option<u64>, &Link)>> {
    let mut things = Vec::new();
    for (socket, status) in look.statuses() {
        let mut add = |of: String, status| things.push(Thing { key: format!("{socket} {of}"), of, status });
        match status {
            Status::Export(export) => {
                export.far_ends.iter().for_each(|far| add(place(far), (far.commands, &far.link)));
            }
            Status::Attach(slot) | Status::Device(slot) => {
                if let Some(link) = &slot.link {
                    add(slot.url.clone().unwrap_or_default(), (slot.commands, link));
                }
            }
            _ => {}
        }
    }
    things
}

fn namespaces(look: &Look) -> Vec<Thing<&Activity>> {
    let mut things = Vec::new();
    for (socket, status) in look.statuses() {
        let all: Vec<(String, &Option<Vec<Activity>>)> = match status {
            Status::Export(export) => export.far_ends.iter().map(|far| (place(far), &far.activity)).collect(),
            Status::Target(target) => {
                target.subsystems.iter().map(|one| (one.nqn.clone(), &one.activity)).collect()
            }
            _ => continue,
        };
        for (of, activity) in all {
            for status in activity.iter().flatten() {
                things.push(Thing { key: format!("{socket} {of} {}", status.nsid), of: of.clone(), status });
            }
        }
    }
    things
}

/// A host, as the side that it uses counts it.
enum HostOf<'a> {
    /// Of a far end: the device counts for its only host.
    Far(&'a FarEnd),
    /// Of a target.
    Target(&'a Controller),
}

fn hosts(look: &Look) -> Vec<Thing<HostOf<'_>>> {
    let mut things = Vec::new();
    for (socket, status) in look.statuses() {
        let mut add = |of: String, name: &str, status| {
            things.push(Thing { key: format!("{socket} {of} {name}"), of, status });
        };
        match status {
            Status::Export(export) => {
                for far in &export.far_ends {
                    if let Some(peer) = &far.link.peer {
                        add(place(far), peer, HostOf::Far(far));
                    }
                }
            }
            Status::Target(target) => {
                for subsystem in &target.subsystems {
                    for one in &subsystem.controllers {
                        add(subsystem.nqn.clone(), &one.controller.to_string(), HostOf::Target(one));
                    }
                }
            }
            _ => {}
        }
    }
    things
}

/// What a thread serves and has done.
struct Work {
    thread: u64,
    connections: Option<u64>,
    io_queues: u64,
    commands: u64,
    processor_ns: u64,
}

/// Threads of targets, and those of devices beside the device's own.
fn threads(look: &Look) -> Vec<Thing<Work>> {
    let mut things = Vec::new();
    for (socket, status) in look.statuses() {
        let mut add = |of: &str, status: Work| {
            things.push(Thing { key: format!("{socket} {}", status.thread), of: of.to_owned(), status });
        };
        match status {
            Status::Target(target) => {
                let of = target.listening.first().map(String::as_str).unwrap_or_default();
                for core in &target.cores {
                    let status::Core { thread, connections, io_queues, commands, processor_ns, .. } = *core;
                    add(
                        of,
                        Work { thread, connections: Some(connections), io_queues, commands, processor_ns },
                    );
                }
            }
            Status::Device(slot) => {
                for (thread, lane) in (1..).zip(&slot.lanes) {
                    let status::Lane { io_queues, commands, processor_ns, .. } = *lane;
                    add(
                        &slot.vfio_user,
                        Work { thread, connections: None, io_queues, commands, processor_ns },
                    );
                }
            }
            _ => {}
        }
    }
    things
}

/// Queues of a block device that one thread serves: one of them, or all.
struct Served {
    queue: Option<u16>,
    far_end: FarEndState,
    under_way: u64,
    counts: Counts,
}

/// Block devices whose requests a process answers.
fn block_devices(look: &Look) -> Vec<Thing<Served>> {
    let mut things = Vec::new();
    for (socket, status) in look.statuses() {
        let Status::Connect(connect) = status else { continue };
        let Way::Ublk { far_end, under_way, requests, queues, .. } = &connect.way else { continue };
        let device = connect.device.clone().unwrap_or_default();
        let mut add = |served: Served| {
            let key = format!("{socket} {:?}", served.queue);
            things.push(Thing { key, of: device.clone(), status: served });
        };
        if queues.is_empty() {
            let sum = |of: fn(&Counts) -> u64| requests.iter().map(|one| of(&one.counts)).sum();
            let counts = Counts {
                operations: sum(|counts| counts.operations),
                bytes: sum(|counts| counts.bytes),
                errors: sum(|counts| counts.errors),
            };
            add(Served { queue: None, far_end: *far_end, under_way: *under_way, counts });
        }
        for BlockQueue { queue, far_end, under_way, counts } in queues {
            let (queue, far_end, under_way) = (Some(*queue), *far_end, *under_way);
            add(Served { queue, far_end, under_way, counts: *counts });
        }
    }
    things
}

fn place(far: &FarEnd) -> String {
    format!("tcp://{}", far.listening)
}

fn far_end(place: String, since: &Since<'_, (Option<u64>, &Link)>) -> FarEndRow {
    let (_, link) = since.now;
    FarEndRow {
        place,
        link: state(link).to_owned(),
        peer: link.peer.clone().unwrap_or_else(dash),
        round_trip: link.round_trip_ns.map_or_else(dash, |length| Nanos::new(length).to_string()),
        commands_s: format!("{:.0}", since.rate(|(commands, _)| *commands)),
        in_mb_s: since.megabytes(|(_, link)| Some(link.bytes_received)),
        out_mb_s: since.megabytes(|(_, link)| Some(link.bytes_sent)),
        resumed: link.resumptions.to_string(),
    }
}

fn state(link: &Link) -> &'static str {
    match (&link.peer, link.connected) {
        (None, _) => "down",
        (Some(_), true) => "up",
        (Some(_), false) => "lost, held",
    }
}

fn dash() -> String {
    "-".to_owned()
}

fn namespace(of: String, since: &Since<'_, &Activity>) -> NamespaceRow {
    NamespaceRow {
        of,
        nsid: since.now.nsid.to_string(),
        reads_s: format!("{:.0}", since.rate(|one| Some(one.reads))),
        writes_s: format!("{:.0}", since.rate(|one| Some(one.writes))),
        read_mb_s: since.megabytes(|one| Some(one.read_bytes)),
        written_mb_s: since.megabytes(|one| Some(one.written_bytes)),
        p50: since.quantile(0.5),
        p99: since.quantile(0.99),
        errors: since.now.errors.to_string(),
    }
}

fn host(of: String, since: &Since<'_, HostOf<'_>>) -> HostRow {
    let activity = |host: &HostOf<'_>| match host {
        HostOf::Far(_) => None,
        HostOf::Target(one) => one.activity.clone(),
    };
    let commands = |host: &HostOf<'_>| match host {
        HostOf::Far(far) => far.commands,
        HostOf::Target(_) => activity(host).map(|all| all.reads + all.writes + all.others),
    };
    let commands_s = format!("{:.0}", since.rate(commands));
    match since.now {
        HostOf::Far(far) => {
            let key = far.host.as_ref().map(|host| host.name.as_ref().unwrap_or(&host.key));
            let host = key.or(far.link.peer.as_ref()).cloned().unwrap_or_default();
            let (queues, read_mb_s, written_mb_s, errors) = (dash(), dash(), dash(), dash());
            let state = state(&far.link).to_owned();
            HostRow { of, host, state, queues, commands_s, read_mb_s, written_mb_s, errors }
        }
        HostOf::Target(one) => HostRow {
            of,
            host: one.host.clone(),
            state: if one.ready { "ready" } else { "not ready" }.to_owned(),
            queues: one.queues.len().to_string(),
            commands_s,
            read_mb_s: since.megabytes(|host| activity(host).map(|all| all.read_bytes)),
            written_mb_s: since.megabytes(|host| activity(host).map(|all| all.written_bytes)),
            errors: one.activity.as_ref().map_or_else(dash, |all| all.errors.to_string()),
        },
    }
}

fn thread(of: String, since: &Since<'_, Work>) -> ThreadRow {
    ThreadRow {
        of,
        thread: since.now.thread.to_string(),
        processor: format!("{:.0}", since.rate(|one| Some(one.processor_ns)) / 1e7),
        connections: since.now.connections.map_or_else(dash, |count| count.to_string()),
        queues: since.now.io_queues.to_string(),
        commands_s: format!("{:.0}", since.rate(|one| Some(one.commands))),
    }
}

fn block_device(device: String, since: &Since<'_, Served>) -> BlockDeviceRow {
    let Served { queue, far_end, under_way, counts } = since.now;
    let far_end = match far_end {
        FarEndState::Here => "here",
        FarEndState::Away => "away",
        FarEndState::Refused => "refused",
    };
    BlockDeviceRow {
        device,
        queue: queue.map_or_else(|| "all".to_owned(), |queue| queue.to_string()),
        far_end: far_end.to_owned(),
        under_way: under_way.to_string(),
        requests_s: format!("{:.0}", since.rate(|one| Some(one.counts.operations))),
        mb_s: since.megabytes(|one| Some(one.counts.bytes)),
        errors: counts.errors.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn status(reads: u64, fast: u64, slow: u64, bytes: u64) -> Status {
        let mut took = vec![0; LATENCY_BOUNDS.len() + 1];
        (took[3], took[LATENCY_BOUNDS.len()]) = (fast, slow);
        let status = json!({ "kind": "export", "far_ends": [{
            "listening": "127.0.0.1:4430", "admits": "anyone", "commands": reads,
            "link": { "peer": "host", "connected": true, "round_trip_ns": 50_000, "resumptions": 1,
                "bytes_received": bytes, "bytes_sent": 2 * bytes, "packets_sent": 0, "packets_received": 0,
                "sent_again": 0, "waiting_bytes": 0, "unacknowledged_bytes": 0,
                "unacknowledged_bytes_max": 0 },
            "host": null, "connections": [], "datagrams": [],
            "strangers": { "waiting": 0, "accepted": 1, "admitted": 1, "refused": 0, "late": 0,
                "displaced": 0 },
            "far_reads": { "hits": 0, "misses": 0, "bytes_ahead": 0, "bytes_in_vain": 0, "evicted": 0 },
            "activity": [{ "nsid": 1, "reads": reads, "read_bytes": 4096 * reads, "writes": 0,
                "written_bytes": 0, "others": 0, "errors": 2, "took": took }],
        }]});
        serde_json::from_value(status).unwrap()
    }

    #[test]
    fn rates_are_what_happened_between_two_looks() {
        let start = Instant::now();
        let before = Look::of(start, &[status(1_000, 1_000, 0, 0)]);
        let after = Look::of(start + Duration::from_secs(2), &[status(3_000, 2_970, 30, 4_000_000)]);
        let far_end = rows(View::FarEnds, &before, &after);
        let expected = ["tcp://127.0.0.1:4430", "up", "host", "50.0 µs", "1000", "2.0", "4.0", "1"];
        assert_eq!(far_end[0].len(), View::FarEnds.head().len());
        assert_eq!(
            (&far_end[0][..3], &far_end[0][4..]),
            (&expected.map(str::to_owned)[..3], &expected.map(str::to_owned)[4..])
        );
        let namespace = rows(View::Namespaces, &before, &after);
        assert_eq!(namespace[0][1..6], ["1", "1000", "0", "4.1", "0.0"]);
        assert!(namespace[0][6].starts_with("<=20") && namespace[0][7].starts_with('>'), "{namespace:?}");
        assert_eq!(rows(View::Hosts, &before, &after)[0][1..5], ["host", "up", "-", "1000"]);
    }

    #[test]
    fn what_is_new_has_no_rate_yet_and_a_counter_that_began_anew_is_none() {
        let start = Instant::now();
        let (nothing, much) = (Look::of(start, &[]), Look::of(start, &[status(5_000, 5_000, 0, 9)]));
        let after = Look::of(start + Duration::from_secs(1), &[status(10, 10, 0, 0)]);
        for before in [nothing, much] {
            let namespace = rows(View::Namespaces, &before, &after);
            assert_eq!((namespace[0][2].as_str(), namespace[0][6].as_str()), ("0", "-"));
        }
    }

    #[test]
    fn each_thread_of_a_target_has_a_row() {
        let strangers = json!({ "connections": 0, "most": 9, "discovery": 0, "discovery_most": 9,
            "refused": {}, "dropped": {},
            "exponentiations": { "waiting": 0, "done": 0, "refused": 0, "processor_ns": 0 } });
        let memory = json!({ "budget_bytes": 1, "used_bytes": 0, "waiting": 0 });
        let target = |threads: &[(u64, u64)]| -> Status {
            let core = |(thread, commands): &(u64, u64)| {
                json!({ "thread": thread, "lag_ns": 1, "connections": 3, "io_queues": 2, "memory": memory,
                    "commands": commands, "processor_ns": commands * 1_000_000, "strangers": strangers })
            };
            serde_json::from_value(
                json!({ "kind": "target", "listening": ["127.0.0.1:4420"], "fabrics": ["tcp"],
                "generation": 1, "connections": 6, "memory": memory, "strangers": strangers,
                "cores": threads.iter().map(core).collect::<Vec<_>>(), "discovery_access": "open",
                "subsystems": [], "discovery": [] }),
            )
            .unwrap()
        };
        let start = Instant::now();
        let before = Look::of(start, &[target(&[(0, 100), (2, 500)])]);
        // Thread 1 had failed at the first look, and works again.
        let after = Look::of(start + Duration::from_secs(2), &[target(&[(0, 100), (1, 7), (2, 1_500)])]);
        let rows = rows(View::Threads, &before, &after);
        assert_eq!(rows[0], ["127.0.0.1:4420", "0", "0", "3", "2", "0"]);
        assert_eq!((rows[1][1].as_str(), rows[1][5].as_str()), ("1", "0"));
        assert_eq!(rows[2], ["127.0.0.1:4420", "2", "50", "3", "2", "500"]);
        assert_eq!(rows[2].len(), View::Threads.head().len());
    }

    #[test]
    fn each_queue_of_a_block_device_has_a_row() {
        let status = |queues: serde_json::Value, operations: u64| -> Status {
            serde_json::from_value(
                json!({ "kind": "connect", "url": "nvme-tcp://a/b", "device": "/dev/ublkb0",
                    "bytes": 4096, "block": 512, "read_only": false, "activity": [], "over": "ublk",
                    "far_end": "here", "under_way": 3, "queues": queues, "requests": [{ "request": "read",
                    "operations": operations, "bytes": 4096 * operations, "errors": 1,
                    "latencies": { "counts": [], "sum_ns": 0 } }],
                }),
            )
            .unwrap()
        };
        let queues = |operations: u64| {
            json!([{ "queue": 0, "far_end": "here", "under_way": 1, "operations": 0, "bytes": 0, "errors": 0 },
                { "queue": 1, "far_end": "away", "under_way": 2, "operations": operations,
                    "bytes": 1_000_000 * operations, "errors": 1 }])
        };
        let start = Instant::now();
        let seen = |status: &dyn Fn(u64) -> Status| {
            let before = Look::of(start, &[status(0)]);
            let after = Look::of(start + Duration::from_secs(2), &[status(10)]);
            rows(View::BlockDevices, &before, &after)
        };
        let each = seen(&|operations| status(queues(operations), operations));
        assert_eq!(each[0], ["/dev/ublkb0", "0", "here", "1", "0", "0.0", "0"]);
        assert_eq!(each[1], ["/dev/ublkb0", "1", "away", "2", "5", "5.0", "1"]);
        let all = seen(&|operations| status(json!([]), operations));
        assert_eq!(all, [["/dev/ublkb0", "all", "here", "3", "5", "0.0", "1"]]);
        assert_eq!(all[0].len(), View::BlockDevices.head().len());
    }
}
