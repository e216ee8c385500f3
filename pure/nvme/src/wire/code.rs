//! Enums of codes that are one byte on the wire.

/// Defines an enum of codes that converts from and to any byte. The text after the enum's name
/// describes the codes. Each line has a variant, its byte and its name in the specification.
macro_rules! codes {
    ($(#[$meta:meta])* $name:ident, $kind:literal, { $($variant:ident = $value:literal, $text:literal;)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
        #[serde(from = "u8", into = "u8")]
        pub enum $name {
            $(#[doc = concat!($text, " (", stringify!($value), ").")] $variant,)*
            #[doc = concat!("Any other ", $kind, ".")]
            Other(u8),
        }

        impl $name {
            #[doc = concat!("Every ", $kind, " with its own variant.")]
            pub const ALL: [Self; [$($value),*].len()] = [$(Self::$variant),*];
        }

        impl From<u8> for $name {
            #[inline]
            fn from(code: u8) -> Self {
                match code {
                    $($value => Self::$variant,)*
                    other => Self::Other(other),
                }
            }
        }

        impl From<$name> for u8 {
            #[inline]
            fn from(code: $name) -> u8 {
                match code {
                    $($name::$variant => $value,)*
                    $name::Other(other) => other,
                }
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self {
                    $(Self::$variant => f.write_str($text),)*
                    Self::Other(other) => write!(f, concat!($kind, " {:02x}h"), other),
                }
            }
        }
    };
}

pub(super) use codes;

#[cfg(test)]
mod tests {
    use crate::wire::feature::FeatureId;
    use crate::wire::log::LogPage;
    use crate::wire::{AdminOpcode, IoOpcode};

    #[test]
    fn every_byte_is_a_code_and_comes_back() {
        for byte in 0..=u8::MAX {
            assert_eq!(u8::from(AdminOpcode::from(byte)), byte);
            assert_eq!(u8::from(IoOpcode::from(byte)), byte);
            assert_eq!(u8::from(LogPage::from(byte)), byte);
            assert_eq!(u8::from(FeatureId::from(byte)), byte);
        }
        assert!(LogPage::ALL.into_iter().all(|page| LogPage::from(u8::from(page)) == page));
        assert_eq!(std::format!("{} {}", IoOpcode::Read, IoOpcode::Other(0xc0)), "Read opcode c0h");
    }
}
