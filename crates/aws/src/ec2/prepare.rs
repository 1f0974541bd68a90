//! What `refresh` learns and makes before anything is launched: the role's id, the subnets' zones,
//! launch templates. What is configured wrongly is found here, and named.
//!
//! A service refreshes all the time, and what is here hardly changes: one process asks for the same
//! every [`ASKED_EVERY`]. A launch finds out by itself that its template is gone.
//!
//! Not here: permissions, quotas and clocks ([`crate::doctor`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use aws_sdk_ec2::types::{LaunchTemplate, LaunchTemplateVersion, ResourceType, TagSpecification};
use bullpen_core::class::RunnerClass;
use bullpen_core::ids::Zone;
use bullpen_core::parameters::LaunchSite;
use bullpen_core::ports::{Clock, Fault};
use bullpen_core::time::Timestamp;

use super::labelled::{self, LABELLED_MAX};
use super::template::{Template, VERSION};
use super::{Ec2Fleet, NO_TEMPLATE, answers, lock, tags};
use crate::fault::judge;

/// How old a template is that is removed because nobody here wants it: another process may have another
/// configuration, and makes it again at the price of two calls.
const UNWANTED_FOR: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// How long a process goes by what it was told.
const ASKED_EVERY: Duration = Duration::from_secs(10 * 60);
/// As many templates as EC2 describes in one answer.
const TEMPLATES_PAGE: i32 = 200;
/// Somebody else was quicker.
const THERE_ALREADY: &str = "InvalidLaunchTemplateName.AlreadyExistsException";

/// When this process last asked, on the clock that never goes back.
#[derive(Debug, Default)]
pub(super) struct LastAsked {
    ground: Mutex<Option<Duration>>,
    /// Also by which names templates were there then.
    pub(super) templates: Mutex<Option<(Duration, BTreeSet<String>)>>,
}

impl<C: Clock> Ec2Fleet<C> {
    pub(super) async fn learn_ground(
        &self,
        born: &str,
        kept: Option<&LaunchSite>,
    ) -> Result<LaunchSite, Fault> {
        let asked_at = *lock(&self.asked.ground);
        let ground = match self.ground() {
            Ok(known)
                if asked_at.is_some_and(|at| self.is_recent(at))
                    && kept.is_some_and(|kept| known.is_where(kept)) =>
            {
                LaunchSite { born: born.to_owned(), ..known }
            }
            _ => {
                let ground = self.ask_for_ground(born).await?;
                *lock(&self.asked.ground) = Some(self.clock.monotonic());
                ground
            }
        };
        *self.ground.write().unwrap_or_else(PoisonError::into_inner) = Some(ground.clone());
        Ok(ground)
    }

    fn is_recent(&self, asked_at: Duration) -> bool {
        self.clock.monotonic().saturating_sub(asked_at) < ASKED_EVERY
    }

    async fn ask_for_ground(&self, born: &str) -> Result<LaunchSite, Fault> {
        let role_id = self.role_id().await?;
        let networks = self.networks().await?;
        let groups = self.group_networks().await?;
        one_network(&networks, &groups)?;
        let subnets = networks.into_iter().map(|(subnet, place)| (subnet, place.zone)).collect();
        Ok(LaunchSite { born: born.to_owned(), role_id, subnets })
    }

    /// Who agents are: the id of the profile's role.
    async fn role_id(&self) -> Result<String, Fault> {
        let name = self.settings.profile_name();
        let answer = self.iam.get_instance_profile().instance_profile_name(name).send().await;
        let answer = answer.map_err(|error| match error.as_service_error() {
            Some(said) if said.is_no_such_entity_exception() => Fault::Denied(format!(
                "there is no instance profile {name}: make it, with the role that `bullpen policies \
                 instance` is for, or correct `instance-profile` under [aws] of bullpen.toml"
            )),
            _ => judge(&error).fault(),
        })?;
        let roles = answer.instance_profile().map(|profile| profile.roles().to_vec());
        match roles.unwrap_or_default().first() {
            Some(role) => Ok(role.role_id().to_owned()),
            None => {
                Err(Fault::Denied(format!("instance profile {name} has no role: add one to it")))
            }
        }
    }

