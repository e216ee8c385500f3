//! Send requests that a device has, and which of them have ended. The user that posted them gets
//! their completions in their order.
//!
//! Cards report requests in their order. Linux's `siw` reports a message before a read that was
//! posted earlier and is still under way.

use std::collections::VecDeque;

use crate::sys::verbs::Ended;

#[derive(Debug)]
struct Request<T> {
    item: T,
    /// The device reports when it is done.
    is_signalled: bool,
    /// How it has ended, once that is known.
    ended: Option<Ended>,
}

/// Requests in their order, each with its owner's data.
#[derive(Debug)]
pub(super) struct InOrder<T> {
    requests: VecDeque<Request<T>>,
    /// The number of the first of them.
    first: u64,
}

impl<T> InOrder<T> {
    pub(super) const fn new() -> Self {
        Self { requests: VecDeque::new(), first: 0 }
    }

    /// How many there are, those included that have ended and wait for earlier ones.
    pub(super) fn len(&self) -> usize {
        self.requests.len()
    }

    /// The number of the next one, by which the device knows it.
    pub(super) fn next_number(&self) -> u64 {
        self.first + self.requests.len() as u64
    }

    /// Adds one, which the device reports when it is done, or only when it has failed.
    pub(super) fn push(&mut self, item: T, is_signalled: bool) {
        self.requests.push_back(Request { item, is_signalled, ended: None });
    }

    /// The device reports that a request has ended. Earlier requests that it does not report are
    /// done.
    pub(super) fn end(&mut self, number: u64, ended: Ended) {
        let index = number.checked_sub(self.first).and_then(|index| usize::try_from(index).ok());
        let Some(index) = index.filter(|index| *index < self.requests.len()) else { return };
        for before in self.requests.iter_mut().take(index).filter(|one| !one.is_signalled) {
            before.ended.get_or_insert(Ended::Done);
        }
        self.requests[index].ended = Some(ended);
    }

    /// The oldest request, if it has ended, and how.
    pub(super) fn pop(&mut self) -> Option<(T, Ended)> {
        let ended = self.requests.front()?.ended?;
        let request = self.requests.pop_front()?;
        self.first += 1;
        Some((request.item, ended))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(queue: &mut InOrder<char>) -> Vec<(char, Ended)> {
        std::iter::from_fn(|| queue.pop()).collect()
    }

    #[test]
    fn unreported_work_is_done_with_the_next_reported_one() {
        let mut queue = InOrder::new();
        ['a', 'b', 'c'].into_iter().for_each(|item| queue.push(item, item == 'c'));
        assert_eq!((all(&mut queue), queue.next_number()), (vec![], 3));
        queue.end(2, Ended::Done);
        assert_eq!(all(&mut queue), ['a', 'b', 'c'].map(|item| (item, Ended::Done)));
        assert_eq!((queue.len(), queue.next_number()), (0, 3));
    }

    #[test]
    fn a_read_that_is_under_way_keeps_later_messages_back() {
        let mut queue = InOrder::new();
        for (item, is_reported) in [('r', true), ('s', true), ('u', false), ('t', true)] {
            queue.push(item, is_reported);
        }
        queue.end(1, Ended::Done);
        queue.end(3, Ended::Done);
        assert_eq!((all(&mut queue), queue.len()), (vec![], 4));
        queue.end(0, Ended::Done);
        assert_eq!(all(&mut queue), ['r', 's', 'u', 't'].map(|item| (item, Ended::Done)));
    }

    #[test]
    fn a_failure_is_that_of_its_request_alone() {
        let mut queue = InOrder::new();
        ['a', 'b', 'c'].into_iter().for_each(|item| queue.push(item, false));
        queue.end(1, Ended::RemoteAccess);
        assert_eq!(all(&mut queue), [('a', Ended::Done), ('b', Ended::RemoteAccess)]);
        queue.end(2, Ended::Flushed);
        assert_eq!(all(&mut queue), [('c', Ended::Flushed)]);
    }

    #[test]
    fn a_number_that_names_nothing_ends_nothing() {
        let mut queue = InOrder::new();
        queue.push('a', true);
        [1, u64::MAX].into_iter().for_each(|number| queue.end(number, Ended::Done));
        assert!(queue.pop().is_none());
        queue.end(0, Ended::Done);
        assert!(queue.pop().is_some());
        queue.push('b', true);
        queue.end(0, Ended::Done);
        assert!(queue.pop().is_none());
    }
}
