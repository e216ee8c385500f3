//! Rebuilding an SSD: the configuration of this start, combined with the saved state.

use nvme::media::MediumId;
use nvme::subsystem::{
    Config, EVENT_LOG_BYTES_MAX, NAMESPACE_ID_MAX, NamespaceConfig, NamespaceIdentity, PAGE_BYTES,
    PersistentEvent, PoolConfig, UnreadableBlocks,
};
use nvme::wire::NamespaceId;
use nvme::wire::log::SelfTestResult;

use super::values::Namespace;
use super::{POOL, SECTION, SELF_TEST_RESULTS, SsdState};
use crate::media::state::error::{StateCause, StateError};
use crate::media::state::store::Store;

/// Where the given bytes are, in words that mean the same at the next start: `file /srv/disk.img`.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// The origin of each namespace of the configuration, in the configuration's order.
    pub namespaces: &'a [String],
    /// The origin of the pool, where there is one.
    pub pool: Option<&'a str>,
    /// Whether the given namespaces have their final identifiers. If so, a namespace is recognized
    /// by both its identifier and its origin, otherwise by its origin alone.
    pub is_numbered: bool,
}

/// An SSD as it was when its state was last saved.
#[derive(Debug)]
pub struct Restored {
    /// The configuration from which the SSD's controller is built.
    pub config: Config,
    /// The state to keep from now on.
    pub state: SsdState,
    /// Notes on the restoration for the owner.
    pub notes: Vec<String>,
}

/// The state of an SSD that `store` has; `None` if the SSD is new.
///
/// # Errors
/// When the store is damaged, or belongs to another kind of device.
pub fn load(store: &Store) -> Result<Option<SsdState>, StateError> {
    store.expect_only(&[SECTION])?;
    let state: Option<SsdState> = store.section(SECTION)?;
    if let Some(state) = &state {
        let text = &state.serial;
        if !(1..=20).contains(&text.len()) || !text.bytes().all(|byte| (0x20..0x7f).contains(&byte)) {
            return Err(damaged(store, "serial", "expected 1 to 20 printable ASCII characters"));
        }
    }
    Ok(state)
}

/// Combines the new `config` of an SSD with its state in `saved`.
///
/// A namespace is recognized by its origin. A namespace given for the first time gets a free
/// identifier, unless the given namespaces are numbered ([`Origin::is_numbered`]).
///
/// # Errors
/// When the remembered state is impossible, or belongs to another pool.
pub fn restore(
    store: &Store,
    saved: Option<SsdState>,
    mut config: Config,
    origin: Origin<'_>,
) -> Result<Restored, StateError> {
    assert!(config.namespaces.len() == origin.namespaces.len(), "every namespace has an origin");
    let serial = config.serial_number.clone();
    let mut state = saved.unwrap_or_else(|| SsdState::new(&serial));
    state.serial = serial;
    check(store, &state)?;
    let mut notes: Vec<_> = store.note().map(str::to_owned).into_iter().collect();
    if origin.is_numbered {
        forget_others(&mut state, &config, origin.namespaces, &mut notes);
    }
    recognise(store, &mut state, &mut config, origin, &mut notes)?;
    match (&mut config.pool, origin.pool) {
        (Some(pool), Some(origin)) => {
            check_pool(store, &mut state, origin)?;
            pool.created = state.created;
            let there = state.namespaces.iter().filter(|one| one.origin == POOL);
            let there: Result<Vec<_>, _> = there.map(|one| in_pool(store, one, pool)).collect();
            config.namespaces.extend(there?);
            check_apart(store, &config.namespaces, pool.medium)?;
            let highest = state.namespaces.iter().map(|one| one.id).max().unwrap_or(0);
            pool.namespaces_max = pool.namespaces_max.max(highest);
        }
        _ => {
            let waiting = state.namespaces.iter().filter(|one| one.origin == POOL).count();
            if waiting > 0 {
                let pool = state.pool.as_deref().unwrap_or_default();
                notes.push(format!(
                    "{waiting} namespaces in the pool ({pool}) are not served: it was not given"
                ));
            }
        }
    }
    config.namespaces.sort_unstable_by_key(|one| one.id);
    if !state.shut_down {
        state.counters.unsafe_shutdowns += 1;
        state.shut_down = true;
    }
    fill(store, &state, &mut config)?;
    // The controller counts this start itself, and reports that only later.
    state.counters.power_cycles += 1;
    Ok(Restored { config, state, notes })
}

