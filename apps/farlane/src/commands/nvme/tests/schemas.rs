//! The schema of each verb's report.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value;

use crate::commands::fields::Fields;
use crate::commands::nvme::{
    Bytes, OfNamespace, controller, events, features, firmware, host, identify, io, logs, namespaces,
    passthru, reports, reservations, sanitize, self_test,
};

fn of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    settings.into_generator().into_root_schema_for::<T>().to_value()
}

/// Either of two reports.
fn either<T: JsonSchema, U: JsonSchema>() -> Value {
    #[derive(JsonSchema)]
    #[serde(untagged)]
    #[expect(dead_code, reason = "only its schema is used")]
    enum Either<T, U> {
        One(T),
        Other(U),
    }
    of::<Either<T, U>>()
}

/// Each verb of nvme-cli, and the schema of its report.
pub(crate) fn all() -> Vec<(&'static str, Value)> {
    vec![
        ("admin-passthru", of::<passthru::Passed<'_>>()),
        ("ana-log", of::<reports::Ana>()),
        ("attach-ns", of::<namespaces::Attached>()),
        ("changed-ns-list-log", of::<reports::Changed>()),
        ("compare", of::<io::Compared>()),
        ("copy", of::<io::Ranges>()),
        ("create-ns", of::<OfNamespace>()),
        ("delete-ns", of::<OfNamespace>()),
        ("detach-ns", of::<namespaces::Attached>()),
        ("device-self-test", either::<self_test::SelfTests, self_test::Started>()),
        ("dsm", of::<io::Ranges>()),
        ("effects-log", of::<Vec<reports::Effects>>()),
        ("endurance-log", of::<Fields>()),
        ("error-log", of::<logs::ErrorLog>()),
        ("flush", of::<OfNamespace>()),
        ("format", of::<OfNamespace>()),
        ("fw-commit", of::<firmware::Committed>()),
        ("fw-download", of::<firmware::Downloaded>()),
        ("fw-log", of::<BTreeMap<String, firmware::Slots>>()),
        ("gen-hostnqn", of::<host::HostName>()),
        ("get-feature", of::<features::Feature<'_>>()),
        ("get-log", of::<Bytes<'_>>()),
        ("get-property", of::<controller::Property>()),
        ("id-ctrl", of::<Fields>()),
        ("id-ns", of::<Fields>()),
        ("id-uuid", of::<identify::Uuids>()),
        ("io-passthru", of::<passthru::Passed<'_>>()),
        ("list-ctrl", of::<namespaces::ControllerList>()),
        ("list-ns", of::<namespaces::NamespaceList>()),
        ("list-subsys", of::<Vec<host::ListedHost>>()),
        ("lockdown", of::<controller::LockedDown>()),
        ("ns-descs", of::<identify::Descriptors<'_>>()),
        ("persistent-event-log", either::<events::EventLog<'_>, events::Released>()),
        ("reset", of::<controller::Reset>()),
        ("resv-acquire", of::<OfNamespace>()),
        ("resv-register", of::<OfNamespace>()),
        ("resv-release", of::<OfNamespace>()),
        ("resv-report", of::<reservations::Report>()),
        ("sanitize", of::<sanitize::Sanitized>()),
        ("sanitize-log", of::<BTreeMap<String, sanitize::SanitizeStatus>>()),
        ("self-test-log", of::<self_test::SelfTests>()),
        ("set-feature", of::<features::SetFeature>()),
        ("show-hostnqn", of::<host::HostName>()),
        ("show-regs", of::<controller::Registers>()),
        ("smart-log", of::<Fields>()),
        ("subsystem-reset", of::<controller::SubsystemReset>()),
        ("supported-log-pages", of::<reports::SupportedLogs>()),
        ("telemetry-log", of::<events::Saved>()),
        ("verify", of::<io::Blocks>()),
        ("version", of::<host::Version>()),
        ("virt-mgmt", of::<controller::Resources>()),
        ("write-uncor", of::<io::Blocks>()),
        ("write-zeroes", of::<io::Blocks>()),
    ]
}
