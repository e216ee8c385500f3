//! The guard of requests: admits those with the token, by a name that only this server can have.

use std::net::IpAddr;

use engine::Entropy;
use subtle::ConstantTimeEq;

/// Bytes of randomness in a token.
const RANDOM: usize = 16;

/// The secret part of the page's address.
pub(super) struct Token(String);

impl Token {
    /// A token that can't be guessed.
    pub(super) fn new(mut entropy: Entropy) -> Self {
        let mut bytes = [0; RANDOM];
        entropy.fill(&mut bytes);
        Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// The token as it stands in the page's address.
    pub(super) fn text(&self) -> &str {
        &self.0
    }

    /// The rest behind `/TOKEN/` in the path of a request. `None` if the token is another one. The
    /// time of the comparison depends on nothing of the token but its length, which is no secret.
    pub(super) fn admits<'a>(&self, path: &'a str) -> Option<&'a str> {
        let path = path.strip_prefix('/')?;
        let (given, rest) = path.split_once('/')?;
        bool::from(given.as_bytes().ct_eq(self.0.as_bytes())).then_some(rest)
    }
}

/// Whether a request came by a name that always leads here: an address, or `localhost`. A foreign
/// page could let a name of its own lead to this machine (DNS rebinding), and its browser would
/// then take answers for those of that page.
pub(super) fn knows(host: Option<&str>) -> bool {
    let Some(host) = host else { return false };
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, port)) if port.is_empty() || port.starts_with(':') => address,
        Some(_) => return false,
        None => host.split_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_admits_itself_alone() {
        let token = Token::new(live::sys::entropy::system());
        assert_eq!(token.text().len(), 2 * RANDOM);
        let path = format!("/{}/api/captures", token.text());
        assert_eq!(token.admits(&path), Some("api/captures"));
        assert_eq!(token.admits(&format!("/{}/", token.text())), Some(""));
        let last = if path.as_bytes()[2 * RANDOM] == b'0' { "1" } else { "0" };
        let other = format!("{}{last}/", &path[..2 * RANDOM]);
        for path in [&other, &path[1..], "", "/", "//", "/api/captures", &path[..2 * RANDOM + 1], &path[..9]]
        {
            assert_eq!(token.admits(path), None, "{path}");
        }
        assert_ne!(Token::new(live::sys::entropy::system()).text(), token.text());
    }

    #[test]
    fn names_of_others_are_not_known() {
        for host in
            ["127.0.0.1:80", "localhost", "LOCALHOST:9", "[::1]:80", "[::1]", "192.0.2.7", "10.0.0.1:1"]
        {
            assert!(knows(Some(host)), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:80",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "",
            "[::1",
            "[evil]:80",
            "[::1]evil",
        ] {
            assert!(!knows(Some(host)), "{host}");
        }
        assert!(!knows(None));
    }
}
