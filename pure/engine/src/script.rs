//! Straight-line code inside a state machine.
//!
//! Sequences such as enumeration or a controller's initialisation are easiest to read as a function
//! that asks and waits. A [`Script`] runs such an `async` function without an executor: it stops at
//! each question, the engine answers when it can, and the script continues. Scripts are not for hot
//! paths: starting one allocates.

use alloc::boxed::Box;
use alloc::rc::Rc;
use core::cell::RefCell;
use core::fmt;
use core::future::{Future, poll_fn};
use core::pin::Pin;
use core::task::{Context, Poll, Waker};

struct Slot<Q, A> {
    question: Option<Q>,
    answer: Option<A>,
}

/// The script's side, which asks questions and waits for their answers.
pub struct Asker<Q, A>(Rc<RefCell<Slot<Q, A>>>);

impl<Q, A> Clone for Asker<Q, A> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<Q, A> fmt::Debug for Asker<Q, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Asker")
    }
}

impl<Q, A> Asker<Q, A> {
    /// Asks `question` and waits for its answer. A script asks one question at a time.
    pub async fn ask(&self, question: Q) -> A {
        self.0.borrow_mut().question = Some(question);
        poll_fn(|_| self.0.borrow_mut().answer.take().map_or(Poll::Pending, Poll::Ready)).await
    }
}

/// The outcome of one run of a script.
#[derive(Debug, PartialEq, Eq)]
pub enum Step<Q, T> {
    /// The script asks a question; answer with [`Script::answer`].
    Ask(Q),
    /// The script has ended with this result.
    Done(T),
}

/// An `async` function that runs inside an engine and stops at each question.
pub struct Script<Q, A, T> {
    slot: Rc<RefCell<Slot<Q, A>>>,
    future: Pin<Box<dyn Future<Output = T>>>,
}

impl<Q, A, T> fmt::Debug for Script<Q, A, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Script")
    }
}

impl<Q: 'static, A: 'static, T> Script<Q, A, T> {
    /// Starts `body` and runs it up to its first question.
    pub fn start<F: Future<Output = T> + 'static>(body: impl FnOnce(Asker<Q, A>) -> F) -> (Self, Step<Q, T>) {
        let slot = Rc::new(RefCell::new(Slot { question: None, answer: None }));
        let future = Box::pin(body(Asker(Rc::clone(&slot))));
        let mut script = Self { slot, future };
        let step = script.run();
        (script, step)
    }

    /// Answers the open question and runs on to the next one, or to the end.
    pub fn answer(&mut self, answer: A) -> Step<Q, T> {
        self.slot.borrow_mut().answer = Some(answer);
        self.run()
    }

    fn run(&mut self) -> Step<Q, T> {
        match self.future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => Step::Done(result),
            Poll::Pending => {
                let question = self.slot.borrow_mut().question.take();
                Step::Ask(question.expect("a script waits only for an answer to its own question"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_stops_at_each_question_and_returns_its_result() {
        let (mut script, first) = Script::start(|asker: Asker<u32, u32>| async move {
            let mut sum = 0;
            for question in 1..=2 {
                sum += asker.ask(question).await;
            }
            sum
        });
        assert_eq!(first, Step::Ask(1));
        assert_eq!(script.answer(10), Step::Ask(2));
        assert_eq!(script.answer(20), Step::Done(30));
    }
}
