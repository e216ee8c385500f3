//! docs/schemas has the schemas of the printed types, and docs/operate.md the codes of errors.

use std::fs;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};
use status::{Report, SCHEMA_VERSION};

use super::root;
use crate::commands::status::list;
use crate::commands::{
    bench, capture, check, connect, copy, demo, discover, doctor, emulate, export, guest, identify, key,
    listening, lspci, man, measure, nic, nvme, ping, preflight, rdma, record, save, sim, target, top, trace,
    tsn, ui,
};
use crate::error::code::{CODES, OF_DAEMONS, USAGE};
use crate::failure;

/// Writes docs/schemas anew instead of comparing it.
const UPDATE: &str = "FARLANE_UPDATE_SCHEMAS";

/// The schema of a printed `T`. The type's document comment describes it.
fn of<T: JsonSchema>(title: &str) -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    schema["title"] = json!(title);
    // Most reports get the version only when they are printed.
    schema["properties"]["schema_version"] = json!({ "const": SCHEMA_VERSION });
    let required = schema.as_object_mut().unwrap().entry("required").or_insert(json!([]));
    let required = required.as_array_mut().unwrap();
    if !required.contains(&json!("schema_version")) {
        required.insert(0, json!("schema_version"));
    }
    shorten(&mut schema);
    schema
}

/// Removes bounds of numbers and defaults, which a reader of results does not need.
fn shorten(schema: &mut Value) {
    match schema {
        Value::Object(words) => {
            for word in ["format", "minimum", "maximum", "default"] {
                words.remove(word);
            }
            for (word, rule) in words {
                match rule {
                    // The keys of these are names.
                    Value::Object(named) if word == "properties" || word == "$defs" => {
                        named.values_mut().for_each(shorten);
                    }
                    rule => shorten(rule),
                }
            }
        }
        Value::Array(all) => all.iter_mut().for_each(shorten),
        _ => {}
    }
}

/// Removes the definitions that nothing refers to.
fn prune(schema: &mut Value) {
    loop {
        let text = schema.to_string();
        let definitions = schema["$defs"].as_object_mut().unwrap();
        let count = definitions.len();
        definitions.retain(|name, _| text.contains(&format!("\"#/$defs/{name}\"")));
        if definitions.len() == count {
            return;
        }
    }
}

/// The schema of the reports of daemons of one kind.
fn of_kind(kind: &str, title: &str) -> Value {
    let mut schema = of::<Report>(title);
    let kinds = schema["oneOf"].as_array_mut().unwrap();
    kinds.retain(|one| one["properties"]["kind"]["const"] == kind);
    assert_eq!(kinds.len(), 1, "{kind}");
    prune(&mut schema);
    schema
}

/// The schema of the report of a verb of nvme-cli, which has no version: its names and their
/// meaning are that program's.
fn of_verb(verb: &str, mut schema: Value) -> Value {
    schema["title"] = json!(format!("farlane nvme {verb}"));
    shorten(&mut schema);
    schema
}

/// Every schema that is derived from a type, by the name of its file.
fn derived() -> Vec<(String, Value)> {
    let verbs = nvme::tests::schemas::all().into_iter();
    let verbs = verbs.map(|(verb, schema)| (format!("nvme/{verb}"), of_verb(verb, schema)));
    let all = [daemons(), measurements(), machines(), models(), recordings(), captures(), page()].concat();
    all.into_iter().map(|(name, schema)| (name.to_owned(), schema)).chain(verbs).collect()
}

