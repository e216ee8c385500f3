//! A far end that is away when its host enumerates.

use pcie::requester::CompletionTimeout;
use pcie::root_complex::Plan;

use super::*;

const SECOND: PortIndex = PortIndex(1);

/// A host with the timeout that many hosts have: 50 ms, while an absent far end is away for
/// seconds.
fn host_like_others() -> near::Config {
    let timeout = CompletionTimeout::default();
    let mut config = near::Config::default();
    config.root.timeout = timeout;
    config.plan = Plan { timeout, ..config.plan };
    config
}

/// A host of two ports that waits a second for the second port, which never comes up. Meanwhile the
/// first port's connection is lost for 3 s.
fn lost_before_enumeration(config_cache: bool) -> Pair {
    let session = tunnel::session::Config { config_cache, ..tunnel::session::Config::default() };
    let mut pair = Pair::with(host_like_others(), &session, 2);
    pair.unreachable = [ConnectionIndex::main_of(SECOND)].into();
    pair.run_for(Nanos::from_millis(500));
    let up = |event: &Event| matches!(event, Event::Link { event: tunnel::Event::LinkUp { .. }, .. });
    assert!(pair.events.iter().any(up), "{:?}", pair.events);
    pair.cut();
    pair.unreachable = [PORT, SECOND].map(ConnectionIndex::main_of).into();
    pair.run_for(Nanos::from_secs(3));
    pair.unreachable = [ConnectionIndex::main_of(SECOND)].into();
    pair
}

fn timeouts(pair: &Pair) -> u64 {
    pair.near.root().requester_statistics().timeouts
}

#[test]
fn enumeration_waits_for_a_far_end_that_is_away() {
    let mut pair = lost_before_enumeration(true);
    let retries = pair.near.upstream().unwrap().config_cache().unwrap().retries;
    assert!(pair.near.root().is_enumerating() && retries > 20, "{retries}: {:?}", pair.events);
    pair.run_for(Nanos::from_secs(5));
    assert!(ready(&pair.events), "{:?}", pair.events);
    let topology = pair.near.topology().unwrap();
    assert_eq!((timeouts(&pair), &topology.faults), (0, &Vec::new()));
    assert_eq!(pair.near.root().requester_statistics().unexpected, 0);
}

#[test]
fn without_a_config_cache_enumeration_runs_into_the_completion_timeout() {
    let mut pair = lost_before_enumeration(false);
    pair.run_for(Nanos::from_secs(5));
    assert!(timeouts(&pair) > 0 && !ready(&pair.events), "{:?}", pair.events);
    let topology = pair.near.topology().unwrap();
    assert_eq!(topology.faults.len(), 1, "{:?}", topology.faults);
}
