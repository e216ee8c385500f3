//! The values of features field by field, in nvme-cli's words.

use std::fmt;

use nvme::wire::Bits;
use nvme::wire::feature::{
    AGGREGATION_THRESHOLD, AGGREGATION_TIME, ARBITRATION_BURST, ARBITRATION_UNLIMITED, COALESCING_DISABLE,
    COMPLETION_QUEUES, DEALLOCATED_ERROR_ENABLE, DISABLE_NORMAL, FeatureId, HIGH_WEIGHT, INTERRUPT_VECTOR,
    LOW_WEIGHT, MEDIUM_WEIGHT, PERSIST_THROUGH_POWER_LOSS, POWER_STATE, SUBMISSION_QUEUES, TEMPERATURE,
    TEMPERATURE_SELECT, THRESHOLD_TYPE, TIME_LIMITED_RECOVERY, WRITE_CACHE_ENABLE, WRITE_PROTECTION_STATE,
    capability,
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::commands::fields::{celsius, digits};

/// Workload Hint (WH) of Power Management.
const WORKLOAD: Bits = Bits::new(7, 5);
/// Notices of the Asynchronous Event Configuration, by bit.
const NOTICES: [(u8, &str); 11] = [
    (31, "Discovery Log Page Change Notices"),
    (27, "Zone Descriptor Changed Notices"),
    (15, "Normal NVM Subsystem Shutdown"),
    (14, "Endurance Group Event Aggregate Log Change Notices"),
    (13, "LBA Status Information Notices"),
    (12, "Predictable Latency Event Aggregate Log Change Notices"),
    (11, "Asymmetric Namespace Access Change Notices"),
    (10, "Telemetry Log Notices"),
    (9, "Firmware Activation Notices"),
    (8, "Namespace Attribute Notices"),
    (0, "SMART / Health Critical Warnings"),
];
/// SMART / Health Critical Warnings in the Asynchronous Event Configuration.
const WARNINGS: Bits = Bits::new(7, 0);
/// Notifications that a Reservation Notification Mask masks, by bit.
const MASKED: [(u8, &str); 3] = [
    (3, "Mask Reservation Preempted Notification (RESPRE)"),
    (2, "Mask Reservation Released Notification (RESREL)"),
    (1, "Mask Registration Preempted Notification (REGPRE)"),
];

/// The value of a field.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub(super) enum Word {
    /// A number.
    Number(u64),
    /// A text.
    Text(String),
}

