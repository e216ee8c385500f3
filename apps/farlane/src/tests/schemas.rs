//! docs/schemas has the schemas of the printed types, and docs/operate.md the codes of errors.

use std::fs;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};
use status::{Report, SCHEMA_VERSION};

use super::root;
use crate::commands::status::list;
use crate::commands::{connect, top};
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
    let required = schema["required"].as_array_mut().unwrap();
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

/// Every schema that is derived from a type, by the name of its file.
fn derived() -> Vec<(&'static str, Value)> {
    vec![
        ("connect-list", of::<connect::list::Connected>("farlane connect --list")),
        ("error", of::<failure::Object<'_>>("any command")),
        ("list", of::<list::Listed>("farlane observe list")),
        ("status", of::<Report>("farlane observe status")),
        ("target-status", of_kind("target", "farlane target status")),
        ("top", of::<top::Top>("farlane observe top")),
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
