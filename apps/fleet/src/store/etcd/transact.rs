//! Transactions.

use std::time::Duration;

use etcd_client::{Compare, CompareOp, GetOptions, Txn, TxnOp};
use fleet::object::{Key, Object};
use fleet::store::{Answer, Transaction};
use tokio::time::{Instant, sleep};

use super::link::{Failure, Links, jitter};
use super::{Keys, MESSAGE_MAX};
use crate::store::codec;

/// How long a transaction may take. Members of etcd give up after 7 s by themselves.
const TRANSACT: Duration = Duration::from_secs(5);
/// How long transactions wait for an etcd that has no space or too much to do.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often such an etcd is tried.
const RETRY: Duration = Duration::from_millis(500);

/// Applies a transaction. A failure comes with [`Answer::Unknown`].
pub(super) async fn transact(
    links: &Links,
    keys: &Keys,
    transaction: &Transaction,
    report: impl Fn(&Failure),
) -> (Answer, Option<Failure>) {
    let until = Instant::now() + PATIENCE;
    loop {
        match transact_once(links, keys, transaction).await {
            Ok(answer) => return (answer, None),
            Err(failure @ Failure::Full(_)) if Instant::now() < until => {
                report(&failure);
                sleep(jitter(RETRY)).await;
            }
            Err(failure) => return (Answer::Unknown, Some(failure)),
        }
    }
}

async fn transact_once(links: &Links, keys: &Keys, transaction: &Transaction) -> Result<Answer, Failure> {
    // No key has a revision that is greater than etcd's greatest.
    let Some(txn) = translate(keys, transaction) else { return Ok(Answer::Conflict) };
    let floor = links.known();
    let answer = links.call(TRANSACT, async move |client| {
        let mut client = client.kv_client().max_decoding_message_size(MESSAGE_MAX);
        client.txn(txn).await
    });
    let answer = answer.await?;
    let revision = links.check(floor, answer.header())?;
    Ok(if answer.succeeded() { Answer::Done(revision) } else { Answer::Conflict })
}

fn translate(keys: &Keys, transaction: &Transaction) -> Option<Txn> {
    let term = i64::try_from(transaction.term).ok()?;
    let mut compares = vec![Compare::create_revision(keys.leader.as_str(), CompareOp::Equal, term)];
    for (key, revision) in &transaction.compares {
        let revision = i64::try_from(*revision).ok()?;
        compares.push(Compare::mod_revision(keys.text(key), CompareOp::Equal, revision));
    }
    // Members answer a transaction without operations from what they know, which may be old. One
    // that reads asks the leader of etcd whether it still leads.
    let read = || TxnOp::get(keys.leader.as_str(), Some(GetOptions::new().with_count_only()));
    let operation = |(key, object): &(Key, Option<Object>)| match object {
        Some(object) => TxnOp::put(keys.text(key), codec::encode(object), None),
        None => TxnOp::delete(keys.text(key), None),
    };
    let mut operations: Vec<_> = transaction.writes.iter().map(operation).collect();
    if operations.is_empty() {
        operations.push(read());
    }
    Some(Txn::new().when(compares).and_then(operations).or_else([read()]))
}
