//! System calls on a socket that bypass the C library. The library's functions are cancellation
//! points, which cost instructions that wait for all earlier stores.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::TcpStream;

use rustix::io::{Errno, readv};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, send, sendmsg};

/// A socket whose system calls bypass the C library. A call that a signal interrupts is repeated.
#[derive(Debug)]
pub(crate) struct Direct<'a>(pub(crate) &'a TcpStream);

/// Repeats `call` while signals interrupt it.
#[inline]
fn again<T>(mut call: impl FnMut() -> Result<T, Errno>) -> io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            result => return Ok(result?),
        }
    }
}

impl Read for Direct<'_> {
    #[inline]
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let (count, _) = again(|| recv(self.0, &mut *bytes, RecvFlags::empty()))?;
        Ok(count)
    }
    #[inline]
    fn read_vectored(&mut self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        again(|| readv(self.0, slices))
    }
}

impl Write for Direct<'_> {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        again(|| send(self.0, bytes, SendFlags::NOSIGNAL))
    }
    #[inline]
    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        again(|| sendmsg(self.0, slices, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL))
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
