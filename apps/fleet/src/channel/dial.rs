//! An agent's connection to the controller that leads.

use std::sync::Arc;
use std::time::Duration;

use live::carrier::identity::Identity;
use tokio::io::{AsyncWriteExt, split};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, interval, sleep, timeout};

use super::lines::write_line;
use super::{Controllers, Lines, LinesError, Protocol, connect};
use crate::wire::{FromAgent, ToAgent};

/// How often an agent says that it is alive.
pub(super) const ALIVE_EVERY: Duration = Duration::from_secs(2);
/// How long a peer may be silent.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(10);
/// The first pause after a connection has failed, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(3)];
/// Messages that wait for the agent.
const INCOMING_MAX: usize = 64;

/// The ends of an agent's connection with its controllers. It survives that connections come and
/// go: each controller that leads asks for a report.
#[derive(Debug)]
pub struct Link {
    /// Messages of controllers.
    pub incoming: mpsc::Receiver<ToAgent>,
    /// Messages to the controller that leads. Without a connection they are dropped.
    pub outgoing: mpsc::UnboundedSender<FromAgent>,
}

/// Keeps an agent connected, until `stop` is true.
pub fn dial(identity: Arc<Identity>, controllers: Controllers, stop: watch::Receiver<bool>) -> Link {
    let (to_agent, incoming) = mpsc::channel(INCOMING_MAX);
    let (outgoing, from_agent) = mpsc::unbounded_channel();
    tokio::spawn(keep_connected(identity, controllers, stop, to_agent, from_agent));
    Link { incoming, outgoing }
}

async fn keep_connected(
    identity: Arc<Identity>,
    controllers: Controllers,
    mut stop: watch::Receiver<bool>,
    to_agent: mpsc::Sender<ToAgent>,
    mut from_agent: mpsc::UnboundedReceiver<FromAgent>,
) {
    let mut pause = PAUSES[0];
    let mut is_known_away = false;
    for turn in 0.. {
        let addresses = &controllers.addresses;
        let Some(address) = addresses.get(turn % addresses.len().max(1)) else { return };
        let began = Instant::now();
        let ended = tokio::select! {
            ended = converse(&identity, address, &controllers, &to_agent, &mut from_agent) => ended,
            _ = stop.wait_for(|stop| *stop) => return,
        };
        match ended {
            Ended::AgentGone => return,
            Ended::NotLeader => (),
            Ended::Failed(why) => {
                if !is_known_away {
                    tracing::warn!(
                        "the controller at {address} does not answer: {why}; the machine goes on without"
                    );
                }
                is_known_away = true;
            }
        }
        if began.elapsed() > SILENCE_MAX {
            (pause, is_known_away) = (PAUSES[0], false);
        }
        while from_agent.try_recv().is_ok() {} // Reports are made again for the next controller.
        if turn % addresses.len() == addresses.len() - 1 {
            sleep(with_jitter(pause)).await;
            pause = (pause * 2).min(PAUSES[1]);
        }
    }
}

/// Why a connection has ended.
enum Ended {
    /// The agent has ended.
    AgentGone,
    /// Another controller leads.
    NotLeader,
    Failed(String),
}

/// Exchanges messages with one controller until the connection ends.
async fn converse(
    identity: &Identity,
    address: &str,
    controllers: &Controllers,
    to_agent: &mpsc::Sender<ToAgent>,
    from_agent: &mut mpsc::UnboundedReceiver<FromAgent>,
) -> Ended {
    let stream = match connect(identity, address, controllers.key, Protocol::Agent).await {
        Ok(stream) => stream,
        Err(error) => return Ended::Failed(error.to_string()),
    };
    let (reader, mut writer) = split(stream);
    let mut lines = Lines::new(reader);
    let hello = FromAgent::Hello { boot: boot_id().await };
    if let Err(error) = write_line(&mut writer, &hello).await {
        return Ended::Failed(error.to_string());
    }
    let mut alive = interval(ALIVE_EVERY);
    let mut heard = Instant::now();
    let mut was_asked = false;
    loop {
        let to_send = tokio::select! {
            line = lines.next::<ToAgent>() => match line {
                Ok(Some(message)) => {
                    heard = Instant::now();
                    if matches!(message, ToAgent::Ask { .. }) && !was_asked {
                        was_asked = true;
                        tracing::info!("connected with the controller at {address}");
                    }
                    if let ToAgent::Refused { why } = message {
                        return Ended::Failed(why);
                    }
                    if !matches!(message, ToAgent::Alive) && to_agent.send(message).await.is_err() {
                        return Ended::AgentGone;
                    }
                    continue;
                }
                Ok(None) if !was_asked => return Ended::NotLeader,
                Ok(None) => return Ended::Failed("it has closed the connection".to_owned()),
                Err(LinesError::Io(error)) => return Ended::Failed(error.to_string()),
                Err(error) => return Ended::Failed(error.to_string()),
            },
            message = from_agent.recv() => match message {
                Some(message) => message,
                None => {
                    let _ = writer.shutdown().await;
                    return Ended::AgentGone;
                }
            },
            _ = alive.tick() => {
                if heard.elapsed() > SILENCE_MAX {
                    return Ended::Failed(format!("it was silent for {} s", SILENCE_MAX.as_secs()));
                }
                FromAgent::Alive
            }
        };
        match timeout(SILENCE_MAX, write_line(&mut writer, &to_send)).await {
            Ok(Ok(())) => (),
            Ok(Err(error)) => return Ended::Failed(error.to_string()),
            Err(_) => return Ended::Failed(format!("it took nothing for {} s", SILENCE_MAX.as_secs())),
        }
    }
}

/// The kernel's identifier of this start of the machine; empty where there is none.
async fn boot_id() -> String {
    let text = tokio::fs::read_to_string("/proc/sys/kernel/random/boot_id").await;
    text.map(|text| text.trim().to_owned()).unwrap_or_default()
}

/// A pause of half to whole its length, so that many agents do not come at once.
fn with_jitter(pause: Duration) -> Duration {
    let mut random = [0; 4];
    if rustls::crypto::aws_lc_rs::default_provider().secure_random.fill(&mut random).is_err() {
        return pause;
    }
    pause / 2 + pause.mul_f64(f64::from(u32::from_le_bytes(random)) / f64::from(u32::MAX) / 2.0)
}
