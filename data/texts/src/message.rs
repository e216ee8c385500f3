//! Messages with quotes of untrusted text: without control characters, and of limited length.

use std::borrow::Cow;

/// The most bytes of one word or quotation in a message.
pub const QUOTE_MAX: usize = 200;
/// The most bytes of a message.
pub const MESSAGE_MAX: usize = 4096;

/// A message as a terminal or a journal may have it: without escape sequences, control characters
/// other than tabs and ends of lines, and characters that change the direction of others. Each word
/// and each quotation is cut to [`QUOTE_MAX`] bytes, and the message to [`MESSAGE_MAX`].
pub fn clean(message: &str) -> String {
    cut(&cut_quotations(&clean_words(message)), MESSAGE_MAX).into_owned()
}

/// A text without escape sequences and control characters, of any length.
pub fn clean_words(text: &str) -> Cow<'_, str> {
    if !text.contains(is_harmful) {
        return Cow::Borrowed(text);
    }
    let mut cleaned = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(one) = rest.next() {
        match one {
            '\n' | '\t' => cleaned.push(one),
            '\u{1b}' => rest = behind_escape(rest.as_str()).chars(),
            '\u{9b}' => rest = behind_control(rest.as_str()).chars(),
            one if is_harmful(one) => {}
            one => cleaned.push(one),
        }
    }
    Cow::Owned(cleaned)
}

/// Quotes untrusted text as one word of a message: cleaned, on one line, and at most [`QUOTE_MAX`]
/// bytes of it.
pub fn quote(text: &str) -> String {
    // The rest is not examined.
    let room = text.len().min(QUOTE_MAX * 4);
    let head = &text[..text.floor_char_boundary(room)];
    let cleaned = clean_words(head).replace(['\n', '\t'], " ");
    let head = &cleaned[..cleaned.floor_char_boundary(QUOTE_MAX)];
    if head.len() == cleaned.len() && room == text.len() { cleaned } else { marked(head, text.len()) }
}

/// Whether a character has an effect on a terminal besides its display.
const fn is_harmful(one: char) -> bool {
    matches!(one,
        '\0'..='\u{8}' | '\u{b}'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// The text behind an escape sequence, without its first character (ECMA-48).
fn behind_escape(rest: &str) -> &str {
    let mut chars = rest.chars();
    match chars.next() {
        Some('[') => behind_control(chars.as_str()),
        // A string continues until its terminator. Without one it is not a string.
        Some(']' | 'P' | 'X' | '^' | '_') => {
            let text = chars.as_str();
            let end = text.find(['\u{7}', '\u{1b}', '\u{9c}', '\n']);
            match end {
                Some(end) if text[end..].starts_with("\u{1b}\\") => &text[end + 2..],
                Some(end) => &text[end..],
                None => text,
            }
        }
        Some(' '..='~') => chars.as_str(),
        _ => rest,
    }
}

/// The text behind a control sequence, without its introducer.
fn behind_control(rest: &str) -> &str {
    let end = rest.find(|one| !(' '..='?').contains(&one)).unwrap_or(rest.len());
    let mut behind = rest[end..].chars();
    match behind.next() {
        Some('@'..='~') => behind.as_str(),
        _ => &rest[end..],
    }
}

/// `head` of a text that has `length` bytes.
fn marked(head: &str, length: usize) -> String {
    format!("{head}… ({length} B)")
}

/// At most the first `most` bytes of `text`.
fn cut(text: &str, most: usize) -> Cow<'_, str> {
    match text.len() {
        length if length <= most => Cow::Borrowed(text),
        length => Cow::Owned(marked(&text[..text.floor_char_boundary(most)], length)),
    }
}

/// Cuts each word and each quotation.
fn cut_quotations(text: &str) -> Cow<'_, str> {
    if text.len() <= QUOTE_MAX {
        return Cow::Borrowed(text);
    }
    let mut short = String::new();
    let (mut at, mut before) = (0, ' ');
    // Once a mark no longer ends a quotation, the search for its kind stops.
    let mut is_over = [false; 3];
    while let Some(one) = text[at..].chars().next() {
        let mark = ['\'', '"', '`'].iter().position(|mark| *mark == one);
        let inside = mark.filter(|mark| !before.is_alphanumeric() && !is_over[*mark]);
        if let Some(mark) = inside {
            match end_of_quotation(&text[at + 1..], one) {
                Some(length) => {
                    short.push(one);
                    short += &cut(&text[at + 1..at + 1 + length], QUOTE_MAX);
                    short.push(one);
                    (at, before) = (at + length + 2, one);
                    continue;
                }
                None => is_over[mark] = true,
            }
        }
        let word = &text[at..];
        // A mark is a unit of its own, so that its quotation is recognised.
        let length = match mark {
            Some(_) => one.len_utf8(),
            None => word.find(|one: char| one.is_whitespace() || is_mark(one)).unwrap_or(word.len()),
        };
        let length = if length == 0 { one.len_utf8() } else { length };
        short += &cut(&word[..length], QUOTE_MAX);
        before = word[..length].chars().next_back().unwrap_or(' ');
        at += length;
    }
    Cow::Owned(short)
}