    async fn networks(&self) -> Result<BTreeMap<String, Place>, Fault> {
        let wanted = &self.settings.subnets;
        let call = self.client.describe_subnets().set_subnet_ids(Some(wanted.clone()));
        let answer = call.send().await.map_err(|error| answers::fault(&error))?;
        let places = answer.subnets().iter().filter_map(|subnet| {
            let zone = Zone::new(subnet.availability_zone()?);
            let place = Place { zone, network: subnet.vpc_id()?.to_owned() };
            Some((subnet.subnet_id()?.to_owned(), place))
        });
        Ok(places.collect())
    }

    async fn group_networks(&self) -> Result<BTreeMap<String, String>, Fault> {
        let wanted = &self.settings.security_groups;
        let call = self.client.describe_security_groups().set_group_ids(Some(wanted.clone()));
        let answer = call.send().await.map_err(|error| answers::fault(&error))?;
        let networks = answer.security_groups().iter();
        let networks = networks
            .filter_map(|group| Some((group.group_id()?.to_owned(), group.vpc_id()?.to_owned())));
        Ok(networks.collect())
    }

    /// One template for each way to build a machine, as EC2 has them and not as we remember.
    pub(super) async fn prepare_templates(
        &self,
        classes: &[RunnerClass],
        really: bool,
    ) -> Result<Vec<String>, Fault> {
        let ground = self.ground()?;
        let mut wanted: BTreeMap<String, Template> = BTreeMap::new();
        for class in classes {
            let template = self.template(class, &ground).await?;
            self.fits(class, &template).await?;
            wanted.insert(template.name(), template);
        }
        let names: BTreeSet<String> = wanted.keys().cloned().collect();
        let is_as_before =
            |(at, before): &(Duration, BTreeSet<String>)| *before == names && self.is_recent(*at);
        if lock(&self.asked.templates).as_ref().is_some_and(is_as_before) {
            return Ok(Vec::new());
        }
        let there = self.templates().await?;
        let mut done = Vec::new();
        for (name, template) in &wanted {
            let found = there.contains_key(name);
            if found && self.says(name, template).await? {
                continue;
            }
            done.push(format!(
                "{} launch template {name}",
                if found { "replaced" } else { "made" }
            ));
            if really && found {
                self.remove_template(name).await?;
            }
            if really {
                self.make_template(template, false).await?;
            }
        }
        done.extend(self.clear_away(&names, &there, really).await?);
        if really {
            *lock(&self.asked.templates) = Some((self.clock.monotonic(), names));
        }
        Ok(done)
    }

    /// An image of another architecture would never boot.
    async fn fits(&self, class: &RunnerClass, template: &Template) -> Result<(), Fault> {
        let facts = self.images.facts(&self.client, &template.ami).await;
        let facts = facts.map_err(|fault| match fault {
            Fault::Denied(why) => Fault::Denied(format!("class {}: {why}", class.name)),
            other => other,
        })?;
        match facts.architecture {
            Some(is) if is != class.architecture => Err(Fault::Denied(format!(
                "class {} is {}, and its image {} is for {}: give it another image",
                class.name,
                class.architecture.as_str(),
                template.ami,
                is.as_str()
            ))),
            _ => Ok(()),
        }
    }

    /// Our templates, by name.
    pub(super) async fn templates(&self) -> Result<BTreeMap<String, LaunchTemplate>, Fault> {
        let call = self.client.describe_launch_templates().max_results(TEMPLATES_PAGE);
        let call = call.filters(tags::is_of(&self.settings.stack));
        let found = call.into_paginator().items().send().collect::<Result<Vec<_>, _>>().await;
        let found = found.map_err(|error| answers::fault(&error))?;
        let named = |one: LaunchTemplate| Some((one.launch_template_name()?.to_owned(), one));
        Ok(found.into_iter().filter_map(named).collect())
    }

    /// Whether EC2's template of this name says what ours does.
    async fn says(&self, name: &str, template: &Template) -> Result<bool, Fault> {
        let call = self.client.describe_launch_template_versions();
        let call = call.launch_template_name(name).versions(VERSION);
        let answer = match call.send().await {
            Ok(answer) => answer,
            Err(error) if answers::code(&error).is_some_and(|code| NO_TEMPLATE.contains(&code)) => {
                return Ok(false);
            }
            Err(error) => return Err(answers::fault(&error)),
        };
        let is = |version: &LaunchTemplateVersion| {
            version.launch_template_data().is_some_and(|data| template.is(data))
        };
        Ok(answer.launch_template_versions().iter().any(is))
    }

