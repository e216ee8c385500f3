//! A JSON reader that stores nothing, for the capabilities of a version. It walks objects, takes
//! the needed values, and skips all others.

use core::fmt;

/// The deepest nesting of values.
const DEPTH_MAX: u32 = 8;

/// The position at which a text is not JSON, or has an unexpected value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JsonError {
    /// Offset from the start of the text, in bytes.
    pub at: usize,
    /// The expected element at the offset.
    pub expected: &'static str,
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} expected at byte {} of the JSON text", self.expected, self.at)
    }
}

/// A position in a text.
pub(super) struct Reader<'a> {
    text: &'a [u8],
    at: usize,
    depth: u32,
}

impl<'a> Reader<'a> {
    pub(super) const fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0, depth: 0 }
    }

    const fn error(&self, expected: &'static str) -> JsonError {
        JsonError { at: self.at, expected }
    }
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }
    fn skip_space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }
    /// Takes `byte` if it is next after white space.
    fn accept(&mut self, byte: u8) -> bool {
        self.skip_space();
        let next = self.peek() == Some(byte);
        self.at += usize::from(next);
        next
    }
    fn expect(&mut self, byte: u8, expected: &'static str) -> Result<(), JsonError> {
        if self.accept(byte) { Ok(()) } else { Err(self.error(expected)) }
    }
    /// Checks that only white space follows.
    pub(super) fn end(&mut self) -> Result<(), JsonError> {
        self.skip_space();
        if self.peek().is_none() { Ok(()) } else { Err(self.error("the end")) }
    }

    /// Walks an object. `member` is called with each name, as written, and must take the value.
    pub(super) fn object(
        &mut self,
        mut member: impl FnMut(&mut Self, &'a [u8]) -> Result<(), JsonError>,
    ) -> Result<(), JsonError> {
        self.expect(b'{', "an object")?;
        self.list(b'}', "a comma or the end of an object", |reader| {
            let name = reader.string()?;
            reader.expect(b':', "a colon")?;
            member(reader, name)
        })
    }

    fn array(&mut self) -> Result<(), JsonError> {
        self.expect(b'[', "an array")?;
        self.list(b']', "a comma or the end of an array", Self::skip)
    }

    /// Walks the elements between commas up to the byte `end`.
    fn list(
        &mut self,
        end: u8,
        expected: &'static str,
        mut item: impl FnMut(&mut Self) -> Result<(), JsonError>,
    ) -> Result<(), JsonError> {
        self.deeper()?;
        if !self.accept(end) {
            item(self)?;
            while self.accept(b',') {
                item(self)?;
            }
            self.expect(end, expected)?;
        }
        self.depth -= 1;
        Ok(())
    }

    fn deeper(&mut self) -> Result<(), JsonError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX { Err(self.error("fewer nested levels")) } else { Ok(()) }
    }

    /// A string as written, without its quotes. Escapes are only checked for where they end.
    fn string(&mut self) -> Result<&'a [u8], JsonError> {
        self.expect(b'"', "a string")?;
        let start = self.at;
        loop {
            match self.peek() {
                None | Some(0..0x20) => return Err(self.error("the end of a string")),
                Some(b'"') => break,
                Some(b'\\') => self.at += 2,
                Some(_) => self.at += 1,
            }
        }
        let string = &self.text[start..self.at];
        self.at += 1;
        Ok(string)
    }

    /// A number as written.
    fn number(&mut self) -> Result<&'a [u8], JsonError> {
        self.skip_space();
        let start = self.at;
        while let Some(b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E') = self.peek() {
            self.at += 1;
        }
        if start == self.at { Err(self.error("a value")) } else { Ok(&self.text[start..self.at]) }
    }

    /// A number that is an unsigned integer of 64 bits.
    pub(super) fn unsigned(&mut self) -> Result<u64, JsonError> {
        self.skip_space();
        let wrong = self.error("an unsigned integer");
        let digits = self.number().map_err(|_| wrong)?;
        digits
            .iter()
            .try_fold(0_u64, |value, digit| {
                let digit = char::from(*digit).to_digit(10)?;
                value.checked_mul(10)?.checked_add(digit.into())
            })
            .ok_or(wrong)
    }

    /// `true` or `false`.
    pub(super) fn boolean(&mut self) -> Result<bool, JsonError> {
        if self.word(b"true") {
            return Ok(true);
        }
        if self.word(b"false") { Ok(false) } else { Err(self.error("true or false")) }
    }

    fn word(&mut self, word: &[u8]) -> bool {
        self.skip_space();
        let next = self.text[self.at.min(self.text.len())..].starts_with(word);
        self.at += if next { word.len() } else { 0 };
        next
    }

    /// Skips a value of any type.
    pub(super) fn skip(&mut self) -> Result<(), JsonError> {
        self.skip_space();
        match self.peek() {
            Some(b'{') => self.object(|reader, _| reader.skip()),
            Some(b'[') => self.array(),
            Some(b'"') => self.string().map(drop),
            Some(b't' | b'f') => self.boolean().map(drop),
            Some(b'n') if self.word(b"null") => Ok(()),
            _ => self.number().map(drop),
        }
    }
}
