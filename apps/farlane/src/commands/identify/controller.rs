//! Identify Controller (NVMe Base 2.0), for people and machines.

use nvme::wire::identify::{IdentifyController, PowerState};
use pcie::lspci::vendor_name;
use serde::Serialize;

use crate::commands::fields::{Fields, celsius, size, uuid};

/// Unit of MDTS in bytes: the smallest memory page that the driver takes (CAP.MPSMIN).
const PAGE_BYTES: u128 = 4096;
/// Unit of the sizes of capsules in bytes.
const CAPSULE_UNIT: u128 = 16;
const BOOT_PARTITIONS: [(u32, &str); 2] =
    [(0, "protected by a replay protected memory"), (2, "protected by Set Features")];
const SUBSYSTEM: [(u32, &str); 2] = [(0, "a storage device"), (1, "an enclosure")];
const ENDPOINTS: [(u32, &str); 2] = [(0, "by SMBus"), (1, "by PCIe")];
const ACCESS: [(u32, &str); 7] = [
    (0, "optimized"),
    (1, "not optimized"),
    (2, "inaccessible"),
    (3, "lost for good"),
    (4, "changing"),
    (6, "groups stay while attached"),
    (7, "groups may be chosen at creation"),
];
const FABRICS_COMMANDS: [(u32, &str); 1] = [(0, "Disconnect")];
const MULTI_PATH: [(u32, &str); 4] = [
    (0, "several ports"),
    (1, "several controllers"),
    (2, "of an SR-IOV virtual function"),
    (3, "ANA reporting"),
];
const EVENTS: [(u32, &str); 9] = [
    (8, "namespace attributes"),
    (9, "firmware activation"),
    (11, "asymmetric namespace access"),
    (12, "predictable latency"),
    (13, "LBA status"),
    (14, "endurance groups"),
    (15, "subsystem shutdown"),
    (27, "zone descriptors"),
    (31, "discovery log"),
];
const ATTRIBUTES: [(u32, &str); 16] = [
    (0, "host identifiers of 128 bits"),
    (1, "non-operational power states"),
    (2, "NVM Sets"),
    (3, "read recovery levels"),
    (4, "endurance groups"),
    (5, "predictable latency"),
    (6, "traffic keeps alive"),
    (7, "namespace granularity"),
    (8, "submission queue associations"),
    (9, "UUID list"),
    (10, "several domains"),
    (11, "fixed capacity"),
    (12, "variable capacity"),
    (13, "endurance groups can be deleted"),
    (14, "NVM Sets can be deleted"),
    (15, "extended LBA formats"),
];
const ADMIN_COMMANDS: [(u32, &str); 11] = [
    (0, "Security Send and Receive"),
    (1, "Format NVM"),
    (2, "Firmware Commit and Download"),
    (3, "Namespace Management"),
    (4, "Device Self-test"),
    (5, "Directives"),
    (6, "NVMe-MI Send and Receive"),
    (7, "Virtualization Management"),
    (8, "Doorbell Buffer Config"),
    (9, "Get LBA Status"),
    (10, "Lockdown"),
];
const NVM_COMMANDS: [(u32, &str); 9] = [
    (0, "Compare"),
    (1, "Write Uncorrectable"),
    (2, "Dataset Management"),
    (3, "Write Zeroes"),
    (4, "Save and Select of features"),
    (5, "Reservations"),
    (6, "Timestamp"),
    (7, "Verify"),
    (8, "Copy"),
];
const LOG_PAGES: [(u32, &str); 7] = [
    (0, "SMART per namespace"),
    (1, "Commands Supported and Effects"),
    (2, "offsets and long lengths"),
    (3, "telemetry"),
    (4, "persistent events"),
    (5, "Supported Log Pages"),
    (6, "telemetry data area 4"),
];
const FORMAT: [(u32, &str); 4] = [
    (0, "formats all namespaces"),
    (1, "erases all namespaces"),
    (2, "cryptographic erase"),
    (3, "not all namespaces at once"),
];
const SELF_TEST: [(u32, &str); 1] = [(0, "one at a time in the subsystem")];
const SANITIZE: [(u32, &str); 5] = [
    (0, "crypto erase"),
    (1, "block erase"),
    (2, "overwrite"),
    (29, "no deallocation inhibited"),
    (30, "media modified afterwards"),
];
const WRITE_PROTECTION: [(u32, &str); 3] =
    [(0, "no write protect and write protect"), (1, "until power cycle"), (2, "permanent")];
