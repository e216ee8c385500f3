//! Identify Namespace (NVM Command Set 1.0), for people and machines.

use nvme::wire::NamespaceId;
use nvme::wire::identify::{IdentifyNamespace, LbaFormat, NamespaceDescriptor};
use serde::Serialize;

use crate::commands::fields::{Fields, digits, size, uuid};

const FEATURES: [(u32, &str); 5] = [
    (0, "thin provisioning"),
    (1, "atomic units of its own"),
    (2, "errors for deallocated blocks"),
    (3, "identifiers are never used again"),
    (4, "preferred sizes are given"),
];
const METADATA: [(u32, &str); 2] = [(0, "in extended blocks"), (1, "in a buffer of its own")];
const PROTECTION: [(u32, &str); 5] = [
    (0, "type 1"),
    (1, "type 2"),
    (2, "type 3"),
    (3, "first bytes of metadata"),
    (4, "last bytes of metadata"),
];
const SHARING: [(u32, &str); 1] = [(0, "by several controllers")];
const RESERVATIONS: [(u32, &str); 8] = [
    (0, "persistence through power loss"),
    (1, "write exclusive"),
    (2, "exclusive access"),
    (3, "write exclusive, registrants only"),
    (4, "exclusive access, registrants only"),
    (5, "write exclusive, all registrants"),
    (6, "exclusive access, all registrants"),
    (7, "keys as of NVMe 1.3"),
];
const ATTRIBUTES: [(u32, &str); 1] = [(0, "write protected")];

/// The fields of the structure, under the names that nvme-cli gives them, with sizes in bytes and
/// all identifiers.
pub(super) fn fields(
    id: NamespaceId,
    namespace: &IdentifyNamespace,
    names: &[NamespaceDescriptor],
) -> Fields {
    let mut fields = Fields::default();
    fields.number("nsid", id.0, "namespace identifier");
    let block = namespace.block_bytes();
    let in_bytes = |blocks: u64| match block {
        Some(block) => format!("blocks: {}", size(u128::from(blocks) * u128::from(block))),
        None => "blocks of an unknown size".to_owned(),
    };
    fields.number("nsze", namespace.size, in_bytes(namespace.size));
    fields.number("ncap", namespace.capacity, format!("{} may be allocated", in_bytes(namespace.capacity)));
    fields.number(
        "nuse",
        namespace.utilization,
        format!("{} are allocated", in_bytes(namespace.utilization)),
    );
    if let Some(block) = block {
        let bytes = u128::from(namespace.size) * u128::from(block);
        fields.number("bytes", bytes, size(bytes));
        fields.number("block_bytes", block, "bytes of a logical block");
    }
    capabilities(&mut fields, namespace);
    preferences(&mut fields, namespace);
    identifiers(&mut fields, namespace, names);
    formats(&mut fields, namespace);
    fields
}

fn capabilities(fields: &mut Fields, namespace: &IdentifyNamespace) {
    fields.flags("nsfeat", namespace.features, 2, "features", &FEATURES);
    let count = u16::from(namespace.lba_format_count) + 1;
    fields.number("nlbaf", namespace.lba_format_count, format!("{count} formats, listed below"));
    fields.hex(
        "flbas",
        namespace.formatted_lba_size,
        2,
        format!("formatted as {}", format(&namespace.formatted())),
    );
    fields.flags("mc", namespace.metadata_capabilities, 2, "metadata", &METADATA);
    fields.flags("dpc", namespace.protection_capabilities, 2, "protection that it can have", &PROTECTION);
    let protection = match namespace.protection_settings.trailing_zeros() {
        _ if namespace.protection_settings == 0 => "protection: none".to_owned(),
        _ => "protection is on".to_owned(),
    };
    fields.hex("dps", namespace.protection_settings, 2, protection);
    fields.flags("nmic", namespace.sharing, 2, "shared", &SHARING);
    fields.flags("rescap", namespace.reservations, 2, "reservations", &RESERVATIONS);
    let progress = match namespace.format_progress {
        0 => "the progress of formatting is not reported".to_owned(),
        progress => format!("{} % remain to be formatted", progress & 0x7f),
    };
    fields.hex("fpi", namespace.format_progress, 2, progress);
    fields.hex("dlfeat", namespace.deallocate_features, 2, deallocated(namespace.deallocate_features));
    fields.flags("nsattr", namespace.attributes, 2, "attributes", &ATTRIBUTES);
}

