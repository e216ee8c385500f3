//! The fields of a data structure, as a table for people and as an object for machines, both from
//! one list.

use std::borrow::Cow;
use std::fmt::Write as _;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use serde_json::Value;

/// Least columns for a field's name.
const NAME_WIDTH: usize = 9;
/// Columns for a field's value; a longer value pushes the meaning to the right.
const VALUE_WIDTH: usize = 20;

/// A field: its mnemonic in the specification, its value, and the value's meaning.
#[derive(Clone, Debug, PartialEq)]
struct Field {
    name: String,
    shown: String,
    value: Value,
    meaning: String,
    /// Each part of a bit field: its highest and lowest bit, its value, and the value's meaning.
    parts: Vec<(u32, u32, u64, String)>,
}

/// The fields of a data structure, in the structure's order. Serializes as an object with a key for
/// each field.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Fields(Vec<Field>);

impl Fields {
    /// Adds a number, shown in decimal.
    pub(crate) fn number(&mut self, name: &str, value: impl Into<u128>, meaning: impl Into<String>) {
        let value = value.into();
        self.push(name, value.to_string(), Count::from(value), meaning);
    }

    /// Adds a number, shown with `digits` hexadecimal digits.
    pub(crate) fn hex(
        &mut self,
        name: &str,
        value: impl Into<u64>,
        digits: usize,
        meaning: impl Into<String>,
    ) {
        let value = value.into();
        self.push(name, format!("{value:#0width$x}", width = digits + 2), value, meaning);
    }

    /// Adds a number, shown with `digits` hexadecimal digits. `names` gives the meanings of its
    /// bits; a bit without a name is shown by its number.
    pub(crate) fn flags(
        &mut self,
        name: &str,
        value: impl Into<u64>,
        digits: usize,
        title: &str,
        names: &[(u32, &str)],
    ) {
        let value = value.into();
        self.hex(name, value, digits, format!("{title}: {}", flags(value, names)));
        for (bit, meaning) in names {
            self.part(*bit, *bit, *meaning);
        }
        let named = names.iter().fold(0, |all, (bit, _)| all | 1_u64 << bit);
        for bit in (0..u64::BITS).filter(|bit| (value & !named) >> bit & 1 == 1) {
            self.part(bit, bit, "no meaning is known");
        }
    }

    /// Gives the meaning of bits `high..=low` of the field that was added last. The detailed table
    /// shows it.
    pub(crate) fn part(&mut self, high: u32, low: u32, meaning: impl Into<String>) {
        if let Some(field) = self.0.last_mut() {
            let bits = field.value.as_u64().unwrap_or_default() >> low & (u64::MAX >> (63 - (high - low)));
            field.parts.push((high, low, bits, meaning.into()));
        }
    }

    /// Replaces a field's value for machines.
    pub(crate) fn replace(&mut self, name: &str, value: impl Serialize) {
        if let Some(field) = self.0.iter_mut().find(|field| field.name == name) {
            field.value = serde_json::to_value(value).unwrap_or_default();
        }
    }

    /// Adds a text.
    pub(crate) fn text(&mut self, name: &str, value: impl Into<String>, meaning: impl Into<String>) {
        let value = value.into();
        self.push(name, value.clone(), value, meaning);
    }

    /// Adds a field that is more than a number or a text: people see `shown`, machines see `value`.
    pub(crate) fn push(
        &mut self,
        name: &str,
        shown: impl Into<String>,
        value: impl Serialize,
        meaning: impl Into<String>,
    ) {
        let (name, shown, meaning) = (name.to_owned(), shown.into(), meaning.into());
        // A value that is no text, number, list or object of these would be null.
        let value = serde_json::to_value(value).unwrap_or_default();
        self.0.push(Field { name, shown, value, meaning, parts: Vec::new() });
    }

    /// The table, with a line for each field.
    pub(crate) fn table(&self) -> String {
        self.lines(false)
    }

    /// The table, with a line for each field and, behind a bit field, a line for each of its parts.
    pub(crate) fn detailed_table(&self) -> String {
        self.lines(true)
    }

    fn lines(&self, detailed: bool) -> String {
        let width = self.0.iter().map(|field| field.name.len()).max().unwrap_or(0).max(NAME_WIDTH);
        let mut text = String::new();
        for Field { name, shown, meaning, parts, .. } in &self.0 {
            let line = format!("  {name:width$}  {shown:VALUE_WIDTH$}  {meaning}");
            // Writing to a string can't fail.
            let _ = writeln!(text, "{}", line.trim_end());
            for (high, low, bits, meaning) in parts.iter().filter(|_| detailed) {
                let _ = writeln!(text, "  {:width$}  [{high}:{low}] {bits:#x}  {meaning}", "");
            }
        }
        text
    }
}