const THERMAL: [(u32, &str); 1] = [(0, "host controlled")];
const VENDOR_FORMAT: [(u32, &str); 1] = [(0, "in the standard format")];
const FUSED: [(u32, &str); 1] = [(0, "Compare and Write")];
const COPY_FORMATS: [(u32, &str); 2] = [(0, "format 0"), (1, "format 1")];
const AUTONOMOUS: [(u32, &str); 1] = [(0, "supported")];

/// The fields of the structure, under the names that nvme-cli gives them.
pub(super) fn fields(controller: &IdentifyController) -> Fields {
    let mut fields = Fields::default();
    identity(&mut fields, controller);
    capabilities(&mut fields, controller);
    administration(&mut fields, controller);
    thermal_and_memory(&mut fields, controller);
    access(&mut fields, controller);
    nvm(&mut fields, controller);
    fabrics(&mut fields, controller);
    power_states(&mut fields, controller);
    fields
}

fn identity(fields: &mut Fields, it: &IdentifyController) {
    let vendor = |id: u16| match (id, vendor_name(id)) {
        (0, _) => "not reported".to_owned(),
        (_, Some(name)) => name.to_owned(),
        (_, None) => "unknown here".to_owned(),
    };
    fields.hex("vid", it.vendor, 4, format!("PCI vendor: {}", vendor(it.vendor)));
    fields.hex(
        "ssvid",
        it.subsystem_vendor,
        4,
        format!("PCI subsystem vendor: {}", vendor(it.subsystem_vendor)),
    );
    fields.text("sn", it.serial_number.to_string(), "serial number");
    fields.text("mn", it.model_number.to_string(), "model number");
    fields.text("fr", it.firmware_revision.to_string(), "firmware revision");
    fields.text("subnqn", it.subsystem_name.to_string(), "NVMe Qualified Name of the subsystem");
    let [low, middle, high] = it.ieee_oui;
    let oui = u32::from_be_bytes([0, high, middle, low]);
    fields.hex("ieee", oui, 6, if oui == 0 { "IEEE OUI: none" } else { "IEEE OUI" });
    fields.number("cntlid", it.controller_id, "controller identifier");
    let (major, [tertiary, minor, ..]) = (it.version >> 16, it.version.to_le_bytes());
    fields.hex("ver", it.version, 8, format!("NVMe {major}.{minor}.{tertiary}"));
    let kind = match it.controller_type {
        0 => "a controller of an unknown type",
        1 => "an I/O controller",
        2 => "a discovery controller",
        3 => "an administrative controller",
        _ => "a controller of a reserved type",
    };
    fields.number("cntrltype", it.controller_type, kind);
    let guid = if it.fru_guid == [0; 16] { "FRU identifier: none" } else { "FRU identifier" };
    fields.text("fguid", uuid(&it.fru_guid), guid);
}

fn capabilities(fields: &mut Fields, it: &IdentifyController) {
    let burst = power_of_two(it.recommended_arbitration_burst);
    fields.number(
        "rab",
        it.recommended_arbitration_burst,
        format!("commands of an arbitration burst, recommended: {burst}"),
    );
    fields.flags("cmic", it.multi_path, 2, "paths", &MULTI_PATH);
    let transfer = match it.maximum_data_transfer_size {
        0 => "a command may move any length".to_owned(),
        shift @ 1..100 => format!("a command moves at most {}", size(PAGE_BYTES << shift)),
        shift => format!("a command moves at most 2^{shift} pages"),
    };
    fields.number("mdts", it.maximum_data_transfer_size, transfer);
    fields.number("rtd3r", it.rtd3_resume_latency, reported(it.rtd3_resume_latency, "µs to resume from D3"));
    fields.number(
        "rtd3e",
        it.rtd3_entry_latency,
        reported(it.rtd3_entry_latency, "µs that a shutdown should take at most"),
    );
    fields.flags("oaes", it.optional_events, 8, "optional events", &EVENTS);
    fields.flags("ctratt", it.attributes, 8, "attributes", &ATTRIBUTES);
    fields.flags("rrls", it.read_recovery_levels, 4, "read recovery levels", &[]);
    fields.flags("bpcap", it.boot_partitions, 2, "boot partitions", &BOOT_PARTITIONS);
    for (name, delay) in ["crdt1", "crdt2", "crdt3"].into_iter().zip(it.command_retry_delays) {
        fields.number(name, delay, "command retry delay in 100 ms");
    }
    fields.flags("nvmsr", it.subsystem_report, 2, "part of", &SUBSYSTEM);
    fields.hex("vwci", it.vital_data_writes, 2, "writes of vital product data that are left");
    fields.flags("mec", it.management_endpoints, 2, "management endpoints", &ENDPOINTS);
}