impl From<u32> for Word {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl From<u64> for Word {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<&str> for Word {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Word {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => text.fmt(f),
        }
    }
}

type Words = Vec<(String, Word)>;

fn word(name: &str, value: impl Into<Word>) -> (String, Word) {
    (name.to_owned(), value.into())
}

fn flag(name: &str, is_set: bool, [on, off]: [&str; 2]) -> (String, Word) {
    word(name, if is_set { on } else { off })
}

const ENABLED: [&str; 2] = ["Enabled", "Disabled"];
const TRUE: [&str; 2] = ["True", "False"];

/// The fields of a feature's capabilities.
pub(super) fn of_capabilities(value: u32) -> Words {
    [
        ("Feature is saveable", capability::SAVEABLE),
        ("Feature is namespace specific", capability::NAMESPACE_SPECIFIC),
        ("Feature is changeable", capability::CHANGEABLE),
    ]
    .map(|(name, bit)| flag(name, value & bit != 0, TRUE))
    .into()
}

/// The fields of a feature's value, and of its data; none of a feature whose value has no fields.
pub(super) fn of(feature: FeatureId, value: u32, data: &[u8]) -> Words {
    match feature {
        FeatureId::Arbitration => arbitration(value),
        FeatureId::PowerManagement => vec![
            word("Workload Hint (WH)", WORKLOAD.of(value)),
            word("Power State (PS)", POWER_STATE.of(value)),
        ],
        FeatureId::TemperatureThreshold => threshold(value),
        FeatureId::ErrorRecovery => {
            let (name, recovery) = (
                "Deallocated or Unwritten Logical Block Error Enable (DULBE)",
                TIME_LIMITED_RECOVERY.of(value) * 100,
            );
            vec![
                flag(name, DEALLOCATED_ERROR_ENABLE.is_set(value), ENABLED),
                word("Time Limited Error Recovery (TLER)", format!("{recovery} ms")),
            ]
        }
        FeatureId::VolatileWriteCache => {
            vec![flag("Volatile Write Cache Enable (WCE)", WRITE_CACHE_ENABLE.is_set(value), ENABLED)]
        }
        FeatureId::NumberOfQueues => vec![
            word("Number of IO Completion Queues Allocated (NCQA)", COMPLETION_QUEUES.of(value) + 1),
            word("Number of IO Submission Queues Allocated (NSQA)", SUBMISSION_QUEUES.of(value) + 1),
        ],
        FeatureId::InterruptCoalescing => vec![
            word("Aggregation Time (TIME)", format!("{} usec", AGGREGATION_TIME.of(value) * 100)),
            word("Aggregation Threshold (THR)", AGGREGATION_THRESHOLD.of(value) + 1),
        ],
        FeatureId::InterruptVectorConfiguration => vec![
            flag("Coalescing Disable (CD)", COALESCING_DISABLE.is_set(value), TRUE),
            word("Interrupt Vector (IV)", INTERRUPT_VECTOR.of(value)),
        ],
        FeatureId::WriteAtomicity => vec![flag("Disable Normal (DN)", DISABLE_NORMAL.is_set(value), TRUE)],
        FeatureId::AsynchronousEventConfiguration => events(value),
        FeatureId::Timestamp => timestamp(data),
        FeatureId::KeepAliveTimer => vec![word("Keep Alive Timeout (KATO) in milliseconds", value)],
        FeatureId::HostBehavior => behavior(data),
        FeatureId::HostIdentifier => vec![word("Host Identifier (HOSTID)", digits(data))],
        FeatureId::ReservationMask => {
            MASKED.map(|(bit, name)| flag(name, value >> bit & 1 == 1, TRUE)).into()
        }
        FeatureId::ReservationPersistence => {
            let persists = PERSIST_THROUGH_POWER_LOSS.is_set(value);
            vec![flag("Persist Through Power Loss (PTPL)", persists, TRUE)]
        }
        FeatureId::WriteProtection => {
            let state = match WRITE_PROTECTION_STATE.of(value) {
                0 => "No Write Protect",
                1 => "Write Protect",
                2 => "Write Protect Until Power Cycle",
                3 => "Permanent Write Protect",
                _ => "Reserved",
            };
            vec![word("Namespace Write Protect", state)]
        }
        FeatureId::Other(_) => Vec::new(),
    }
}

fn arbitration(value: u32) -> Words {
    let burst = match ARBITRATION_BURST.of(value) {
        ARBITRATION_UNLIMITED => "No limit".to_owned(),
        shift => (1_u32 << shift).to_string(),
    };
    vec![
        word("High Priority Weight (HPW)", HIGH_WEIGHT.of(value) + 1),
        word("Medium Priority Weight (MPW)", MEDIUM_WEIGHT.of(value) + 1),
        word("Low Priority Weight (LPW)", LOW_WEIGHT.of(value) + 1),
        word("Arbitration Burst (AB)", burst),
    ]
}

fn threshold(value: u32) -> Words {
    let kind = if THRESHOLD_TYPE.of(value) == 0 { "Over Temperature" } else { "Under Temperature" };
    let kelvin = u16::try_from(TEMPERATURE.of(value)).unwrap_or(u16::MAX);
    vec![
        word("Threshold Type Select (THSEL)", THRESHOLD_TYPE.of(value)),
        word("THSEL description", kind),
        word("Threshold Temperature Select (TMPSEL)", TEMPERATURE_SELECT.of(value)),
        word("Temperature Threshold (TMPTH)", celsius(kelvin)),
        word("TMPTH kelvin", format!("{kelvin} K")),
    ]
}

fn events(value: u32) -> Words {
    let words = ["Send async event", "Do not send async event"];
    let is_sent = |bit: u8| if bit == 0 { WARNINGS.is_set(value) } else { value >> bit & 1 == 1 };
    NOTICES.map(|(bit, name)| flag(name, is_sent(bit), words)).into()
}

/// A Timestamp data structure: six bytes of milliseconds, then how they came to be.
fn timestamp(data: &[u8]) -> Words {
    let Some([a, b, c, d, e, f, attributes, _]) = data.first_chunk::<8>() else { return Vec::new() };
    let origin = match attributes >> 1 & 0b111 {
        0 => "The Timestamp field was initialized to 0h by a Controller Level Reset.",
        _ => "The Timestamp field was initialized with a Timestamp value using a Set Features command.",
    };
    let synch = match attributes & 1 {
        0 => "The controller counted time in milliseconds continuously since then.",
        _ => "The controller may have stopped counting during vendor specific intervals since then.",
    };
    let time = u64::from_le_bytes([*a, *b, *c, *d, *e, *f, 0, 0]);
    vec![word("timestamp", time), word("timestamp origin", origin), word("synch", synch)]
}

fn behavior(data: &[u8]) -> Words {
    let is_set = |place: usize| data.get(place).is_some_and(|byte| *byte != 0);
    vec![
        flag("Advanced Command Retry Enable (ACRE)", is_set(0), TRUE),
        flag("Extended Telemetry Data Area 4 Supported (ETDAS)", is_set(1), TRUE),
        flag("LBA Format Extension Enable (LBAFEE)", is_set(2), TRUE),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn said(feature: FeatureId, value: u32, data: &[u8]) -> serde_json::Value {
        let words: BTreeMap<_, _> = of(feature, value, data).into_iter().collect();
        serde_json::to_value(words).unwrap()
    }

    #[test]
    fn values_are_reported_field_by_field() {
        let cache = said(FeatureId::VolatileWriteCache, 1, &[]);
        assert_eq!(cache["Volatile Write Cache Enable (WCE)"], "Enabled");
        let queues = said(FeatureId::NumberOfQueues, 0x0003_0001, &[]);
        assert_eq!(queues["Number of IO Completion Queues Allocated (NCQA)"], 4);
        let arbitration = said(FeatureId::Arbitration, 0x0201_0007, &[]);
        assert_eq!(arbitration["Arbitration Burst (AB)"], "No limit");
        assert_eq!(arbitration["High Priority Weight (HPW)"], 3);
        let time = said(FeatureId::Timestamp, 0, &[0, 0, 0, 0, 0, 1, 2, 0]);
        assert_eq!(time["timestamp"], 1_u64 << 40);
        let events = said(FeatureId::AsynchronousEventConfiguration, 0x104, &[]);
        assert_eq!(events["SMART / Health Critical Warnings"], "Send async event");
        assert_eq!(events["Telemetry Log Notices"], "Do not send async event");
        assert!(of_capabilities(4).contains(&word("Feature is changeable", "True")));
    }

    #[test]
    fn no_value_and_no_length_of_data_is_too_strange() {
        for id in 0..=u8::MAX {
            for value in [0, 0x5555_5555, u32::MAX] {
                let _ = (of(FeatureId::from(id), value, &[]), of(FeatureId::from(id), value, &[0xff; 7]));
            }
        }
    }
}
