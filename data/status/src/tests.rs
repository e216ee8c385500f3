use serde_json::json;

use super::*;

fn recorder() -> Value {
    json!({ "kind": "record", "pid": 7, "state": "running", "medium": { "bytes": 9, "model": "" },
        "start_address": 0, "maximum_address": 9, "chunks_max": 0, "last_address": 0, "chunk_bytes": 4096,
        "bytes_in": 1, "bytes_stored": 1, "bytes_acknowledged": 1, "bytes_lost": 0, "bytes_overwritten": 0,
        "ring": false, "pre_trigger_ns": null, "kept_bytes": null, "kept_ns": null, "triggered": null,
        "fill_bytes": 0, "high_water_bytes": 0, "buffer_bytes": u64::MAX })
}

#[test]
fn a_report_survives_the_way_to_its_reader() {
    let connect = json!({ "schema_version": 1, "farlane": "0.1.0", "kind": "connect", "pid": 7,
        "url": "tcp://x", "device": null, "bytes": 1, "block": 512, "read_only": true, "activity": [],
        "over": "ublk", "far_end": "away", "under_way": 3, "requests": [] });
    let report = Report::read(connect.clone()).unwrap();
    assert!(matches!(&report.status, Status::Connect(device) if device.way.is_away()));
    assert_eq!(serde_json::to_value(&report).unwrap(), connect);
}

#[test]
fn fields_of_a_newer_daemon_are_ignored_and_optional_ones_may_be_missing() {
    let mut answer = recorder();
    answer["new"] = json!({ "x": 1 });
    answer.as_object_mut().unwrap().remove("triggered");
    let report = Report::read(answer).unwrap();
    assert!(
        matches!(report.status, Status::Record(of) if of.buffer_bytes == u64::MAX && of.triggered.is_none())
    );
}

#[test]
fn an_answer_that_is_not_understood_is_rejected_with_its_kind_and_versions() {
    let reported = |change: &dyn Fn(&mut Value)| {
        let mut answer = recorder();
        answer["farlane"] = json!("0.9.0");
        change(&mut answer);
        Report::read(answer).unwrap_err().to_string()
    };
    let ours = env!("CARGO_PKG_VERSION");
    let kind = reported(&|answer| answer["kind"] = json!("teleport"));
    for words in ["process 7 (farlane 0.9.0)", "\"teleport\"", ours] {
        assert!(kind.contains(words), "{kind}");
    }
    let version = reported(&|answer| answer["schema_version"] = json!(2));
    for words in ["schema version 2", "reads version 1", "farlane 0.9.0", ours] {
        assert!(version.contains(words), "{version}");
    }
    let field = reported(&|answer| drop(answer.as_object_mut().unwrap().remove("state")));
    assert!(field.contains("\"record\"") && field.contains("missing field `state`"), "{field}");
    for odd in [json!(null), json!([]), json!({ "pid": 7 }), json!("text")] {
        assert_eq!(Report::read(odd).unwrap_err(), Unreadable::NoStatus);
    }
}

#[test]
fn every_kind_is_in_the_schema_and_in_the_list() {
    let schema = schemars::generate::SchemaSettings::draft2020_12().for_serialize();
    let schema = schema.into_generator().into_root_schema_for::<Report>().to_value();
    let kinds: Vec<_> = schema["oneOf"].as_array().unwrap().iter().collect();
    let kind = |of: &&Value| of["properties"]["kind"]["const"].as_str().unwrap().to_owned();
    assert_eq!(kinds.iter().map(kind).collect::<Vec<_>>(), Status::KINDS);
}
