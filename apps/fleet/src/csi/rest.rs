//! A fleet that is reached by its REST interface.

use fleet::controller::{Expect, Wait};
use fleet::object::Kind;

use super::fleet::{Fleet, FleetError, Item, Progress, Space};
use crate::api::client::Client;
use crate::api::routes::{Demand, Options};
use crate::api::{self, Failure, FailureCode, Status, WaitFor};
use crate::wire::{Name, Object};

/// How many seconds controllers wait: longer than the driver, which says for what it waits.
const TIMEOUT: u64 = 120;

/// The phases that need a machine or a person.
const STUCK: [&str; 5] = ["away", "waits-for-owner", "waits-for-host", "waits-for-recovery", "lost"];

impl Fleet for Client {
    async fn get(&self, kind: Kind, name: &str) -> Result<Item, FleetError> {
        Ok(Self::get(self, kind.word(), name).await?.into())
    }

    async fn list(&self, kind: Kind) -> Result<Vec<Item>, FleetError> {
        Ok(Self::list(self, kind.word()).await?.into_iter().map(Item::from).collect())
    }

    async fn put(
        &self,
        name: &str,
        object: Object,
        expect: Expect,
        wait: Option<Wait>,
    ) -> Result<Item, FleetError> {
        let present = expect == Expect::Present;
        let options = Options { present, ..waiting(wait) };
        let revision = match expect {
            Expect::Revision(revision) => Some(revision),
            Expect::Any | Expect::Present => None,
        };
        let item = Self::put(self, name, &object, &options, revision).await?;
        let gone = || FleetError::NotFound(format!("the {} {name} is gone already", object.word()));
        item.map(Item::from).ok_or_else(gone)
    }

    async fn delete(&self, kind: Kind, name: &str, wait: Option<Wait>) -> Result<(), FleetError> {
        Self::delete(self, kind.word(), name, &waiting(wait)).await?;
        Ok(())
    }

    async fn space(&self, class: Option<&str>, near: Option<&str>) -> Result<Vec<Space>, FleetError> {
        let name = |text: Option<&str>| text.map(|text| Name(text.to_owned()));
        let spaces = Self::space(self, &Demand { class: name(class), near: name(near) }).await?;
        let fit = spaces.fit.into_iter();
        Ok(fit.map(|one| Space { pool: one.pool.0, free: one.free_bytes }).collect())
    }
}

fn waiting(wait: Option<Wait>) -> Options {
    let wait = wait.map(|wait| match wait {
        Wait::Attached => WaitFor::Attached,
        Wait::Gone => WaitFor::Gone,
        Wait::Ready => WaitFor::Ready,
    });
    Options { wait, timeout: wait.map(|_| TIMEOUT), present: false }
}

impl From<api::Item> for Item {
    fn from(item: api::Item) -> Self {
        let api::Item { name, revision, object, status } = item;
        let nqn = status.as_ref().and_then(|status| status.nqn.clone());
        let connected = status.as_ref().and_then(|status| status.connected).unwrap_or_default();
        let progress = match status {
            None => Progress::Ready,
            Some(Status { phase, .. }) if ["ready", "attached", "connected"].contains(&&*phase) => {
                Progress::Ready
            }
            Some(Status { phase, message, .. }) if STUCK.contains(&&*phase) => Progress::Stuck(message),
            Some(Status { message, .. }) => Progress::Pending(message),
        };
        Self { name: name.0, revision, object, progress, nqn, connected }
    }
}

impl From<Failure> for FleetError {
    fn from(failure: Failure) -> Self {
        let Failure { code, message } = failure;
        match code {
            FailureCode::NotFound => Self::NotFound(message),
            FailureCode::Revision => Self::Changed(message),
            FailureCode::Invalid => Self::Invalid(message),
            FailureCode::InUse => Self::InUse(message),
            FailureCode::Forbidden => Self::Forbidden(message),
            FailureCode::NotLeader | FailureCode::Timeout | FailureCode::Unreachable => {
                Self::Unavailable(message)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Attachment, Mode};

    #[test]
    fn what_waits_for_a_machine_is_stuck() {
        let attachment = Attachment {
            volume: Name("v".to_owned()),
            node: Name("b".to_owned()),
            mode: Mode::Exclusive,
            transport: crate::wire::Transport::NvmeTcp,
            owner: "csi".to_owned(),
            detach: false,
        };
        let of = |phase: &str| {
            let status = Some(Status { nqn: Some("nqn.x".to_owned()), ..Status::new(phase, "why") });
            let object = Object::Attachment(attachment.clone());
            Item::from(api::Item { name: Name("a".to_owned()), revision: 7, object, status })
        };
        assert_eq!(of("attached").progress, Progress::Ready);
        assert_eq!(of("attached").nqn.as_deref(), Some("nqn.x"));
        assert_eq!(of("waits-for-owner").progress, Progress::Stuck("why".to_owned()));
        assert_eq!(of("waits-for-acknowledgement").progress, Progress::Pending("why".to_owned()));
        let refused: FleetError = Failure::new(FailureCode::Forbidden, "no").into();
        assert_eq!(tonic::Status::from(refused).code(), tonic::Code::PermissionDenied);
    }
}
