//! Who tells the status of a target: a thread beside its loops, so that thousands of hosts hold up
//! no command.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};

use live::drivers::control::Reply;
use live::reactor::Hirer;
use live::sys::urgency;
use serde_json::Value;

use super::core::Core;
use super::status;
use crate::commands::control;

/// A status that lacks the hosts, and where the whole of it goes.
struct Asked {
    told: Value,
    answer: Sender<String>,
}

/// Hands what is asked to the thread that answers.
pub(super) struct Teller(Sender<Asked>);

impl Teller {
    /// Starts the thread, which asks `cores`. It ends with the result.
    pub(super) fn start(cores: Vec<Hirer<Core>>) -> io::Result<Self> {
        let (sender, receiver) = channel();
        std::thread::Builder::new().name("status".into()).spawn(move || answer(&cores, &receiver))?;
        Ok(Self(sender))
    }

    /// Answers with `told` and the hosts of all cores, later.
    pub(super) fn tell(&self, told: Value) -> Reply {
        let (answer, answered) = channel();
        // If the thread is gone, so is the sender of the answer: whoever asks is turned away.
        let _ = self.0.send(Asked { told, answer });
        Reply::Later(answered)
    }
}

fn answer(cores: &[Hirer<Core>], asked: &Receiver<Asked>) {
    urgency::step_back();
    for Asked { mut told, answer } in asked {
        // A core that has ended tells nothing more; the process ends.
        if status::add_hosts(&mut told, cores).is_none() {
            return;
        }
        // Nobody waits for the answer any more only when the process ends.
        let _ = answer.send(control::answer(Ok(told)));
        if let Some(first) = cores.first() {
            first.wake();
        }
    }
}
