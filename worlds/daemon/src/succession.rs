//! Upgrades in place: a process that goes on where another one ends.
//!
//! The successor is started like its predecessor, with the predecessor's control socket in
//! [`VARIABLE`]. It prepares all that it can, and then asks for the state ([`HandOver`]). The
//! predecessor brings its offer to rest, hands over, and ends when the successor has taken the
//! state. Until then the predecessor can go on by itself.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use live::drivers::control::ask_with;
use live::sys::clock::Clock;
use live::sys::hand_over::{Channel, HandOver};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::control::Answer;
use crate::{Daemon, Failure};

/// The variable of the environment that has the path of the predecessor's control socket.
pub const VARIABLE: &str = "FARLANE_SUCCEEDS";
/// The form of states, which rises when a change of a state's type is no addition with a default.
/// A process leaves its state only to one that knows the same form.
const FORM: u32 = 1;
/// How long a predecessor may take to leave its state, and a successor to take it.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a predecessor may take to end.
const ENDS_WITHIN: Duration = Duration::from_secs(2);

/// The request of a successor to its predecessor.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Asked {
    /// Whether it could take over at all.
    Succeed {
        /// The kind of daemon that it is.
        kind: String,
        /// The form of states that it knows.
        form: u32,
    },
    /// To leave the state, over the socket whose end comes with the request.
    Leave {},
}

impl Asked {
    /// The request of a line, if it is one of a successor.
    pub(crate) fn read(line: &str) -> Option<Self> {
        serde_json::from_str(line).ok()
    }
}

/// The answer to [`Asked::Succeed`].
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Terms {
    /// The origin of the predecessor's clock.
    clock: u64,
    /// Its process.
    process: u32,
}

/// Answers a process that wants to succeed one of kind `own`.
///
/// # Errors
/// When it can't, as a sentence.
pub(crate) fn terms(own: &str, kind: &str, form: u32, clock: Clock) -> Result<Terms, String> {
    if kind != own {
        return Err(format!("a process of kind {kind} can't succeed one of kind {own}"));
    }
    if form != FORM {
        return Err(format!(
            "its states have form {form}, and those of this process form {FORM}: restart the service instead"
        ));
    }
    Ok(Terms { clock: clock.origin(), process: std::process::id() })
}

/// Sends `hand_over` over the socket of a request.
///
/// # Errors
/// When the successor does not take it, as a sentence.
pub(crate) fn leave(descriptors: Vec<OwnedFd>, hand_over: &HandOver) -> Result<Channel, String> {
    let Some(socket) = descriptors.into_iter().next() else {
        return Err("the request has no socket".to_owned());
    };
    let successor = Channel::from(socket);
    successor.leave(hand_over, PATIENCE).map_err(|error| error.to_string())?;
    Ok(successor)
}

/// The process that this one succeeds.
#[derive(Debug)]
pub(crate) struct Predecessor {
    socket: PathBuf,
    terms: Terms,
    /// The own end of the socket for the state, and since when the predecessor rests.
    channel: Option<(Channel, Instant)>,
}

impl Predecessor {
    /// The process that this one is to succeed, if the environment says so.
    ///
    /// # Errors
    /// When that process can't be succeeded.
    pub(crate) fn find<D: Daemon>() -> Result<Option<Self>, Failure> {
        let Some(socket) = std::env::var_os(VARIABLE).map(PathBuf::from) else { return Ok(None) };
        let asked = Asked::Succeed { kind: D::KIND.to_owned(), form: FORM };
        let terms = ask(&socket, &asked, &[]).map_err(|why| Failure::NoSuccession { why })?;
        let wrong = |error: serde_json::Error| Failure::NoSuccession { why: error.to_string() };
        let terms = serde_json::from_value(terms).map_err(wrong)?;
        Ok(Some(Self { socket, terms, channel: None }))
    }

    /// The predecessor's clock.
    pub(crate) const fn clock(&self) -> Clock {
        Clock::of(self.terms.clock)
    }

    /// Takes over the predecessor's state. From here on, the predecessor rests.
    ///
    /// # Errors
    /// When the predecessor goes on by itself.
    pub(crate) fn inherit(&mut self) -> Result<HandOver, Failure> {
        let failed = |error: io::Error| Failure::NoSuccession { why: error.to_string() };
        let [successor, predecessor] = Channel::pair().map_err(failed)?;
        let since = Instant::now();
        let socket = self.socket.clone();
        // The answer comes when it is over: a state, or the reason why there is none.
        let asking = std::thread::Builder::new().name("succession".to_owned()).spawn(move || {
            let refused = ask(&socket, &Asked::Leave {}, &[predecessor.as_fd()]).err();
            drop(predecessor);
            refused
        });
        let asking = asking.map_err(failed)?;
        match successor.take(PATIENCE).map_err(failed)? {
            Some(hand_over) => {
                self.channel = Some((successor, since));
                Ok(hand_over)
            }
            None => {
                let why = asking.join().ok().flatten().unwrap_or_else(|| "it has ended".to_owned());
                Err(Failure::NoSuccession { why })
            }
        }
    }

    /// Says that this process goes on, and waits until the predecessor has let go of everything.
    ///
    /// # Errors
    /// When the predecessor has given this process up.
    pub(crate) fn succeed(self) -> Result<(), Failure> {
        let Some((channel, since)) = self.channel else {
            let why = "this process does not use what it would leave".to_owned();
            return Err(Failure::NoSuccession { why });
        };
        let failed = |error: io::Error| Failure::NoSuccession { why: error.to_string() };
        channel.accept(ENDS_WITHIN).map_err(failed)?;
        let pause = since.elapsed().as_millis();
        info!("this process goes on in the place of process {}, after {pause} ms", self.terms.process);
        Ok(())
    }
}

/// Asks the process whose control socket is at `socket`.
///
/// # Errors
/// Why there is no answer, or no good one, as a sentence.
fn ask(
    socket: &std::path::Path,
    asked: &Asked,
    descriptors: &[std::os::fd::BorrowedFd<'_>],
) -> Result<Value, String> {
    let line = serde_json::to_string(asked).map_err(|error| error.to_string())?;
    let answer =
        ask_with(socket, &line, descriptors).map_err(|error| format!("{}: {error}", socket.display()))?;
    match serde_json::from_str(&answer).map_err(|error| error.to_string())? {
        Answer::Done(value) => Ok(value),
        Answer::Failed(why) => Err(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_process_of_the_same_kind_and_form_takes_over() {
        let clock = Clock::of(7);
        let terms = |kind, form| terms("export", kind, form, clock);
        assert_eq!(terms("export", FORM).unwrap().clock, 7);
        let other = terms("target", FORM).unwrap_err();
        assert_eq!(other, "a process of kind target can't succeed one of kind export");
        for form in [FORM - 1, FORM + 1] {
            assert!(terms("export", form).unwrap_err().contains("restart the service instead"), "{form}");
        }
    }

    #[test]
    fn requests_of_successors_are_known_from_others() {
        assert!(matches!(Asked::read(r#"{"command":"leave"}"#), Some(Asked::Leave {})));
        for other in [r#"{"command":"status"}"#, r#"{"command":"leave","x":1}"#, "", "leave"] {
            assert!(Asked::read(other).is_none(), "{other}");
        }
    }
}
