//! Engines that are replaced by successors, which know of them only the state that was handed over.

use engine::{Buffer, Rng};
use nvme::media::Completion;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// One in so many turns of a node begins with a hand-over.
const RARITY: u64 = 1000;

/// Whether, and when, the engine of a node is handed over.
#[derive(Debug, Default)]
pub(crate) enum Succession {
    /// Never: one process serves from beginning to end.
    #[default]
    None,
    /// Never, but the run is compared with one that has successors.
    Compared,
    /// At turns that this generator chooses. All else in the run is as without.
    By(Rng),
}

impl Succession {
    /// The successions of a run that is compared with another one, with successors or without.
    pub(crate) fn compared(rng: Rng, succeed: bool) -> Self {
        if succeed { Self::By(rng) } else { Self::Compared }
    }

    /// Replaces `engine` by its successor, if it is time to.
    ///
    /// # Panics
    /// When the state can't be written or read: the seed of the run replays it.
    pub(crate) fn turn<T: Serialize + DeserializeOwned>(&mut self, engine: &mut T) {
        let Self::By(rng) = self else { return };
        if rng.one_in(RARITY) {
            let state = rmp_serde::to_vec_named(engine).expect("a state can be handed over at any time");
            *engine = rmp_serde::from_slice(&state).expect("a successor understands the state");
        }
    }

    /// The answer of a medium, for the engine. A medium writes to another place while an engine
    /// holds what it has read, and cuts later answers there. A successor holds copies, so that runs
    /// can be compared only if the engine has copies always.
    pub(crate) fn received(&self, answer: Completion) -> Completion {
        match (self, answer) {
            (Self::Compared | Self::By(_), Completion::Data { id, offset, data }) => {
                Completion::Data { id, offset, data: Buffer::copy_from_slice(&data) }
            }
            (_, answer) => answer,
        }
    }
}
