//! Far ends that another process goes on with.

use std::os::fd::OwnedFd;

use assemblies::far::Seats;
use engine::Nanos;
use live::drivers::far::{Event, FarDriver};
use live::media::Media;
use live::sys::clock::Clock;
use live::sys::hand_over::HandOver;
use nvme::media::MediumId;
use nvme::media::ram::RamDisk;
use serde::{Deserialize, Serialize};

use super::server::{Offered, Server};
use crate::error::{DaemonError, Error};

/// How long the media of a far end may take to end the requests under way.
const REST_WITHIN: Nanos = Nanos::from_secs(2);

/// The contents of media in memory, by the media's names.
pub(super) type Memories = Vec<(MediumId, RamDisk)>;

/// The state of a far end, as a process leaves it.
#[derive(Serialize)]
struct Left<'a> {
    serial: &'a str,
    seats: &'a Seats,
    memories: Vec<(u32, &'a RamDisk)>,
}

/// The state of a far end, as its successor takes it.
#[derive(Deserialize)]
pub(super) struct Taken {
    serial: String,
    seats: Seats,
    memories: Vec<(u32, RamDisk)>,
}

impl Taken {
    /// The engines of the far end, whose SSD has this serial number here and whose memories are
    /// among `media`.
    ///
    /// # Errors
    /// When the options describe another SSD.
    pub(super) fn settle(self, serial: &str, media: &mut Media) -> Result<Seats, Error> {
        if self.serial != serial {
            return Err(wrong(format!("its SSD is {}, and the options describe {serial}", self.serial)));
        }
        let memories = self.memories.into_iter().map(|(name, disk)| (MediumId(name), disk));
        recall(media, memories).map_err(wrong)?;
        Ok(self.seats)
    }
}

/// The far ends of `hand_over`, in their order, each with its listening socket.
///
/// # Errors
/// When the state can't be understood.
pub(super) fn inherited(hand_over: HandOver) -> Result<Vec<(OwnedFd, Taken)>, Error> {
    let HandOver { state, descriptors } = hand_over;
    let far_ends: Vec<Taken> = rmp_serde::from_slice(&state)
        .map_err(|error| wrong(format!("its state can't be understood: {error}")))?;
    if far_ends.len() != descriptors.len() {
        return Err(wrong(format!("it has {} far ends and {} sockets", far_ends.len(), descriptors.len())));
    }
    Ok(descriptors.into_iter().zip(far_ends).collect())
}

/// Brings far ends to rest, and returns what another process needs to go on with them.
///
/// # Errors
/// Why it could not go on, as a sentence. The far ends serve their hosts then.
pub(super) fn leave(server: &mut Server) -> Result<HandOver, String> {
    let Server { clock, far_ends, offered, .. } = server;
    for (driver, one) in far_ends.iter().zip(&*offered) {
        check(driver, one)?;
    }
    let hand_over = rest(*clock, far_ends.iter_mut()).and_then(|()| {
        let far_ends: Vec<_> = far_ends.iter().zip(&*offered).collect();
        hand_over_of(&far_ends)
    });
    if hand_over.is_err() {
        far_ends.iter_mut().for_each(FarDriver::wake);
    }
    hand_over
}

/// Whether another process could go on with a far end.
fn check(driver: &FarDriver<fn(Event)>, one: &Offered) -> Result<(), String> {
    let place = driver.address();
    if driver.has_other_ways() {
        return Err(format!(
            "hosts may come to the far end at {place} by another way than TCP, and only TCP can be left \
             to another process: restart it"
        ));
    }
    if let Some(why) = driver.media().why_bound() {
        return Err(format!("the far end at {place}: {why}: restart it"));
    }
    if one.listed != one.listed_at_start || driver.media().count() != one.media_at_start {
        return Err(format!(
            "namespaces of the far end at {place} have come or gone since its start: save the offer \
             (farlane export save) and restart it"
        ));
    }
    Ok(())
}

fn rest<'a>(
    clock: Clock,
    mut drivers: impl Iterator<Item = &'a mut FarDriver<fn(Event)>>,
) -> Result<(), String> {
    drivers.try_for_each(|driver| match driver.rest(clock, REST_WITHIN) {
        Ok(true) => Ok(()),
        Ok(false) => {
            let patience = REST_WITHIN.get() / 1_000_000;
            Err(format!(
                "media of the far end at {} still work after {patience} ms: try again",
                driver.address()
            ))
        }
        Err(error) => Err(error.to_string()),
    })
}

/// A far end and its offer.
type Offering<'a> = (&'a FarDriver<fn(Event)>, &'a Offered);

fn hand_over_of(far_ends: &[Offering<'_>]) -> Result<HandOver, String> {
    let sockets = far_ends.iter().map(|(driver, _)| driver.listening_socket());
    let descriptors = sockets.collect::<Result<_, _>>().map_err(|error| error.to_string())?;
    let left = far_ends.iter().map(|(driver, one)| Left {
        serial: &one.serial,
        seats: driver.far(),
        memories: driver.media().memories().map(|(name, disk)| (name.0, disk)).collect(),
    });
    let left: Vec<_> = left.collect();
    let state = rmp_serde::to_vec_named(&left).map_err(|error| error.to_string())?;
    Ok(HandOver { state, descriptors })
}

/// Lets go of the media of each far end, whose files another process may open then. Returns the
/// memories among them.
pub(super) fn let_go(server: &mut Server) -> Vec<Memories> {
    let drivers = server.far_ends.iter_mut();
    drivers.map(|driver| driver.exchange_media(Media::new()).take_memories()).collect()
}

/// Puts the contents of memories into `media`, which has media of the same names and lengths.
///
/// # Errors
/// When it has not, as a sentence.
pub(super) fn recall(
    media: &mut Media,
    memories: impl IntoIterator<Item = (MediumId, RamDisk)>,
) -> Result<(), String> {
    for (name, disk) in memories {
        let bytes = disk.bytes();
        if !media.recall(name, disk) {
            return Err(format!(
                "its medium {} is a memory of {bytes} B, and the options have another",
                name.0
            ));
        }
    }
    Ok(())
}

fn wrong(why: String) -> Error {
    DaemonError::Asked { why: format!("the running process can't be succeeded: {why}") }.into()
}
