//! Where a volume goes: to the pool from which the simulation predicts the best service.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use engine::Nanos;

use crate::Name;
use crate::object::Class;

/// How a volume in a pool will serve a host, as a simulation of the links between them says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prediction {
    /// The class whose load was simulated.
    pub class: Name,
    /// The pool.
    pub pool: Name,
    /// The host; `None` for a host beside the pool.
    pub near: Option<Name>,
    /// The time within which 99 of 100 reads of 4 KiB end.
    pub p99: Nanos,
    /// Bytes per second.
    pub bandwidth: u64,
    /// The links that were simulated, and the origin of each model, for people.
    pub path: Vec<String>,
}

/// A pool that may get a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The pool.
    pub pool: Name,
    /// Bytes that no volume takes.
    pub free: u64,
    /// Whether nothing new is to be placed there.
    pub cordoned: bool,
    /// Whether its machine's agent is connected.
    pub connected: bool,
    /// The prediction for the volume's class, if it has one.
    pub prediction: Option<Prediction>,
}

/// A pool that is fit for a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fit {
    /// The pool.
    pub pool: Name,
    /// The prediction for it.
    pub prediction: Option<Prediction>,
}

/// All pools, as far as they are fit for a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranking {
    /// The pools that are fit, best first.
    pub fit: Vec<Fit>,
    /// The pools that are none for the volume.
    pub unfit: Vec<(Name, Unfit)>,
}

/// Why a pool is none for a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// There is too little space: bytes that are free.
    Full(u64),
    /// A user wants nothing new there.
    Cordoned,
    /// The machine is away.
    Away,
    /// Nothing is predicted for the class there yet.
    NotPredicted,
    /// Reads take longer than the class allows.
    Slow(Nanos),
    /// Bytes per second are fewer than the class demands.
    Narrow(u64),
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(free) => write!(f, "{free} bytes are free"),
            Self::Cordoned => f.write_str("its node is cordoned"),
            Self::Away => f.write_str("the agent of its node is not connected"),
            Self::NotPredicted => f.write_str("nothing is predicted for the class yet"),
            Self::Slow(p99) => write!(f, "99 of 100 reads are predicted to end within {p99} only"),
            Self::Narrow(bytes) => write!(f, "{bytes} B/s are predicted"),
        }
    }
}

/// Ranks the pools for a volume of so many bytes: first the one with the lowest predicted 99th
/// percentile, then the one with the most free space, then the first by name.
pub fn rank(bytes: u64, class: &Class, candidates: impl IntoIterator<Item = Candidate>) -> Ranking {
    let (mut fit, mut unfit) = (Vec::new(), Vec::new());
    for candidate in candidates {
        match reason(bytes, class, &candidate) {
            Some(reason) => unfit.push((candidate.pool, reason)),
            None => fit.push(candidate),
        }
    }
    let p99 = |one: &Candidate| one.prediction.as_ref().map_or(Nanos::MAX, |prediction| prediction.p99);
    fit.sort_by(|a, b| {
        let order = p99(a).cmp(&p99(b)).then(b.free.cmp(&a.free));
        order.then_with(|| a.pool.cmp(&b.pool))
    });
    let fit = fit.into_iter().map(|Candidate { pool, prediction, .. }| Fit { pool, prediction });
    Ranking { fit: fit.collect(), unfit }
}

/// Why a pool is none for a volume, if so.
fn reason(bytes: u64, class: &Class, candidate: &Candidate) -> Option<Unfit> {
    let Class { p99, bandwidth } = class;
    if candidate.cordoned {
        return Some(Unfit::Cordoned);
    }
    if !candidate.connected {
        return Some(Unfit::Away);
    }
    if candidate.free < bytes {
        return Some(Unfit::Full(candidate.free));
    }
    if p99.is_none() && *bandwidth == 0 {
        return None;
    }
    let Some(prediction) = &candidate.prediction else { return Some(Unfit::NotPredicted) };
    if p99.is_some_and(|p99| prediction.p99 > p99) {
        return Some(Unfit::Slow(prediction.p99));
    }
    (prediction.bandwidth < *bandwidth).then_some(Unfit::Narrow(prediction.bandwidth))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    fn candidate(pool: &str, free: u64, micros: u64) -> Candidate {
        let prediction = Prediction {
            class: name("fast"),
            pool: name(pool),
            near: None,
            p99: Nanos::from_micros(micros),
            bandwidth: 1_000_000,
            path: Vec::new(),
        };
        let (pool, prediction) = (name(pool), Some(prediction));
        Candidate { pool, free, cordoned: false, connected: true, prediction }
    }

    #[test]
    fn the_best_prediction_wins_and_the_second_is_named() {
        let class = Class { p99: Some(Nanos::from_micros(300)), bandwidth: 0 };
        let far = candidate("far", 1 << 40, 900);
        let all = vec![candidate("b", 100, 200), candidate("a", 100, 250), far, candidate("c", 10, 100)];
        let ranking = rank(50, &class, all);
        let pools: Vec<_> = ranking.fit.into_iter().map(|one| one.pool).collect();
        assert_eq!(pools, [name("b"), name("a")]);
        let reasons = vec![(name("far"), Unfit::Slow(Nanos::from_micros(900))), (name("c"), Unfit::Full(10))];
        assert_eq!(ranking.unfit, reasons);
    }

    #[test]
    fn without_a_class_the_emptiest_pool_wins() {
        let all = vec![candidate("a", 100, 1), candidate("b", 200, 1)];
        assert_eq!(rank(1, &Class::default(), all).fit[0].pool, name("b"));
    }

    #[test]
    fn each_unfit_pool_has_its_reason() {
        let class = Class { p99: None, bandwidth: 2_000_000 };
        let mut all = vec![candidate("a", 9, 1); 4];
        (all[0].cordoned, all[1].connected, all[2].prediction) = (true, false, None);
        let reasons: Vec<_> = rank(1, &class, all).unfit.into_iter().map(|(_, one)| one).collect();
        let wanted = [Unfit::Cordoned, Unfit::Away, Unfit::NotPredicted, Unfit::Narrow(1_000_000)];
        assert_eq!(reasons, wanted);
    }
}
