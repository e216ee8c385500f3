//! The page is that of this build, its networks are what they say, and intervals are right.

use super::*;
use crate::file::link::Link;

/// The page that `make releases` wrote.
const PAGE: &str = include_str!("../../releases.md");

#[test]
fn the_page_shows_the_first_operations_of_this_build() {
    for release in &RELEASES {
        for remedy in &REMEDIES {
            let line = fingerprint(release, *remedy).unwrap();
            assert!(PAGE.contains(&line), "run make releases: apps/scenarios/releases.md lacks\n{line}");
        }
    }
}

/// The introduction of the page says so.
#[test]
fn a_second_carrier_changes_nothing_where_each_slot_has_both_directions() {
    let of = |name: &str| {
        let release = RELEASES.iter().find(|release| release.name == name).unwrap();
        fingerprint(release, REMEDIES[0]).unwrap().replace(name, "")
    };
    assert_eq!(of("rel16-tdd"), of("rel17-tdd"));
}

#[test]
fn every_value_of_a_network_has_a_source_on_the_page() {
    for release in &RELEASES {
        Link::parse(release.text).unwrap();
        let network = release.text.split("[[task]]").next().unwrap();
        let values = network.lines().filter(|line| line.contains(" = ")).count();
        let plain = network.lines().filter(|line| *line == "tcp = \"linux\"").count();
        assert_eq!(release.elements().len(), values - plain, "{}", release.name);
        for element in release.elements() {
            let line = format!("| `{}` | {} |\n", element.setting, element.source);
            assert!(PAGE.contains(&line), "run make releases: apps/scenarios/releases.md lacks\n{line}");
        }
    }
}

/// A symbol of data carries 12 subcarriers of each resource block, at 1.0273 bits each (MCS 13 of
/// TS 38.214 table 5.1.3.1-3: QPSK, 526 / 1024). One symbol of each transmission has its pilots.
#[test]
fn a_transmission_carries_what_its_resource_blocks_and_its_rate_allow() {
    for (name, blocks) in [("rel15-urllc", 273), ("rel16-tdd", 273), ("rel16-fdd", 133), ("rel17-tdd", 273)] {
        let release = RELEASES.iter().find(|release| release.name == name).unwrap();
        let value = |key: &str| {
            let line = release.text.lines().find(|line| line.starts_with(key)).unwrap();
            let digits: String = line.split('=').nth(1).unwrap().chars().take_while(|c| *c != '#').collect();
            digits.chars().filter(char::is_ascii_digit).collect::<String>().parse::<u64>().unwrap()
        };
        let bytes = blocks * 12 * (value("mini_slot") - 1) * 2 * 526 / 1024 / 8;
        assert_eq!([value("down_slot"), value("up_slot")], [bytes; 2], "{name}");
        let grant = format!("bytes = \"{bytes}B\"");
        assert!(release.text.contains(&grant), "{name}: {grant}");
    }
}

/// Four values with the mean 5 and the deviation 2: half of the interval is 3.182 * 2 / 2.
#[test]
fn an_interval_is_that_of_student() {
    let spread = 3_f64.sqrt();
    let estimate = Estimate::of(&[5.0 - spread, 5.0 + spread, 5.0 - spread, 5.0 + spread]).unwrap();
    assert!((estimate.mean - 5.0).abs() < 1e-12 && (estimate.half - 3.182).abs() < 1e-3, "{estimate:?}");
    assert_eq!(Estimate::of(&[1.0]), None);
}

#[test]
fn the_page_has_each_network_in_each_table() {
    for release in &RELEASES {
        let rows = PAGE.lines().filter(|line| line.starts_with(&format!("| {} | ", release.name)));
        // Boot, three operations, the file and the fingerprints; and one of changes.
        assert_eq!(rows.count(), 6 * REMEDIES.len() + 1, "{}", release.name);
    }
    assert!(!PAGE.contains("NaN") && !PAGE.contains("inf "));
}
