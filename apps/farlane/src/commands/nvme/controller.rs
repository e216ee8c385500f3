//! `farlane nvme reset`, `subsystem-reset`, `show-regs`, `get-property`, `virt-mgmt` and
//! `lockdown`: commands for a controller as a whole.

use std::collections::BTreeMap;

use engine::Nanos;
use live::client::Url;
use nvme::wire::{AdminOpcode, StatusCode, SubmissionQueueEntry};
use nvme_fabrics::wire::{FabricsCommand, PropertyGet, PropertySet, PropertySize, property};
use nvme_pcie::host::QueueId;
use nvme_pcie::registers::offset;
use schemars::JsonSchema;
use serde::Serialize;

use super::{Payload, done, entry, with};
use crate::args::{AtArgs, GetPropertyArgs, LockdownArgs, ShowRegsArgs, Target, VirtMgmtArgs};
use crate::commands::fields::Fields;
use crate::commands::{print, print_json_of_nvme_cli};
use crate::error::{Error, NvmeError};
use crate::session::{Needs, PATIENCE, Session};

/// The command that gives the controller of a fabric a reset that lasts.
const LASTING: &str = "on the host that uses it, nvme reset /dev/nvmeN resets a controller of Linux, and farlane use disconnect and \
     farlane connect make that of a block device anew";
/// A register or property: offset, size, nvme-cli's name, and the title.
type Register = (u32, PropertySize, &'static str, &'static str);
const REGISTERS: [Register; 17] = [
    (property::CAPABILITIES, PropertySize::Quad, "cap", "Controller Capabilities"),
    (property::VERSION, PropertySize::Dword, "vs", "Version"),
    (offset::INTERRUPT_MASK_SET, PropertySize::Dword, "intms", "Interrupt Mask Set"),
    (offset::INTERRUPT_MASK_CLEAR, PropertySize::Dword, "intmc", "Interrupt Mask Clear"),
    (property::CONFIGURATION, PropertySize::Dword, "cc", "Controller Configuration"),
    (property::STATUS, PropertySize::Dword, "csts", "Controller Status"),
    (property::SUBSYSTEM_RESET, PropertySize::Dword, "nssr", "NVM Subsystem Reset"),
    (offset::ADMIN_QUEUE_ATTRIBUTES, PropertySize::Dword, "aqa", "Admin Queue Attributes"),
    (offset::ADMIN_SUBMISSION_QUEUE, PropertySize::Quad, "asq", "Admin Submission Queue Base Address"),
    (offset::ADMIN_COMPLETION_QUEUE, PropertySize::Quad, "acq", "Admin Completion Queue Base Address"),
    (offset::MEMORY_BUFFER_LOCATION, PropertySize::Dword, "cmbloc", "Controller Memory Buffer Location"),
    (offset::MEMORY_BUFFER_SIZE, PropertySize::Dword, "cmbsz", "Controller Memory Buffer Size"),
    (BOOT_PARTITIONS, PropertySize::Dword, "bpinfo", "Boot Partition Information"),
    (
        offset::MEMORY_BUFFER_CONTROL,
        PropertySize::Quad,
        "cmbmsc",
        "Controller Memory Buffer Memory Space Control",
    ),
    (offset::MEMORY_BUFFER_STATUS, PropertySize::Dword, "cmbsts", "Controller Memory Buffer Status"),
    (property::READY_TIMEOUTS, PropertySize::Dword, "crto", "Controller Ready Timeouts"),
    (PERSISTENT_MEMORY, PropertySize::Dword, "pmrcap", "Persistent Memory Region Capabilities"),
];
/// The offset of Boot Partition Information (BPINFO).
const BOOT_PARTITIONS: u32 = 0x40;
/// The offset of Persistent Memory Region Capabilities (PMRCAP).
const PERSISTENT_MEMORY: u32 = 0xe00;
/// The registers that a controller over fabrics has as properties.
const PROPERTIES: [u32; 6] = [
    property::CAPABILITIES,
    property::VERSION,
    property::CONFIGURATION,
    property::STATUS,
    property::SUBSYSTEM_RESET,
    property::READY_TIMEOUTS,
];
/// How long a controller may take to answer a read behind the write that resets its subsystem.
const LAST_WORDS: Nanos = Nanos::from_secs(2);

/// A controller that was reset.
#[derive(Serialize, JsonSchema)]
pub(super) struct Reset {
    /// URL of the controller.
    reset: String,
}

/// A subsystem that was reset.
#[derive(Serialize, JsonSchema)]
pub(super) struct SubsystemReset {
    /// URL of the subsystem.
    subsystem_reset: String,
}

/// The values of registers, by their mnemonics.
pub(super) type Registers = BTreeMap<&'static str, u64>;

/// The value of a property.
#[derive(Serialize, JsonSchema)]
pub(super) struct Property {
    /// Offset, in hexadecimal digits.
    property: String,
    /// Name.
    name: &'static str,
    /// Value, in hexadecimal digits.
    value: String,
}