fn administration(fields: &mut Fields, it: &IdentifyController) {
    fields.flags("oacs", it.optional_admin_commands, 4, "optional admin commands", &ADMIN_COMMANDS);
    fields.number("acl", it.abort_limit, format!("{} Aborts at once", u16::from(it.abort_limit) + 1));
    let events = u16::from(it.event_request_limit) + 1;
    fields.number("aerl", it.event_request_limit, format!("{events} Asynchronous Event Requests at once"));
    let (slots, read_only) = (it.firmware_updates >> 1 & 0b111, it.firmware_updates & 1 == 1);
    let read_only = if read_only { ", the first read-only" } else { "" };
    fields.hex("frmw", it.firmware_updates, 2, format!("firmware slots: {slots}{read_only}"));
    fields.flags("lpa", it.log_page_attributes, 2, "log pages", &LOG_PAGES);
    let errors = u16::from(it.error_log_entries) + 1;
    fields.number("elpe", it.error_log_entries, format!("{errors} entries in the error log"));
    let (vendor, autonomous) = (it.admin_vendor_specific, it.autonomous_power_transitions);
    fields.flags("avscc", vendor, 2, "vendor specific admin commands", &VENDOR_FORMAT);
    fields.flags("apsta", autonomous, 2, "autonomous power state transitions", &AUTONOMOUS);
    fields.number("mtfa", it.firmware_activation_time, "100 ms to activate a firmware; 0 is not reported");
    fields.number("edstt", it.self_test_time, "minutes for an extended self-test");
    fields.flags("dsto", it.self_test_options, 2, "self-tests", &SELF_TEST);
    let granularity = match it.firmware_granularity {
        0 => "granularity of firmware images: not reported".to_owned(),
        0xff => "granularity of firmware images: any".to_owned(),
        pages => format!("granularity of firmware images: {}", size(u128::from(pages) * 4096)),
    };
    fields.number("fwug", it.firmware_granularity, granularity);
    let keep_alive = if it.keep_alive == 0 { "Keep Alive: not supported" } else { "Keep Alive in 100 ms" };
    fields.number("kas", it.keep_alive, keep_alive);
    fields.flags("sanicap", it.sanitize, 8, "Sanitize", &SANITIZE);
    fields.number("nsetidmax", it.nvm_sets, "highest NVM Set");
    fields.number("endgidmax", it.endurance_groups, "highest Endurance Group");
    fields.number("pels", it.persistent_event_log_size, "64 KiB of persistent events at most");
    fields.number("domainid", it.domain, "domain");
    fields.number("megcap", it.endurance_group_capacity, "bytes of the largest Endurance Group");
    fields.number("cqt", it.command_quiesce_time, "ms until commands of a lost controller have ended");
}

/// Asymmetric Namespace Access.
fn access(fields: &mut Fields, it: &IdentifyController) {
    fields.number("anatt", it.ana_transition_time, "seconds that a change of access takes at most");
    fields.flags("anacap", it.ana_capabilities, 2, "access that it reports", &ACCESS);
    fields.number("anagrpmax", it.ana_group_max, "highest ANA group");
    fields.number("nanagrpid", it.ana_groups, "ANA groups at most");
}

