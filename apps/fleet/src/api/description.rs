//! The description of the REST interface by OpenAPI 3.1, from its types.

use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::routes::{Demand, Options};
use super::{
    Change, Enrolment, Explanation, Failure, Health, Item, Items, KINDS, Orphans, Recovered, Spaces,
};
use crate::wire::Object;

/// An operation, for the description.
struct Operation {
    path: &'static str,
    method: &'static str,
    summary: &'static str,
    body: Option<Value>,
    answer: Option<Value>,
    has_options: bool,
}

/// The description.
pub fn openapi() -> Value {
    let settings = SchemaSettings::draft2020_12()
        .with(|settings| settings.definitions_path = "/components/schemas".into());
    let mut types = settings.into_generator();
    let mut paths = Map::new();
    for operation in operations(&mut types) {
        let path = paths.entry(operation.path).or_insert_with(|| json!({}));
        path[operation.method] = described(&operation, &mut types);
    }
    let failure = schema::<Failure>(&mut types);
    let schemas = types.take_definitions(true);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Farlane fleet",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Far SSDs that are composed from many machines.",
            "license": { "name": "Apache-2.0 OR MIT", "identifier": "Apache-2.0 OR MIT" },
        },
        "servers": [{ "url": "/" }],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "responses": {
                "Failure": {
                    "description": "Why the call failed. Nothing was changed, unless the code is timeout.",
                    "content": { "application/json": { "schema": failure } },
                },
            },
        },
    })
}

fn schema<T: schemars::JsonSchema>(types: &mut SchemaGenerator) -> Value {
    types.subschema_for::<T>().into()
}

fn operations(types: &mut SchemaGenerator) -> Vec<Operation> {
    let plain = |path, method, summary, answer| Operation {
        path,
        method,
        summary,
        body: None,
        answer,
        has_options: false,
    };
    let item = Some(schema::<Item>(types));
    vec![
        plain("/v1/health", "get", "The state of this controller", Some(schema::<Health>(types))),
        plain("/v1/{kind}", "get", "All objects of a kind", Some(schema::<Items>(types))),
        plain("/v1/{kind}/{name}", "get", "An object", item.clone()),
        Operation {
            body: Some(schema::<Object>(types)),
            has_options: true,
            ..plain("/v1/{kind}/{name}", "put", "Creates or changes an object", item.clone())
        },
        Operation {
            has_options: true,
            ..plain(
                "/v1/{kind}/{name}",
                "delete",
                "Marks an object as not wanted, or deletes it",
                item.clone(),
            )
        },
        plain(
            "/v1/watch",
            "get",
            "All objects, then each change, as lines of JSON",
            Some(schema::<Change>(types)),
        ),
        plain("/v1/explain/{name}", "get", "Why a volume is where it is", Some(schema::<Explanation>(types))),
        plain(
            "/v1/space",
            "get",
            "The pools that are fit for a volume of a class, for a host",
            Some(schema::<Spaces>(types)),
        ),
        plain(
            "/v1/orphans",
            "get",
            "What machines have and the store does not know",
            Some(schema::<Orphans>(types)),
        ),
        plain(
            "/v1/recover",
            "post",
            "Takes what owners know for the truth",
            Some(schema::<Recovered>(types)),
        ),
        Operation {
            body: Some(schema::<Enrolment>(types)),
            ..plain("/v1/join", "post", "Enrols the machine whose key the connection proves", item)
        },
    ]
}

fn described(operation: &Operation, types: &mut SchemaGenerator) -> Value {
    let words: Vec<_> = KINDS.iter().map(|kind| kind.word()).collect();
    let mut parameters = Vec::new();
    if operation.path.contains("{kind}") {
        parameters.push(json!({
            "name": "kind", "in": "path", "required": true, "schema": { "type": "string", "enum": words },
        }));
    }
    if operation.path.contains("{name}") {
        parameters
            .push(json!({ "name": "name", "in": "path", "required": true, "schema": { "type": "string" } }));
    }
    let in_query = match operation.path {
        "/v1/space" => Some(types.root_schema_for::<Demand>()),
        _ => operation.has_options.then(|| types.root_schema_for::<Options>()),
    };
    if let Some(options) = in_query {
        for (name, schema) in options.get("properties").and_then(Value::as_object).into_iter().flatten() {
            parameters.push(json!({ "name": name, "in": "query", "required": false, "schema": schema }));
        }
    }
    let media = if operation.path == "/v1/watch" { "application/x-ndjson" } else { "application/json" };
    let done = match &operation.answer {
        Some(schema) => json!({ "description": "Done.", "content": { media: { "schema": schema } } }),
        None => json!({ "description": "Done." }),
    };
    let mut described = json!({
        "summary": operation.summary,
        "operationId": operation.summary.to_ascii_lowercase().replace([' ', ',', '\''], "-"),
        "parameters": parameters,
        "responses": {
            "200": done,
            "204": { "description": "Done; there is no such object any longer." },
            "default": { "$ref": "#/components/responses/Failure" },
        },
    });
    if let Some(body) = &operation.body {
        described["requestBody"] =
            json!({ "required": true, "content": { "application/json": { "schema": body } } });
    }
    described
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each reference of the description leads to something.
    #[test]
    fn references_resolve() {
        let document = openapi();
        let text = document.to_string();
        let references = text.split("\"$ref\":\"#").skip(1);
        let mut count = 0;
        for reference in references {
            let pointer = reference.split('"').next().unwrap();
            assert!(document.pointer(pointer).is_some(), "{pointer}");
            count += 1;
        }
        assert!(count > 20, "{count} references");
    }
}
