//! Volumes that hosts reach by tunnel: each has a far end of its own.

use std::os::unix::fs::FileTypeExt;
use std::time::{Duration, Instant};

use fleet::slice::Wish;

use crate::life::{holders, of, write_and_read};
use crate::machine::{
    Machine, PATIENCE, alone, attachment, by_tunnel, farlane, logs_in, start_use, use_volume, volume,
};

/// Waits until the host of a record is let in.
fn await_login(farlane: &std::path::Path, record: &fleetd::agent::Record) {
    let until = Instant::now() + PATIENCE;
    while let Err(error) = logs_in(farlane, record) {
        assert!(Instant::now() < until, "{error}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_host_by_tunnel_reads_and_writes_until_it_is_let_out() {
    let Some(farlane) = farlane() else { return };
    let [mut owner, mut host] = ["owner", "host"].map(|node| Machine::new(&farlane, node));
    owner.start();
    host.start();
    let first = by_tunnel("a", "host", 2);
    let credentials = of(&owner.enforce(2, std::slice::from_ref(&first)), "a");
    let tunnel = credentials[0].tunnel.as_ref().expect("the key of the tunnel");
    let record = host.connect(&owner, &first, &credentials);
    assert!(record.url.starts_with("tcp://127.0.0.1:"), "{}", record.url);
    write_and_read(&farlane, &record);
    let key = tunnel.key.lines().nth(1).unwrap();
    assert_eq!(holders(&owner.folder(), key), [""; 0], "the owner keeps no key of a host");
    assert_eq!(holders(&host.folder(), key), ["a.E0-2.key"]);
    assert!(!owner.logged().contains(key) && !host.logged().contains(key));

    // The far end outlives its agent, and the next agent adopts it.
    let before = owner.processes("exports");
    assert_eq!(before.len(), 1);
    owner.kill_agent();
    write_and_read(&farlane, &record);
    owner.start();
    owner.enforce(2, std::slice::from_ref(&first));
    assert_eq!(owner.processes("exports"), before);

    // One that was killed is started again, at the same port and with the same key.
    owner.kill_processes("exports");
    await_login(&farlane, &record);
    write_and_read(&farlane, &record);
    println!("killed and back");

    // A host that is at work is let out.
    let load = ["--rw", "randwrite", "--iodepth", "8", "--runtime", "60s", "--timeout", "2s"];
    let at_work = start_use(&farlane, &record, &["bench"], &load);
    std::thread::sleep(Duration::from_secs(1));
    let began = Instant::now();
    owner.enforce(3, &[]);
    println!("let out within {:?}", began.elapsed());
    let written = std::fs::read(owner.pool().join("v.raw")).unwrap();
    assert!(owner.processes("exports").is_empty());
    assert!(!at_work.wait_with_output().unwrap().status.success());
    assert!(std::fs::read(owner.pool().join("v.raw")).unwrap() == written, "the host wrote afterwards");

    // In a later epoch, the same host has another key at the same port.
    let second = by_tunnel("b", "host", 4);
    let credentials = of(&owner.enforce(4, std::slice::from_ref(&second)), "b");
    let error = logs_in(&farlane, &record).unwrap_err();
    assert!(error.contains("key"), "the old keys are refused: {error}");
    host.slice(Vec::new(), vec![attachment(&owner, &first, Wish::Disconnect)], &[]);
    host.await_report("a's end", |reported| reported.report.attachments.is_empty());
    let new = host.connect(&owner, &second, &credentials);
    assert_eq!(new.url.split('?').next(), record.url.split('?').next());
    write_and_read(&farlane, &new);

    // By the target, the volume has the data that it got by tunnel.
    owner.enforce(5, &[]);
    let third = alone("c", "host", 6);
    let credentials = of(&owner.enforce(6, std::slice::from_ref(&third)), "c");
    host.slice(Vec::new(), vec![attachment(&owner, &second, Wish::Disconnect)], &[]);
    host.await_report("b's end", |reported| reported.report.attachments.is_empty());
    let by_target = host.connect(&owner, &third, &credentials);
    let file = std::fs::read(owner.pool().join("v.raw")).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let read = directory.path().join("read");
    let options = ["--length", "8MiB", "--output", read.to_str().unwrap()];
    let output = use_volume(&farlane, &by_target, &["use", "read"], &options);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(std::fs::read(read).unwrap() == file);
}

#[test]
fn a_virtual_machine_gets_a_socket_that_comes_back() {
    let Some(farlane) = farlane() else { return };
    let [mut owner, mut host] = ["owner", "host"].map(|node| Machine::new(&farlane, node));
    host.has_guests = true;
    owner.start();
    host.start();
    let one = by_tunnel("a", "host", 1);
    let credentials = of(&owner.enforce(1, std::slice::from_ref(&one)), "a");
    let record = host.connect(&owner, &one, &credentials);
    let socket = record.device.clone().expect("the socket for the monitor");
    assert!(std::fs::metadata(&socket).unwrap().file_type().is_socket());
    let by_monitor =
        fleetd::agent::Record { url: format!("vfio-user:{}", socket.display()), key_file: None, ..record };
    let load = |seconds: &str| {
        let options = ["--rw", "randrw", "--iodepth", "4", "--runtime", seconds, "--verify"];
        let mut command = std::process::Command::new(&farlane);
        command.arg("bench").arg(&by_monitor.url).args(options);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    load("1s");
    // The process of the socket outlives the agent; one that was killed is started again.
    let before = host.processes("attachments");
    host.kill_agent();
    load("1s");
    host.start();
    host.connect(&owner, &one, &credentials);
    assert_eq!(host.processes("attachments"), before);
    host.kill_processes("attachments");
    let until = Instant::now() + PATIENCE;
    while host.processes("attachments").is_empty() {
        assert!(Instant::now() < until, "the process is started again");
        std::thread::sleep(Duration::from_millis(50));
    }
    host.await_report("a is back", |reported| reported.connects("a", 1));
    load("1s");
    host.slice(Vec::new(), vec![attachment(&owner, &one, Wish::Disconnect)], &[]);
    host.await_report("a's end", |reported| reported.report.attachments.is_empty());
    let until = Instant::now() + PATIENCE;
    while !host.processes("attachments").is_empty() || socket.exists() {
        assert!(Instant::now() < until, "the process ends, and takes its socket along");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_far_end_that_hangs_holds_up_no_other_volume_and_is_killed() {
    let Some(farlane) = farlane() else { return };
    let mut owner = Machine::new(&farlane, "owner");
    owner.start();
    owner.enforce(1, &[by_tunnel("a", "host", 1)]);
    owner.stop_processes("exports");
    owner.slice(vec![volume("v", 2, &[]), volume("w", 1, &[by_tunnel("b", "host", 1)])], Vec::new(), &[]);
    owner.await_report("both lists", |reported| reported.enforces("v", 2) && reported.enforces("w", 1));
    assert_eq!(owner.processes("exports").len(), 1, "the far end of w alone is left");
}
