//! Versions that mix: what another version sends is read, and what it lacks has a default.
//!
//! The texts here are those of the first version. A field that is new must have a default, or the
//! agents and the stores of the version before could not be read.

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;
use crate::channel::Message;

/// Adds a field of a later version to each object within, but not to maps, whose keys users choose.
fn with_unknown_fields(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, field) in &mut *fields {
                let is_map = field.is_object() && ["volumes", "attachments"].contains(&name.as_str());
                if is_map {
                    let entries = field.as_object_mut().into_iter().flat_map(serde_json::Map::values_mut);
                    entries.for_each(with_unknown_fields);
                } else if name != "labels" && name != "between" {
                    with_unknown_fields(field);
                }
            }
            fields.insert("of-a-later-version".to_owned(), json!({"deep": [1]}));
        }
        Value::Array(items) => items.iter_mut().for_each(with_unknown_fields),
        _ => (),
    }
}

/// Reads a text of the first version, with and without fields of a later one. The value written
/// again has all that the text has.
fn reads<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(text: &Value) -> T {
    let read: T = serde_json::from_value(text.clone()).unwrap();
    let mut later = text.clone();
    with_unknown_fields(&mut later);
    assert_eq!(serde_json::from_value::<T>(later).unwrap(), read);
    assert_eq!(serde_json::to_value(&read).unwrap(), *text);
    read
}

fn admission() -> Value {
    json!({"attachment": "a", "node": "h", "mode": "exclusive", "epoch": "2.7"})
}

fn credential() -> Value {
    json!({"attachment": "a", "epoch": "2.7", "nqn": "nqn.x", "dhchap": "DHHC-1:", "tls": null})
}

#[test]
fn messages_to_agents_of_the_first_version_are_read() {
    let volume = json!({
        "name": "v", "pool": "p", "bytes": 4096, "epoch": "2.8", "admitted": [admission()], "delete": false
    });
    let attachment = json!({
        "name": "a", "volume": "v", "epoch": "2.7", "mode": "shared", "owner": "m",
        "addresses": ["10.0.0.1:4420"], "wish": "connect"
    });
    let slice = json!({
        "seen": {"incarnation": 2, "term": 3, "revision": 4}, "volumes": [volume], "attachments": [attachment]
    });
    let messages = [
        json!({"message": "ask", "term": 3}),
        json!({"message": "slice", "slice": slice, "credentials": [credential()]}),
        json!({"message": "alive"}),
        json!({"message": "refused", "why": "a reason"}),
    ];
    kinds_are_known::<ToAgent>(&messages);
    let ToAgent::Slice { slice, .. } = reads::<ToAgent>(&messages[1]) else { panic!() };
    assert_eq!(slice.pure().unwrap().volumes[0].epoch, fleet::Epoch { incarnation: 2, number: 8 });
}

#[test]
fn messages_of_agents_of_the_first_version_are_read() {
    let volume = json!({
        "name": "v", "pool": "p", "bytes": 4096, "epoch": "2.8", "admitted": [admission()],
        "enforced": true, "deleted": false
    });
    let attachment = json!({
        "name": "a", "volume": "v", "owner": "m", "epoch": "2.7", "connected": true
    });
    let seen = json!({"incarnation": 2, "term": 3, "revision": 4});
    let report = json!({"term": 3, "seen": seen, "volumes": [volume], "attachments": [attachment]});
    let messages = [
        json!({"message": "hello", "boot": "x"}),
        json!({"message": "report", "report": report, "credentials": [credential()]}),
        json!({"message": "alive"}),
    ];
    kinds_are_known::<FromAgent>(&messages);
    let FromAgent::Report { report, .. } = reads::<FromAgent>(&messages[1]) else { panic!() };
    assert!(report.pure().unwrap().volumes[0].enforced);
}

fn kinds_are_known<T: Message + Serialize + PartialEq + std::fmt::Debug>(messages: &[Value]) {
    let kinds: Vec<_> = messages.iter().map(|message| message["message"].as_str().unwrap()).collect();
    assert_eq!(kinds, T::KINDS, "each kind has its text here");
    messages.iter().for_each(|message| drop(reads::<T>(message)));
}