/// The Deallocate Logical Block Features (DLFEAT) in words.
fn deallocated(features: u8) -> String {
    let reads = match features & 0b111 {
        1 => "deallocated blocks read as zeroes",
        2 => "deallocated blocks read as FFh",
        _ => "the data of deallocated blocks are not reported",
    };
    match features >> 3 & 1 {
        1 => format!("{reads}; Write Zeroes can deallocate"),
        _ => reads.to_owned(),
    }
}

fn preferences(fields: &mut Fields, namespace: &IdentifyNamespace) {
    let block = u128::from(namespace.block_bytes().unwrap_or(0));
    let zeros_based = |blocks: u16| size((u128::from(blocks) + 1) * block);
    let own_atomic_units = namespace.features >> 1 & 1 == 1;
    for (name, blocks, what) in [
        ("nawun", namespace.atomic_write_unit, "written whole or not at all"),
        ("nawupf", namespace.atomic_write_unit_power_fail, "written whole or not at all when power fails"),
    ] {
        match own_atomic_units {
            true => fields.number(name, blocks, format!("{} {what}", zeros_based(blocks))),
            false => {
                fields.number(name, blocks, format!("not reported: the controller's {} applies", &name[1..]))
            }
        }
    }
    for (name, blocks, what) in [
        ("nacwu", namespace.atomic_compare_and_write, "units of a fused Compare and Write, 0's based"),
        ("nabsn", namespace.atomic_boundary, "blocks between atomic boundaries, 0's based; 0 for none"),
        ("nabo", namespace.atomic_boundary_offset, "block of the first atomic boundary"),
        ("nabspf", namespace.atomic_boundary_power_fail, "the same when power fails, 0's based; 0 for none"),
    ] {
        fields.number(name, blocks, what);
    }
    match namespace.optimal_io_boundary {
        0 => fields.number("noiob", 0_u8, "no boundary to keep within"),
        blocks => {
            let bytes = size(u128::from(blocks) * block);
            fields.number("noiob", blocks, format!("commands should not cross multiples of {bytes}"));
        }
    }
    fields.number("nvmcap", namespace.nvm_capacity, format!("bytes: {}", size(namespace.nvm_capacity)));
    let given = namespace.features >> 4 & 1 == 1;
    for (name, blocks, what) in [
        ("npwg", namespace.preferred_write_granularity, "best written in multiples of"),
        ("npwa", namespace.preferred_write_alignment, "best written at multiples of"),
        ("npdg", namespace.preferred_deallocate_granularity, "best deallocated in multiples of"),
        ("npda", namespace.preferred_deallocate_alignment, "best deallocated at multiples of"),
        ("nows", namespace.optimal_write_size, "best written at once:"),
    ] {
        let meaning =
            if given { format!("{what} {}", zeros_based(blocks)) } else { "not reported".to_owned() };
        fields.number(name, blocks, meaning);
    }
    let copied = |blocks: u64| size(u128::from(blocks) * block);
    let (range, all) = (namespace.copy_range_blocks_max.into(), namespace.copy_blocks_max.into());
    fields.number(
        "mssrl",
        namespace.copy_range_blocks_max,
        format!("Copy: {} of a range at most", copied(range)),
    );
    fields.number("mcl", namespace.copy_blocks_max, format!("Copy: {} at most", copied(all)));
    let ranges = u16::from(namespace.copy_ranges_max) + 1;
    fields.number("msrc", namespace.copy_ranges_max, format!("Copy: {ranges} ranges at most"));
    fields.number("nulbaf", namespace.unique_format_count, "formats with attributes of their own");
    fields.number("anagrpid", namespace.ana_group, "ANA group; 0 for none");
    fields.number("nvmsetid", namespace.nvm_set, "NVM Set");
    fields.number("endgid", namespace.endurance_group, "Endurance Group");
}

fn identifiers(fields: &mut Fields, namespace: &IdentifyNamespace, names: &[NamespaceDescriptor]) {
    fields.text(
        "nguid",
        digits(&namespace.nguid),
        known("Namespace Globally Unique Identifier", &namespace.nguid),
    );
    fields.text(
        "eui64",
        digits(&namespace.eui64),
        known("IEEE Extended Unique Identifier", &namespace.eui64),
    );
    for name in names {
        match name {
            NamespaceDescriptor::Uuid(bytes) => fields.text("uuid", uuid(bytes), "UUID"),
            NamespaceDescriptor::CommandSet(set) => fields.number("csi", *set, command_set(*set)),
            // The structure itself has these identifiers.
            NamespaceDescriptor::Nguid(_) | NamespaceDescriptor::Eui64(_) => {}
        }
    }
}

