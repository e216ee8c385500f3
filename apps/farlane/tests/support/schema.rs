//! The output of programs, checked against docs/schemas.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// Where schemas are.
pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schemas")
}

/// The schema called `name`, such as `ping` or `ui/frames`.
pub(crate) fn schema(name: &str) -> Value {
    let text = fs::read_to_string(folder().join(format!("{name}.json"))).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Where `value` is not what `schema` says, by the words of JSON Schema that docs/schemas uses. A
/// word that is unknown here is a fault, so that nothing stays unchecked.
fn faults(schema: &Value, root: &Value, value: &Value, place: &str, found: &mut Vec<String>) {
    for (word, rule) in schema.as_object().unwrap() {
        match word.as_str() {
            "$schema" | "title" | "description" | "$defs" => {}
            "$ref" => {
                let name = rule.as_str().unwrap().strip_prefix("#/$defs/").unwrap();
                faults(&root["$defs"][name], root, value, place, found);
            }
            "anyOf" | "oneOf" => {
                let fits = |one: &&Value| {
                    let mut found = Vec::new();
                    faults(one, root, value, place, &mut found);
                    found.is_empty()
                };
                let all = rule.as_array().unwrap();
                let count = all.iter().filter(fits).count();
                if count == 0 || word == "oneOf" && count > 1 {
                    found.push(format!("{place}: {value} fits {count} of {} alternatives", all.len()));
                }
            }
            "const" if rule == value => {}
            "enum" if rule.as_array().unwrap().contains(value) => {}
            "const" | "enum" => found.push(format!("{place}: {value}, not {rule}")),
            "type" => {
                let types = rule.as_array().cloned().unwrap_or_else(|| vec![rule.clone()]);
                if !types.iter().any(|one| is_of(one.as_str().unwrap(), value)) {
                    found.push(format!("{place}: {value} is not of type {rule}"));
                }
            }
            "required" if value.is_object() => {
                let missing = rule
                    .as_array()
                    .unwrap()
                    .iter()
                    .filter(|name| value.get(name.as_str().unwrap()).is_none());
                found.extend(missing.map(|name| format!("{place}: {name} is missing")));
            }
            "properties" if value.is_object() => {
                for (name, rule) in rule.as_object().unwrap() {
                    let inner = value.get(name);
                    inner.inspect(|inner| faults(rule, root, inner, &format!("{place}/{name}"), found));
                }
            }
            "additionalProperties" if value.is_object() => {
                let is_named = |name: &String| schema["properties"].get(name).is_some();
                for (name, inner) in value.as_object().unwrap().iter().filter(|(name, _)| !is_named(name)) {
                    faults(rule, root, inner, &format!("{place}/{name}"), found);
                }
            }
            "items" if value.is_array() => {
                for (index, inner) in value.as_array().unwrap().iter().enumerate() {
                    faults(rule, root, inner, &format!("{place}/{index}"), found);
                }
            }
            "minItems" | "maxItems" if value.is_array() => {
                let (length, bound) = (value.as_array().unwrap().len() as u64, rule.as_u64().unwrap());
                if if word == "minItems" { length < bound } else { length > bound } {
                    found.push(format!("{place}: {length} items, {word} is {bound}"));
                }
            }
            "required" | "properties" | "additionalProperties" | "items" | "minItems" | "maxItems" => {}
            other => found.push(format!("{place}: this test does not know {other}")),
        }
    }
}

fn is_of(kind: &str, value: &Value) -> bool {
    match kind {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("{other} is no type"),
    }
}

/// The schema of this name that users of version 0.1 have, if it is written otherwise by now. The
/// output has to fit it, too.
fn former(name: &str) -> Option<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/schemas-0.1");
    let text = fs::read_to_string(folder.join(format!("{name}.json"))).ok()?;
    Some(serde_json::from_str(&text).unwrap())
}

/// Where `value` is not what `schema` says.
pub(crate) fn all_faults(schema: &Value, value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    faults(schema, schema, value, "", &mut found);
    found
}

/// Checks the output against the schema called `name`, and a broken copy of it, too, which has to
/// fail.
#[track_caller]
pub(crate) fn holds(name: &str, value: &Value) {
    let schema = schema(name);
    assert_eq!(all_faults(&schema, value), Vec::<String>::new(), "{name}: {value}");
    if let Some(former) = former(name) {
        assert_eq!(all_faults(&former, value), Vec::<String>::new(), "{name} of version 0.1: {value}");
    }
    for required in schema["required"].as_array().into_iter().flatten() {
        let mut broken = value.clone();
        broken.as_object_mut().unwrap().remove(required.as_str().unwrap());
        assert!(!all_faults(&schema, &broken).is_empty(), "{name} without {required}");
    }
}