fn damaged(store: &Store, key: &str, what: &str) -> StateError {
    store.error(StateCause::Damaged(format!("[{SECTION}] {key}: {what}")))
}

/// Checks the rules for every remembered namespace, wherever its bytes are.
fn check(store: &Store, state: &SsdState) -> Result<(), StateError> {
    for (index, one) in state.namespaces.iter().enumerate() {
        let wrong =
            |key: &str, what: String| Err(damaged(store, &format!("namespace {}, {key}", one.id), &what));
        if !(1..=NAMESPACE_ID_MAX).contains(&one.id) {
            return wrong("id", format!("expected 1 to {NAMESPACE_ID_MAX}"));
        }
        if state.namespaces[..index].iter().any(|other| other.id == one.id) {
            return wrong("id", "expected each only once".to_owned());
        }
        if one.format().is_none() {
            let lengths =
                if one.unprotected { "4104 or 4112 beside 'unprotected'" } else { "512, 4096, 4104 or 4112" };
            return wrong("block", format!("expected {lengths}, found {}", one.block));
        }
        if let Err((key, digits)) = one.identity() {
            return wrong(key, format!("expected {digits} hexadecimal digits"));
        }
    }
    Ok(())
}

/// Gives each given namespace its saved state.
fn recognise(
    store: &Store,
    state: &mut SsdState,
    config: &mut Config,
    origins: Origin<'_>,
    notes: &mut Vec<String>,
) -> Result<(), StateError> {
    let mut known = vec![false; state.namespaces.len()];
    for (namespace, origin) in config.namespaces.iter_mut().zip(origins.namespaces) {
        let is_it =
            |one: &Namespace| one.origin == *origin && (one.id == namespace.id.0 || !origins.is_numbered);
        let place = (0..known.len()).find(|place| !known[*place] && is_it(&state.namespaces[*place]));
        if let Some(place) = place {
            known[place] = true;
            adopt(namespace, &state.namespaces[place]);
            continue;
        }
        if origins.is_numbered {
            state.namespaces.push(Namespace::new(namespace, origin, None));
            known.push(true);
            continue;
        }
        let free = |id: &u32| state.namespaces.iter().all(|one| one.id != *id);
        let Some(id) = (1..=NAMESPACE_ID_MAX).find(free) else {
            let what = format!("{NAMESPACE_ID_MAX} are remembered, and no identifier is left for {origin}");
            return Err(damaged(store, "namespace", &what));
        };
        namespace.id = NamespaceId(id);
        namespace.identity = NamespaceIdentity::derived(&format!("{}/{id}", config.serial_number));
        state.namespaces.push(Namespace::new(namespace, origin, None));
        known.push(true);
    }
    let absent = state.namespaces.iter().zip(&known).filter(|(one, known)| !**known && one.origin != POOL);
    notes.extend(absent.map(|(one, _)| {
        format!("namespace {} ({}) was not given this time; its place is kept", one.id, one.origin)
    }));
    state.namespaces.sort_by_key(|one| one.id);
    Ok(())
}

/// Forgets namespaces whose identifiers now belong to other origins.
fn forget_others(state: &mut SsdState, config: &Config, origins: &[String], notes: &mut Vec<String>) {
    for (namespace, origin) in config.namespaces.iter().zip(origins) {
        let other = state.namespaces.iter().find(|one| one.id == namespace.id.0 && one.origin != *origin);
        if let Some(before) = other.map(|one| one.origin.clone()) {
            notes.push(format!(
                "namespace {} is {origin} now, and was {before}: the saved state of that is dropped",
                namespace.id
            ));
            state.forget(namespace.id);
        }
    }
}

fn adopt(namespace: &mut NamespaceConfig, known: &Namespace) {
    namespace.id = NamespaceId(known.id);
    namespace.attached = known.attached;
    namespace.write_protection = known.write_protection.into();
    // Both were checked.
    namespace.block = known.format().unwrap_or(namespace.block);
    namespace.identity = known.identity().unwrap_or(namespace.identity);
}

/// Checks that the given pool is the one that holds the remembered namespaces.
fn check_pool(store: &Store, state: &mut SsdState, origin: &str) -> Result<(), StateError> {
    let inhabited = state.namespaces.iter().any(|one| one.origin == POOL);
    match &state.pool {
        Some(pool) if inhabited && pool != origin => Err(store.error(StateCause::Mismatch {
            key: format!("[{SECTION}] pool"),
            what: format!("its namespaces are in another pool ({pool}) than the one given ({origin})"),
            remedy: format!(
                "give that pool, or another --state; if it was moved, write pool = \"{origin}\" there instead"
            ),
        })),
        _ => {
            state.pool = Some(origin.to_owned());
            Ok(())
        }
    }
}

