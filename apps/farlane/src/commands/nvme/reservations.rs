//! `farlane nvme resv-register`, `resv-acquire`, `resv-release` and `resv-report`.

use nvme::wire::{IoOpcode, SubmissionQueueEntry};
use serde_json::{Value, json};

use super::{IO, Payload, done, entry, show_list, with};
use crate::args::{At, ResvAcquireArgs, ResvRegisterArgs, ResvReleaseArgs, ResvReportArgs};
use crate::commands::fields::digits;
use crate::error::Error;

/// Extended Data Structure (EDS), in CDW11 of Reservation Report.
const EXTENDED: u32 = 1 << 0;
/// Bytes of the header of a Reservation Status data structure.
const HEADER: usize = 24;
/// Bytes of the header of the extended data structure.
const EXTENDED_HEADER: usize = 64;
/// Bytes of a Registered Controller data structure with a host identifier of 64 bits.
const REGISTRANT: usize = 24;
/// Bytes of the same with a host identifier of 128 bits.
const EXTENDED_REGISTRANT: usize = 64;

/// Sends a reservation command with its keys.
fn send(
    at: &At,
    name: &'static str,
    command: SubmissionQueueEntry,
    keys: &[u64],
    text: &str,
) -> Result<(), Error> {
    let data: Vec<u8> = keys.iter().flat_map(|key| key.to_le_bytes()).collect();
    with(&at.target, |session| session.command(name, IO, command, Payload::Sent(&data)))?;
    done(at, text, &json!({ "nsid": command.namespace.0 }))
}

pub(super) fn register(args: &ResvRegisterArgs) -> Result<(), Error> {
    let cdw10 = u32::from(args.rrega) | u32::from(args.own.iekey) << 3 | u32::from(args.cptpl) << 30;
    let command =
        SubmissionQueueEntry { cdw10, ..entry(IoOpcode::ReservationRegister, args.place.namespace) };
    let keys = [args.own.crkey, args.nrkey];
    send(&args.place.at, "Reservation Register", command, &keys, "NVME Reservation success\n")
}

pub(super) fn acquire(args: &ResvAcquireArgs) -> Result<(), Error> {
    let cdw10 = u32::from(args.racqa) | u32::from(args.own.iekey) << 3 | u32::from(args.rtype) << 8;
    let command = SubmissionQueueEntry { cdw10, ..entry(IoOpcode::ReservationAcquire, args.place.namespace) };
    let keys = [args.own.crkey, args.prkey];
    send(&args.place.at, "Reservation Acquire", command, &keys, "NVME Reservation Acquire success\n")
}

pub(super) fn release(args: &ResvReleaseArgs) -> Result<(), Error> {
    let cdw10 = u32::from(args.rrela) | u32::from(args.own.iekey) << 3 | u32::from(args.rtype) << 8;
    let command = SubmissionQueueEntry { cdw10, ..entry(IoOpcode::ReservationRelease, args.place.namespace) };
    let keys = [args.own.crkey];
    send(&args.place.at, "Reservation Release", command, &keys, "NVME Reservation Release success\n")
}

pub(super) fn report(args: &ResvReportArgs) -> Result<(), Error> {
    // Fabrics have no other identifiers than those of 128 bits, so --eds is the default.
    let cdw11 = args.cdw11.unwrap_or(if args.short { 0 } else { EXTENDED });
    let command = SubmissionQueueEntry {
        cdw10: args.numd - 1,
        cdw11,
        ..entry(IoOpcode::ReservationReport, args.namespace)
    };
    let (_, data) = with(&args.at.target, |session| {
        session.command("Reservation Report", IO, command, Payload::Wanted(args.numd * 4))
    })?;
    let report = parse(&data, cdw11 & EXTENDED != 0);
    show_list(args.at.printing, &data, || report.clone(), || text(&report))
}

/// A Reservation Status data structure under nvme-cli's names.
fn parse(data: &[u8], extended: bool) -> Value {
    let number = |at: usize, length: usize| -> u64 {
        let bytes = data.get(at..at + length).unwrap_or_default();
        bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
    };
    let (header, size) = if extended { (EXTENDED_HEADER, EXTENDED_REGISTRANT) } else { (HEADER, REGISTRANT) };
    let count = usize::try_from(number(5, 2)).unwrap_or_default();
    let places = (0..count).map(|index| header + index * size).take_while(|at| at + size <= data.len());
    let registrant = |at: usize| {
        let (host, key) = match extended {
            true => (json!(digits(&data[at + 16..at + 32])), at + 8),
            false => (json!(number(at + 8, 8)), at + 16),
        };
        json!({ "cntlid": number(at, 2), "rcsts": number(at + 2, 1), "hostid": host,
            "rkey": number(key, 8) })
    };
    let list: Vec<_> = places.map(registrant).collect();
    let name = if extended { "regctlext" } else { "regctls" };
    json!({ "gen": number(0, 4), "rtype": number(4, 1), "regctl": count, "ptpls": number(9, 1), name: list })
}

fn text(report: &Value) -> String {
    let kinds = [
        "nobody has reserved it",
        "write exclusive",
        "exclusive access",
        "write exclusive, registrants only",
        "exclusive access, registrants only",
        "write exclusive, all registrants",
        "exclusive access, all registrants",
    ];
    let kind = report["rtype"].as_u64().and_then(|kind| usize::try_from(kind).ok());
    let kind = kind.and_then(|kind| kinds.get(kind)).unwrap_or(&"a reserved type");
    let persists = if report["ptpls"] == json!(1) { ", persists through power losses" } else { "" };
    let mut text = format!("{kind}{persists}; {} registered, change {}\n", report["regctl"], report["gen"]);
    let list = report["regctlext"].as_array().or(report["regctls"].as_array());
    for one in list.into_iter().flatten() {
        let holds =
            if one["rcsts"].as_u64().is_some_and(|status| status & 1 == 1) { ", holds it" } else { "" };
        text += &format!(
            "  controller {} of host {}: key {:#x}{holds}\n",
            one["cntlid"],
            one["hostid"].as_str().map_or_else(|| one["hostid"].to_string(), str::to_owned),
            one["rkey"].as_u64().unwrap_or_default()
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registrants_are_told_under_nvme_clis_names() {
        let mut data = [0; 128];
        // One registrant, which holds a write exclusive reservation.
        (data[4], data[5], data[64], data[66], data[72]) = (1, 1, 3, 1, 0xab);
        for (place, byte) in data[80..96].iter_mut().zip(0..) {
            *place = byte;
        }
        let one = &parse(&data, true)["regctlext"][0];
        assert_eq!(one["hostid"], "000102030405060708090a0b0c0d0e0f", "the digits of the UUID");
        assert_eq!((&one["cntlid"], &one["rcsts"], &one["rkey"]), (&json!(3), &json!(1), &json!(0xab)));
        let mut data = [0; 48];
        (data[5], data[24], data[32], data[40]) = (1, 3, 7, 0xab);
        let one = &parse(&data, false)["regctls"][0];
        assert_eq!((&one["hostid"], &one["rkey"]), (&json!(7), &json!(0xab)));
    }
}
