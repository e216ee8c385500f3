//! Requests for the status, from the thread of the metrics to the loop.

use std::sync::mpsc::{Receiver, Sender, channel};

use live::reactor::Stop;

use crate::Reply;

/// The requests that the loop has not answered yet.
pub(crate) struct Asked<S>(Receiver<Sender<Reply<S>>>);

/// A function that asks the loop of `stop` for its status, and the requests that the function
/// sends. The function returns `None` when the loop has ended.
pub(crate) fn ask<S: Send + 'static>(stop: Stop) -> (impl Fn() -> Option<S> + Send + 'static, Asked<S>) {
    let (requests, asked) = channel::<Sender<Reply<S>>>();
    let ask = move || {
        let (answer, answered) = channel();
        requests.send(answer).ok()?;
        stop.wake();
        match answered.recv().ok()? {
            Reply::Now(status) => Some(status),
            Reply::Refused(_) => None,
            Reply::Later(make) => make(),
        }
    };
    (ask, Asked(asked))
}

impl<S> Asked<S> {
    /// Answers the next request, if there is one, with the result of `status`. Returns whether
    /// there was one.
    pub(crate) fn turn(&self, status: impl FnOnce() -> Reply<S>) -> bool {
        let Ok(answer) = self.0.try_recv() else { return false };
        // The answer has no receiver only when the process ends.
        let _ = answer.send(status());
        true
    }
}
