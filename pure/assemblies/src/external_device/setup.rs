//! The questions to a server before its device is offered, as straight-line code.

use alloc::vec::Vec;

use engine::{Asker, Buffer, Script, Step};
use pcie::config::CONFIG_SPACE_SIZE;
use vfio_user::client::Answer;
use vfio_user::wire::DmaMap;
use vfio_user::{Errno, InterruptIndex, RegionIndex};

use super::plan::{Facts, HEADER, Plan, Unusable};

/// Number and length in bytes of the pieces in which memory is mapped for a server that does not
/// take all addresses at once, as libvfio-user requires. Together the pieces cover 2^47 bytes,
/// where hosts have their memory.
const PIECES: u64 = 16;
const PIECE: u64 = 8 << 40;
/// Length that covers all addresses but the last page, so that it fits in 64 bits.
const ALL: u64 = u64::MAX - 4095;

/// A question to the server.
#[derive(Clone, Copy, Debug)]
pub(super) enum Question {
    Device,
    Region(RegionIndex),
    Vectors,
    Configuration { offset: u64, count: u32 },
    Map(DmaMap),
}

pub(super) type AnswerResult<D> = Result<Answer<D>, Errno>;
pub(super) type Ended = Result<Plan, Unusable>;
pub(super) type Steps<D> = Script<Question, AnswerResult<D>, Ended>;

/// Reads the description of the device, and lets the device reach all memory. A message carries at
/// most `data_max` bytes.
pub(super) fn start<D: 'static>(data_max: u32) -> (Steps<D>, Step<Question, Ended>) {
    Script::start(move |asker: Asker<Question, AnswerResult<D>>| async move {
        let mut facts = Facts::default();
        match asker.ask(Question::Device).await {
            Ok(Answer::Device(device)) if device.pci => facts.resettable = device.resettable,
            Ok(_) => return Err(Unusable::NotPci),
            Err(error) => return Err(Unusable::Refused("DEVICE_GET_INFO", error)),
        }
        facts.config = configuration(&asker, data_max).await?;
        for (number, length) in (0..).zip(&mut facts.regions) {
            if let Ok(Answer::Region { info, .. }) = asker.ask(Question::Region(RegionIndex(number))).await {
                *length = info.size;
            }
        }
        if let Ok(Answer::Interrupt(info)) = asker.ask(Question::Vectors).await
            && info.descriptors
        {
            facts.vectors = info.count;
        }
        let plan = Plan::new(&facts)?;
        map(&asker).await?;
        Ok(plan)
    })
}

async fn configuration<D>(
    asker: &Asker<Question, AnswerResult<D>>,
    data_max: u32,
) -> Result<Vec<u8>, Unusable> {
    let size = match asker.ask(Question::Region(RegionIndex::CONFIG)).await {
        Ok(Answer::Region { info, .. }) => info.size.min(CONFIG_SPACE_SIZE.into()),
        Ok(_) => return Err(Unusable::NoConfiguration),
        Err(error) => return Err(Unusable::Refused("DEVICE_GET_REGION_INFO", error)),
    };
    let mut config: Vec<u8> = Vec::new();
    while (config.len() as u64) < size {
        let offset = config.len() as u64;
        let count = u32::try_from(size - offset).unwrap_or(data_max).min(data_max);
        match asker.ask(Question::Configuration { offset, count }).await {
            Ok(Answer::Data(data)) if !data.is_empty() => config.extend_from_slice(&data),
            // The part that could be read is enough if it has the header.
            _ if config.len() >= HEADER => break,
            Ok(_) => return Err(Unusable::NoConfiguration),
            Err(error) => return Err(Unusable::Refused("REGION_READ of the configuration space", error)),
        }
    }
    Ok(config)
}

/// Lets the device reach the host's memory, at all addresses, by message.
async fn map<D>(asker: &Asker<Question, AnswerResult<D>>) -> Result<(), Unusable> {
    let piece = |address, length| {
        Question::Map(DmaMap { readable: true, writable: true, offset: 0, address, length })
    };
    if asker.ask(piece(0, ALL)).await.is_ok() {
        return Ok(());
    }
    for index in 0..PIECES {
        match asker.ask(piece(index * PIECE, PIECE)).await {
            Ok(_) => {}
            Err(error) if index == 0 => return Err(Unusable::Refused("DMA_MAP", error)),
            Err(_) => break,
        }
    }
    Ok(())
}

/// The bytes of an answer to a read, if the answer is data of the right length.
pub(super) fn data_of<D>(answer: AnswerResult<D>, length: u32) -> Option<Buffer> {
    match answer {
        Ok(Answer::Data(data)) if data.len() as u64 == u64::from(length) => Some(data),
        _ => None,
    }
}

/// The kind of interrupts that the link carries.
pub(super) const KIND: InterruptIndex = InterruptIndex::Msix;
