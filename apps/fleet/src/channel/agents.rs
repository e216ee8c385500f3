//! A controller's connection with one agent.

use tokio::io::{AsyncRead, AsyncWrite, split};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{interval, timeout};

use super::Lines;
use super::dial::{ALIVE_EVERY, SILENCE_MAX};
use super::lines::write_line;
use crate::wire::{FromAgent, ToAgent};

/// Messages that wait for one agent. Slices are whole, so the newest is all that matters.
const OUTGOING_MAX: usize = 64;

/// The ends of a connection with one agent.
#[derive(Debug)]
pub struct AgentLink {
    /// Messages of the agent; ends with the connection.
    pub incoming: mpsc::Receiver<FromAgent>,
    /// Messages to the agent. The connection ends when this is dropped.
    pub outgoing: mpsc::Sender<ToAgent>,
}

/// Exchanges messages with the agent at the other end of `stream`, in a task of its own, which ends
/// with the connection.
pub fn serve<S: AsyncRead + AsyncWrite + Send + 'static>(stream: S) -> (AgentLink, JoinHandle<()>) {
    let (from_agent, incoming) = mpsc::channel(OUTGOING_MAX);
    let (outgoing, mut to_agent) = mpsc::channel(OUTGOING_MAX);
    let (reader, mut writer) = split(stream);
    let task = tokio::spawn(async move {
        let mut lines = Lines::new(reader);
        let mut alive = interval(ALIVE_EVERY);
        let mut silence = Box::pin(tokio::time::sleep(SILENCE_MAX));
        loop {
            let message = tokio::select! {
                line = lines.next::<FromAgent>() => match line {
                    Ok(Some(message)) => {
                        silence.as_mut().reset(tokio::time::Instant::now() + SILENCE_MAX);
                        if from_agent.send(message).await.is_err() {
                            return;
                        }
                        continue;
                    }
                    Ok(None) => return,
                    Err(error) => return tracing::warn!("an agent's connection has failed: {error}"),
                },
                message = to_agent.recv() => match message {
                    Some(message) => message,
                    None => return,
                },
                _ = alive.tick() => ToAgent::Alive,
                () = silence.as_mut() => return,
            };
            if !matches!(timeout(SILENCE_MAX, write_line(&mut writer, &message)).await, Ok(Ok(()))) {
                return;
            }
        }
    });
    (AgentLink { incoming, outgoing }, task)
}