#[test]
fn a_state_of_the_first_version_is_read_by_the_next_agent() {
    let volume = json!({
        "pool": "p", "bytes": 4096, "epoch": "2.8", "admitted": [admission()], "delete": false
    });
    let attachment = json!({
        "volume": "w", "epoch": "2.7", "mode": "read", "owner": "m", "addresses": ["10.0.0.1:4420"]
    });
    let state = reads::<State>(&json!({
        "seen": {"incarnation": 2, "term": 3, "revision": 4},
        "volumes": {"v": volume}, "attachments": {"b": attachment}, "ended": ["c"]
    }));
    let state = state.pure().unwrap();
    assert_eq!(state.volumes.values().next().unwrap().epoch, fleet::Epoch { incarnation: 2, number: 8 });
    assert_eq!((state.attachments.len(), state.ended.len()), (1, 1));
}

/// The objects of the first version: in full, and with the fields alone that have no default.
fn objects() -> Vec<(Value, Value)> {
    let (identity, identifier) = ("ab".repeat(32), "cd".repeat(16));
    let node = json!({
        "kind": "node", "identity": identity, "host_nqn": "nqn.h", "host_identifier": identifier,
        "addresses": ["10.0.0.1"]
    });
    let pool = json!({"kind": "pool", "node": "m", "path": "/p", "bytes": 9});
    let attachment = json!({"kind": "attachment", "volume": "v", "node": "h"});
    let token = json!({"kind": "token", "secret": identity, "expires": 5});
    let with = |less: &Value, more: Value| {
        let (mut full, Value::Object(more)) = (less.clone(), more) else { unreachable!() };
        full.as_object_mut().unwrap().extend(more);
        (full, less.clone())
    };
    let fleet = json!({"kind": "fleet", "incarnation": 2});
    let link = json!({"kind": "link", "between": [{"site": "a"}, {"site": "b"}], "scenario": "x"});
    vec![
        (fleet.clone(), fleet),
        with(&node, json!({"labels": {"site": "a"}, "cordon": {"owner": "o", "reason": "r"}})),
        with(&pool, json!({"clones": true})),
        with(
            &json!({"kind": "volume", "bytes": 9}),
            json!({
                "class": "c", "near": "h", "pool": "p", "delete": true, "epoch": "2.8",
                "admitted": [admission()]
            }),
        ),
        with(&json!({"kind": "class"}), json!({"p99": 5, "bandwidth": 6})),
        (link.clone(), link),
        with(&attachment, json!({"mode": "shared", "owner": "o", "detach": true})),
        with(&token, json!({"used_by": identity})),
    ]
}

#[test]
fn objects_of_the_first_version_are_read_and_what_they_lack_has_a_default() {
    for (full, least) in objects() {
        let read = reads::<Object>(&full).pure().unwrap();
        assert_eq!(full["kind"], read.kind().word());
        let mut later = least.clone();
        with_unknown_fields(&mut later);
        let least: Object = serde_json::from_value(later).unwrap();
        assert_eq!(least.pure().unwrap().kind(), read.kind());
    }
}

#[test]
fn snapshots_and_what_is_made_from_others_are_read_back() {
    let copy = json!({
        "data": "volume/c", "of": "snapshot/s", "pool": "p", "bytes": 4096, "epoch": "2.8", "made": 7,
        "delete": false
    });
    let slice = json!({
        "seen": {"incarnation": 2, "term": 3, "revision": 4}, "volumes": [], "attachments": [],
        "copies": [copy]
    });
    reads::<Slice>(&slice);
    let saved = json!({
        "of": "volume/v", "pool": "p", "bytes": 4096, "epoch": "2.8", "made": null, "delete": true
    });
    let state: State = serde_json::from_value(json!({
        "seen": {"incarnation": 2, "term": 3, "revision": 4}, "volumes": {}, "attachments": {}, "ended": [],
        "copies": {"snapshot/s": saved}
    }))
    .unwrap();
    let again: State = serde_json::from_str(&serde_json::to_string(&state).unwrap()).unwrap();
    assert_eq!(again.pure().unwrap().copies.len(), 1);
    let snapshot = json!({
        "kind": "snapshot", "volume": "v", "pool": "p", "bytes": 9, "taken": 7, "delete": false, "epoch": "2.8"
    });
    reads::<Object>(&snapshot);
    serde_json::from_value::<Object>(json!({"kind": "snapshot", "volume": "v"})).unwrap().pure().unwrap();
    let clone = json!({"kind": "volume", "bytes": 9, "source": "snapshot/s"});
    let Object::Volume(volume) = serde_json::from_value(clone).unwrap() else { panic!() };
    assert_eq!(volume.source.unwrap().to_string(), "snapshot/s");
    for bad in ["s", "pool/s", "snapshot/", "snapshot/S", "volume/a/b"] {
        let error = bad.parse::<Data>().unwrap_err().to_string();
        assert!(error.contains("expected") || error.contains("name"), "{error}");
    }
}