/// The fields of controllers over fabrics.
fn fabrics(fields: &mut Fields, it: &IdentifyController) {
    for (name, units, what) in
        [("ioccsz", it.command_capsule_size, "command"), ("iorcsz", it.response_capsule_size, "response")]
    {
        let bytes = size(u128::from(units) * CAPSULE_UNIT);
        fields.number(name, units, format!("{what} capsules of at most {bytes}"));
    }
    let offset = u128::from(it.capsule_data_offset) * CAPSULE_UNIT;
    fields.number("icdoff", it.capsule_data_offset, format!("data in a capsule begin after {offset} B"));
    let model = if it.fabrics_attributes & 1 == 0 { "dynamic" } else { "static" };
    fields.hex("fcatt", it.fabrics_attributes, 2, format!("fabrics: {model} controllers"));
    fields.part(0, 0, "static controllers");
    let descriptors = match it.data_descriptors_max {
        0 => "SGL descriptors of a capsule: any number".to_owned(),
        most => format!("SGL descriptors of a capsule: {most} at most"),
    };
    fields.number("msdbd", it.data_descriptors_max, descriptors);
    fields.flags("ofcs", it.optional_fabrics_commands, 4, "optional fabrics commands", &FABRICS_COMMANDS);
}

fn thermal_and_memory(fields: &mut Fields, it: &IdentifyController) {
    let (warning, critical) = (it.warning_temperature, it.critical_temperature);
    fields.number("wctemp", warning, format!("kelvin, above which it warns: {}", celsius(warning)));
    fields.number("cctemp", critical, format!("kelvin, above which it may fail: {}", celsius(critical)));
    fields.flags("hctma", it.thermal_management, 4, "thermal management", &THERMAL);
    for (name, kelvin, what) in
        [("mntmt", it.thermal_minimum, "lowest"), ("mxtmt", it.thermal_maximum, "highest")]
    {
        fields.number(name, kelvin, format!("kelvin, the {what} that may be set: {}", celsius(kelvin)));
    }
    for (name, pages, what) in [
        ("hmpre", it.host_memory_preferred, "preferred"),
        ("hmmin", it.host_memory_minimum, "needed at least"),
    ] {
        fields.number(name, pages, format!("host memory buffer {what}: {}", size(u128::from(pages) * 4096)));
    }
    let entry = size(u128::from(it.host_memory_entry_minimum) * 4096);
    fields.number(
        "hmminds",
        it.host_memory_entry_minimum,
        format!("host memory in parts of at least {entry}"),
    );
    fields.number("hmmaxd", it.host_memory_entries_max, "parts of host memory at most");
    for (name, bytes, what) in [
        ("tnvmcap", it.total_capacity, "capacity in all"),
        ("unvmcap", it.unallocated_capacity, "capacity not allocated"),
    ] {
        let reported = if bytes == 0 { "not reported".to_owned() } else { size(bytes) };
        fields.number(name, bytes, format!("{what}: {reported}"));
    }
    fields.hex(
        "rpmbs",
        it.replay_protected_memory,
        8,
        match it.replay_protected_memory & 0b111 {
            0 => "replay protected memory: none".to_owned(),
            units => format!("replay protected memory: {units} units"),
        },
    );
}

