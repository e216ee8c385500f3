//! What the file of a store holds: objects, the number of the latest change, and the term.

use fleet::object::{Key, Object};
use fleet::store::{Answer, Event as Change, Revision, Transaction};
use redb::{
    Database, DatabaseError, ReadTransaction, ReadableDatabase, ReadableTable, TableDefinition, TableHandle,
    WriteTransaction,
};

use crate::store::codec;

/// Objects by `KIND/NAME`: the revision of the last change, and JSON.
const OBJECTS: TableDefinition<'_, &str, (u64, &[u8])> = TableDefinition::new("objects");
/// Numbers by name.
const NUMBERS: TableDefinition<'_, &str, u64> = TableDefinition::new("numbers");
const FORMAT: &str = "format";
const REVISION: &str = "revision";
const TERM: &str = "term";
/// The layout of the tables. A later layout has a greater number.
const FORMAT_NOW: u64 = 1;

/// The answer to a transaction, with the changes that it has made.
pub(super) type Outcome = (Answer, Vec<Change>);

/// Why the content can't be used.
#[derive(Debug)]
pub(super) enum ContentError {
    /// The database failed.
    Database(redb::Error),
    /// The file holds something else, in words that follow its name.
    Foreign(String),
    /// An object can't be read.
    Unreadable(String),
}

impl<T: Into<redb::Error>> From<T> for ContentError {
    fn from(error: T) -> Self {
        Self::Database(error.into())
    }
}

impl std::fmt::Display for ContentError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Database(error) => error.fmt(f),
            Self::Foreign(words) | Self::Unreadable(words) => f.write_str(words),
        }
    }
}

/// An open database that has the tables of a store.
#[derive(Debug)]
pub(super) struct Content {
    database: Database,
}

impl Content {
    /// The content of a database, which is made a store if it is empty.
    pub(super) fn new(database: Result<Database, DatabaseError>) -> Result<Self, ContentError> {
        let database = database.map_err(|error| match error {
            DatabaseError::Storage(redb::StorageError::Io(error))
                if error.kind() == std::io::ErrorKind::InvalidData =>
            {
                ContentError::Foreign("holds no store".to_owned())
            }
            error => error.into(),
        })?;
        let read = database.begin_read()?;
        let names: Vec<_> = read.list_tables()?.map(|table| table.name().to_owned()).collect();
        if names.is_empty() {
            let write = database.begin_write()?;
            write.open_table(OBJECTS)?;
            write.open_table(NUMBERS)?.insert(FORMAT, FORMAT_NOW)?;
            write.commit()?;
        } else if ![OBJECTS.name(), NUMBERS.name()].iter().all(|name| names.iter().any(|one| one == name)) {
            return Err(ContentError::Foreign("holds another program's database".to_owned()));
        } else {
            let format = number(&read, FORMAT)?;
            if format != FORMAT_NOW {
                let words = format!("has format {format}, but this version knows format {FORMAT_NOW} only");
                return Err(ContentError::Foreign(words));
            }
        }
        Ok(Self { database })
    }

    /// The number of the latest change.
    pub(super) fn revision(&self) -> Result<Revision, ContentError> {
        number(&self.database.begin_read()?, REVISION)
    }

    /// Begins a term, durably. No term has begun twice.
    pub(super) fn begin_term(&self) -> Result<u64, ContentError> {
        let write = self.database.begin_write()?;
        let term = add_one(&write, TERM)?;
        write.commit()?;
        Ok(term)
    }

    /// Applies transactions one after the other, and makes them durable together.
    pub(super) fn apply(
        &self,
        term: Option<u64>,
        transactions: &[Transaction],
    ) -> Result<Vec<Outcome>, ContentError> {
        let write = self.database.begin_write()?;
        let mut outcomes = Vec::new();
        for transaction in transactions {
            outcomes.push(if Some(transaction.term) == term {
                apply_one(&write, transaction)?
            } else {
                (Answer::Conflict, Vec::new())
            });
        }
        if outcomes.iter().all(|(_, changes)| changes.is_empty()) {
            write.abort()?;
        } else {
            write.commit()?;
        }
        Ok(outcomes)
    }

