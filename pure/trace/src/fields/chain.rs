//! Where the PDUs or frames of a segment begin.

use alloc::vec::Vec;

use super::Wanted;

/// Something of which a stream consists, one after another.
pub(super) trait Link: Sized {
    /// Parses the unit at the start of `bytes`, which has at least 8 bytes, if it is plausible.
    fn parse(bytes: &[u8]) -> Option<Self>;
    /// Length up to the next unit, more than 0.
    fn length(&self) -> usize;
    /// Whether it belongs to this command. `bytes` begin with it.
    fn is_of(&self, bytes: &[u8], wanted: Wanted) -> bool;
}

/// Number of bytes at the end of a segment that are too few to identify a unit.
const TOO_FEW: usize = 8;

/// The offsets of the units in a segment, if it has any: from its first byte on, or from the first
/// unit of the wanted command.
pub(super) fn of<L: Link>(bytes: &[u8], wanted: Option<Wanted>) -> Option<Vec<usize>> {
    let first = from::<L>(bytes, 0);
    let Some(wanted) = wanted else { return first };
    let has_it = |starts: &[usize]| starts.iter().any(|at| is_of::<L>(&bytes[*at..], wanted));
    if first.as_deref().is_some_and(has_it) {
        return first;
    }
    let place = (1..bytes.len()).find_map(|at| {
        let is_it = is_of::<L>(&bytes[at..], wanted);
        is_it.then(|| from::<L>(bytes, at)).flatten()
    });
    place.or(first)
}

fn is_of<L: Link>(bytes: &[u8], wanted: Wanted) -> bool {
    bytes.len() >= TOO_FEW && L::parse(bytes).is_some_and(|link| link.is_of(bytes, wanted))
}

/// The places from `start` on, if each is followed by another one or by the segment's end.
fn from<L: Link>(bytes: &[u8], start: usize) -> Option<Vec<usize>> {
    let (mut at, mut starts) = (start, Vec::new());
    while bytes.len().saturating_sub(at) >= TOO_FEW {
        starts.push(at);
        at = at.saturating_add(L::parse(&bytes[at..])?.length());
    }
    (!starts.is_empty()).then_some(starts)
}
