//! The commands that nvme-cli has too, on every URL.

mod controller;
mod events;
mod feature_words;
mod features;
mod firmware;
mod host;
mod identify;
mod io;
mod logs;
mod namespaces;
mod passthru;
mod reports;
mod reservations;
mod sanitize;
mod self_test;
mod smart_log;
#[cfg(test)]
pub(crate) mod tests;

use std::io::{Read, Write};
use std::path::Path;

use nvme::wire::{NamespaceId, SubmissionQueueEntry};
use nvme_pcie::host::QueueId;
use schemars::JsonSchema;
use serde::Serialize;

use super::fields::Fields;
use super::{print, print_json_of_nvme_cli};
use crate::args::{At, NvmeCommand, Printed, StructurePrinting, Target};
use crate::error::Error;
use crate::session::{Needs, Payload, Session};

/// The queue of I/O commands.
const IO: QueueId = QueueId(1);
/// Bytes of a page of most structures.
const PAGE: u32 = 4096;

pub(crate) fn run(command: &NvmeCommand) -> Result<(), Error> {
    match command {
        NvmeCommand::Identify(args) => super::identify::run(args),
        NvmeCommand::IdCtrl(args) => identify::controller(args),
        NvmeCommand::SmartLog(args) => smart_log::run(args),
        NvmeCommand::IdNs(args) => identify::namespace(args),
        NvmeCommand::NsDescs(args) => identify::descriptors(args),
        NvmeCommand::IdUuid(args) => identify::uuids(args),
        NvmeCommand::ListNs(args) => namespaces::list(args),
        NvmeCommand::ListCtrl(args) => namespaces::controllers(args),
        NvmeCommand::CreateNs(args) => namespaces::create(args),
        NvmeCommand::DeleteNs(args) => namespaces::delete(args),
        NvmeCommand::AttachNs(args) => namespaces::attach(args, true),
        NvmeCommand::DetachNs(args) => namespaces::attach(args, false),
        NvmeCommand::Format(args) => namespaces::format(args),
        NvmeCommand::Sanitize(args) => sanitize::sanitize(args),
        NvmeCommand::SanitizeLog(args) => sanitize::log(args),
        NvmeCommand::GetLog(args) => logs::get(args),
        NvmeCommand::ErrorLog(args) => logs::errors(args),
        NvmeCommand::EffectsLog(args) => reports::effects(args),
        NvmeCommand::AnaLog(args) => reports::ana(args),
        NvmeCommand::SupportedLogPages(args) => reports::supported(args),
        NvmeCommand::ChangedNsListLog(args) => reports::changed(args),
        NvmeCommand::EnduranceLog(args) => reports::endurance(args),
        NvmeCommand::PersistentEventLog(args) => events::persistent(args),
        NvmeCommand::TelemetryLog(args) => events::telemetry(args),
        NvmeCommand::FwLog(args) => firmware::log(args),
        NvmeCommand::FwDownload(args) => firmware::download(args),
        NvmeCommand::FwCommit(args) => firmware::commit(args),
        NvmeCommand::DeviceSelfTest(args) => self_test::start(args),
        NvmeCommand::SelfTestLog(args) => self_test::log(args),
        NvmeCommand::GetFeature(args) => features::get(args),
        NvmeCommand::SetFeature(args) => features::set(args),
        NvmeCommand::ResvRegister(args) => reservations::register(args),
        NvmeCommand::ResvAcquire(args) => reservations::acquire(args),
        NvmeCommand::ResvRelease(args) => reservations::release(args),
        NvmeCommand::ResvReport(args) => reservations::report(args),
        NvmeCommand::Flush(args) => io::flush(args),
        NvmeCommand::WriteZeroes(args) => io::write_zeroes(args),
        NvmeCommand::VerifyBlocks(args) => io::verify(args),
        NvmeCommand::Dsm(args) => io::dataset_management(args),
        NvmeCommand::Compare(args) => io::compare(args),
        NvmeCommand::Copy(args) => io::copy(args),
        NvmeCommand::WriteUncor(args) => io::write_uncorrectable(args),
        NvmeCommand::Reset(args) => controller::reset(args),
        NvmeCommand::SubsystemReset(args) => controller::subsystem_reset(args),
        NvmeCommand::ShowRegs(args) => controller::registers(args),
        NvmeCommand::GetProperty(args) => controller::property(args),
        NvmeCommand::VirtMgmt(args) => controller::virtualization(args),
        NvmeCommand::Lockdown(args) => controller::lockdown(args),
        NvmeCommand::ShowHostNqn(args) => host::show_name(args),
        NvmeCommand::GenHostNqn(args) => host::make_name(args),
        NvmeCommand::Version(args) => host::version(args),
        NvmeCommand::ListSubsys(args) => host::subsystems(args),
        NvmeCommand::AdminPassthru(args) => passthru::run(args, QueueId::ADMIN),
        NvmeCommand::IoPassthru(args) => passthru::run(args, IO),
    }
}

