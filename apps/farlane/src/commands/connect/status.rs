//! The status of a block device, as JSON and as text.

use live::drivers::ublk::{Kind, UblkDriver};
use serde_json::{Value, json};

use super::About;
use crate::commands::activity;

/// The status that both ways have.
fn common(about: &About, device: Option<&str>, activity: &Value) -> Value {
    json!({
        "kind": "connect",
        "pid": std::process::id(),
        "url": about.url,
        "device": device.map(|name| format!("/dev/{name}")),
        "over": about.over.name(),
        "bytes": about.bytes,
        "block": about.block,
        "read_only": about.read_only,
        "activity": activity,
    })
}

/// The status of a block device whose requests this process answers.
pub(super) fn of_requests<F>(about: &About, driver: &UblkDriver<F>) -> Value
where
    F: FnMut(live::drivers::ublk::Event),
{
    let tally = driver.tally();
    let [reads, writes, flushes, discards] = Kind::ALL.map(|kind| tally.of(kind));
    let mut took = vec![0; reads.latencies.counts().len()];
    for kind in Kind::ALL {
        let counts = tally.of(kind).latencies.counts();
        took.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    let activity = json!([{
        "nsid": driver.medium().namespace().0,
        "reads": reads.operations,
        "read_bytes": reads.bytes,
        "writes": writes.operations,
        "written_bytes": writes.bytes,
        "others": flushes.operations + discards.operations,
        "errors": Kind::ALL.iter().map(|kind| tally.of(*kind).errors).sum::<u64>(),
        "took": took,
    }]);
    let mut status = common(about, Some(&driver.name()), &activity);
    status["far_end"] = json!(if driver.medium().is_here() { "here" } else { "away" });
    status["under_way"] = json!(driver.under_way());
    status
}

/// The status of a block device of the kernel's initiator.
pub(super) fn of_target(about: &About, driver: &super::initiator::Served) -> Value {
    let tallies = driver.core().into_iter().flat_map(|core| core.tallies());
    let mut status = common(about, driver.device(), &activity::of_namespaces(tallies));
    status["target"] = json!(driver.address().to_string());
    status
}

/// The status as text for a person.
pub(crate) fn text(status: &Value) -> String {
    let word = |key: &str| status[key].as_str().unwrap_or("none yet").to_owned();
    let size = indicatif::HumanBytes(status["bytes"].as_u64().unwrap_or_default());
    let mut text = format!("{} is {} ({size}) over {}", word("url"), word("device"), word("over"));
    if status["read_only"] == json!(true) {
        text += ", read-only";
    }
    if status["far_end"] == json!("away") {
        text += "; the far end is away, and I/O waits";
    }
    text.push('\n');
    for one in status["activity"].as_array().into_iter().flatten() {
        text += &format!(
            "  {} reads of {} B, {} writes of {} B, {} others, {} errors\n",
            one["reads"],
            one["read_bytes"],
            one["writes"],
            one["written_bytes"],
            one["others"],
            one["errors"]
        );
    }
    text
}