/// Resources of a controller that were changed.
#[derive(Serialize, JsonSchema)]
pub(super) struct Resources {
    /// Number of Controller Resources Modified.
    nrm: u32,
}

/// A command or feature that was prohibited, or allowed.
#[derive(Serialize, JsonSchema)]
pub(super) struct LockedDown {
    /// Opcode or Feature Identifier.
    ofi: u8,
    /// 1 if it is prohibited from now on.
    prohibited: u8,
}

/// Resets a controller on PCI Express or behind vfio-user: its host disables and enables it when it
/// attaches. A controller of a fabric would be one of this command's own.
pub(super) fn reset(args: &AtArgs) -> Result<(), Error> {
    let target = &args.at.target;
    if let Url::Subsystem(_) = target.url {
        let why = "this command would connect a controller of its own, which ends with it";
        return Err(not_here("a reset", target, why, LASTING));
    }
    let name = with(target, |session| Ok(session.name()))?;
    let text = format!("the controller {name} at {} was reset\n", target.url);
    done(&args.at, &text, &Reset { reset: target.url.to_string() })
}

fn not_here(what: &'static str, target: &Target, why: &'static str, remedy: &'static str) -> Error {
    NvmeError::NotHere { what, url: target.url.to_string(), why, remedy }.into()
}

/// Gets a property of a controller over fabrics, or reads a register in BAR0.
fn get(session: &mut Session, offset: u32, size: PropertySize) -> Result<u64, Error> {
    if !session.is_fabric() {
        let length = if size == PropertySize::Quad { 8 } else { 4 };
        return session.register(offset, length, PATIENCE);
    }
    let command = FabricsCommand::PropertyGet(PropertyGet { size, offset }).emit();
    let (low, high) = session.wide_command("Property Get", command)?;
    Ok(match size {
        PropertySize::Dword => low.into(),
        PropertySize::Quad => u64::from(high) << 32 | u64::from(low),
    })
}

/// Writes the register or property that resets the subsystem.
fn write_reset(session: &mut Session) -> Result<(), Error> {
    let (offset, value) = (property::SUBSYSTEM_RESET, property::RESET_SIGNATURE);
    if !session.is_fabric() {
        session.set_register(offset, value);
        // The read follows the write. A controller that is reset need not answer it.
        let _ = session.register(property::STATUS, 4, LAST_WORDS);
        return Ok(());
    }
    let value = value.into();
    let set = FabricsCommand::PropertySet(PropertySet { size: PropertySize::Dword, offset, value }).emit();
    match session.wide_command("Property Set (NSSR)", set) {
        // The reset ends this command's own controller, too, mostly before it can answer.
        Err(Error::Command { status, .. }) if status.code() == StatusCode::CommandAbortedByHost => Ok(()),
        set => set.map(drop),
    }
}

/// Resets the subsystem: each of its controllers, of all hosts.
pub(super) fn subsystem_reset(args: &AtArgs) -> Result<(), Error> {
    let target = &args.at.target;
    let mut session = Session::attach(target, Needs::default())?;
    let capabilities = get(&mut session, property::CAPABILITIES, PropertySize::Quad)?;
    let high = u32::try_from(capabilities >> 32).unwrap_or_default();
    if !property::SUBSYSTEM_RESET_SUPPORTED.is_set(high) {
        session.close()?;
        return Err(NvmeError::Lacking { what: "NVM Subsystem Reset (CAP.NSSRS)" }.into());
    }
    write_reset(&mut session)?;
    // There is nothing left to leave in order.
    let _ = session.close();
    // Whether the subsystem is there again decides whether it was reset.
    with(target, |_| Ok(()))?;
    let text = format!("the subsystem at {} was reset\n", target.url);
    done(&args.at, &text, &SubsystemReset { subsystem_reset: target.url.to_string() })
}

