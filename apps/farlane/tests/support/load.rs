//! Loads that verify their data, and other users of a far end.

use serde_json::Value;

use super::json;
use super::running::Running;

/// A verified load of random writes on the far end at `url`.
pub(crate) fn verified(url: &str, runtime: &str, further: &[&str]) -> Running {
    let mut arguments =
        vec!["bench", url, "--rw", "randwrite", "--iodepth", "8", "--size", "8MiB", "--verify"];
    arguments.extend(["--runtime", runtime, "--json"]);
    arguments.extend(further);
    Running::start(&arguments)
}

/// Checks that the load ended without errors and verified its data. Returns the load's standard
/// error.
pub(crate) fn assert_verified(load: Running) -> String {
    let (report, said) = load.json();
    assert_eq!((&report["errors"], &report["verified"]), (&Value::from(0), &Value::from(true)), "{said}");
    assert!(report["compared"].as_u64().unwrap() > 0, "{report}");
    said
}

/// Checks that the far end at `url` serves a new host.
pub(crate) fn assert_serves(url: &str) {
    assert_eq!(json(&["measure", "ping", url, "--count", "10", "--json"])["count"], 10);
}

/// Whether a verified load of half a second succeeds, and the words that it prints with single
/// spaces between them.
pub(crate) fn short_load(url: &str, workload: &str, further: &[&str]) -> (bool, String) {
    let mut arguments = vec!["bench", url, "--rw", workload, "--verify", "--runtime", "500ms"];
    arguments.extend(further);
    let output = Running::start(&arguments).output();
    let [out, errors] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    let words: Vec<&str> = out.split_whitespace().chain(errors.split_whitespace()).collect();
    (output.status.success(), words.join(" "))
}