impl JsonSchema for Fields {
    fn schema_name() -> Cow<'static, str> {
        "Fields".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object",
            "description": "The fields of a structure, under nvme-cli's names.",
        })
    }
}

impl Serialize for Fields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for field in &self.0 {
            map.serialize_entry(&field.name, &field.value)?;
        }
        map.end()
    }
}

/// A number, or a text where the number is too large for most readers of JSON.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Count {
    /// A number of 64 bits.
    Number(u64),
    /// The digits of a longer one.
    Digits(String),
}

impl From<u128> for Count {
    fn from(value: u128) -> Self {
        u64::try_from(value).map_or_else(|_| Self::Digits(value.to_string()), Self::Number)
    }
}

/// The names of the bits that are set in `value`; `none` if no bit is set.
fn flags(value: u64, names: &[(u32, &str)]) -> String {
    let set = (0..u64::BITS).filter(|bit| value >> bit & 1 == 1);
    let named: Vec<_> = set
        .map(|bit| match names.iter().find(|(known, _)| *known == bit) {
            Some((_, name)) => (*name).to_owned(),
            None => format!("bit {bit}"),
        })
        .collect();
    if named.is_empty() { "none".to_owned() } else { named.join(", ") }
}

/// A number of bytes as people say it: `64 MiB`, `1.50 GiB`, `600 B`.
pub(crate) fn size(bytes: u128) -> String {
    const UNITS: [(u32, &str); 6] =
        [(60, "EiB"), (50, "PiB"), (40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    let Some((shift, unit)) = UNITS.iter().find(|(shift, _)| bytes >> shift != 0) else {
        return format!("{bytes} B");
    };
    let whole = bytes >> shift;
    let hundredths = ((bytes - (whole << shift)) * 100) >> shift;
    match hundredths {
        0 => format!("{whole} {unit}"),
        _ => format!("{whole}.{hundredths:02} {unit}"),
    }
}

/// A temperature, given in kelvin, in degrees Celsius; 0 K stands for an unreported temperature.
pub(crate) fn celsius(kelvin: u16) -> String {
    match kelvin {
        0 => "not reported".to_owned(),
        _ => format!("{} °C", i32::from(kelvin) - 273),
    }
}

/// The bytes as hexadecimal digits, first byte first.
pub(crate) fn digits(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

/// The bytes as a UUID.
pub(crate) fn uuid(bytes: &[u8; 16]) -> String {
    let text = digits(bytes);
    [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| &text[part]).join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_list_is_a_table_and_an_object() {
        let mut fields = Fields::default();
        fields.hex("vid", 0xfa1a_u16, 4, "PCI vendor");
        fields.flags("oncs", 0b1_0101_u16, 4, "optional commands", &[(0, "Compare"), (2, "Deallocate")]);
        fields.number("tnvmcap", u128::from(u64::MAX) + 1, "");
        fields.text("sn", "A1", "serial number");
        assert_eq!(
            fields.table(),
            "  vid        0xfa1a                PCI vendor
  oncs       0x0015                optional commands: Compare, Deallocate, bit 4
  tnvmcap    18446744073709551616
  sn         A1                    serial number
"
        );
        let detailed = fields.detailed_table();
        assert!(detailed.contains("\n             [0:0] 0x1  Compare\n"), "{detailed}");
        assert!(detailed.contains("[4:4] 0x1  no meaning is known"), "{detailed}");
        let json = serde_json::to_string(&fields).unwrap();
        assert_eq!(json, r#"{"vid":64026,"oncs":21,"tnvmcap":"18446744073709551616","sn":"A1"}"#);
    }

    #[test]
    fn sizes_and_temperatures_are_as_people_say_them() {
        let sizes = [0, 600, 1 << 10, 3 << 29, u128::MAX].map(size);
        assert_eq!(sizes[..4], ["0 B", "600 B", "1 KiB", "1.50 GiB"]);
        assert!(sizes[4].ends_with(" EiB"));
        assert_eq!([0, 300, 200].map(celsius), ["not reported", "27 °C", "-73 °C"]);
        assert_eq!(digits(&[0x0a, 0xff]), "0aff");
        assert_eq!(flags(0, &[]), "none");
    }
}
