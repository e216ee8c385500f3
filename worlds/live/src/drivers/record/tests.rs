//! A medium that breaks while a recording goes to it.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use record::registers::Direction;
use rustix::fs::{MemfdFlags, SealFlags};

use super::*;

/// A file in memory that takes no write any more once it is sealed: each fails from then on.
#[test]
fn a_medium_that_breaks_keeps_what_was_acknowledged_and_the_rest_is_declared() {
    for digests in [Digests::World, Digests::None] {
        let medium: File = rustix::fs::memfd_create("medium", MemfdFlags::ALLOW_SEALING).unwrap().into();
        let path = PathBuf::from(format!("/proc/self/fd/{}", medium.as_raw_fd()));
        let config = Config { digests, ..Config::new([3; 16], vec!["made".into()]) };
        let place = Place { target: Target::Path(&path), overwrite: false };
        let limits = Limits { time: Some(Duration::from_secs(30)), bytes: None };
        let mut acknowledged = 0;
        let tell = |progress: &Progress| {
            if acknowledged == 0 && progress.acknowledged > 0 {
                rustix::fs::fcntl_add_seals(&medium, SealFlags::FUTURE_WRITE).unwrap();
                acknowledged = progress.acknowledged;
            }
        };
        let sources = vec![Source::generate(20_000_000)];
        let handle = Handle::new(Direction::Write, Arc::default());
        let recorded = record(place, config, sources, limits, &handle, tell).unwrap();
        let certificate = &recorded.certificate;
        assert_eq!((certificate.reason, recorded.is_certified), (Reason::Failed, false), "{recorded:?}");
        let (came, stored, lost) =
            (certificate.bytes_in(), certificate.bytes_stored(), certificate.bytes_lost());
        assert!(came == stored + lost && stored >= acknowledged && lost > 0, "{recorded:?}");
        let found = Recording::read(&path, false).unwrap();
        assert!(found.survey.certificate.is_none() && !found.is_proved());
        assert_eq!(found.survey.bytes(), stored);
        assert!(found.survey.holes.is_empty() && found.survey.bad.is_empty());
    }
}
