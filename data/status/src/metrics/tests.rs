use std::collections::BTreeSet;

use serde_json::json;

use super::*;

/// The metrics of the status in this answer of a daemon.
fn page(answer: serde_json::Value) -> Page {
    let mut page = Page::default();
    Report::read(answer).unwrap().add_to(&mut page);
    page
}

/// The value called `name` whose labels are `labels`.
fn value(page: &Page, name: &str, labels: &[(&str, &str)]) -> Value {
    let family = page.families().iter().find(|family| family.name == name);
    let values = &family.unwrap_or_else(|| panic!("there is no {name}")).values;
    let is_it = |(of, _): &&(Labels, Value)| {
        of.iter().map(|(key, value)| (*key, value.as_str())).eq(labels.iter().copied())
    };
    values.iter().find(is_it).unwrap_or_else(|| panic!("{name} lacks {labels:?}: {values:?}")).1.clone()
}

fn connect() -> serde_json::Value {
    let latencies = json!({ "sum_ns": 9_000, "counts": [0, 1, 1] });
    let none = json!({ "sum_ns": 0, "counts": [] });
    let kind = |operations: u64, of: &serde_json::Value| {
        json!({ "operations": operations, "bytes": 4096 * operations, "errors": 0, "link": of, "medium": of,
            "wait": of, "whole": of })
    };
    json!({ "schema_version": 1, "farlane": "0.1.0", "kind": "connect", "pid": 7, "url": "tcp://x",
        "device": "/dev/nvme0n1", "bytes": 1, "block": 512, "read_only": true, "over": "nvme-tcp",
        "target": "127.0.0.1:1", "activity": [{ "nsid": 1, "reads": 2, "read_bytes": 8192, "writes": 0,
            "written_bytes": 0, "others": 0, "errors": 1, "took": [0, 1, 1], "space_errors": 1,
            "statuses": [{ "status": "Capacity Exceeded", "count": 1 }],
            "kinds": { "read": kind(2, &latencies), "write": kind(0, &none), "other": kind(0, &none) } }] })
}

#[test]
fn a_namespace_has_counts_times_and_statuses() {
    let page = page(connect());
    let read = [("nsid", "1"), ("command", "read")];
    assert_eq!(value(&page, "farlane_namespace_bytes", &read), Value::Number(8192.0));
    let write = [("nsid", "1"), ("command", "write"), ("phase", "whole")];
    let Value::Distribution(times) = value(&page, "farlane_namespace_seconds", &write) else {
        panic!("times are a distribution");
    };
    assert_eq!((times.count, times.classes.len()), (0, 22));
    let failed = [("nsid", "1"), ("status", "Capacity Exceeded")];
    assert_eq!(value(&page, "farlane_namespace_statuses", &failed), Value::Number(1.0));
    assert_eq!(value(&page, "farlane_namespace_space_errors", &[("nsid", "1")]), Value::Number(1.0));
}

#[test]
fn a_status_without_times_as_of_an_older_daemon_has_no_metrics_of_namespaces() {
    let mut answer = connect();
    let activity = answer["activity"][0].as_object_mut().unwrap();
    for new in ["kinds", "space_errors", "statuses"] {
        activity.remove(new);
    }
    let page = page(answer);
    let names: Vec<_> = page.families().iter().map(|family| family.name).collect();
    assert_eq!(names, ["farlane_block_far_end_refused"]);
}

#[test]
fn requests_of_a_block_device_are_named_by_their_kind() {
    let mut answer = connect();
    for (key, value) in [("over", json!("ublk")), ("far_end", json!("here")), ("under_way", json!(3))] {
        answer[key] = value;
    }
    answer["device"] = json!("/dev/ublkb0");
    answer["requests"] = json!([{ "request": "flush", "operations": 5, "bytes": 0, "errors": 0,
        "latencies": { "sum_ns": 5, "counts": [5] } }]);
    let page = page(answer);
    let device = ("device", "ublkb0");
    assert_eq!(value(&page, "farlane_block_far_end_here", &[device]), Value::Number(1.0));
    let flushes = [device, ("request", "flush")];
    assert_eq!(value(&page, "farlane_block_requests", &flushes), Value::Number(5.0));
}

#[test]
fn a_slot_that_does_not_look_ahead_has_sent_nothing_ahead() {
    let page =
        page(json!({ "kind": "attach", "pid": 7, "vfio_user": "/x", "url": "tcp://x", "client": false,
        "link": null, "connections": [], "datagrams": [], "commands": 9, "round_trips": null,
        "lookahead": null, "dma": null, "far_reads": null, "shadow": null, "guest": {
            "config_accesses": 1, "register_accesses": 2, "interrupts": 3, "given_up": 4, "waited": 5 } }));
    assert_eq!(value(&page, "farlane_lookahead_commands", &[]), Value::Number(9.0));
    assert_eq!(value(&page, "farlane_lookahead_entries", &[]), Value::Number(0.0));
    assert_eq!(value(&page, "farlane_guest_waits_in_vain", &[]), Value::Number(4.0));
    let names: BTreeSet<_> = page.families().iter().map(|family| family.name).collect();
    assert_eq!(names.len(), page.families().len(), "each family is there once");
}