    /// All objects.
    pub(super) fn list(&self, number_of_list: u64) -> Result<Change, ContentError> {
        let read = self.database.begin_read()?;
        let mut objects = Vec::new();
        for one in read.open_table(OBJECTS)?.iter()? {
            let (key, value) = one?;
            let Some(key) = codec::parse(key.value()) else { continue };
            let (revision, json) = value.value();
            let object = codec::decode(&key, json).map_err(ContentError::Unreadable)?;
            objects.push((key, revision, object));
        }
        Ok(Change::Listed { number: number_of_list, revision: number(&read, REVISION)?, objects })
    }

    /// A view of the content as it is now, which later changes do not alter.
    pub(super) fn view(&self) -> Result<ReadTransaction, ContentError> {
        Ok(self.database.begin_read()?)
    }
}

/// Copies a view into a new database.
pub(super) fn copy(view: &ReadTransaction, into: &Database) -> Result<(), ContentError> {
    let write = into.begin_write()?;
    {
        let mut objects = write.open_table(OBJECTS)?;
        for one in view.open_table(OBJECTS)?.iter()? {
            let (key, value) = one?;
            objects.insert(key.value(), value.value())?;
        }
        let mut numbers = write.open_table(NUMBERS)?;
        for one in view.open_table(NUMBERS)?.iter()? {
            let (name, value) = one?;
            numbers.insert(name.value(), value.value())?;
        }
    }
    Ok(write.commit()?)
}

fn number(read: &ReadTransaction, name: &str) -> Result<u64, ContentError> {
    Ok(read.open_table(NUMBERS)?.get(name)?.map_or(0, |value| value.value()))
}

fn add_one(write: &WriteTransaction, name: &str) -> Result<u64, ContentError> {
    let mut numbers = write.open_table(NUMBERS)?;
    let before = numbers.get(name)?.map_or(0, |value| value.value());
    let exhausted = || ContentError::Unreadable(format!("the number \"{name}\" of the store is at its end"));
    let next = before.checked_add(1).ok_or_else(exhausted)?;
    numbers.insert(name, next)?;
    Ok(next)
}

fn apply_one(write: &WriteTransaction, transaction: &Transaction) -> Result<Outcome, ContentError> {
    let mut objects = write.open_table(OBJECTS)?;
    for (key, revision) in &transaction.compares {
        let now = objects.get(codec::text(key).as_str())?.map_or(0, |value| value.value().0);
        if now != *revision {
            return Ok((Answer::Conflict, Vec::new()));
        }
    }
    let is_there = |text: &str| Ok::<_, redb::StorageError>(objects.get(text)?.is_some());
    let mut changes_something = false;
    for (key, object) in &transaction.writes {
        changes_something |= object.is_some() || is_there(&codec::text(key))?;
    }
    if !changes_something {
        let now = write.open_table(NUMBERS)?.get(REVISION)?.map_or(0, |value| value.value());
        return Ok((Answer::Done(now), Vec::new()));
    }
    let revision = add_one(write, REVISION)?;
    let mut changes = Vec::new();
    for (key, object) in &transaction.writes {
        let text = codec::text(key);
        let has_changed = match object {
            Some(object) => {
                objects.insert(text.as_str(), (revision, codec::encode(object).as_slice()))?;
                true
            }
            None => objects.remove(text.as_str())?.is_some(),
        };
        if has_changed {
            changes.push(change(revision, key, object.as_ref()));
        }
    }
    Ok((Answer::Done(revision), changes))
}

fn change(revision: Revision, key: &Key, object: Option<&Object>) -> Change {
    Change::Changed { revision, key: key.clone(), object: object.cloned() }
}
