//! Keys and values of the stores: `KIND/NAME`, and JSON.

use fleet::Name;
use fleet::object::{Key, Kind, Object};

use crate::wire::{self, Wire};

const KINDS: [(Kind, &str); 9] = [
    (Kind::Fleet, "fleet"),
    (Kind::Node, "node"),
    (Kind::Pool, "pool"),
    (Kind::Volume, "volume"),
    (Kind::Class, "class"),
    (Kind::Link, "link"),
    (Kind::Attachment, "attachment"),
    (Kind::Token, "token"),
    (Kind::Snapshot, "snapshot"),
];

/// The text of a key.
pub(super) fn text(key: &Key) -> String {
    let kind = KINDS.iter().find(|(kind, _)| *kind == key.kind).expect("each kind has a word").1;
    format!("{kind}/{}", key.name)
}

/// The key that a text is. Texts of other forms belong to other versions, which may know more
/// kinds.
pub(super) fn parse(text: &str) -> Option<Key> {
    let (word, name) = text.split_once('/')?;
    let kind = KINDS.iter().find(|(_, known)| *known == word)?.0;
    Some(Key { kind, name: Name::new(name).ok()? })
}

/// The JSON of an object.
pub(super) fn encode(object: &Object) -> Vec<u8> {
    serde_json::to_vec(&wire::Object::wire(object)).expect("each object has a form in JSON")
}

/// The object that JSON is. A controller must not decide without an object that is there: one that
/// can't be read is an error.
pub(super) fn decode(key: &Key, json: &[u8]) -> Result<Object, String> {
    let unreadable = |why: &dyn std::fmt::Display| {
        format!(
            "the object {} of the store can't be read ({why}): if a newer version has written it, run that \
             version; otherwise correct or delete the object",
            text(key)
        )
    };
    let object: wire::Object = serde_json::from_slice(json).map_err(|error| unreadable(&error))?;
    let object = object.pure().map_err(|error| unreadable(&error))?;
    if object.kind() != key.kind {
        return Err(unreadable(&"it is of another kind than its key says"));
    }
    Ok(object)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fleet::object::Fleet;

    #[test]
    fn keys_have_one_text() {
        for (kind, word) in KINDS {
            let key = Key { kind, name: Name::new("a-1").unwrap() };
            assert_eq!(text(&key), format!("{word}/a-1"));
            assert_eq!(parse(&text(&key)), Some(key));
        }
        for other in ["", "leader", "node", "node/", "node/A", "node/a/b", "tape/a", "/node/a"] {
            assert_eq!(parse(other), None, "{other}");
        }
    }

    #[test]
    fn an_object_that_cannot_be_read_is_named() {
        let key = Key { kind: Kind::Node, name: Name::new("n").unwrap() };
        let fleet = encode(&Object::Fleet(Fleet { incarnation: 3 }));
        for (json, why) in [(&b"{"[..], "EOF"), (&fleet, "another kind"), (b"{\"kind\":\"tape\"}", "tape")] {
            let error = decode(&key, json).unwrap_err();
            assert!(error.contains("node/n") && error.contains(why), "{error}");
        }
        let key = Key { kind: Kind::Fleet, name: Name::new("fleet").unwrap() };
        assert_eq!(decode(&key, &fleet), Ok(Object::Fleet(Fleet { incarnation: 3 })));
    }
}