fn nvm(fields: &mut Fields, it: &IdentifyController) {
    for (name, sizes, queue) in
        [("sqes", it.submission_entry_size, "submission"), ("cqes", it.completion_entry_size, "completion")]
    {
        let (required, maximum) = (power_of_two(sizes & 0xf), power_of_two(sizes >> 4));
        fields.hex(name, sizes, 2, format!("{queue} queue entries of {required} B, at most {maximum} B"));
    }
    fields.number(
        "maxcmd",
        it.maximum_commands,
        reported(it.maximum_commands.into(), "commands at once on a queue"),
    );
    fields.number("nn", it.namespaces, "highest namespace identifier");
    fields.number("mnan", it.maximum_namespaces, reported(it.maximum_namespaces, "namespaces at most"));
    fields.number("maxdna", it.domain_attachments_max, "attachments in a domain at most; 0 is not reported");
    fields.number(
        "maxcna",
        it.controller_attachments_max,
        "attachments to a controller at most; 0 is not reported",
    );
    fields.flags("oncs", it.optional_nvm_commands, 4, "optional NVM commands", &NVM_COMMANDS);
    fields.flags("fuses", it.fused_operations, 4, "fused operations", &FUSED);
    fields.flags("fna", it.format_attributes, 2, "Format NVM", &FORMAT);
    fields.hex("vwc", it.volatile_write_cache, 2, write_cache(it.volatile_write_cache));
    for (name, blocks, when) in [
        ("awun", it.atomic_write_unit, ""),
        ("awupf", it.atomic_write_unit_power_fail, ", also when power fails"),
        ("acwu", it.atomic_compare_and_write, " by a fused Compare and Write"),
    ] {
        let count = u32::from(blocks) + 1;
        let blocks_of = if count == 1 { "block is" } else { "blocks are" };
        fields.number(name, blocks, format!("{count} {blocks_of} written whole or not at all{when}"));
    }
    fields.flags("icsvscc", it.io_vendor_specific, 2, "vendor specific I/O commands", &VENDOR_FORMAT);
    fields.flags("nwpc", it.write_protection, 2, "write protection", &WRITE_PROTECTION);
    fields.flags("ocfs", it.copy_descriptor_formats, 4, "Copy descriptors", &COPY_FORMATS);
    fields.hex(
        "sgls",
        it.sgl_support,
        8,
        match it.sgl_support & 0b11 {
            0 => "SGLs: not supported",
            1 => "SGLs: supported, of any alignment",
            2 => "SGLs: supported, aligned to double words",
            _ => "SGLs: reserved",
        },
    );
}

/// The Volatile Write Cache field (VWC) in words.
fn write_cache(cache: u8) -> String {
    let present = if cache & 1 == 1 { "there is a volatile write cache" } else { "no volatile write cache" };
    let flush = match cache >> 1 & 0b11 {
        2 => "; Flush takes one namespace",
        3 => "; Flush may name all namespaces",
        _ => "",
    };
    format!("{present}{flush}")
}

fn power_states(fields: &mut Fields, it: &IdentifyController) {
    let count = usize::from(it.power_states) + 1;
    fields.number(
        "npss",
        it.power_states,
        if count == 1 { "1 power state".to_owned() } else { format!("{count} power states") },
    );
    let states: Vec<_> = it.power_state_descriptors.iter().take(count).map(ListedState::from).collect();
    let shown: Vec<_> = it.power_state_descriptors.iter().take(count).map(power_state).collect();
    fields.push("psds", shown.join("; "), states, "");
}

/// A power state in words: `25.00 W, enters in 0 µs, leaves in 0 µs`.
fn power_state(state: &PowerState) -> String {
    let power = match (state.maximum_power, state.flags & 1 == 1) {
        (0, _) => "power not reported".to_owned(),
        (tenths_of_milliwatts, true) => format!("{:.4} W", f64::from(tenths_of_milliwatts) / 10_000.0),
        (hundredths, false) => format!("{:.2} W", f64::from(hundredths) / 100.0),
    };
    let idle = if state.flags >> 1 & 1 == 1 { ", without I/O" } else { "" };
    format!("{power}, enters in {} µs, leaves in {} µs{idle}", state.entry_latency, state.exit_latency)
}

/// A power state under the names that nvme-cli gives its parts.
#[derive(Serialize)]
struct ListedState {
    max_power: u16,
    max_power_scale: u8,
    #[serde(rename = "non-operational_state")]
    non_operational_state: u8,
    entry_lat: u32,
    exit_lat: u32,
    read_tput: u8,
    read_lat: u8,
    write_tput: u8,
    write_lat: u8,
    idle_power: u16,
    idle_scale: u8,
    active_power: u16,
    active_power_work: u8,
    active_scale: u8,
}

impl From<&PowerState> for ListedState {
    fn from(state: &PowerState) -> Self {
        Self {
            max_power: state.maximum_power,
            max_power_scale: state.flags & 1,
            non_operational_state: state.flags >> 1 & 1,
            entry_lat: state.entry_latency,
            exit_lat: state.exit_latency,
            read_tput: state.read_throughput,
            read_lat: state.read_latency,
            write_tput: state.write_throughput,
            write_lat: state.write_latency,
            idle_power: state.idle_power,
            idle_scale: state.idle_power_scale >> 6,
            active_power: state.active_power,
            active_power_work: state.active_power_scale & 0b111,
            active_scale: state.active_power_scale >> 6,
        }
    }
}

