//! `farlane nvme smart-log`: the health of a controller.

use nvme::host::command::get_log_page;
use nvme::wire::NamespaceId;
use nvme::wire::log::{LogPage, SmartLog};
use serde::Serialize;

use super::Structure;
use crate::args::SmartLogArgs;
use crate::commands::fields::{Fields, celsius};
use crate::error::Error;
use crate::session::{Needs, Session};

/// Bytes of a Data Unit: a thousand units of 512 bytes.
const DATA_UNIT_BYTES: u128 = 512_000;
/// Bits of Critical Warning, and of its summary over endurance groups.
const WARNINGS: [(u32, &str); 6] = [
    (0, "available spare is below its threshold"),
    (1, "a temperature is beyond its threshold"),
    (2, "reliability is degraded"),
    (3, "all media are read-only"),
    (4, "the backup of volatile memory has failed"),
    (5, "the persistent memory region is unreliable"),
];

pub(crate) fn run(args: &SmartLogArgs) -> Result<(), Error> {
    let mut session = Session::attach(&args.at.target, Needs::default())?;
    let page = read(&mut session, NamespaceId(args.namespace))?;
    let name = session.name();
    session.close()?;
    let log = SmartLog::parse(page.first_chunk().expect("as many bytes as were asked for"));
    let mut fields = fields(&log);
    if args.detail.human_readable {
        fields.replace("critical_warning", Warnings::from(log.critical_warning));
    }
    let title = format!("SMART / health of the controller {name} at {}", args.at.target.url);
    let structure = Structure { title: &title, fields: &fields, bytes: &page };
    structure.show(args.at.printing, args.detail.human_readable)
}

/// Reads the SMART / Health log with Get Log Page.
fn read(session: &mut Session, namespace: NamespaceId) -> Result<Vec<u8>, Error> {
    let length = u32::try_from(SmartLog::LENGTH).expect("512 bytes");
    let entry = get_log_page(namespace, LogPage::Smart.into(), 0, length);
    session.admin("Get Log Page", entry, length)
}

/// The bits of Critical Warning, under the names that nvme-cli gives them.
#[derive(Serialize)]
struct Warnings {
    value: u8,
    available_spare: u8,
    temp_threshold: u8,
    reliability_degraded: u8,
    ro: u8,
    vmbu_failed: u8,
    pmr_ro: u8,
}

impl From<u8> for Warnings {
    fn from(value: u8) -> Self {
        let bit = |bit: u8| value >> bit & 1;
        Self {
            value,
            available_spare: bit(0),
            temp_threshold: bit(1),
            reliability_degraded: bit(2),
            ro: bit(3),
            vmbu_failed: bit(4),
            pmr_ro: bit(5),
        }
    }
}

/// The fields of the log, under the names that nvme-cli gives them.
fn fields(log: &SmartLog) -> Fields {
    let mut fields = Fields::default();
    fields.flags("critical_warning", log.critical_warning, 2, "warnings", &WARNINGS);
    fields.number("temperature", log.temperature, format!("kelvin ({})", celsius(log.temperature)));
    fields.number("avail_spare", log.available_spare, "% of the spare blocks are left");
    fields.number("spare_thresh", log.available_spare_threshold, "% is where to worry");
    fields.number("percent_used", log.percentage_used, "% of the endurance is used; may exceed 100");
    let (name, title) = ("endurance_grp_critical_warning_summary", "warnings of endurance groups");
    fields.flags(name, log.endurance_group_warning, 2, title, &WARNINGS);
    fields.number("data_units_read", log.data_units_read, units(log.data_units_read, "read"));
    fields.number("data_units_written", log.data_units_written, units(log.data_units_written, "written"));
    fields.number("host_read_commands", log.host_reads, "reads and compares");
    fields.number("host_write_commands", log.host_writes, "writes");
    fields.number("controller_busy_time", log.controller_busy_minutes, "minutes with I/O under way");
    fields.number("power_cycles", log.power_cycles, "times switched on");
    fields.number("power_on_hours", log.power_on_hours, "hours");
    fields.number("unsafe_shutdowns", log.unsafe_shutdowns, "times switched off without notice");
    fields.number("media_errors", log.media_errors, "times that data were lost");
    fields.number("num_err_log_entries", log.error_entries, "errors logged over the controller's life");
    fields.number(
        "warning_temp_time",
        log.warning_temperature_minutes,
        "minutes above the warning temperature",
    );
    fields.number("critical_comp_time", log.critical_temperature_minutes, "minutes above the critical one");
    // A sensor that is not there reads as 0 K.
    for (number, kelvin) in (1..).zip(log.temperature_sensors).filter(|(_, kelvin)| *kelvin > 0) {
        fields.number(
            &format!("temperature_sensor_{number}"),
            kelvin,
            format!("kelvin ({})", celsius(kelvin)),
        );
    }
    for (number, (count, seconds)) in (1..).zip(log.thermal_transitions.into_iter().zip(log.thermal_seconds))
    {
        fields.number(&format!("thm_temp{number}_trans_count"), count, "times slowed down to cool");
        fields.number(&format!("thm_temp{number}_total_time"), seconds, "seconds slowed down");
    }
    fields
}

