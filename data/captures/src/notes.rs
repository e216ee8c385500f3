//! Notes of Farlane's captures about controllers whose set-up they do not contain, as comments of
//! the interface: lines of JSON, which Wireshark shows among the capture's properties.
//!
//! Any capture may have such comments. A line without Farlane's mark is ignored.

use pcie::wire::Bdf;
use serde::{Deserialize, Serialize};
use trace::known::{Knowledge, Ring};

/// The most bytes of a comment: an option of pcapng has a length of 16 bits.
const NOTE_MAX: usize = 60_000;

/// A comment about a controller.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Note {
    /// Marks the comment as one of Farlane.
    farlane: Controller,
}

/// A controller. Queues are `[identifier, address, entries]`, namespaces `[NSID, bytes of
/// a block]`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Controller {
    /// The number of bus, device and function.
    function: u16,
    bar0: u64,
    /// Bytes from a doorbell to the next.
    doorbell_stride: u32,
    submission_queues: Vec<(u16, u64, u32)>,
    completion_queues: Vec<(u16, u64, u32)>,
    namespaces: Vec<(u32, u32)>,
}

/// The comment that describes a controller; none if it has too many queues for a comment.
pub fn note_of(knowledge: &Knowledge) -> Option<String> {
    let rings = |of: &[Ring]| of.iter().map(|one| (one.id, one.base, one.entries)).collect();
    let controller = Controller {
        function: knowledge.function.bits(),
        bar0: knowledge.bar,
        doorbell_stride: knowledge.stride,
        submission_queues: rings(&knowledge.submissions),
        completion_queues: rings(&knowledge.completions),
        namespaces: knowledge.blocks.clone(),
    };
    let note = serde_json::to_string(&Note { farlane: controller }).ok()?;
    Some(note).filter(|note| note.len() <= NOTE_MAX)
}

/// The controller that a comment describes, if it is a comment of Farlane.
pub fn knowledge_of(note: &str) -> Option<Knowledge> {
    let Note { farlane: of } = serde_json::from_str(note).ok()?;
    let rings = |of: &[(u16, u64, u32)]| {
        let ring = |&(id, base, entries): &(u16, u64, u32)| Ring { id, base, entries };
        of.iter().map(ring).collect()
    };
    Some(Knowledge {
        function: Bdf::from_bits(of.function),
        bar: of.bar0,
        stride: of.doorbell_stride,
        submissions: rings(&of.submission_queues),
        completions: rings(&of.completion_queues),
        blocks: of.namespaces,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_notes_are_read_and_other_comments_are_ignored() {
        let ring = |id| Ring { id, base: u64::from(id) << 20, entries: 1024 };
        let knowledge = Knowledge {
            function: Bdf::new(1, 0, 0),
            bar: 0xfeb0_0000,
            stride: 4,
            submissions: (0..129).map(ring).collect(),
            completions: (0..129).map(ring).collect(),
            blocks: vec![(1, 512), (7, 4096)],
        };
        assert_eq!(knowledge_of(&note_of(&knowledge).unwrap()), Some(knowledge.clone()));
        let many = Knowledge { submissions: (0..u16::MAX).map(ring).collect(), ..knowledge };
        assert_eq!(note_of(&many), None);
        for foreign in ["", "{}", "a comment of Wireshark", r#"{"farlane":1}"#] {
            assert_eq!(knowledge_of(foreign), None, "{foreign}");
        }
    }
}
