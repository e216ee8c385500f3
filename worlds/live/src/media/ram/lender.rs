//! The pages that buffers of one thread refer to.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use engine::{Buffer, Lender, Loan};

use super::Shared;
use super::guard::Slots;
use super::sync::SLOTS;

/// Lends the pages of a medium to buffers of one thread. Each loan has a slot that protects its
/// page or block.
#[derive(Debug)]
pub(super) struct Pages {
    /// Protected pages belong to it, so that it lives as long as the last buffer.
    shared: Arc<Shared>,
    slots: RefCell<Vec<Arc<Slots>>>,
    free: RefCell<Vec<Rc<Loan>>>,
    /// Whether no more loans are made.
    closed: Cell<bool>,
}

impl Pages {
    pub(super) fn new(shared: Arc<Shared>) -> Rc<Self> {
        let (slots, free) = (RefCell::default(), RefCell::default());
        Rc::new(Self { shared, slots, free, closed: Cell::new(false) })
    }

    /// Takes a loan whose slot protects `name`.
    #[inline]
    pub(super) fn take(self: &Rc<Self>, name: usize) -> Rc<Loan> {
        let free = self.free.borrow_mut().pop();
        let loan = free.unwrap_or_else(|| self.more());
        self.slots.borrow()[loan.name() / SLOTS].set(loan.name() % SLOTS, name);
        loan
    }

    /// Makes another loan.
    #[cold]
    fn more(self: &Rc<Self>) -> Rc<Loan> {
        let mut slots = self.slots.borrow_mut();
        let first = slots.len() * SLOTS;
        slots.push(self.shared.registry.register());
        drop(slots);
        let lender: Rc<dyn Lender> = Rc::<Self>::clone(self);
        let mut free = self.free.borrow_mut();
        free.extend((first + 1..first + SLOTS).rev().map(|name| Loan::new(name, Rc::clone(&lender))));
        drop(free);
        Loan::new(first, lender)
    }

    /// Makes a buffer of the `length` bytes at `address`.
    ///
    /// # Safety
    /// The bytes lie in a page or block that the loan's slot protects, and that was in the table
    /// after [`super::guard::protect`].
    #[inline]
    pub(super) unsafe fn lend(loan: Rc<Loan>, address: usize, length: usize) -> Buffer {
        // SAFETY: no thread writes to a page that was in the table until it is freed, and no thread
        // frees what a slot protects. The slot is cleared in `on_return`, when no buffer refers to
        // the bytes any more; the loan has no other way to them. The memory itself lives as long as
        // `shared`, which the loan's lender holds.
        let bytes = unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(address), length) };
        loan.lend(bytes)
    }

    /// Takes a loan back that was not lent.
    pub(super) fn give(&self, loan: Rc<Loan>) {
        self.on_return(loan);
    }

    /// Makes no more loans. Buffers keep their bytes.
    pub(super) fn close(&self) {
        self.closed.set(true);
        drop(self.free.take());
    }
}

impl Lender for Pages {
    #[inline]
    fn on_return(&self, loan: Rc<Loan>) {
        self.slots.borrow()[loan.name() / SLOTS].clear(loan.name() % SLOTS);
        if !self.closed.get() {
            self.free.borrow_mut().push(loan);
        }
    }
}