/// A number of Data Units in words, in the decimal units in which disks are sold.
fn units(units: u128, what: &str) -> String {
    const SCALES: [(u128, &str); 5] = [
        (1_000_000_000_000_000_000, "EB"),
        (1_000_000_000_000_000, "PB"),
        (1_000_000_000_000, "TB"),
        (1_000_000_000, "GB"),
        (1_000_000, "MB"),
    ];
    let bytes = units.saturating_mul(DATA_UNIT_BYTES);
    match SCALES.iter().find(|(scale, _)| bytes >= *scale) {
        Some((scale, name)) => {
            let hundredths = bytes / (scale / 100);
            format!("{}.{:02} {name} {what}, rounded up to 512 kB", hundredths / 100, hundredths % 100)
        }
        None => format!("{} kB {what}, rounded up to 512 kB", bytes / 1_000),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_log_is_reported_field_by_field() {
        let log = SmartLog {
            critical_warning: 0b1001,
            temperature: 310,
            available_spare: 97,
            data_units_read: 3,
            data_units_written: u128::MAX,
            temperature_sensors: [300, 0, 0, 0, 0, 0, 0, 0],
            thermal_seconds: [0, 9],
            ..SmartLog::default()
        };
        let fields = fields(&log);
        let table = fields.table();
        for line in ["warnings: available spare is below its threshold, all media are read-only", "37 °C"] {
            assert!(table.contains(line), "{table}");
        }
        assert!(table.contains("1.53 MB read"), "{table}");
        let json = serde_json::to_value(&fields).unwrap();
        assert_eq!(json["avail_spare"], 97);
        assert_eq!(json["data_units_written"], u128::MAX.to_string());
        assert_eq!(
            (&json["temperature_sensor_1"], &json["temperature_sensor_2"]),
            (&json!(300), &Value::Null)
        );
        assert_eq!(json["thm_temp2_total_time"], 9);
        assert_eq!(json.as_object().unwrap().len(), 18 + 1 + 4);
        let detailed = fields.detailed_table();
        assert!(detailed.contains("[3:3] 0x1  all media are read-only\n"), "{detailed}");
        assert!(detailed.contains("[1:1] 0x0  a temperature is beyond its threshold\n"), "{detailed}");
        let bits = serde_json::to_value(Warnings::from(0b1001)).unwrap();
        assert_eq!(
            (&bits["value"], &bits["available_spare"], &bits["ro"], &bits["temp_threshold"]),
            (&json!(9), &json!(1), &json!(1), &json!(0))
        );
    }

    #[test]
    fn data_units_are_reported_in_decimal_units() {
        assert_eq!(units(0, "read"), "0 kB read, rounded up to 512 kB");
        assert_eq!(units(1, "read"), "512 kB read, rounded up to 512 kB");
        assert_eq!(units(2_000_000, "written"), "1.02 TB written, rounded up to 512 kB");
    }
}
