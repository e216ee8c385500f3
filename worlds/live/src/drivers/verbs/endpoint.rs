//! The user's view of a connection.

use std::cell::RefCell;
use std::rc::Rc;

use engine::Buffer;
use rdma::{
    Endpoint, Event, Exposure, Key, Limits, PostError, ReceiveRequest, RegisterError, Remote, SendRequest,
    WorkCompletion,
};

use super::link::Link;

/// A connection on an RDMA device. Dropping it ends the connection, and the loans of its memory.
#[derive(Debug)]
pub struct VerbsEndpoint {
    link: Rc<RefCell<Link>>,
}

impl VerbsEndpoint {
    pub(super) const fn new(link: Rc<RefCell<Link>>) -> Self {
        Self { link }
    }
}

impl assemblies::fabric::Pair for VerbsEndpoint {
    fn has_news(&self) -> bool {
        self.link.borrow().has_news()
    }
}

impl Endpoint for VerbsEndpoint {
    fn limits(&self) -> Limits {
        self.link.borrow().limits()
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.link.borrow_mut().poll_event()
    }

    fn accept(&mut self, private_data: &[u8]) {
        self.link.borrow_mut().accept(private_data);
    }

    fn reject(&mut self, private_data: &[u8]) {
        self.link.borrow_mut().reject(private_data);
    }

    fn disconnect(&mut self) {
        self.link.borrow_mut().disconnect();
    }

    fn post_send(&mut self, request: SendRequest) -> Result<(), PostError> {
        self.link.borrow_mut().post_send(request)
    }

    fn post_receive(&mut self, request: ReceiveRequest) -> Result<(), PostError> {
        self.link.borrow_mut().post_receive(request)
    }

    fn poll_completion(&mut self) -> Option<WorkCompletion> {
        self.link.borrow_mut().poll_completion()
    }

    fn register(&mut self, exposure: Exposure) -> Result<Remote, RegisterError> {
        self.link.borrow_mut().register(exposure)
    }

    fn peek(&mut self, key: Key, offset: u32, into: &mut [u8]) -> bool {
        self.link.borrow().peek(key, offset, into)
    }

    fn deregister(&mut self, key: Key) -> Option<Buffer> {
        self.link.borrow_mut().deregister(key)
    }
}
