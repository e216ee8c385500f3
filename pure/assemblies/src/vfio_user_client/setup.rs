//! Asks a server one question after another until the driver can have the function.

use alloc::vec::Vec;

use engine::{Asker, Script, Step};
use pcie::config::{ClassCode, header, msix};
use vfio_user::client::Answer;
use vfio_user::wire::RegionInfo;
use vfio_user::{Area, Errno, RegionIndex};

use super::Failure;

/// Where the doorbells begin in BAR0, in bytes.
const DOORBELLS: u64 = 0x1000;
/// Bytes of the doorbells of a queue pair.
const PAIR_BYTES: u64 = 8;
/// Bytes of the conventional configuration space.
const SPACE: u32 = 256;
/// Offset of the register that locates the first capability (Capabilities Pointer).
const CAPABILITIES: usize = 0x34;
/// The MSI-X capability's identifier.
const MSIX: u8 = 0x11;
/// The maximum number of capabilities that fit: a longer chain is a loop.
const CAPABILITIES_MAX: usize = 48;
/// An area longer than this, in bytes, holds more than doorbells and is not mapped whole.
const AREA_MAX: u64 = 1 << 20;

/// A request of the script.
#[derive(Debug)]
pub(super) enum Question<D> {
    Device,
    Region(RegionIndex),
    Interrupts,
    ShareMemory,
    ReadConfig {
        offset: u64,
        count: u32,
    },
    WriteConfig {
        offset: u64,
        bytes: Vec<u8>,
    },
    /// Asks the world, not the server: map `area` of BAR0, which is at `offset` of the file.
    MapDoorbells {
        area: Area,
        descriptor: D,
        offset: u64,
    },
}

pub(super) type Steps<D> = Script<Question<D>, Result<Answer<D>, Errno>, Result<Found, Failure>>;

/// The properties that the driver needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    /// Vectors to listen to; 0 where there are fewer vectors than queues.
    pub(super) vectors: u32,
    /// The register that enables and disables MSI-X, if there are vectors.
    pub(super) control: Option<MessageControl>,
}

/// Message Control of MSI-X: PCI Express Base, 7.7.2.2.
#[derive(Clone, Copy, Debug)]
pub(super) struct MessageControl {
    /// Offset of the register in the configuration space.
    pub(super) offset: u16,
    enabled: u16,
    disabled: u16,
}

impl MessageControl {
    fn new(space: &[u8], capability: u16) -> Self {
        let enable = msix::ENABLE.at(capability);
        let value = dword(space, usize::from(enable.offset()));
        let value = msix::FUNCTION_MASK.at(capability).with(value, 0);
        // Message Control is the upper half of its double word.
        let half = |on| {
            let [_, _, low, high] = enable.with(value, on).to_le_bytes();
            u16::from_le_bytes([low, high])
        };
        Self { offset: enable.offset() + 2, enabled: half(1), disabled: half(0) }
    }
    /// The value that enables or disables MSI-X.
    pub(super) const fn value(&self, enabled: bool) -> [u8; 2] {
        let value = if enabled { self.enabled } else { self.disabled };
        value.to_le_bytes()
    }
}

/// A script and its first question.
type Begun<D> = (Steps<D>, Step<Question<D>, Result<Found, Failure>>);

type Ask<D> = Asker<Question<D>, Result<Answer<D>, Errno>>;

/// Sets up a function for a driver with `queue_pairs` besides the admin queues.
pub(super) fn script<D: 'static>(queue_pairs: u16) -> Begun<D> {
    Script::start(move |asker: Ask<D>| async move {
        let what = "to describe the device";
        match ask(&asker, what, Question::Device).await? {
            Answer::Device(device) if device.pci => {}
            Answer::Device(_) => return Err(Failure::NotPci),
            _ => return Err(Failure::Answer { what }),
        }
        let space = config(&asker).await?;
        let class = ClassCode::from_dword(dword(&space, usize::from(header::CLASS.offset())));
        if class != ClassCode::NVME {
            return Err(Failure::Class(class));
        }
        let pairs = u64::from(queue_pairs) + 1;
        registers(&asker, pairs).await?;
        ask(&asker, "to share memory", Question::ShareMemory).await?;
        let command = header::MEMORY_SPACE.with(0, 1);
        let command = header::INTERRUPT_DISABLE.with(header::BUS_MASTER.with(command, 1), 1);
        write(&asker, header::BUS_MASTER.offset(), low_half(command)).await?;
        let (vectors, control) = interrupts(&asker, &space).await?;
        let wanted = u32::from(queue_pairs) + 1;
        Ok(Found { vectors: if vectors >= wanted { wanted } else { 0 }, control })
    })
}

