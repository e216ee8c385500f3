//! Two controllers on etcd.

use std::time::{Duration, Instant};

use crate::stage::Stage;
use crate::support::Etcd;
use crate::tests::Load;

/// How long etcd is away: `make fleet-etcd-down` sets ten minutes.
fn away() -> Duration {
    let given = std::env::var("FARLANE_ETCD_DOWN").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(given.unwrap_or(5))
}

/// Without etcd, I/O goes on and changes wait; afterwards all becomes as users want it.
#[test]
fn etcd_may_be_away() {
    let Some(mut etcd) = Etcd::start() else { return };
    let store = format!("etcd://{}/live", etcd.endpoint());
    let Some(mut stage) = Stage::new(Some(store), 2, 2) else { return };
    stage.fleet(&["volume", "create", "data", "--size", "64MiB", "--pool", "m0"]);
    stage.fleet(&["attach", "data", "--node", "m1"]);
    let record = stage.record(1, "data-m1");
    let mut load = Load::start(&stage, record);
    etcd.kill();
    let until = Instant::now() + away();
    while Instant::now() < until {
        load.look(&stage);
        std::thread::sleep(Duration::from_millis(500));
    }
    let refused = stage.try_fleet(&["volume", "create", "other", "--size", "1MiB", "--timeout", "1s"]);
    assert!(refused.is_err(), "a volume without a store: {refused:?}");
    etcd.again();
    let back = Instant::now();
    stage.eventually("a volume is made", |stage| {
        let words = ["volume", "create", "other", "--size", "1MiB", "--pool", "m0", "--timeout", "20s"];
        stage.try_fleet(&words).is_ok()
    });
    println!("a change {:?} after etcd was back", back.elapsed());
    assert!(back.elapsed() < Duration::from_secs(30));
    load.look(&stage);
    load.end(&stage);
}

/// When the controller that leads dies, the other one takes over with all that was decided.
#[test]
fn another_controller_takes_over() {
    let Some(etcd) = Etcd::start() else { return };
    let store = format!("etcd://{}/live", etcd.endpoint());
    let Some(mut stage) = Stage::new(Some(store), 2, 2) else { return };
    stage.fleet(&["volume", "create", "data", "--size", "16MiB", "--pool", "m0"]);
    stage.fleet(&["attach", "data", "--node", "m1"]);
    let leader = (0..2).find(|index| stage.health(*index)["leads"] == true).expect("one leads");
    stage.controllers[leader] = None;
    let began = Instant::now();
    stage.eventually("the other controller lets the volume go", |stage| {
        stage.try_fleet(&["detach", "data-m1", "--timeout", "5s"]).is_ok()
    });
    println!("detached {:?} after the death of the controller that led", began.elapsed());
    // The one that died stands by for the other.
    stage.start_controller(leader);
    stage.fleet(&["attach", "data", "--node", "m1"]);
    assert_eq!(stage.health(1 - leader)["leads"], true);
}