    /// Makes a template; one that is there already is the same. `labelled`: labels made its class.
    pub(super) async fn make_template(
        &self,
        template: &Template,
        labelled: bool,
    ) -> Result<(), Fault> {
        let facts = self.images.facts(&self.client, &template.ami).await?;
        let stack = &self.settings.stack;
        let tags = TagSpecification::builder()
            .resource_type(ResourceType::LaunchTemplate)
            .set_tags(Some(tags::of_template(stack, labelled)))
            .build();
        let call = self
            .client
            .create_launch_template()
            .launch_template_name(template.name())
            .launch_template_data(template.data(stack, &facts.root_device))
            .tag_specifications(tags);
        match call.send().await {
            Ok(_) => Ok(()),
            Err(error) if answers::code(&error) == Some(THERE_ALREADY) => Ok(()),
            Err(error) => Err(answers::fault(&error)),
        }
    }

    pub(super) async fn remove_template(&self, name: &str) -> Result<(), Fault> {
        match self.client.delete_launch_template().launch_template_name(name).send().await {
            Ok(_) => Ok(()),
            Err(error) if answers::code(&error).is_some_and(|code| NO_TEMPLATE.contains(&code)) => {
                Ok(())
            }
            Err(error) => Err(answers::fault(&error)),
        }
    }

    async fn clear_away(
        &self,
        wanted: &BTreeSet<String>,
        there: &BTreeMap<String, LaunchTemplate>,
        really: bool,
    ) -> Result<Vec<String>, Fault> {
        let now = self.clock.now();
        let labelled = self.last_used(there, wanted);
        // Where too many are in use now, the next refresh finds fewer of them so.
        let evicted = labelled::evicted(&labelled, now, LABELLED_MAX).names;
        let mut done = Vec::new();
        for (name, template) in there.iter().filter(|(name, _)| !wanted.contains(*name)) {
            let made = template.create_time().and_then(|at| at.to_millis().ok());
            let made = made.map_or(now, Timestamp::from_millis);
            let used = labelled.get(name).copied().unwrap_or(made);
            if now.since(used) < UNWANTED_FOR && !evicted.contains(name) {
                continue;
            }
            if really {
                self.remove_template(name).await?;
            }
            done.push(format!("removed launch template {name}"));
        }
        Ok(done)
    }

    /// All of them.
    pub(super) async fn remove_templates(&self) -> Result<Vec<String>, Fault> {
        let mut done = Vec::new();
        for name in self.templates().await?.into_keys() {
            self.remove_template(&name).await?;
            done.push(format!("removed launch template {name}"));
        }
        Ok(done)
    }
}

/// Where a subnet is.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    zone: Zone,
    network: String,
}

/// Groups of one network cannot be used in another.
fn one_network(
    subnets: &BTreeMap<String, Place>,
    groups: &BTreeMap<String, String>,
) -> Result<(), Fault> {
    let of_subnets = subnets.iter().map(|(id, place)| (id, &place.network));
    let mut all = of_subnets.chain(groups);
    let Some((first, network)) = all.next() else { return Ok(()) };
    match all.find(|(_, other)| *other != network) {
        None => Ok(()),
        Some((other, elsewhere)) => Err(Fault::Denied(format!(
            "{first} is in {network} and {other} in {elsewhere}: subnets and security groups of a stack \
             are of one VPC; correct [aws] of bullpen.toml"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_of_another_network_is_named() {
        let place = |network: &str| Place { zone: Zone::new("a"), network: network.to_owned() };
        let subnets = BTreeMap::from([
            ("subnet-1".to_owned(), place("vpc-1")),
            ("subnet-2".to_owned(), place("vpc-1")),
        ]);
        let group = |network: &str| BTreeMap::from([("sg-1".to_owned(), network.to_owned())]);
        assert_eq!(one_network(&subnets, &group("vpc-1")), Ok(()));
        let said = one_network(&subnets, &group("vpc-2")).unwrap_err().to_string();
        assert!(said.contains("sg-1 in vpc-2") && said.contains("subnet-1"), "{said}");
    }
}