const fn is_mark(one: char) -> bool {
    matches!(one, '\'' | '"' | '`')
}

/// The length of a quotation that `mark` has begun: to the first such mark that no letter follows.
/// `None` if there is none.
fn end_of_quotation(rest: &str, mark: char) -> Option<usize> {
    let mut places = rest.match_indices(mark).map(|(at, _)| at);
    places.find(|at| !rest[at + 1..].starts_with(char::is_alphanumeric))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_that_does_something_to_a_terminal() {
        for (text, cleaned) in [
            ("plain, ü and 語\nsecond line", "plain, ü and 語\nsecond line"),
            ("\u{1b}[31mred\u{1b}[0m", "red"),
            ("\u{1b}[38;5;196mred\u{9b}0mness", "redness"),
            ("\u{1b}]0;title\u{7}behind", "behind"),
            ("\u{1b}]8;;http://a\u{1b}\\link\u{1b}]8;;\u{1b}\\", "link"),
            ("\u{1b}Pq data\u{1b}\\behind", "behind"),
            ("\u{1b}]0;no end", "0;no end"),
            ("\u{1b}", ""),
            ("\u{1b}[", ""),
            ("\u{1b}c\u{1b}(0a", "0a"),
            ("a\u{8}\u{8}b\rc\0d\u{7f}e\tf", "abcde\tf"),
            ("a\u{202e}b\u{2066}c\u{200b}d\u{feff}e\u{2028}f", "abcdef"),
        ] {
            assert_eq!(clean(text), cleaned, "{text:?}");
            assert!(!clean_words(text).contains(is_harmful), "{text:?}");
        }
    }

    #[test]
    fn long_words_and_quotations_are_cut_and_the_rest_stays() {
        let (long, spaced) = ("x".repeat(50_000), "x y ".repeat(50_000));
        for text in [
            format!("the value '{spaced}' is no size: it can't be; expected 4KiB"),
            format!("the value \"{spaced}\" is no size: it can't be; expected 4KiB"),
            format!("the value `{spaced}`, is no size: it can't be; expected 4KiB"),
            format!("the value {long} is no size: it can't be; expected 4KiB"),
            format!("the value ={long}, is no size: it can't be; expected 4KiB"),
        ] {
            let short = clean(&text);
            assert!(short.len() < 400, "{} B: {short}", short.len());
            assert!(short.ends_with("is no size: it can't be; expected 4KiB"), "{short}");
            assert!(short.contains("… (") && short.starts_with("the value "), "{short}");
        }
        // A mark that closes one quotation does not open another.
        let text = format!("'a' for '<URL>': {}; try '--help'", "and much prose ".repeat(30));
        assert_eq!(clean(&text), text);
        let text = "can't do this, and don't do that, ".repeat(20) + "as it isn't 'right'";
        assert_eq!(clean(&text), text);
        assert!(clean(&"ab ".repeat(10_000)).len() < MESSAGE_MAX + 20);
    }

    #[test]
    fn many_marks_take_no_long_time_and_no_character_is_halved() {
        for part in ["'a", " 'a", "\"", "`'\"", " 'ü", "ü'", "語", "' ' ", "a' "] {
            let text = part.repeat(2_000_000 / part.len());
            assert!(clean(&text).len() < MESSAGE_MAX + 300, "{part}");
        }
        assert_eq!(quote("a\nb\u{1b}[1mc"), "a bc");
        assert_eq!(quote(&"語".repeat(1_000)), "語".repeat(66) + "… (3000 B)");
    }
}
