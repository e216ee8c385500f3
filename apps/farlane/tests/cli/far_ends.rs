//! Several far ends in one process.

use crate::support::running::Running;
use crate::support::{Export, json, succeed};

#[test]
fn two_hosts_have_an_ssd_each_of_one_export() {
    let mut export =
        Export::start(&["--ram", "16MiB", "--listen", "127.0.0.1:0", "--ram", "8MiB", "--ram", "4MiB"]);
    let (one, other) = (export.url(), export.next_url());
    let bench = |url: &str| {
        let arguments = ["bench", url, "--rw", "randrw", "--runtime", "1s", "--verify", "--json"];
        Running::start(&arguments)
    };
    // Both loads run at the same time.
    for running in [bench(&one), bench(&other)] {
        let output = running.output();
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&report["errors"], &report["verified"]), (&0.into(), &true.into()), "{report}");
    }
    let (first, second) =
        (json(&["nvme", "identify", &one, "--json"]), json(&["nvme", "identify", &other, "--json"]));
    let count = |identity: &serde_json::Value| identity["namespaces"].as_array().unwrap().len();
    assert_eq!((count(&first), count(&second)), (1, 2), "{first} {second}");
    // One host may also use both far ends.
    assert_eq!(succeed(&["observe", "lspci", &one, &other]).matches("Farlane NVMe").count(), 2);
    let (status, said) = export.end_by("TERM");
    assert_eq!(status, Some(0), "{said}");
}

#[test]
fn each_of_many_far_ends_is_logged_at_the_start() {
    let far_ends = ["--listen", "127.0.0.1:0", "--ram", "1MiB"].repeat(11);
    let mut export = Export::start(&[&["--ram", "1MiB"][..], &far_ends[..]].concat());
    (1..12).for_each(|_| assert_ne!(export.next_url(), export.url()));
    let (status, said) = export.end_by("TERM");
    assert_eq!((status, said.matches("only this machine can reach").count()), (Some(0), 12), "{said}");
    assert!(!said.contains("more like it"), "{said}");
}