async fn ask<D: 'static>(
    asker: &Ask<D>,
    what: &'static str,
    question: Question<D>,
) -> Result<Answer<D>, Failure> {
    asker.ask(question).await.map_err(|error| match error {
        Errno::ENOTCONN => Failure::Gone,
        error => Failure::Refused { what, error },
    })
}

/// Reads the conventional configuration space.
async fn config<D: 'static>(asker: &Ask<D>) -> Result<Vec<u8>, Failure> {
    let what = "to show the configuration space";
    match ask(asker, what, Question::ReadConfig { offset: 0, count: SPACE }).await? {
        Answer::Data(data) if data.len() == SPACE as usize => Ok(data.to_vec()),
        _ => Err(Failure::Answer { what }),
    }
}

/// The lower half of a double word, for a write of 16 bits. The upper half is status, or has
/// another owner.
const fn low_half(value: u32) -> [u8; 2] {
    let [low, high, ..] = value.to_le_bytes();
    [low, high]
}

async fn write<D: 'static>(asker: &Ask<D>, offset: u16, value: [u8; 2]) -> Result<(), Failure> {
    let question = Question::WriteConfig { offset: offset.into(), bytes: value.to_vec() };
    ask(asker, "to write the configuration space", question).await.map(|_| ())
}

/// Looks at BAR0, and maps the doorbells of `pairs` queue pairs if the server lets them be mapped.
async fn registers<D: 'static>(asker: &Ask<D>, pairs: u64) -> Result<(), Failure> {
    let what = "to say what BAR0 is";
    let answer = ask(asker, what, Question::Region(RegionIndex::BAR0)).await?;
    let Answer::Region { info, descriptors } = answer else { return Err(Failure::Answer { what }) };
    let need = DOORBELLS + pairs * PAIR_BYTES;
    if info.size < need {
        return Err(Failure::Registers(info.size));
    }
    let Some((number, area)) = doorbells(&info, need) else { return Ok(()) };
    // One descriptor for each area, or one for all areas.
    let number = if descriptors.len() == info.areas.len() { number } else { 0 };
    let Some(descriptor) = descriptors.into_iter().nth(number) else { return Ok(()) };
    let Some(offset) = info.offset.checked_add(area.offset) else { return Ok(()) };
    let question = Question::MapDoorbells { area, descriptor, offset };
    ask(asker, "to map doorbells", question).await.map(|_| ())
}

/// The area that holds all doorbells, up to `end`, and its number.
fn doorbells(info: &RegionInfo, end: u64) -> Option<(usize, Area)> {
    if !info.mappable {
        return None;
    }
    let whole = [Area { offset: 0, length: info.size }];
    let areas = if info.areas.is_empty() { &whole[..] } else { &info.areas[..] };
    let holds = |area: &Area| {
        area.offset <= DOORBELLS
            && area.offset.is_multiple_of(4)
            && area.length <= AREA_MAX
            && area.offset.checked_add(area.length).is_some_and(|last| last >= end && last <= info.size)
    };
    areas.iter().copied().enumerate().find(|(_, area)| holds(area))
}

/// Finds the number of vectors and their Message Control. MSI-X stays disabled until there is a
/// listener: a server may take an interrupt that it cannot signal for a fault.
async fn interrupts<D: 'static>(
    asker: &Ask<D>,
    space: &[u8],
) -> Result<(u32, Option<MessageControl>), Failure> {
    let Some(at) = capability(space) else { return Ok((0, None)) };
    // A server without an answer has no interrupts.
    let Ok(Answer::Interrupt(info)) = asker.ask(Question::Interrupts).await else { return Ok((0, None)) };
    if info.count == 0 || !info.descriptors {
        return Ok((0, None));
    }
    let control = MessageControl::new(space, at);
    write(asker, control.offset, control.value(false)).await?;
    Ok((info.count, Some(control)))
}

/// Offset of the MSI-X capability.
fn capability(space: &[u8]) -> Option<u16> {
    let mut at = usize::from(*space.get(CAPABILITIES)? & !3);
    for _ in 0..CAPABILITIES_MAX {
        if at < 0x40 {
            return None;
        }
        if *space.get(at)? == MSIX {
            return u16::try_from(at).ok();
        }
        at = usize::from(*space.get(at + 1)? & !3);
    }
    None
}

fn dword(space: &[u8], at: usize) -> u32 {
    let bytes = space.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
    u32::from_le_bytes(bytes.unwrap_or_default())
}