fn known(title: &str, bytes: &[u8]) -> String {
    if bytes.iter().all(|byte| *byte == 0) { format!("{title}: none") } else { title.to_owned() }
}

fn command_set(set: u8) -> &'static str {
    match set {
        0 => "NVM Command Set",
        1 => "Key Value Command Set",
        2 => "Zoned Namespace Command Set",
        _ => "an unknown command set",
    }
}

/// An LBA format under the names that nvme-cli gives its parts.
#[derive(Serialize)]
struct ListedFormat {
    ms: u16,
    ds: u8,
    rp: u8,
    in_use: bool,
}

fn formats(fields: &mut Fields, namespace: &IdentifyNamespace) {
    let count = usize::from(namespace.lba_format_count) + 1;
    let in_use = namespace.formatted();
    let formats: Vec<_> = namespace.lba_formats.iter().take(count).collect();
    let shown: Vec<_> = formats
        .iter()
        .enumerate()
        .map(|(index, it)| {
            format!("{index}: {}{}", format(it), if **it == in_use { " (in use)" } else { "" })
        })
        .collect();
    let listed: Vec<_> = formats
        .iter()
        .map(|it| ListedFormat {
            ms: it.metadata_size,
            ds: it.data_size,
            rp: it.relative_performance,
            in_use: **it == in_use,
        })
        .collect();
    fields.push("lbafs", shown.join("; "), listed, "");
}

/// An LBA format in words.
fn format(format: &LbaFormat) -> String {
    let performance = match format.relative_performance & 0b11 {
        0 => "best",
        1 => "better",
        2 => "good",
        _ => "degraded",
    };
    let block = match format.data_size {
        0 => return "not available".to_owned(),
        shift @ 1..64 => (1_u64 << shift).to_string(),
        shift => format!("2^{shift}"),
    };
    match format.metadata_size {
        0 => format!("{block} B, {performance}"),
        metadata => format!("{block} B + {metadata} B of metadata, {performance}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn namespace() -> IdentifyNamespace {
        let mut namespace = IdentifyNamespace {
            size: 1 << 17,
            features: 1 << 4,
            lba_format_count: 1,
            deallocate_features: 0b1001,
            preferred_write_granularity: 7,
            nguid: [0xab; 16],
            attributes: 1,
            ..IdentifyNamespace::default()
        };
        namespace.lba_formats[0] = LbaFormat { metadata_size: 0, data_size: 9, relative_performance: 2 };
        namespace.lba_formats[1] = LbaFormat { metadata_size: 8, data_size: 12, relative_performance: 0 };
        namespace
    }

    #[test]
    fn a_namespace_is_described_in_bytes_and_names() {
        let uuid =
            NamespaceDescriptor::Uuid(*b"\x12\x34\x56\x78\x9a\xbc\xde\xf0\x12\x34\x56\x78\x9a\xbc\xde\xf0");
        let fields = fields(NamespaceId(1), &namespace(), &[uuid, NamespaceDescriptor::CommandSet(0)]);
        let table = fields.table();
        for line in [
            "blocks: 64 MiB",
            "best written in multiples of 4 KiB",
            "12345678-9abc-def0-1234-56789abcdef0",
            "0: 512 B, good (in use); 1: 4096 B + 8 B of metadata, best",
            "deallocated blocks read as zeroes; Write Zeroes can deallocate",
            "attributes: write protected",
            "IEEE Extended Unique Identifier: none",
        ] {
            assert!(table.contains(line), "{line}:\n{table}");
        }
        let json = serde_json::to_value(&fields).unwrap();
        assert_eq!((&json["bytes"], &json["block_bytes"]), (&json!(64 << 20), &json!(512)));
        for name in
            ["mssrl", "mcl", "msrc", "nulbaf", "anagrpid", "nacwu", "nabsn", "nabo", "nabspf", "noiob"]
        {
            assert_eq!(json[name], 0, "{name}");
        }
        assert_eq!(json["lbafs"][1], json!({ "ms": 8, "ds": 12, "rp": 0, "in_use": false }));
    }

    #[test]
    fn reports_of_a_strange_device_are_printed_too() {
        for data_size in [0, 1, 40, 64, 255] {
            let mut namespace = namespace();
            namespace.size = u64::MAX;
            namespace.lba_format_count = 255;
            namespace.lba_formats[0].data_size = data_size;
            assert!(!fields(NamespaceId(1), &namespace, &[]).table().is_empty());
        }
        let every_bit = IdentifyNamespace::parse(&[0xff; 4096]);
        assert!(!fields(NamespaceId(u32::MAX), &every_bit, &[]).table().is_empty());
    }
}
