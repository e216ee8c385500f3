//! How the commands that nvme-cli has print an answer: nvme-cli's options, once for all of them.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};

/// How an answer is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Printed {
    /// Text for people
    Normal,
    /// JSON for machines
    Json,
    /// The bytes of the structure as they are
    Binary,
}

/// The parser of a form. A command that prints no structure has no bytes to print.
fn forms(has_binary: bool) -> impl TypedValueParser<Value = Printed> {
    let offered = |form: &Printed| {
        let value = form.to_possible_value().unwrap_or(PossibleValue::new("normal"));
        value.hide(*form == Printed::Binary && !has_binary)
    };
    let parser = PossibleValuesParser::new(Printed::value_variants().iter().map(offered));
    parser.try_map(move |text| match Printed::from_str(&text, false)? {
        Printed::Binary if !has_binary => {
            Err("this command prints no structure, so that there are no bytes; expected normal or json"
                .to_owned())
        }
        form => Ok(form),
    })
}

/// How a command prints a confirmation, or an answer that it has composed itself.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Printing {
    /// Print the answer in this form
    #[arg(short = 'o', long, value_name = "FORM", default_value = "normal", value_parser = forms(false),
          overrides_with = "json")]
    output_format: Printed,
    /// Print JSON for machines instead of text for people; the same as -o json
    #[arg(long, overrides_with = "output_format")]
    json: bool,
}

impl Printing {
    /// Whether the answer is for machines.
    pub(crate) fn is_json(self) -> bool {
        self.json || self.output_format == Printed::Json
    }
}

/// How a command reports whose `-o` is for a file.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct ReportPrinting {
    /// Print the report in this form
    #[arg(long, value_name = "FORM", default_value = "normal", value_parser = forms(false),
          overrides_with = "json")]
    output_format: Printed,
    /// Print JSON for machines instead of text for people
    #[arg(long, overrides_with = "output_format")]
    json: bool,
}

impl ReportPrinting {
    /// Whether the report is for machines.
    pub(crate) fn is_json(self) -> bool {
        self.json || self.output_format == Printed::Json
    }
}

/// How a command prints one of NVMe's structures.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct StructurePrinting {
    /// Print the structure in this form
    #[arg(short = 'o', long, value_name = "FORM", default_value = "normal", value_parser = forms(true),
          overrides_with_all = ["json", "raw_binary"])]
    output_format: Printed,
    /// Print JSON for machines instead of text for people; the same as -o json
    #[arg(long, overrides_with_all = ["output_format", "raw_binary"])]
    json: bool,
    /// Print the bytes as they are; the same as -o binary
    #[arg(short = 'b', long, overrides_with_all = ["output_format", "json"])]
    raw_binary: bool,
}

impl StructurePrinting {
    /// The form: that of the last option, if several were given.
    pub(crate) fn form(self) -> Printed {
        match self {
            Self { raw_binary: true, .. } => Printed::Binary,
            Self { json: true, .. } => Printed::Json,
            Self { output_format, .. } => output_format,
        }
    }

    /// Whether the answer is for machines.
    pub(crate) fn is_json(self) -> bool {
        self.form() == Printed::Json
    }
}

/// How much of a structure the text form shows.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Detail {
    /// Explain each bit field, a line for each of its bits
    #[arg(short = 'H', long)]
    pub(crate) human_readable: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Structure {
        #[command(flatten)]
        printing: StructurePrinting,
    }

    #[derive(Parser)]
    struct Deed {
        #[command(flatten)]
        printing: Printing,
    }

    #[test]
    fn the_last_of_several_forms_counts() {
        for (words, form) in [
            (&[][..], Printed::Normal),
            (&["-o", "json"], Printed::Json),
            (&["--output-format=binary"], Printed::Binary),
            (&["-b"], Printed::Binary),
            (&["--json"], Printed::Json),
            (&["--json", "-o", "binary"], Printed::Binary),
            (&["-o", "binary", "--json"], Printed::Json),
            (&["-b", "-o", "normal"], Printed::Normal),
        ] {
            let given = Structure::try_parse_from([&["x"], words].concat());
            assert_eq!(given.map_err(|error| error.to_string()).unwrap().printing.form(), form, "{words:?}");
        }
    }

    #[test]
    fn a_deed_has_no_bytes_to_print() {
        let json = Deed::try_parse_from(["x", "--output-format", "json"]);
        assert!(json.map_err(|error| error.to_string()).unwrap().printing.is_json());
        let Err(error) = Deed::try_parse_from(["x", "-o", "binary"]) else { panic!("there are no bytes") };
        assert!(error.to_string().contains("no structure"), "{error}");
        assert!(Deed::try_parse_from(["x", "-o", "xml"]).is_err());
    }
}