/// The configuration of a remembered namespace in the pool.
fn in_pool(store: &Store, one: &Namespace, pool: &PoolConfig) -> Result<NamespaceConfig, StateError> {
    let wrong = |key: &str, what: &str| damaged(store, &format!("namespace {}, {key}", one.id), what);
    let offset = one.offset.filter(|offset| offset.is_multiple_of(PAGE_BYTES.into()));
    let offset = offset.ok_or_else(|| wrong("offset", "expected a multiple of 4096"))?;
    // The block was checked.
    let block = one.format().unwrap_or_default();
    let bytes = one.bytes.filter(|bytes| *bytes > 0 && bytes.is_multiple_of(block.stored().into()));
    let bytes = bytes.ok_or_else(|| wrong("bytes", "expected a multiple of its block"))?;
    if offset.checked_add(bytes).is_none_or(|end| end > pool.bytes) {
        return Err(store.error(StateCause::Mismatch {
            key: format!("[{SECTION}] namespace {}", one.id),
            what: format!("its {bytes} B at {offset} are beyond the pool's {} B", pool.bytes),
            remedy: "give the pool that it was created in, and all of it".to_owned(),
        }));
    }
    // All of these were checked.
    let identity = one.identity().unwrap_or_default();
    let write_protection = one.write_protection.into();
    let config = NamespaceConfig::new(NamespaceId(one.id), pool.medium, bytes, block, identity);
    Ok(NamespaceConfig { offset, attached: one.attached, write_protection, ..config })
}

/// Checks that no part of the pool belongs to two namespaces.
fn check_apart(store: &Store, namespaces: &[NamespaceConfig], pool: MediumId) -> Result<(), StateError> {
    let mut inside: Vec<_> = namespaces.iter().filter(|one| one.medium == pool).collect();
    inside.sort_unstable_by_key(|one| one.offset);
    let overlap = inside.windows(2).find(|pair| pair[0].offset + pair[0].bytes > pair[1].offset);
    overlap.map_or(Ok(()), |pair| {
        let what = format!("overlaps namespace {} in the pool", pair[0].id);
        Err(damaged(store, &format!("namespace {}, offset", pair[1].id), &what))
    })
}

/// Adds to `config` the saved state of the controller.
fn fill(store: &Store, state: &SsdState, config: &mut Config) -> Result<(), StateError> {
    config.counters = (&state.counters).into();
    config.sanitize = state.sanitize.into();
    config.saved_features = state.features.iter().map(|one| (*one).into()).collect();
    config.unreadable_blocks = state
        .unreadable
        .iter()
        .map(|run| UnreadableBlocks {
            namespace: NamespaceId(run.namespace),
            lba: run.first,
            blocks: run.count,
        })
        .collect();
    for one in &state.reservations {
        let record = one.record().ok_or_else(|| {
            let expected =
                "expected a type of 1 to 6 with its holder, hosts of 32 and keys of 16 hexadecimal digits";
            damaged(store, &format!("reservation of namespace {}", one.namespace), expected)
        })?;
        config.reservations.push(record);
    }
    config.extended_self_test = state.self_test.extended.map(NamespaceId);
    let results = state.self_test.results.iter().take(SELF_TEST_RESULTS);
    let results = results.map(|hex| Some(SelfTestResult::parse(&hex.array()?)));
    config.self_test_results = results
        .collect::<Option<_>>()
        .ok_or_else(|| damaged(store, "self-test.results", "expected 56 hexadecimal digits each"))?;
    let mut bytes = 0;
    for event in state.events.iter().rev() {
        bytes += event.0.len();
        if bytes > EVENT_LOG_BYTES_MAX {
            break;
        }
        let event = PersistentEvent::parse(&event.0);
        let event = event.ok_or_else(|| damaged(store, "events", "expected whole persistent events"))?;
        config.events.push(event);
    }
    let firmware = state.firmware.config();
    config.firmware = firmware.map_err(|key| {
        let what =
            if key == "active" { "expected 1, 2 or 3" } else { "expected a firmware image of Farlane's" };
        damaged(store, &format!("firmware.{key}"), what)
    })?;
    Ok(())
}
