//! `farlane nvme resv-register`, `resv-acquire`, `resv-release` and `resv-report`.

use std::fmt::Display;

use nvme::wire::{IoOpcode, SubmissionQueueEntry};
use schemars::JsonSchema;
use serde::Serialize;

use super::{IO, OfNamespace, Payload, done, entry, show_list, with};
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

/// A Reservation Status data structure under nvme-cli's names.
#[derive(Serialize, JsonSchema)]
pub(super) struct Report {
    /// Generation: how often registrations have changed.
    r#gen: u64,
    /// Type of the reservation; 0 if there is none.
    rtype: u64,
    /// Number of registered controllers.
    regctl: usize,
    /// Persist Through Power Loss State.
    ptpls: u64,
    /// The registered controllers.
    #[serde(flatten)]
    registrants: Registrants,
}

/// The registered controllers, as far as the data have them.
#[derive(Serialize, JsonSchema)]
enum Registrants {
    /// With host identifiers of 64 bits.
    #[serde(rename = "regctls")]
    Short(Vec<Registrant<u64>>),
    /// With host identifiers of 128 bits.
    #[serde(rename = "regctlext")]
    Extended(Vec<Registrant<String>>),
}

/// A registered controller.
#[derive(Serialize, JsonSchema)]
struct Registrant<H> {
    /// Controller identifier.
    cntlid: u64,
    /// Reservation status; bit 0 is set for the holder.
    rcsts: u64,
    /// Host identifier.
    hostid: H,
    /// Reservation key.
    rkey: u64,
}

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
    done(at, text, &OfNamespace { nsid: command.namespace.0 })
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
    show_list(args.at.printing, &data, || &report, || text(&report))
}

/// Parses a Reservation Status data structure.
fn parse(data: &[u8], extended: bool) -> Report {
    let number = |at: usize, length: usize| -> u64 {
        let bytes = data.get(at..at + length).unwrap_or_default();
        bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
    };
    let (header, size) = if extended { (EXTENDED_HEADER, EXTENDED_REGISTRANT) } else { (HEADER, REGISTRANT) };
    let count = usize::try_from(number(5, 2)).unwrap_or_default();
    let places = (0..count).map(|index| header + index * size).take_while(|at| at + size <= data.len());
    let (cntlid, rcsts) = (|at: usize| number(at, 2), |at: usize| number(at + 2, 1));
    let short = |at: usize| {
        let (hostid, rkey) = (number(at + 8, 8), number(at + 16, 8));
        Registrant { cntlid: cntlid(at), rcsts: rcsts(at), hostid, rkey }
    };
    let long = |at: usize| {
        let (hostid, rkey) = (digits(&data[at + 16..at + 32]), number(at + 8, 8));
        Registrant { cntlid: cntlid(at), rcsts: rcsts(at), hostid, rkey }
    };
    let registrants = match extended {
        true => Registrants::Extended(places.map(long).collect()),
        false => Registrants::Short(places.map(short).collect()),
    };
    Report { r#gen: number(0, 4), rtype: number(4, 1), regctl: count, ptpls: number(9, 1), registrants }
}

impl<H: Display> Registrant<H> {
    /// The registered controller as a line for people.
    fn line(&self) -> String {
        let Self { cntlid, rcsts, hostid, rkey } = self;
        let holds = if rcsts & 1 == 1 { ", holds it" } else { "" };
        format!("  controller {cntlid} of host {hostid}: key {rkey:#x}{holds}\n")
    }
}

fn text(report: &Report) -> String {
    let kinds = [
        "no host has reserved it",
        "write exclusive",
        "exclusive access",
        "write exclusive, registrants only",
        "exclusive access, registrants only",
        "write exclusive, all registrants",
        "exclusive access, all registrants",
    ];
    let kind = usize::try_from(report.rtype).ok().and_then(|kind| kinds.get(kind));
    let kind = kind.unwrap_or(&"a reserved type");
    let persists = if report.ptpls == 1 { ", persists through power losses" } else { "" };
    let lines: String = match &report.registrants {
        Registrants::Short(all) => all.iter().map(Registrant::line).collect(),
        Registrants::Extended(all) => all.iter().map(Registrant::line).collect(),
    };
    format!("{kind}{persists}; {} registered, change {}\n{lines}", report.regctl, report.r#gen)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn printed(data: &[u8], extended: bool) -> Value {
        serde_json::to_value(parse(data, extended)).unwrap()
    }

    #[test]
    fn registrants_are_reported_under_nvme_clis_names() {
        let mut data = [0; 128];
        // One registrant, which holds a write exclusive reservation.
        (data[4], data[5], data[64], data[66], data[72]) = (1, 1, 3, 1, 0xab);
        for (place, byte) in data[80..96].iter_mut().zip(0..) {
            *place = byte;
        }
        let one = &printed(&data, true)["regctlext"][0];
        assert_eq!(one["hostid"], "000102030405060708090a0b0c0d0e0f", "the digits of the UUID");
        assert_eq!((&one["cntlid"], &one["rcsts"], &one["rkey"]), (&json!(3), &json!(1), &json!(0xab)));
        let mut data = [0; 48];
        (data[5], data[24], data[32], data[40]) = (1, 3, 7, 0xab);
        let one = &printed(&data, false)["regctls"][0];
        assert_eq!((&one["hostid"], &one["rkey"]), (&json!(7), &json!(0xab)));
    }
}