/// Those of reports about daemons, and of errors.
fn daemons() -> Vec<(&'static str, Value)> {
    vec![
        ("connect", of::<connect::Connected<'_>>("farlane connect")),
        ("connect-list", of::<connect::list::Connected>("farlane connect --list")),
        ("disconnect", of::<connect::disconnect::Disconnected<'_>>("farlane use disconnect")),
        ("error", of::<failure::Object<'_>>("any command")),
        ("export-resize", of::<export::request::Resized>("farlane export resize")),
        ("emulate-interfaces", of::<emulate::Between>("farlane model emulate --between")),
        ("guest-end", of::<guest::End>("farlane attach, farlane offer device")),
        ("list", of::<list::Listed>("farlane observe list")),
        ("listening", of::<listening::Listening>("a service")),
        ("nic-end", of::<nic::serve::End>("farlane measure nic serve")),
        ("save", of::<save::Saved<'_>>("farlane export save, farlane target save")),
        ("status", of::<Report>("farlane observe status")),
        ("target-access", of::<target::request::AccessSet>("farlane target ana")),
        ("target-resize", of::<target::request::Resized>("farlane target resize")),
        ("target-status", of_kind("target", "farlane target status")),
        ("top", of::<top::Top>("farlane observe top")),
    ]
}

#[test]
fn each_verb_of_nvme_cli_has_a_schema() {
    let command = crate::command_line();
    let verbs = command.find_subcommand("nvme").unwrap().get_subcommands();
    // The reports of these are not nvme-cli's, and have their schemas in docs/schemas itself.
    let ours = ["connect", "disconnect", "discover", "help", "identify", "list", "read", "write"];
    let verbs = verbs.map(clap::Command::get_name).filter(|name| !ours.contains(name));
    let mut verbs: Vec<_> = verbs.collect();
    verbs.sort_unstable();
    let schemas: Vec<_> = nvme::tests::schemas::all().into_iter().map(|(verb, _)| verb).collect();
    assert_eq!(schemas, verbs);
}

/// Those of measurements and copies.
fn measurements() -> Vec<(&'static str, Value)> {
    vec![
        ("bench", of::<bench::report::Json<'_>>("farlane bench")),
        ("bench-jobs", of::<bench::report::Several<'_>>("farlane bench (several jobs)")),
        ("bench-progress", of::<bench::report::SoFar<'_>>("farlane bench --status-interval")),
        ("demo", of::<demo::report::Json<'_>>("farlane demo")),
        ("measure", of::<measure::report::Printed<'_>>("farlane measure report")),
        ("nic-bench", of::<nic::measure::Rates>("farlane measure nic bench")),
        ("nic-packets", of::<nic::packets::Counted>("farlane measure nic send, farlane measure nic receive")),
        ("nic-ping", of::<nic::measure::Pings>("farlane measure nic ping")),
        ("ping", of::<ping::Json>("farlane measure ping")),
        ("rdma", of::<rdma::Json>("farlane measure rdma ping, farlane measure rdma bench")),
        ("read", of::<copy::Json>("farlane use read")),
        ("write", of::<copy::Json>("farlane use write")),
    ]
}

/// Those of commands that set up or examine a machine.
fn machines() -> Vec<(&'static str, Value)> {
    vec![
        ("check", of::<check::Json<'_>>("farlane setup check")),
        ("discover", of::<discover::Records<'_>>("farlane use discover")),
        ("discover-mdns", of::<discover::Controllers<'_>>("farlane use discover --mdns")),
        ("doctor", of::<doctor::Json<'_>>("farlane setup doctor")),
        ("identify", of::<identify::Identified>("farlane nvme identify")),
        ("key", of::<key::Key<'_>>("farlane setup key new, farlane setup key show")),
        ("key-check", of::<key::Tested<'_>>("farlane setup key test")),
        ("key-secret", of::<key::NewSecret<'_>>("farlane setup key tls, farlane setup key dhchap")),
        ("key-trust", of::<key::Trusted<'_>>("farlane setup key trust")),
        ("lspci", of::<lspci::Roots>("farlane observe lspci")),
        ("man", of::<man::Json<'_>>("farlane setup man --to")),
    ]
}

/// Those of modelled networks.
fn models() -> Vec<(&'static str, Value)> {
    vec![
        ("emulate-packets-progress", of::<emulate::packets::Line<'_>>("farlane model emulate --between")),
        ("emulate-progress", of::<emulate::relay::Line<'_>>("farlane model emulate")),
        ("sim", of::<sim::play::Json>("farlane model sim SCENARIO")),
        ("sim-explain", of::<sim::explain::Json>("farlane model explain")),
        ("sim-published-score", of::<sim::score::Json>("farlane model published --score")),
        ("sim-published", of::<sim::published::Json>("farlane model published")),
        ("tsn-apply", of::<tsn::apply::Report>("farlane model tsn apply")),
        ("tsn-check", of::<tsn::check::Report>("farlane model tsn audit")),
        ("tsn-plan", of::<tsn::plan::Report>("farlane model tsn plan")),
    ]
}

/// Those of recordings.
fn recordings() -> Vec<(&'static str, Value)> {
    vec![
        ("info", of::<record::survey::Info<'_>>("farlane recording info")),
        ("preflight", of::<preflight::report::Json<'_>>("farlane recording preflight")),
        ("preflight-udp", of::<preflight::udp::report::Json<'_>>("farlane recording preflight --udp")),
        ("record-control", of::<record::ctl::Answer>("farlane record ctl")),
        ("record-each-end", of::<record::account::EachEnd>("farlane record --each")),
        ("record-end", of::<record::account::End>("farlane record")),
        ("record-error", of::<record::sessions::Failed>("farlane record --on-demand")),
        ("record-export", of::<record::export::Converted<'_>>("farlane recording convert")),
        ("record-progress", of::<record::view::Event>("farlane record")),
        ("record-raw-end", of::<record::account::RawEnd>("farlane record --raw")),
        ("record-trigger", of::<record::trigger::Event>("farlane record --pre-trigger")),
        ("recover", of::<record::survey::Recovered>("farlane recording recover")),
        ("replay", of::<record::replay::Replayed>("farlane recording replay")),
        ("replay-raw", of::<record::replay::raw::Replayed<'_>>("farlane recording replay --raw")),
        ("verify", of::<record::survey::Proof>("farlane recording verify")),
    ]
}

/// Those of captures.
fn captures() -> Vec<(&'static str, Value)> {
    vec![
        ("capture", of::<capture::Report<'_>>("farlane observe capture --out")),
        ("capture-status", of::<capture::daemon::List>("farlane observe capture --status")),
        ("capture-stopped", of::<capture::daemon::Stopped>("farlane observe capture --stop")),
        ("trace-chain", of::<trace::chain::Chain>("farlane observe trace chain")),
        ("trace-chains", of::<trace::chain::Chains<'_>>("farlane observe trace chain (without --command)")),
        ("trace-compare", of::<trace::Compared<'_>>("farlane observe trace compare")),
        ("trace-convert", of::<trace::export::Converted<'_>>("farlane observe trace convert")),
        ("trace-dissector", of::<trace::dissector::Script>("farlane observe trace dissector")),
        (
            "trace-dissector-installed",
            of::<trace::dissector::Installed<'_>>("farlane observe trace dissector --install"),
        ),
        ("trace-stats", of::<::captures::statistics::Report>("farlane observe trace stats")),
    ]
}

/// Those of the page, and of the questions that it asks.
fn page() -> Vec<(&'static str, Value)> {
    use ui::api::{commands, frames, histogram, query, series};
    let commands_title = "api/captures/N/commands?kind&queue&lba&longer&shorter&failed&from&to&sort&descending&\
                          offset&limit";
    vec![
        ("ui", of::<ui::Place<'_>>("farlane observe ui")),
        ("ui/captures", of::<ui::captures::List<'_>>("api/captures")),
        ("ui/command", of::<commands::One>("api/captures/N/commands/M?packets_from")),
        ("ui/commands", of::<commands::List>(commands_title)),
        ("ui/error", of::<query::Refused<'_>>("an answer with a status of 400 or more")),
        ("ui/frame", of::<frames::One>("api/captures/N/frames/M?step&id")),
        ("ui/frames", of::<frames::List>("api/captures/N/frames?from&at&limit")),
        ("ui/histogram", of::<histogram::Histogram<'_>>("api/histogram?captures&kind&of&three_sigma")),
        ("ui/kinds", of::<ui::api::Kinds<'_>>("api/captures/N/kinds")),
        ("ui/live", of::<ui::live::Answer>("api/live")),
        ("ui/played", of::<ui::simulator::Played>("POST api/scenarios/N {set, percentile}")),
        ("ui/scenarios", of::<ui::simulator::Scenarios<'_>>("api/scenarios")),
        ("ui/series", of::<series::Series>("api/captures/N/series?from&to&bins&kind")),
    ]
}

#[test]
fn schemas_are_those_of_the_types() {
    let update = std::env::var_os(UPDATE).is_some();
    for (name, schema) in derived() {
        let path = root("docs/schemas").join(format!("{name}.json"));
        let text = serde_json::to_string_pretty(&schema).unwrap() + "\n";
        if update {
            fs::write(&path, &text).unwrap();
        }
        let there = fs::read_to_string(&path).unwrap_or_default();
        assert!(there == text, "{} differs from its type: run this test with {UPDATE}=1", path.display());
    }
}

#[test]
fn the_page_about_operation_lists_the_codes_of_errors() {
    let page = fs::read_to_string(root("docs/operate.md")).unwrap();
    let (_, list) = page.split_once("### Codes").unwrap();
    let (list, _) = list.split_once("\n## ").unwrap();
    let listed: Vec<_> = list.split('`').skip(1).step_by(2).collect();
    let mut codes = [CODES, OF_DAEMONS, &[USAGE]].concat();
    codes.sort_unstable();
    assert_eq!(listed, codes, "docs/operate.md, Codes: {}", codes.join("`, `"));
}
