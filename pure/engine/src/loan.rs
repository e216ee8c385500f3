//! Bytes outside the engines' memory, lent to buffers.

use alloc::rc::Rc;
use core::cell::Cell;
use core::fmt;

use super::buffer::Buffer;

/// A place for one loan after another: bytes that are lent to buffers until the last of these
/// buffers is dropped.
pub struct Loan {
    bytes: Cell<&'static [u8]>,
    name: usize,
    lender: Rc<dyn Lender>,
}

/// The owner of bytes that buffers refer to.
pub trait Lender {
    /// The last buffer that referred to the bytes of `loan` is being dropped. The bytes are the
    /// lender's again, and `loan` has no other holder afterwards: it can be lent again.
    fn on_return(&self, loan: Rc<Loan>);
}

impl Loan {
    /// A place for loans of `lender`, which knows it by `name`.
    pub fn new(name: usize, lender: Rc<dyn Lender>) -> Rc<Self> {
        Rc::new(Self { bytes: Cell::new(&[]), name, lender })
    }

    /// The name that the lender gave to this place.
    #[inline]
    pub const fn name(&self) -> usize {
        self.name
    }

    /// Lends `bytes`. Only the buffer and its clones and slices refer to them. When the last one is
    /// dropped, the lender gets the place back ([`Lender::on_return`]): a lender with unsafe code
    /// may end the life of the bytes then.
    ///
    /// # Panics
    /// When the place has another holder, or there are 4 GiB of bytes or more.
    #[inline]
    pub fn lend(self: Rc<Self>, bytes: &'static [u8]) -> Buffer {
        assert!(Rc::strong_count(&self) == 1, "a place for loans is lent once at a time");
        self.bytes.set(bytes);
        Buffer::of_loan(Lent(self))
    }
}

impl fmt::Debug for Loan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Loan {} of {} B", self.name, self.bytes.get().len())
    }
}

/// A holder of lent bytes.
#[derive(Clone)]
pub(crate) struct Lent(Rc<Loan>);

impl Lent {
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        self.0.bytes.get()
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }
}

impl Drop for Lent {
    #[inline]
    fn drop(&mut self) {
        if Rc::strong_count(&self.0) == 1 {
            self.0.bytes.set(&[]);
            self.0.lender.on_return(Rc::clone(&self.0));
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;
    use core::cell::RefCell;

    use super::*;

    #[derive(Default)]
    struct Library(RefCell<Vec<Rc<Loan>>>);

    impl Lender for Library {
        fn on_return(&self, loan: Rc<Loan>) {
            self.0.borrow_mut().push(loan);
        }
    }

    #[test]
    fn the_last_buffer_gives_lent_bytes_back_and_the_place_is_lent_again() {
        let library = Rc::new(Library::default());
        let loan = Loan::new(7, Rc::clone(&library) as Rc<dyn Lender>);
        let whole = loan.lend(b"0123456789");
        let mut part = whole.slice(2..5);
        assert_eq!((&*part, part.is_part(), whole.is_part()), (&b"234"[..], true, false));
        assert!(part.extend(&whole.slice(5..10), 1) && part.try_mut().is_none());
        drop(whole);
        assert!(library.0.borrow().is_empty(), "a slice still refers to the bytes");
        drop(part.clone());
        drop(part);
        let returned = library.0.borrow_mut().pop().unwrap();
        assert_eq!((returned.name(), Rc::strong_count(&returned)), (7, 1));
        let again = returned.lend(b"ab");
        assert_eq!(&*again, b"ab");
        assert_eq!(again.slice(0..0).len(), 0);
    }
}
