//! `farlane smart-log`: the health of a controller.

use nvme::host::command::get_log_page;
use nvme::wire::NamespaceId;
use nvme::wire::log::{LogPage, SmartLog};

use super::fields::{Fields, celsius};
use crate::args::TargetArgs;
use crate::commands::{print, print_json_of_nvme_cli};
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

pub(crate) fn run(args: &TargetArgs) -> Result<(), Error> {
    let mut session = Session::attach(&args.target, Needs::default())?;
    let log = read(&mut session)?;
    let name = session.name();
    session.close()?;
    let fields = fields(&log);
    if args.output.json {
        return print_json_of_nvme_cli(&fields);
    }
    print(&format!("SMART / health of the controller {name} at {}\n{}", args.target.url, fields.table()))
}

/// Reads the SMART / Health log with Get Log Page, for all namespaces.
fn read(session: &mut Session) -> Result<SmartLog, Error> {
    let length = u32::try_from(SmartLog::LENGTH).expect("512 bytes");
    let entry = get_log_page(NamespaceId::ALL, LogPage::Smart.into(), 0, length);
    let page = session.admin("Get Log Page", entry, length)?;
    Ok(SmartLog::parse(page.first_chunk().expect("as many bytes as were asked for")))
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
    for (number, kelvin) in (1..).zip(log.temperature_sensors) {
        fields.number(&format!("temperature_sensor_{number}"), kelvin, sensor(kelvin));
    }
    for (number, (count, seconds)) in (1..).zip(log.thermal_transitions.into_iter().zip(log.thermal_seconds))
    {
        fields.number(&format!("thm_temp{number}_trans_count"), count, "times slowed down to cool");
        fields.number(&format!("thm_temp{number}_total_time"), seconds, "seconds slowed down");
    }
    fields
}

fn sensor(kelvin: u16) -> String {
    match kelvin {
        0 => "no such sensor".to_owned(),
        _ => format!("kelvin ({})", celsius(kelvin)),
    }
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
    use super::*;

    #[test]
    fn a_log_is_told_field_by_field() {
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
        assert_eq!(json["temperature_sensor_1"], 300);
        assert_eq!(json["thm_temp2_total_time"], 9);
        assert_eq!(json.as_object().unwrap().len(), 18 + 8 + 4);
    }

    #[test]
    fn data_units_are_told_in_decimal_units() {
        assert_eq!(units(0, "read"), "0 kB read, rounded up to 512 kB");
        assert_eq!(units(1, "read"), "512 kB read, rounded up to 512 kB");
        assert_eq!(units(2_000_000, "written"), "1.02 TB written, rounded up to 512 kB");
    }
}
