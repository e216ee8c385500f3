//! Hosts whose controllers are gone, and the requests of theirs that media have not ended.

use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::media::IoId;

/// The most hosts that are distinguished. The requests of others count for [`OTHERS`].
const HOSTS_MAX: usize = 1024;
/// The name for hosts beyond `HOSTS_MAX`, which is no NQN.
pub const OTHERS: &str = "others";

/// What is left of a host.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Left {
    /// The subsystem's own requests for the host.
    requests: BTreeSet<IoId>,
    /// The version of the views with which lanes have ended the host's commands: what they have
    /// sent before may be with media until they are quiet since then.
    version: Option<u64>,
}

/// Hosts whose controllers were removed while media had requests of theirs.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Departed(BTreeMap<String, Left>);

impl Departed {
    /// A controller of `host` is gone, with these `requests` that media have not ended. `version`
    /// is that with which lanes end the controller's commands, if there are lanes.
    pub(super) fn add(&mut self, host: &str, requests: Vec<IoId>, version: Option<u64>) {
        if requests.is_empty() && version.is_none() {
            return;
        }
        let is_known = self.0.contains_key(host) || self.0.len() < HOSTS_MAX;
        let left = self.0.entry(if is_known { host } else { OTHERS }.to_owned()).or_default();
        left.requests.extend(requests);
        left.version = left.version.max(version);
    }

    /// A request has ended.
    #[cold]
    pub(super) fn end(&mut self, id: IoId) {
        self.0.retain(|_, left| {
            left.requests.remove(&id);
            !left.requests.is_empty() || left.version.is_some()
        });
    }

    /// All lanes are quiet since the version `quiet`.
    pub(super) fn settle(&mut self, quiet: u64) {
        self.0.retain(|_, left| {
            left.version = left.version.filter(|version| *version > quiet);
            !left.requests.is_empty() || left.version.is_some()
        });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Each host, the number of its requests with the subsystem's media, and the version since
    /// which lanes are to be quiet.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, usize, Option<u64>)> {
        self.0.iter().map(|(host, left)| (host.as_str(), left.requests.len(), left.version))
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::vec;

    use super::*;

    #[test]
    fn a_host_is_gone_with_its_last_request_and_when_lanes_are_quiet() {
        let mut departed = Departed::default();
        departed.add("idle", vec![], None);
        assert!(departed.is_empty());
        departed.add("busy", vec![IoId(1), IoId(2)], None);
        departed.add("lanes", vec![IoId(3)], Some(7));
        departed.add("lanes", vec![], Some(5));
        departed.end(IoId(1));
        departed.end(IoId(3));
        assert!(departed.iter().eq([("busy", 1, None), ("lanes", 0, Some(7))]));
        departed.settle(6);
        departed.end(IoId(2));
        assert!(departed.iter().eq([("lanes", 0, Some(7))]));
        departed.settle(7);
        assert!(departed.is_empty());
    }

    #[test]
    fn many_hosts_are_counted_together() {
        let mut departed = Departed::default();
        for number in 0..5_000 {
            departed.add(&format!("host {number}"), vec![IoId(number)], None);
        }
        assert_eq!(departed.0.len(), HOSTS_MAX + 1);
        assert!(departed.iter().any(|(host, requests, _)| host == OTHERS && requests == 5_000 - HOSTS_MAX));
    }
}
