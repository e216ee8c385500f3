//! Encoded structures parse to the same value, and errors have the position of the fault.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::errno::Errno;
use crate::index::Area;

fn version(text: &str) -> Result<Option<Capabilities>, VersionError> {
    let bytes = [&[0, 0, 1, 0], text.as_bytes(), &[0]].concat();
    Version::parse(&bytes).map(|version| version.capabilities)
}

#[test]
fn capabilities_are_found_among_unknown_ones() {
    let all = Capabilities {
        descriptors: Some(8),
        data: Some(1 << 20),
        maps: Some(65535),
        page_sizes: Some(0x1000),
        write_multiple: Some(true),
    };
    let text = "\t{ \"x\" : [ 1 , -2.5e+3, {\"y\":null}, [], \"\\\"\\u00e9{\" ],\r\n\"capabilities\" : {\"max_msg_fds\": 8 ,\
                \"migration\":{\"pgsize\":4096},\"max_data_xfer_size\":1048576,\"max_dma_maps\":65535,\"pgsizes\":4096,\
                \"write_multiple\":true,\"twin_socket\":{\"supported\":false}} , \"z\" : false } ";
    assert_eq!(version(text), Ok(Some(all)));
    assert_eq!(version("{}"), Ok(Some(Capabilities::default())));
    assert_eq!(version("{\"capabilities\":{}}"), Ok(Some(Capabilities::default())));
    // The last value counts. A name in another place or with an escape is another name.
    let last = Capabilities { descriptors: Some(3), ..Capabilities::default() };
    assert_eq!(
        version("{\"capabilities\":{\"max_msg_fds\":2,\"max_msg_fds\":3,\"max_msg\\u005ffds\":4}}"),
        Ok(Some(last))
    );
    assert_eq!(version("{\"max_msg_fds\":2}"), Ok(Some(Capabilities::default())));
}

#[test]
fn errors_of_json_have_a_position() {
    let deep = format!("{{\"a\":{}1{}}}", "[".repeat(8), "]".repeat(8));
    for (text, at, expected) in [
        ("", 0, "an object"),
        ("[]", 0, "an object"),
        ("{", 1, "a string"),
        ("{\"a", 3, "the end of a string"),
        ("{\"a\\", 5, "the end of a string"),
        ("{\"a\nb\":1}", 3, "the end of a string"),
        ("{\"a\"}", 4, "a colon"),
        ("{\"a\":}", 5, "a value"),
        ("{\"a\":tru}", 5, "true or false"),
        ("{\"a\":nul}", 5, "a value"),
        ("{\"a\":1,}", 7, "a string"),
        ("{\"a\":1", 6, "a comma or the end of an object"),
        ("{\"a\":[1 2]}", 8, "a comma or the end of an array"),
        ("{} x", 3, "the end"),
        ("{}\0", 2, "the end"),
        (&deep, 13, "fewer nested levels"),
        ("{\"capabilities\":1}", 16, "an object"),
        ("{\"capabilities\":{\"pgsizes\":\"4096\"}}", 27, "an unsigned integer"),
        ("{\"capabilities\":{\"pgsizes\":-1}}", 27, "an unsigned integer"),
        ("{\"capabilities\":{\"pgsizes\":1.5}}", 27, "an unsigned integer"),
        ("{\"capabilities\":{\"pgsizes\":18446744073709551616}}", 27, "an unsigned integer"),
        ("{\"capabilities\":{\"write_multiple\":1}}", 34, "true or false"),
    ] {
        let error = JsonError { at, expected };
        assert_eq!(version(text), Err(VersionError::Json(error)), "{text}");
        assert!(error.to_string().starts_with(expected));
    }
    let long = format!("{{\"a\":\"{}\"}}", "x".repeat(4096));
    assert!(matches!(version(&long), Err(VersionError::Payload(ParseError::Excess { need: 4096, .. }))));
}

