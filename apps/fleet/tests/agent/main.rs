//! Agents with their targets and their hosts, and a controller that the tests play.
//!
//! Each agent is a process of its own, so that a test can kill it at any moment. The program
//! `farlane` is that of `FARLANE_UNDER_TEST`, or of this workspace's target folder.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod bench;
mod faults;
mod life;
mod machine;
mod tunnels;

use std::io::{BufRead, Write};
use std::path::PathBuf;

use fleetd::agent::{self, Devices, Settings, Signals, Tunnels};
use fleetd::channel::Link;
use fleetd::wire::{FromAgent, ToAgent};
use tokio::sync::{mpsc, watch};

/// The process of an agent: messages come on standard input and go to standard output, each in a
/// line. Does nothing unless a test has started it.
#[test]
fn agent_process() {
    let Ok(settings) = std::env::var(machine::SETTINGS) else { return };
    let settings = machine::parse(&settings);
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(std::io::stderr);
    subscriber.init();
    let (sender, incoming) = mpsc::channel(64);
    let (outgoing, mut receiver) = mpsc::unbounded_channel::<FromAgent>();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let message: ToAgent = serde_json::from_str(&line.unwrap()).unwrap();
            sender.blocking_send(message).unwrap();
        }
    });
    std::thread::spawn(move || {
        while let Some(message) = receiver.blocking_recv() {
            let mut out = std::io::stdout().lock();
            writeln!(out, "\n{}", serde_json::to_string(&message).unwrap()).unwrap();
            out.flush().unwrap();
        }
    });
    let (_stop, stopped) = watch::channel(false);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(agent::run(settings, Link { incoming, outgoing }, Signals::of(stopped))).unwrap();
}

/// The settings of a machine without pools.
fn settings(folder: PathBuf) -> Settings {
    Settings {
        folder,
        listen: Vec::new(),
        tunnels: Tunnels { address: [127, 0, 0, 1].into(), ports: 1..=1 },
        farlane: "farlane".into(),
        pools: Vec::new(),
        devices: Devices::User,
        encrypt: false,
        node: fleet::Name::new("n").unwrap(),
    }
}

/// Runs an agent until it ends by itself; its error's text.
fn refused(folder: PathBuf) -> String {
    let (_sender, incoming) = mpsc::channel(1);
    let (outgoing, _receiver) = mpsc::unbounded_channel();
    let (_stop, stopped) = watch::channel(false);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let run = agent::run(settings(folder), Link { incoming, outgoing }, Signals::of(stopped));
    let ended = runtime.block_on(async { tokio::time::timeout(machine::PATIENCE, run).await });
    ended.expect("it ends at once").unwrap_err().to_string()
}

#[test]
fn a_folder_with_garbage_or_with_another_agent_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("state.json"), "{\"version\":1,\"state\":").unwrap();
    let error = refused(directory.path().to_owned());
    assert!(error.contains("state.json") && error.contains("put back a copy"), "{error}");
    assert!(!directory.path().join("master.key").exists(), "nothing is made where the state is unknown");

    let directory = tempfile::tempdir().unwrap();
    let lock = std::fs::File::create(directory.path().join("agent.lock")).unwrap();
    lock.lock().unwrap();
    let error = refused(directory.path().to_owned());
    assert!(error.contains("another agent uses"), "{error}");

    let error = refused(directory.path().join("x".repeat(70)));
    assert!(error.contains("at most 70 bytes"), "{error}");
}

#[test]
fn an_agent_ends_when_it_is_to_stop() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        for _ in 0..3 {
            let (sender, incoming) = mpsc::channel(1);
            let (outgoing, mut receiver) = mpsc::unbounded_channel();
            let (stop, stopped) = watch::channel(false);
            let run = tokio::spawn(agent::run(
                settings(directory.path().to_owned()),
                Link { incoming, outgoing },
                Signals::of(stopped),
            ));
            sender.send(ToAgent::Ask { term: 7 }).await.unwrap();
            let reported = async {
                loop {
                    match receiver.recv().await.unwrap() {
                        FromAgent::Report { report, .. } if report.term == 7 => break,
                        _ => {}
                    }
                }
            };
            tokio::time::timeout(machine::PATIENCE, reported).await.expect("an idle machine reports");
            stop.send(true).unwrap();
            tokio::time::timeout(machine::PATIENCE, run).await.expect("it ends").unwrap().unwrap();
        }
    });
}
