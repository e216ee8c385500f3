//! Agents and targets that are killed, and controllers that know less than the owner.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fleetd::agent::Record;

use crate::machine::{Machine, PATIENCE, alone, farlane, logs_in, start_use, volume};

/// An owner with a host that was let in in epoch 2 and is connected.
fn connected() -> Option<(Machine, Machine, Record)> {
    let farlane = farlane()?;
    let [mut owner, mut host] = ["owner", "host"].map(|node| Machine::new(&farlane, node));
    owner.start();
    host.start();
    let one = alone("a", "host", 2);
    let credentials = owner.enforce(2, std::slice::from_ref(&one)).credentials;
    let record = host.connect(&owner, &one, &credentials);
    Some((owner, host, record))
}

#[test]
fn the_next_agent_adopts_target_and_attachments_without_a_pause() {
    let Some((mut owner, mut host, record)) = connected() else { return };
    let target = owner.target().unwrap();
    let load = ["--rw", "randwrite", "--runtime", "4s", "--timeout", "2s", "--verify"];
    let at_work = start_use(&owner.farlane, &record, &["bench"], &load);
    for _ in 0..3 {
        owner.kill_agent();
        host.kill_agent();
        std::thread::sleep(Duration::from_millis(200));
        owner.start();
        host.start();
        owner.await_report("the list", |reported| reported.enforces("v", 2));
        host.await_report("the attachment", |reported| reported.connects("a", 2));
    }
    let output = at_work.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(owner.target(), Some(target));
}

#[test]
fn an_agent_that_is_killed_at_any_step_forgets_no_list() {
    let Some(farlane) = farlane() else { return };
    let mut owner = Machine::new(&farlane, "owner");
    owner.start();
    owner.enforce(1, &[]);
    let target = owner.target().unwrap();
    let mut number = 1;
    let mut acknowledged = 0;
    for round in 0..24 {
        number += 1;
        let list =
            if round % 3 == 2 { Vec::new() } else { vec![alone(&format!("a{number}"), "host", number)] };
        owner.slice(vec![volume("v", number, &list)], Vec::new(), &[]);
        std::thread::sleep(Duration::from_millis(round * 2));
        owner.kill_agent();
        owner.start();
        // A controller that knows less.
        owner.slice(vec![volume("v", 1, &[])], Vec::new(), &[]);
        let reported =
            owner.await_report("a list", |reported| reported.volume("v").is_some_and(|one| one.enforced));
        let durable = reported.volume("v").unwrap().epoch.number;
        assert!(durable >= acknowledged, "epoch {durable} after {acknowledged} was acknowledged");
        // The agent does not soon repeat a report.
        if durable < number {
            owner.enforce(number, &list);
        }
        acknowledged = number;
    }
    assert!(
        owner.logged().contains("refused") || owner.logged().contains("has epoch 0.1"),
        "{}",
        owner.logged()
    );
    assert_eq!(owner.target(), Some(target), "the target was not started again");
}

#[test]
fn a_target_that_is_killed_starts_again_with_the_fence() {
    let Some((mut owner, _host, record)) = connected() else { return };
    owner.enforce(3, &[]);
    let second = alone("b", "host", 4);
    owner.enforce(4, &[second]);
    let before = owner.target().unwrap();
    owner.kill_target();
    let until = Instant::now() + PATIENCE;
    let after = loop {
        match owner.target() {
            Some(target) if target != before => break target,
            _ => assert!(Instant::now() < until, "the target starts again: {}", owner.logged()),
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    owner.ask();
    owner.await_report("epoch 4", |reported| reported.enforces("v", 4));
    logs_in(&owner.farlane, &record).unwrap_err();

    // Without an agent, the target's own file is enough.
    owner.kill_agent();
    owner.kill_target();
    assert!(owner.target().is_none());
    let [config, socket] = ["target/target.toml", "target.sock"].map(|name| owner.folder().join(name));
    let mut command = Command::new(&owner.farlane);
    command.arg("target").arg("--config").arg(config).arg("--control").arg(socket);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut alone_process = command.spawn().unwrap();
    let until = Instant::now() + PATIENCE;
    while owner.target().is_none() {
        assert!(Instant::now() < until && after > 0, "the target starts by itself");
        std::thread::sleep(Duration::from_millis(20));
    }
    logs_in(&owner.farlane, &record).unwrap_err();
    owner.start();
    owner.await_report("epoch 4", |reported| reported.enforces("v", 4));
    assert_eq!(owner.target(), Some(alone_process.id()), "the agent adopts it");
    alone_process.kill().unwrap();
    alone_process.wait().unwrap();
}

#[test]
fn a_fence_is_acknowledged_while_the_target_is_dead() {
    let Some((mut owner, _host, record)) = connected() else { return };
    // The program is gone: no target can start.
    let gone = owner.farlane.with_extension("gone");
    let real = std::mem::replace(&mut owner.farlane, gone);
    owner.kill_agent();
    owner.kill_target();
    owner.start();
    owner.await_report("epoch 2", |reported| reported.volume("v").is_some_and(|one| !one.enforced));
    owner.enforce(3, &[]);
    owner.kill_agent();
    owner.farlane = real;
    owner.start();
    owner.await_report("epoch 3", |reported| reported.enforces("v", 3));
    logs_in(&owner.farlane, &record).unwrap_err();
}

#[test]
fn a_volume_whose_data_is_lost_stops_no_others() {
    let Some((mut owner, _host, _)) = connected() else { return };
    let other = volume("other", 1, &[alone("b", "host", 1)]);
    owner.slice(vec![volume("v", 2, &[alone("a", "host", 2)]), other], Vec::new(), &[]);
    owner.await_report("both", |reported| reported.enforces("other", 1));
    owner.kill_agent();
    owner.kill_target();
    std::fs::remove_file(owner.pool().join("v.raw")).unwrap();
    owner.start();
    let reported = owner.await_report("the other", |reported| reported.enforces("other", 1));
    assert!(!reported.enforces("v", 2));
    let until = Instant::now() + PATIENCE;
    while !owner.logged().contains("v.raw is gone: mount its pool") {
        assert!(Instant::now() < until, "{}", owner.logged());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(!owner.pool().join("v.raw").exists());
}

#[test]
fn a_damaged_target_file_lets_in_the_hosts_of_the_state() {
    let Some((mut owner, _host, record)) = connected() else { return };
    owner.kill_agent();
    std::fs::write(owner.folder().join("target/target.toml"), "[[subsystem]]\nnqn = 7").unwrap();
    owner.start();
    owner.await_report("epoch 2", |reported| reported.enforces("v", 2));
    logs_in(&owner.farlane, &record).unwrap();
    assert!(owner.logged().contains("all hosts are let out"), "{}", owner.logged());
}
