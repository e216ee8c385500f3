//! From two looks at the daemons to what happened in between.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use engine::Nanos;
use nvme::subsystem::LATENCY_BOUNDS;
use serde::Serialize;
use serde_json::Value;

use crate::commands::control::{self, Daemon};

/// What is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum View {
    FarEnds,
    Namespaces,
    Hosts,
}

impl View {
    pub(super) const ALL: [Self; 3] = [Self::FarEnds, Self::Namespaces, Self::Hosts];

    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::FarEnds => "far ends",
            Self::Namespaces => "namespaces",
            Self::Hosts => "hosts",
        }
    }

    /// The key that shows it.
    pub(super) const fn key(self) -> char {
        match self {
            Self::FarEnds => 'f',
            Self::Namespaces => 'n',
            Self::Hosts => 'h',
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
        Self { at: Instant::now(), daemons: control::daemons().unwrap_or_default() }
    }

    #[cfg(test)]
    pub(super) fn of(at: Instant, statuses: &[Value]) -> Self {
        let daemon = |status: &Value| Daemon { socket: "socket".into(), status: status.clone() };
        Self { at, daemons: statuses.iter().map(daemon).collect() }
    }
}

/// A row of a view: its identity, and its cells.
type Row = Vec<String>;

/// A thing that has counters: what it is called, who it is from one look to the next, and
/// its status.
struct Thing<'a> {
    key: String,
    of: String,
    status: &'a Value,
}

/// The rows of `view`: what happened between `before` and `after`.
pub(super) fn rows(view: View, before: &Look, after: &Look) -> Vec<Row> {
    let former: HashMap<_, _> =
        things(view, before).into_iter().map(|thing| (thing.key, thing.status)).collect();
    let passed = after.at.saturating_duration_since(before.at);
    let row = |thing: Thing<'_>| {
        let since = Since { former: former.get(&thing.key).copied(), now: thing.status, passed };
        match view {
            View::FarEnds => far_end(&thing, &since),
            View::Namespaces => namespace(&thing, &since),
            View::Hosts => host(&thing, &since),
        }
    };
    things(view, after).into_iter().map(row).collect()
}

/// A counter's way from one look to the next.
struct Since<'a> {
    former: Option<&'a Value>,
    now: &'a Value,
    passed: Duration,
}

impl Since<'_> {
    /// How much a counter has grown a second; 0 for what was not there before.
    fn rate(&self, pointer: &str) -> f64 {
        let at = |value: &Value| value.pointer(pointer).and_then(Value::as_u64);
        let former = self.former.and_then(at);
        let grown = former.zip(at(self.now)).map_or(0, |(former, now)| now.saturating_sub(former));
        grown as f64 / self.passed.as_secs_f64().max(1e-3)
    }

    fn rates(&self, pointers: &[&str]) -> f64 {
        pointers.iter().map(|pointer| self.rate(pointer)).sum()
    }

    /// A rate of bytes, in MB a second.
    fn megabytes(&self, pointer: &str) -> String {
        format!("{:.1}", self.rate(pointer) / 1e6)
    }

    /// Which time `share` of the commands took at most, by the bounds of the classes.
    fn quantile(&self, share: f64) -> String {
        let classes =
            |value: &Value| -> Vec<u64> { list(&value["took"]).iter().filter_map(Value::as_u64).collect() };
        let former = self.former.map(classes).unwrap_or_default();
        let now = classes(self.now);
        let counts: Vec<u64> = now
            .iter()
            .enumerate()
            .map(|(class, count)| count.saturating_sub(former.get(class).copied().unwrap_or(0)))
            .collect();
        let all: u64 = counts.iter().sum();
        if all == 0 || self.former.is_none() {
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

fn things(view: View, look: &Look) -> Vec<Thing<'_>> {
    let mut things = Vec::new();
    for Daemon { socket, status } in &look.daemons {
        let socket = socket.to_string_lossy();
        let mut add = |of: String, name: &Value, status| {
            things.push(Thing { key: format!("{socket} {of} {name}"), of, status });
        };
        for far in list(&status["far_ends"]) {
            let place = format!("tcp://{}", plain(&far["listening"]));
            match view {
                View::FarEnds => add(place, &Value::Null, far),
                View::Namespaces => {
                    list(&far["activity"]).iter().for_each(|one| add(place.clone(), &one["nsid"], one));
                }
                View::Hosts if !far["link"]["peer"].is_null() => add(place, &far["link"]["peer"], far),
                View::Hosts => {}
            }
        }
        if view == View::FarEnds && status["link"].is_object() {
            add(plain(&status["url"]).to_owned(), &Value::Null, status);
        }
        for subsystem in list(&status["subsystems"]) {
            let nqn = plain(&subsystem["nqn"]).to_owned();
            match view {
                View::FarEnds => {}
                View::Namespaces => {
                    list(&subsystem["activity"]).iter().for_each(|one| add(nqn.clone(), &one["nsid"], one));
                }
                View::Hosts => {
                    list(&subsystem["controllers"])
                        .iter()
                        .for_each(|one| add(nqn.clone(), &one["controller"], one));
                }
            }
        }
    }
    things
}

fn far_end(thing: &Thing<'_>, since: &Since<'_>) -> Row {
    let link = &thing.status["link"];
    let round_trip = link["round_trip_ns"].as_u64().map(|length| Nanos::new(length).to_string());
    vec![
        thing.of.clone(),
        state(link).to_owned(),
        link["peer"].as_str().unwrap_or("-").to_owned(),
        round_trip.unwrap_or_else(|| "-".to_owned()),
        format!("{:.0}", since.rate("/commands")),
        since.megabytes("/link/bytes_received"),
        since.megabytes("/link/bytes_sent"),
        link["resumptions"].to_string(),
    ]
}

fn state(link: &Value) -> &'static str {
    match (link["peer"].is_null(), link["connected"].as_bool()) {
        (true, _) => "down",
        (false, Some(true)) => "up",
        (false, _) => "lost, held",
    }
}

