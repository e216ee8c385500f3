//! Each option stands under a heading of `--help` that fits.

use super::{commands, options};

/// The headings, and the options below them. Every other option has none and stands under
/// "Options".
const HEADINGS: [(&str, &[&str]); 8] = [
    (
        "Transport",
        &[
            "rto-min",
            "thin",
            "congestion",
            "coalesce",
            "priority",
            "dscp",
            "launch",
            "ptp",
            "quic-congestion",
            "second-path",
            "no-crc",
            "spread",
        ],
    ),
    ("Trust", &["allow", "allow-file", "key", "insecure"]),
    (
        "Authentication (NVMe over Fabrics)",
        &["dhchap-secret-file", "dhchap-controller-secret-file", "tls-key-file"],
    ),
    ("Least privilege", &["user", "allow-path", "no-sandbox"]),
    ("Monitoring", &["control", "metrics"]),
    ("Processor", &["spin", "cpu"]),
    ("Log", &["verbose", "quiet", "log"]),
    ("Part of a stream", &["from-offset", "bytes", "from-time", "for"]),
];

/// Options that are a command's own although a group has one of the same name.
const OWN: [(&str, &[&str]); 10] = [
    // A client says which daemon it asks.
    ("control", &[]),
    ("cpu", &["floor-server"]),
    ("verbose", &["lspci"]),
    ("from-offset", &["pin"]),
    ("insecure", &["target", "connect"]),
    ("for", &["record", "preflight", "audit"]),
    ("format", &[]),
    ("to", &[]),
    ("stream", &[]),
    ("bytes", &[]),
];

#[test]
fn each_option_stands_under_a_heading_that_fits() {
    let mut wrong = Vec::new();
    let mut seen = std::collections::BTreeSet::new();
    for (names, command) in commands() {
        for (arg, long) in options(&command) {
            let heading = arg.get_help_heading();
            seen.extend(heading.map(ToOwned::to_owned));
            let expected = HEADINGS.iter().find(|(_, options)| options.contains(&long)).map(|(it, _)| *it);
            let own = OWN.iter().find(|(option, _)| *option == long);
            let may_be_own =
                own.is_some_and(|(_, of)| of.is_empty() || of.contains(&names.last().unwrap().as_str()));
            if heading != expected && !(heading.is_none() && may_be_own) {
                wrong.push(format!("{} --{long}: {heading:?}, expected {expected:?}", names.join(" ")));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    assert_eq!(seen.len(), HEADINGS.len(), "{seen:?}");
}

/// The two that stood under whichever heading came before them.
#[test]
fn json_and_metrics_stand_under_the_same_heading_everywhere() {
    let all = commands();
    let of = |option: &str| -> std::collections::BTreeSet<_> {
        let found = all.iter().flat_map(|(_, command)| options(command));
        let found = found.filter(|(_, long)| *long == option);
        found.map(|(arg, _)| arg.get_help_heading().unwrap_or("Options").to_owned()).collect()
    };
    assert_eq!(of("json").into_iter().collect::<Vec<_>>(), ["Options"]);
    assert_eq!(of("metrics").into_iter().collect::<Vec<_>>(), ["Monitoring"]);
}
