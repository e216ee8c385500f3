//! Block devices.

use ::status::{BlockQueue, Connect, FarEndState, Way};
use indicatif::HumanBytes;

/// A block device and its requests.
pub(crate) fn text(of: &Connect) -> String {
    let device = of.device.as_deref().unwrap_or("none yet");
    let mut text = format!("{} is {device} ({}) over {}", of.url, HumanBytes(of.bytes), of.way.over());
    if of.read_only {
        text += ", read-only";
    }
    if let Some(why) = of.way.refusal() {
        text += &format!("; refused, and I/O fails: {why}");
    } else if of.way.is_away() {
        text += "; the far end is away, and I/O waits";
    }
    text.push('\n');
    for one in &of.activity {
        text += &format!(
            "  {} reads of {} B, {} writes of {} B, {} others, {} errors\n",
            one.reads, one.read_bytes, one.writes, one.written_bytes, one.others, one.errors
        );
    }
    if let Way::Ublk { queues, .. } = &of.way {
        queues.iter().for_each(|one| text += &queue(one));
    }
    text
}

/// A queue of a block device.
fn queue(of: &BlockQueue) -> String {
    let BlockQueue { queue, far_end, under_way, counts } = of;
    let away = match far_end {
        FarEndState::Here => "",
        FarEndState::Away => ", its connection is away",
        FarEndState::Refused => ", its connection is refused",
    };
    let (operations, errors) = (counts.operations, counts.errors);
    format!("  queue {queue}: {operations} requests, {under_way} under way, {errors} errors{away}\n")
}

/// The place of a block device and its state, for a row of `farlane observe list`.
pub(crate) fn row(of: &Connect) -> [String; 2] {
    let state = match (of.way.refusal(), of.way.is_away()) {
        (Some(_), _) => "refused",
        (None, true) => "the far end is away",
        (None, false) => "connected",
    };
    [format!("{} as {}", of.url, of.device.as_deref().unwrap_or_default()), state.to_owned()]
}
