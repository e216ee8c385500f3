//! The stores of a fleet: what both promise, and what etcd does on bad days.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod days;
mod members;
mod security;
mod speed;
mod suite;
mod support;

use fleetd::store::file;
use support::Etcd;
use support::controller::Controller;

/// Defines the tests that each store has to pass.
macro_rules! both_stores {
    ($($test:ident),* $(,)?) => {
        mod a_file {
            use super::*;
            $(#[tokio::test]
            async fn $test() {
                let folder = tempfile::tempdir().unwrap();
                let path = folder.path().join("store");
                suite::$test(async || Controller::new(file::open(&path).unwrap())).await;
            })*
        }

        mod etcd {
            use super::*;
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $test() {
                let Some(etcd) = Etcd::start() else { return };
                suite::$test(async || etcd.controller().await).await;
            })*
        }
    };
}

both_stores!(
    a_transaction_compares_and_sets,
    one_of_many_wins,
    a_transaction_is_applied_as_a_whole_or_not_at_all,
    a_watch_follows_a_list_in_the_order_of_revisions,
    a_list_has_what_a_model_has,
    terms_grow_and_earlier_ones_are_refused,
    a_store_that_is_opened_again_has_all_that_was_acknowledged,
    requests_before_an_election_change_nothing,
);
