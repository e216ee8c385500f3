//! Cookies of commands that are remembered in a table of this process.

/// The cookie of a command that is remembered in a table. Bit 63 distinguishes it from the cookies
/// of callers, which are less than 2^60. The other bits are the command's place in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TableCookie(u64);

impl TableCookie {
    const MARK: u64 = 1 << 63;

    /// The cookie of the command at `place`.
    pub(super) const fn at(place: usize) -> Self {
        Self(Self::MARK | place as u64)
    }

    /// `cookie`, if it is that of a command in a table.
    #[inline]
    pub(super) fn parse(cookie: u64) -> Option<Self> {
        (cookie & Self::MARK != 0).then_some(Self(cookie))
    }

    /// The place of the command in the table.
    #[inline]
    pub(super) fn place(self) -> usize {
        usize::try_from(self.0 & !Self::MARK).unwrap_or(usize::MAX)
    }

    /// The cookie as drivers carry it.
    pub(super) const fn raw(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::TableCookie;

    #[test]
    fn a_place_comes_back_and_the_cookies_of_callers_have_none() {
        for place in [0, 1, 1023] {
            assert_eq!(TableCookie::parse(TableCookie::at(place).raw()).map(TableCookie::place), Some(place));
        }
        assert_eq!(TableCookie::parse((1 << 60) - 1), None);
    }
}