/// Adds a property to a table, with its parts.
fn add(fields: &mut Fields, (offset, size, name, title): Register, value: u64) {
    let digits = if size == PropertySize::Quad { 16 } else { 8 };
    fields.hex(name, value, digits, title);
    let parts: &[(u32, u32, &str)] = match offset {
        property::CAPABILITIES => &[
            (15, 0, "Maximum Queue Entries Supported (MQES), 0's based"),
            (16, 16, "Contiguous Queues Required (CQR)"),
            (18, 17, "Arbitration Mechanism Supported (AMS)"),
            (31, 24, "Timeout (TO), in 500 ms"),
            (35, 32, "Doorbell Stride (DSTRD)"),
            (36, 36, "NVM Subsystem Reset Supported (NSSRS)"),
            (44, 37, "Command Sets Supported (CSS)"),
            (45, 45, "Boot Partition Support (BPS)"),
            (47, 46, "Controller Power Scope (CPS)"),
            (51, 48, "Memory Page Size Minimum (MPSMIN)"),
            (55, 52, "Memory Page Size Maximum (MPSMAX)"),
            (56, 56, "Persistent Memory Region Supported (PMRS)"),
            (57, 57, "Controller Memory Buffer Supported (CMBS)"),
            (58, 58, "NVM Subsystem Shutdown Supported (NSSS)"),
            (59, 59, "Controller Ready With Media Support (CRWMS)"),
            (60, 60, "Controller Ready Independent of Media Support (CRIMS)"),
        ],
        property::VERSION => &[(31, 16, "major"), (15, 8, "minor"), (7, 0, "tertiary")],
        property::CONFIGURATION => &[
            (0, 0, "Enable (EN)"),
            (6, 4, "I/O Command Set Selected (CSS)"),
            (10, 7, "Memory Page Size (MPS)"),
            (13, 11, "Arbitration Mechanism Selected (AMS)"),
            (15, 14, "Shutdown Notification (SHN)"),
            (19, 16, "I/O Submission Queue Entry Size (IOSQES), as a power of two"),
            (23, 20, "I/O Completion Queue Entry Size (IOCQES), as a power of two"),
            (24, 24, "Controller Ready Independent of Media Enable (CRIME)"),
        ],
        property::STATUS => &[
            (0, 0, "Ready (RDY)"),
            (1, 1, "Controller Fatal Status (CFS)"),
            (3, 2, "Shutdown Status (SHST)"),
            (4, 4, "NVM Subsystem Reset Occurred (NSSRO)"),
            (5, 5, "Processing Paused (PP)"),
        ],
        property::READY_TIMEOUTS => &[
            (15, 0, "Controller Ready With Media Timeout (CRWMT), in 500 ms"),
            (31, 16, "Controller Ready Independent of Media Timeout (CRIMT), in 500 ms"),
        ],
        _ => &[],
    };
    for (high, low, meaning) in parts {
        fields.part(*high, *low, *meaning);
    }
}

pub(super) fn registers(args: &ShowRegsArgs) -> Result<(), Error> {
    let target = &args.at.target;
    let values = with(target, |session| {
        let mut values = Vec::new();
        let is_fabric = session.is_fabric();
        let known = |(offset, ..): &Register| !is_fabric || PROPERTIES.contains(offset);
        for register in REGISTERS.into_iter().filter(known) {
            let (offset, size, ..) = register;
            match get(session, offset, size) {
                Ok(value) => values.push((register, value)),
                // Not every controller has each of them.
                Err(Error::Command { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(values)
    })?;
    let mut fields = Fields::default();
    for (property, value) in &values {
        add(&mut fields, *property, *value);
    }
    if args.at.printing.is_json() {
        let registers: Registers = values.iter().map(|((_, _, name, _), value)| (*name, *value)).collect();
        return print_json_of_nvme_cli(&registers);
    }
    let table = if args.detail.human_readable { fields.detailed_table() } else { fields.table() };
    print(&format!("Registers of a controller at {}\n{table}", target.url))
}

pub(super) fn property(args: &GetPropertyArgs) -> Result<(), Error> {
    let target = &args.at.target;
    let known = REGISTERS.into_iter().find(|(offset, ..)| *offset == args.offset);
    let known =
        known.unwrap_or((args.offset, PropertySize::Dword, "value", "a register without a name here"));
    let value = with(target, |session| match session.is_fabric() {
        false if !args.offset.is_multiple_of(4) || args.offset >= offset::DOORBELLS => {
            Err(NvmeError::NoRegister { offset: args.offset }.into())
        }
        _ => get(session, args.offset, known.1),
    })?;
    if args.at.printing.is_json() {
        let (property, value) = (format!("{:#04x}", args.offset), format!("{value:x}"));
        return print_json_of_nvme_cli(&Property { property, name: known.3, value });
    }
    let mut fields = Fields::default();
    add(&mut fields, known, value);
    print(&if args.detail.human_readable { fields.detailed_table() } else { fields.table() })
}

pub(super) fn virtualization(args: &VirtMgmtArgs) -> Result<(), Error> {
    let command = SubmissionQueueEntry {
        cdw10: u32::from(args.act) | u32::from(args.rt) << 8 | u32::from(args.cntlid) << 16,
        cdw11: args.nr.into(),
        ..entry(AdminOpcode::VirtualizationManagement, 0)
    };
    let (changed, _) = with(&args.at.target, |session| {
        session.command("Virtualization Management", QueueId::ADMIN, command, Payload::None)
    })?;
    let text = format!("success, Number of Controller Resources Modified (NRM):{changed:#x}\n");
    done(&args.at, &text, &Resources { nrm: changed })
}

pub(super) fn lockdown(args: &LockdownArgs) -> Result<(), Error> {
    let command = SubmissionQueueEntry {
        cdw10: u32::from(args.scp)
            | u32::from(args.prhbt) << 4
            | u32::from(args.ifc) << 5
            | u32::from(args.ofi) << 8,
        cdw14: args.uuid.into(),
        ..entry(AdminOpcode::Lockdown, 0)
    };
    with(&args.at.target, |session| session.command("Lockdown", QueueId::ADMIN, command, Payload::None))?;
    done(&args.at, "Lockdown Command is Successful\n", &LockedDown { ofi: args.ofi, prohibited: args.prhbt })
}
