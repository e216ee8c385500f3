//! Machines, users and strangers at a controller.

use fleetd::channel::{Controllers, Lines, Protocol, connect};
use fleetd::wire::{FromAgent, ToAgent};
use live::carrier::identity::Identity;
use tokio::io::{AsyncWriteExt, split};

use crate::stage::Stage;

/// What a controller says to an agent that proves `identity`; its machine started as `boot`.
async fn first_message(stage: &Stage, identity: &Identity, boot: &str) -> Option<ToAgent> {
    let health = stage.fleet(&["status"]);
    let controllers: Controllers = health["controllers"].as_str().unwrap().parse().unwrap();
    let address = &controllers.addresses[0];
    let stream = connect(identity, address, controllers.key, Protocol::Agent).await.unwrap();
    let (reader, mut writer) = split(stream);
    let hello = serde_json::to_string(&FromAgent::Hello { boot: boot.to_owned() }).unwrap();
    writer.write_all(format!("{hello}\n").as_bytes()).await.unwrap();
    let mut lines = Lines::new(reader);
    loop {
        match lines.next().await {
            Ok(Some(ToAgent::Alive)) => (),
            Ok(message) => return message,
            Err(_) => return None,
        }
    }
}

/// Two machines with one key (a copied image): the second is refused, and named.
#[test]
fn a_second_machine_with_the_same_key_is_refused_by_name() {
    let Some(mut stage) = Stage::new(None, 1, 1) else { return };
    stage.eventually("m0 is connected", |stage| {
        stage.fleet(&["get", "node", "m0"])["status"]["phase"] == "connected"
    });
    let copied = Identity::read(&stage.machines[0].folder.join("key.pem")).unwrap();
    let stranger = Identity::generate().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let second = runtime.block_on(first_message(&stage, &copied, "another start"));
    assert!(matches!(&second, Some(ToAgent::Refused { why }) if why.contains("key of m0")), "{second:?}");
    let stranger = runtime.block_on(first_message(&stage, &stranger, "another start"));
    assert!(matches!(&stranger, Some(ToAgent::Refused { why }) if why.contains("join")), "{stranger:?}");
    assert_eq!(stage.fleet(&["get", "node", "m0"])["status"]["phase"], "connected");
}

/// A token is for one machine, once.
#[test]
fn a_token_enrols_one_machine_once() {
    let Some(stage) = Stage::new(None, 1, 0) else { return };
    let token = stage.fleet(&["token", "m7"])["token"].as_str().unwrap().to_owned();
    let join = |token: &str, folder: &str| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_farlane-fleet"));
        command.args(["join", token, "--address", "127.0.0.1:1", "--folder"]).arg(stage.path(folder));
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let forged = token.replace("m7:", "m8:");
    assert_eq!(join(&forged, "forged").0, Some(2), "a token for another name");
    assert_eq!(join(&token, "first").0, Some(0));
    assert_eq!(join(&token, "first").0, Some(0), "the same machine may join again");
    let (code, why) = join(&token, "second");
    assert_eq!(code, Some(2), "{why}");
    assert!(why.contains("farlane fleet token"), "{why}");
    let text = stage.fleet(&["get", "token", "m7"]).to_string();
    let secret = token.split_once(':').unwrap().1.split_once('@').unwrap().0;
    assert!(!text.contains(secret), "the store has the secret of a token");
}

/// Bytes that are no protocol of ours harm no other connection.
#[test]
fn garbage_on_the_port_is_survived() {
    use std::io::Write as _;
    let Some(stage) = Stage::new(None, 1, 1) else { return };
    let health = stage.fleet(&["status"]);
    let controllers: Controllers = health["controllers"].as_str().unwrap().parse().unwrap();
    let held: Vec<_> = (0..50u8)
        .map(|byte| {
            let mut stream = std::net::TcpStream::connect(&controllers.addresses[0]).unwrap();
            let _ = stream.write_all(&[byte.wrapping_mul(37); 4096]);
            stream
        })
        .collect();
    assert_eq!(stage.fleet(&["get", "node", "m0"])["name"], "m0");
    drop(held);
    stage.fleet(&["volume", "create", "v", "--size", "1MiB"]);
}
