//! The search for the highest rate without loss.

use super::limit::Part;

/// The first rate that is tried, in bytes a second.
const FIRST: u64 = 16_000_000;
/// The lowest rate that is tried.
const LEAST: u64 = 1_000_000;
/// The highest rate that is tried.
pub(super) const MOST: u64 = 64_000_000_000;
/// The search ends once a rate without loss and one with loss differ by less than this part of the
/// first.
const CLOSE: u64 = 16;
/// How often a rate is lowered by [`CLOSE`] that does not stand the last, longer trial.
const LOWERED_MAX: u32 = 12;
/// The number of losses that makes a rate count as lossy: a machine may be away for a moment.
const LOSSES: u32 = 2;

/// How long a trial takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Length {
    /// As long as was asked for.
    Usual,
    /// Longer.
    Long,
}

/// The result of a trial.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tried {
    /// Bytes a second that were recorded.
    pub(super) reached: u64,
    /// The part that did not keep up, if one did not.
    pub(super) limit: Option<Part>,
}

/// The result of the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// The highest rate without loss, in bytes a second; 0 if there is none.
    pub(super) rate: u64,
    /// The part that limits it.
    pub(super) limit: Part,
}

/// Finds the highest rate at which `attempt` meets no limit, up to `most` bytes a second. The rate
/// has passed a trial of the usual length, or is the rate that a sender reached in one, and then a
/// long one.
///
/// # Errors
/// Those of `attempt`.
pub(super) fn search<E>(
    most: u64,
    mut attempt: impl FnMut(u64, Length) -> Result<Tried, E>,
) -> Result<Found, E> {
    let mut usual = |rate| -> Result<Tried, E> {
        let mut tried = attempt(rate, Length::Usual)?;
        for _ in 1..LOSSES {
            if tried.limit.is_none_or(|part| part == Part::Sender) {
                break;
            }
            tried = attempt(rate, Length::Usual)?;
        }
        Ok(tried)
    };
    let (mut good, mut limit) = (0, Part::Room);
    let (mut bad, mut rate) = (None, FIRST.min(most));
    while rate > good {
        let tried = usual(rate)?;
        match tried.limit {
            // All sent bytes were recorded, and no more can be sent.
            Some(Part::Sender) => {
                (good, limit) = (tried.reached.max(good), Part::Sender);
                break;
            }
            Some(part) => (bad, limit) = (Some(rate), part),
            None => good = rate,
        }
        rate = match bad {
            None => (rate * 2).min(most),
            Some(bad) if good == 0 && bad <= LEAST => break,
            Some(bad) if good == 0 => (bad / 4).max(LEAST),
            Some(bad) if bad - good <= good / CLOSE => break,
            Some(bad) => u64::try_from((u128::from(good) * u128::from(bad)).isqrt()).unwrap_or(bad),
        };
    }
    for _ in 0..=LOWERED_MAX {
        if good < LEAST / 2 {
            break;
        }
        match attempt(good, Length::Long)?.limit {
            None => return Ok(Found { rate: good, limit }),
            // A sender that sends nearly as much has lost nothing.
            Some(Part::Sender) if limit == Part::Sender => {}
            Some(part) => limit = part,
        }
        good -= good / CLOSE;
    }
    Ok(Found { rate: 0, limit })
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    /// Searches where nothing is lost up to `takes`, and the sender sends `sends` at most. Returns
    /// the result, and the rates that were tried.
    fn found(most: u64, takes: u64, sends: u64) -> (Found, Vec<u64>) {
        let mut rates = Vec::new();
        let attempt = |rate: u64, _| -> Result<Tried, Infallible> {
            rates.push(rate);
            let sent = rate.min(sends);
            let limit = match () {
                () if sent > takes => Some(Part::Disk),
                () if sent < rate * 9 / 10 => Some(Part::Sender),
                () => None,
            };
            Ok(Tried { reached: sent, limit })
        };
        let Ok(found) = search(most, attempt);
        (found, rates)
    }

    #[test]
    fn the_highest_rate_is_found_within_a_sixteenth() {
        for takes in [1_500_000, 9_000_000, 16_000_000, 431_000_000, 2_000_000_000, 50_000_000_000] {
            let (found, rates) = found(MOST, takes, u64::MAX);
            assert_eq!(found.limit, Part::Disk, "{takes}");
            assert!(found.rate <= takes && found.rate >= takes - takes / 16, "{takes}: {found:?}");
            assert!(rates.len() < 36, "{takes}: {rates:?}");
        }
    }

    #[test]
    fn the_rate_of_the_sender_is_reported_where_it_is_the_limit() {
        let (found, _) = found(MOST, u64::MAX, 700_000_000);
        assert_eq!(found, Found { rate: 700_000_000, limit: Part::Sender });
    }

    #[test]
    fn the_room_bounds_the_rate() {
        let (all, rates) = found(300_000_000, u64::MAX, u64::MAX);
        assert_eq!(all, Found { rate: 300_000_000, limit: Part::Room });
        assert!(rates.iter().all(|rate| *rate <= 300_000_000));
    }

    #[test]
    fn a_recorder_that_always_loses_has_no_rate() {
        assert_eq!(found(MOST, 0, u64::MAX).0, Found { rate: 0, limit: Part::Disk });
    }

    #[test]
    fn one_loss_at_a_low_rate_ends_nothing_and_a_long_trial_lowers_the_rate() {
        let mut trials = 0;
        let attempt = |rate: u64, length| -> Result<Tried, Infallible> {
            trials += 1;
            // The buffers hold for a short time a rate that is too high for a long one.
            let takes = if length == Length::Usual { 400_000_000 } else { 300_000_000 };
            let is_unlucky = trials == 3;
            let limit = (rate > takes || is_unlucky).then_some(Part::Receiver);
            Ok(Tried { reached: rate, limit })
        };
        let Ok(Found { rate, limit }) = search(MOST, attempt);
        assert_eq!(limit, Part::Receiver);
        assert!((270_000_000..=300_000_000).contains(&rate), "{rate}");
    }
}