/// Attaches to the controller at `target`, lets `work` do something with it, and lets go of it.
fn with<T>(target: &Target, work: impl FnOnce(&mut Session) -> Result<T, Error>) -> Result<T, Error> {
    let mut session = Session::attach(target, Needs::default())?;
    let done = work(&mut session);
    // The failure of the work says more than that of the end.
    let closed = session.close();
    done.and_then(|done| closed.map(|()| done))
}

/// A command with `opcode` for the namespace `id`.
fn entry(opcode: impl Into<u8>, id: u32) -> SubmissionQueueEntry {
    SubmissionQueueEntry { opcode: opcode.into(), namespace: NamespaceId(id), ..SubmissionQueueEntry::EMPTY }
}

/// The namespace that a command was about.
#[derive(Serialize, JsonSchema)]
struct OfNamespace {
    /// Namespace identifier.
    nsid: u32,
}

/// Bytes that a controller returned.
#[derive(Serialize, JsonSchema)]
struct Bytes<'a> {
    /// The bytes.
    data: &'a [u8],
}

/// Prints that something was done: a text for people, or `value` for machines.
fn done(at: &At, text: &str, value: &impl Serialize) -> Result<(), Error> {
    if at.printing.is_json() { print_json_of_nvme_cli(value) } else { print(text) }
}

/// A structure that a controller returned: its bytes, and its fields.
pub(super) struct Structure<'a> {
    /// The title above the fields, for people.
    pub(super) title: &'a str,
    pub(super) fields: &'a Fields,
    pub(super) bytes: &'a [u8],
}

impl Structure<'_> {
    /// Prints the structure, for people with all bits if `detailed`.
    pub(super) fn show(self, printing: StructurePrinting, detailed: bool) -> Result<(), Error> {
        let fields = self.fields;
        self.show_as(printing, detailed, fields)
    }

    /// Prints the structure as [`Structure::show`] does, but for machines prints `json`.
    fn show_as(
        self,
        printing: StructurePrinting,
        detailed: bool,
        json: &impl Serialize,
    ) -> Result<(), Error> {
        match printing.form() {
            Printed::Binary => print_bytes(self.bytes),
            Printed::Json => print_json_of_nvme_cli(json),
            Printed::Normal => {
                let table = if detailed { self.fields.detailed_table() } else { self.fields.table() };
                print(&format!("{}\n{table}", self.title))
            }
        }
    }
}

/// Prints a list: its bytes, `json`, or `text`.
fn show_list<T: Serialize>(
    printing: StructurePrinting,
    bytes: &[u8],
    json: impl FnOnce() -> T,
    text: impl FnOnce() -> String,
) -> Result<(), Error> {
    match printing.form() {
        Printed::Binary => print_bytes(bytes),
        Printed::Json => print_json_of_nvme_cli(&json()),
        Printed::Normal => print(&text()),
    }
}

/// Prints data: as they are, as an array for machines, or as nvme-cli shows them to people.
fn show_data(printing: StructurePrinting, title: &str, data: &[u8]) -> Result<(), Error> {
    show_list(printing, data, || Bytes { data }, || format!("{title}\n{}", dump(data)))
}

/// Prints bytes as they are.
pub(crate) fn print_bytes(bytes: &[u8]) -> Result<(), Error> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        // Like head, a reader may have had enough.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        result => result.map_err(Error::Output),
    }
}

/// Bytes in hexadecimal, sixteen a line, with their letters.
fn dump(data: &[u8]) -> String {
    let line = |(index, bytes): (usize, &[u8])| {
        let hex: Vec<_> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let letter =
            |byte: &u8| if byte.is_ascii_graphic() || *byte == b' ' { char::from(*byte) } else { '.' };
        let letters: String = bytes.iter().map(letter).collect();
        format!("{:04x}: {:47} \"{letters}\"\n", index * 16, hex.join(" "))
    };
    data.chunks(16).enumerate().map(line).collect()
}

/// Reads at most `most` bytes of the file at `path`; `-` is standard input.
fn read_file(path: &Path, most: u64) -> Result<Vec<u8>, Error> {
    let fail = |error| Error::File { path: path.to_owned(), error };
    let mut data = Vec::new();
    let read = match path.as_os_str() == "-" {
        true => std::io::stdin().take(most + 1).read_to_end(&mut data),
        false => std::fs::File::open(path).and_then(|file| file.take(most + 1).read_to_end(&mut data)),
    };
    read.map_err(fail)?;
    let length = data.len() as u64;
    match length <= most {
        true => Ok(data),
        false => {
            let expected = format!("at most {most} B");
            Err(Error::Range { what: "the length of the file", value: length, expected })
        }
    }
}
