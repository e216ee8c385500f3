//! How long transactions take. Run by hand, with `--run-ignored all --no-capture`.

use std::time::Instant;

use fleetd::store::file;

use crate::support::Etcd;
use crate::support::controller::Controller;

async fn measure(what: &str, controller: &mut Controller) {
    controller.elected().await;
    controller.list().await;
    let mut revision = controller.set(&[], &[("a", Some(0))]).await;
    let mut times = Vec::new();
    for number in 0..1000 {
        let begun = Instant::now();
        revision = controller.set(&[("a", revision)], &[("a", Some(number))]).await;
        times.push(begun.elapsed());
    }
    times.sort();
    println!("{what}, one after the other: median {:.2?}, p99 {:.2?}", times[500], times[990]);
    let begun = Instant::now();
    let names: Vec<_> = (0..1000).map(|one| format!("n{one}")).collect();
    let numbers: Vec<_> = names.iter().map(|name| controller.send(&[], &[(name, Some(1))])).collect();
    for number in numbers {
        controller.answer(number).await;
    }
    println!("{what}, 1000 at once: {:.2?}", begun.elapsed());
}

#[tokio::test]
#[ignore = "measures time"]
async fn of_a_file() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut controller = Controller::new(file::open(&folder.path().join("store")).unwrap());
    measure("file", &mut controller).await;
}

#[tokio::test]
#[ignore = "measures time"]
async fn of_etcd() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let Some(etcd) = Etcd::start_with(folder, "http", &[]) else { return };
    let mut controller = etcd.controller().await;
    measure("etcd", &mut controller).await;
}
