//! How deep a text of TOML nests: parsers and values recurse, and a stack is short.

/// The most levels of tables and arrays in each other.
pub const NESTING_MAX: usize = 64;

/// Checks that `text` nests at most [`NESTING_MAX`] levels deep: brackets, and the parts of a key
/// with dots. The parser handles text that is not TOML.
///
/// # Errors
/// A message with the line.
pub fn check_nesting(text: &str) -> Result<(), String> {
    let mut walk = Walk { rest: text.as_bytes(), line: 1, brackets: 0, dots: 0 };
    while let Some((byte, rest)) = walk.rest.split_first() {
        walk.rest = rest;
        walk.take(*byte);
        if walk.brackets + walk.dots > NESTING_MAX {
            return Err(format!(
                "line {}: tables and arrays are nested more than {NESTING_MAX} levels deep",
                walk.line
            ));
        }
    }
    Ok(())
}

struct Walk<'a> {
    rest: &'a [u8],
    line: usize,
    brackets: usize,
    /// Dots of the present key. A value has at most one.
    dots: usize,
}

impl Walk<'_> {
    fn take(&mut self, byte: u8) {
        match byte {
            b'\n' => (self.line, self.dots) = (self.line + 1, 0),
            b'[' | b'{' => (self.brackets, self.dots) = (self.brackets + 1, 0),
            b']' | b'}' => (self.brackets, self.dots) = (self.brackets.saturating_sub(1), 0),
            b'=' | b',' => self.dots = 0,
            b'.' => self.dots += 1,
            b'#' => self.skip_to(|byte| byte == b'\n'),
            b'"' | b'\'' => self.skip_text(byte),
            _ => {}
        }
    }

    /// Advances to the first byte that matches `is_it`.
    fn skip_to(&mut self, is_it: impl Fn(u8) -> bool) {
        let length = self.rest.iter().position(|byte| is_it(*byte)).unwrap_or(self.rest.len());
        self.rest = &self.rest[length..];
    }

    /// Advances behind a text that `quote` has begun.
    fn skip_text(&mut self, quote: u8) {
        let is_long = self.rest.starts_with(&[quote, quote]);
        if is_long {
            self.rest = &self.rest[2..];
        }
        while let Some((byte, rest)) = self.rest.split_first() {
            // A short text ends with its line at the latest.
            if *byte == b'\n' && !is_long {
                return;
            }
            self.line += usize::from(*byte == b'\n');
            let ends = *byte == quote && (!is_long || rest.starts_with(&[quote, quote]));
            let skipped = match *byte {
                b'\\' if quote == b'"' && rest.first().is_some_and(|next| *next != b'\n') => 1,
                _ if ends && is_long => 2,
                _ => 0,
            };
            self.rest = &rest[skipped..];
            if ends {
                // A long text may end with two quotes of its own.
                let most = if is_long { 2 } else { 0 };
                let own = self.rest.iter().take(most).take_while(|byte| **byte == quote).count();
                self.rest = &self.rest[own..];
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_comments_do_not_nest() {
        let many = "[{.".repeat(500);
        for text in [
            format!("a = \"{many}\""),
            format!("a = '{many}'"),
            format!("a = \"\\\"{many}\""),
            format!("a = \"\"\"\n\"{many}\n\"\"\""),
            format!("a = '''\n'{many}\n'''"),
            format!("# {many}\na = 1"),
            "a = [1.5, 2.5]\n".repeat(500),
            "[a.b]\nc.d = { e = [1, 2] }\n".repeat(500),
            format!("a = \"\"\nb = \"{many}\""),
        ] {
            assert_eq!(check_nesting(&text), Ok(()), "{text:.100}");
        }
    }

    #[test]
    fn each_level_counts_wherever_it_stands() {
        let deep = |levels: usize| format!("a = 1\nb = {}{}", "[".repeat(levels), "]".repeat(levels));
        assert_eq!(check_nesting(&deep(NESTING_MAX)), Ok(()));
        let why = check_nesting(&deep(NESTING_MAX + 1)).unwrap_err();
        assert!(why.starts_with("line 2: ") && why.contains("64 levels"), "{why}");
        for open in [
            "[\"]\",",
            "[']',\n",
            "[#]\n",
            "[\"\"\"]\n\"\"\",",
            "{a = ",
            "a.",
            "[ 'x\\',",
            "[\"\"\"a\"\"\"\",",
        ] {
            assert!(check_nesting(&open.repeat(NESTING_MAX + 1)).is_err(), "{open}");
        }
    }
}
