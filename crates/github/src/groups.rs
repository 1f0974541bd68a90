//! Looks up the ids of runner groups by name, and remembers them.
//!
//! Not here: which group a runner joins (`bullpen_core::labels::policy`).

use std::collections::BTreeMap;

use bullpen_core::forge_rates::CallPurpose;
use bullpen_core::ids::RunnerGroup;
use bullpen_core::ports::{Clock, Fault};
use bullpen_core::time::Timestamp;
use serde::Deserialize;

use crate::client::GitHub;
use crate::fault::NotFoundMeans;
use crate::limits::{GROUP_MISSING_FOR, GROUPS_BELIEVED_FOR, PER_PAGE};
use crate::settings::Scope;
use crate::wire::{Answer, Call};

/// The groups of an organisation, and when GitHub listed them.
#[derive(Debug)]
pub(crate) struct KnownGroups {
    at: Timestamp,
    /// Ids by name, in lower case.
    ids: BTreeMap<String, u64>,
}

#[derive(Deserialize)]
struct GroupsJson {
    runner_groups: Vec<GroupJson>,
}

#[derive(Deserialize)]
struct GroupJson {
    id: u64,
    name: String,
}

impl<C: Clock> GitHub<C> {
    /// The id of a runner group; a fault that names the group if it does not exist.
    pub async fn group_id(&self, name: &RunnerGroup) -> Result<u64, Fault> {
        let Scope::Organization(organization) = &self.scope else {
            let why =
                format!("the runner group {name} needs an organisation: a repository has none");
            return Err(Fault::Denied(why));
        };
        let mut known = self.groups.lock().await;
        let now = self.wire.clock().now();
        let key = name.as_str().to_lowercase();
        if let Some(groups) = known.as_ref() {
            let id = groups.ids.get(&key);
            let believed = if id.is_some() { GROUPS_BELIEVED_FOR } else { GROUP_MISSING_FOR };
            if now.since(groups.at) < believed {
                return id.copied().ok_or_else(|| no_such_group(name));
            }
        }
        let path = format!("/orgs/{organization}/actions/runner-groups?per_page={PER_PAGE}");
        let read =
            |answer: &Answer| Ok(answer.read::<GroupsJson>("list of runner groups")?.runner_groups);
        let listed = self
            .pages(Call::get(CallPurpose::Configure, path).urgent(), NotFoundMeans::Scope, read)
            .await?;
        let ids = listed.into_iter().map(|group| (group.name.to_lowercase(), group.id)).collect();
        let groups = known.insert(KnownGroups { at: now, ids });
        groups.ids.get(&key).copied().ok_or_else(|| no_such_group(name))
    }
}

fn no_such_group(name: &RunnerGroup) -> Fault {
    Fault::Denied(format!("there is no runner group {name}, or the credential may not see it"))
}