/// The meaning of a value, where 0 stands for a value that is not reported.
fn reported(value: u32, meaning: &str) -> String {
    if value == 0 { format!("{meaning}: not reported") } else { meaning.to_owned() }
}

fn power_of_two(exponent: u8) -> String {
    match 1_u64.checked_shl(exponent.into()) {
        Some(power) => power.to_string(),
        None => format!("2^{exponent}"),
    }
}

#[cfg(test)]
mod tests {
    use nvme::wire::Text;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_controller_is_described_in_words() {
        let controller = IdentifyController {
            vendor: pcie::config::ids::VENDOR,
            serial_number: Text::padded_with_spaces("S1"),
            ieee_oui: [0x03, 0x02, 0x01],
            version: 0x0001_0400,
            maximum_data_transfer_size: 5,
            optional_admin_commands: 1 << 1,
            optional_nvm_commands: 1 << 2 | 1 << 12,
            firmware_updates: 0b11,
            submission_entry_size: 0x66,
            volatile_write_cache: 0b111,
            warning_temperature: 343,
            total_capacity: u128::MAX,
            ..IdentifyController::default()
        };
        let fields = fields(&controller);
        let table = fields.table();
        for line in [
            "PCI vendor: Farlane",
            "NVMe 1.4.0",
            "a command moves at most 128 KiB",
            "optional admin commands: Format NVM",
            "optional NVM commands: Dataset Management, bit 12",
            "firmware slots: 1, the first read-only",
            "submission queue entries of 64 B, at most 64 B",
            "there is a volatile write cache; Flush may name all namespaces",
            "above which it warns: 70 °C",
            "1 power state\n",
        ] {
            assert!(table.contains(line), "{line}:\n{table}");
        }
        let json = serde_json::to_value(&fields).unwrap();
        assert_eq!((&json["sn"], &json["ieee"], &json["mdts"]), (&json!("S1"), &json!(0x01_0203), &json!(5)));
        assert_eq!(json["tnvmcap"], u128::MAX.to_string());
        assert_eq!(json["psds"].as_array().unwrap().len(), 1);
        assert_eq!(json["fguid"], "00000000-0000-0000-0000-000000000000");
        assert!(fields.detailed_table().contains("[1:1] 0x1  Format NVM\n"));
    }

    /// The names that nvme-cli 2.x gives fields of NVMe 2.0.
    const NAMES: &str = "vid ssvid sn mn fr rab ieee cmic mdts cntlid ver rtd3r rtd3e oaes ctratt rrls bpcap \
        cntrltype fguid crdt1 crdt2 crdt3 nvmsr vwci mec oacs acl aerl frmw lpa elpe npss avscc apsta wctemp \
        cctemp mtfa hmpre hmmin tnvmcap unvmcap rpmbs edstt dsto fwug kas hctma mntmt mxtmt sanicap hmminds \
        hmmaxd nsetidmax endgidmax anatt anacap anagrpmax nanagrpid pels domainid megcap cqt sqes cqes maxcmd \
        nn oncs fuses fna vwc awun awupf icsvscc nwpc acwu ocfs sgls mnan maxdna maxcna subnqn ioccsz iorcsz \
        icdoff fcatt msdbd ofcs psds";

    #[test]
    fn fields_have_nvme_clis_names() {
        let controller = IdentifyController { power_states: 1, ..IdentifyController::default() };
        let json = serde_json::to_value(fields(&controller)).unwrap();
        for name in NAMES.split_whitespace() {
            assert!(!json[name].is_null(), "{name}");
        }
        assert_eq!(json.as_object().unwrap().len(), NAMES.split_whitespace().count());
        for name in ["max_power", "non-operational_state", "entry_lat", "read_tput", "active_power_work"] {
            assert_eq!(json["psds"][1][name], 0, "{name}");
        }
    }

    #[test]
    fn reports_of_a_strange_device_are_printed_too() {
        for byte in [0, 0x55, 0xaa, 0xff] {
            let strange = IdentifyController::parse(&[byte; 4096]);
            assert!(!fields(&strange).table().is_empty());
        }
    }
}