fn namespace(thing: &Thing<'_>, since: &Since<'_>) -> Row {
    vec![
        thing.of.clone(),
        thing.status["nsid"].to_string(),
        format!("{:.0}", since.rate("/reads")),
        format!("{:.0}", since.rate("/writes")),
        since.megabytes("/read_bytes"),
        since.megabytes("/written_bytes"),
        since.quantile(0.5),
        since.quantile(0.99),
        thing.status["errors"].to_string(),
    ]
}

fn host(thing: &Thing<'_>, since: &Since<'_>) -> Row {
    let status = thing.status;
    if status["link"].is_object() {
        // Who uses a far end: its device counts for its only host.
        let name = status["host"]["name"].as_str().or(status["host"]["key"].as_str());
        let (commands, dash) = (format!("{:.0}", since.rate("/commands")), || "-".to_owned());
        let host = name.unwrap_or(plain(&status["link"]["peer"])).to_owned();
        return vec![
            thing.of.clone(),
            host,
            state(&status["link"]).to_owned(),
            dash(),
            commands,
            dash(),
            dash(),
            dash(),
        ];
    }
    let commands = ["/activity/reads", "/activity/writes", "/activity/others"];
    vec![
        thing.of.clone(),
        plain(&status["host"]).to_owned(),
        if status["ready"] == true { "ready" } else { "not ready" }.to_owned(),
        list(&status["queues"]).len().to_string(),
        format!("{:.0}", since.rates(&commands)),
        since.megabytes("/activity/read_bytes"),
        since.megabytes("/activity/written_bytes"),
        status.pointer("/activity/errors").map_or_else(|| "-".to_owned(), Value::to_string),
    ]
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn plain(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn status(reads: u64, fast: u64, slow: u64, bytes: u64) -> Value {
        let mut took = vec![0; LATENCY_BOUNDS.len() + 1];
        (took[3], took[LATENCY_BOUNDS.len()]) = (fast, slow);
        json!({ "kind": "export", "far_ends": [{
            "listening": "127.0.0.1:4430", "commands": reads,
            "link": { "peer": "host", "connected": true, "round_trip_ns": 50_000, "resumptions": 1,
                "bytes_received": bytes, "bytes_sent": 2 * bytes },
            "host": null,
            "activity": [{ "nsid": 1, "reads": reads, "read_bytes": 4096 * reads, "writes": 0,
                "written_bytes": 0, "others": 0, "errors": 2, "took": took }],
        }]})
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
        let odd = Look::of(start, &[json!(null), json!({ "far_ends": [null], "subsystems": [{}] })]);
        assert!(View::ALL.iter().all(|view| rows(*view, &odd, &odd).len() <= 1));
    }
}