#[test]
fn headers_survive_emit_and_parse() {
    let command = Header::command(0x1234, Command::RegionWrite, 20, true);
    assert_eq!(command.emit(), [0x34, 0x12, 10, 0, 36, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0]);
    let error = Header::error(1, Command::Other(99), Errno::EEXIST);
    assert_eq!(error.emit(), [1, 0, 99, 0, 16, 0, 0, 0, 0x21, 0, 0, 0, 17, 0, 0, 0]);
    for header in [command, error, Header::reply(7, Command::Version, 4)] {
        assert_eq!(Header::parse(&header.emit()), Ok(header));
    }
    for number in 0..=u16::MAX {
        assert_eq!(u16::from(Command::from(number)), number);
    }
    // The longest possible message.
    let mut bytes = command.emit();
    bytes[4..8].copy_from_slice(&crate::MESSAGE_MAX.to_le_bytes());
    assert_eq!(Header::parse(&bytes).map(|header| header.size), Ok(crate::MESSAGE_MAX));
}

proptest! {
    #[test]
    fn capabilities_survive_their_text(
        descriptors: Option<u64>, data: Option<u64>, maps: Option<u64>, page_sizes: Option<u64>,
        write_multiple: Option<bool>, minor: u16,
    ) {
        let capabilities = Some(Capabilities { descriptors, data, maps, page_sizes, write_multiple });
        let version = Version { major: 0, minor, capabilities };
        prop_assert_eq!(Version::parse(&version.emit()), Ok(version));
    }

    #[test]
    fn a_text_cut_anywhere_or_changed_does_not_panic(at in 0..120_usize, byte: u8, cut: bool) {
        let text = "{\"capabilities\":{\"pgsizes\":4096,\"m\":{\"a\":[1,null,\"x\\\\\"]},\"write_multiple\":true}}";
        let mut bytes = text.as_bytes().to_vec();
        if cut {
            bytes.truncate(at);
        } else if let Some(changed) = bytes.get_mut(at) {
            *changed = byte;
        }
        let _ = Version::parse(&[&[0, 0, 0, 0], &bytes[..], &[0]].concat());
    }

    #[test]
    fn regions_survive_with_any_areas(
        areas in proptest::collection::vec((any::<u64>(), any::<u64>()), 0..=crate::AREAS_MAX),
        size: u64, offset: u64, readable: bool, writable: bool, index: u32,
    ) {
        let areas: Vec<_> = areas.into_iter().map(|(offset, length)| Area { offset, length }).collect();
        let mappable = !areas.is_empty();
        let mut info = RegionInfo { argsz: 0, index, readable, writable, mappable, size, offset, areas };
        info.argsz = u32::try_from(info.full_length()).unwrap();
        prop_assert_eq!(&RegionInfo::parse(&info.emit(u32::MAX)), &Ok(info.clone()));
        // Without enough room, everything except the areas is there.
        let short = info.emit(info.argsz - 1);
        prop_assert_eq!(short.len(), if mappable { 32 } else { info.full_length() });
        prop_assert_eq!(RegionInfo::parse(&short), Ok(RegionInfo { areas: Vec::new(), ..info }));
    }

    #[test]
    fn any_bytes_are_taken_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        crate::fuzz::message(&bytes);
        crate::fuzz::server(&bytes);
        crate::fuzz::client(&bytes);
    }
}

#[test]
fn errors_carry_the_value_found() {
    let say = |error: ParseError| -> String { error.to_string() };
    assert_eq!(say(DmaMap::parse(&[0; 31]).unwrap_err()), "a payload of 31 B where 32 B are needed");
    assert_eq!(say(DmaMap::parse(&[0; 33]).unwrap_err()), "a payload of 33 B with a length field of 32 B");
    assert_eq!(say(DmaUnmap::parse(&[0; 24]).unwrap_err()), "argsz 0x0 is not allowed");
}
