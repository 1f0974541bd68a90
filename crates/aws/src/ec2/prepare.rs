//! The facts and templates that `refresh` looks up and creates before any launch: the role's id,
//! the subnets' zones, launch templates. It reports configuration errors in these.
//!
//! A service refreshes all the time and these facts rarely change, so one process asks for the same
//! facts only every [`ASKED_EVERY`]. A launch notices a missing template by itself.
//!
//! Not here: permissions, quotas and clocks ([`crate::doctor`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Duration;

use aws_sdk_ec2::types::{LaunchTemplate, LaunchTemplateVersion, ResourceType, TagSpecification};
use bullpen_core::class::RunnerClass;
use bullpen_core::ids::Zone;
use bullpen_core::ports::{Clock, Fault};
use bullpen_core::time::Timestamp;

use super::labelled::{self, LABELLED_MAX};
use super::site::{Facts, LaunchSite};
use super::template::{Template, VERSION};
use super::{Ec2Fleet, NO_TEMPLATE, answers, lock, tags};
use crate::fault::judge;

/// The age at which an unwanted template is removed: another process may have another configuration
/// and would need two calls to make the template again.
const UNWANTED_FOR: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// How long a process relies on EC2's last answer.
const ASKED_EVERY: Duration = Duration::from_secs(10 * 60);
/// How many templates EC2 describes in one page.
const TEMPLATES_PAGE: i32 = 200;
/// EC2's code for a template that another process created first.
const EXISTS_ALREADY: &str = "InvalidLaunchTemplateName.AlreadyExistsException";

/// When this process last asked, on the monotonic clock.
#[derive(Debug, Default)]
pub(super) struct LastAsked {
    site: Mutex<Option<Duration>>,
    /// Also the names of the templates that existed then.
    pub(super) templates: Mutex<Option<(Duration, BTreeSet<String>)>>,
}

impl<C: Clock> Ec2Fleet<C> {
    pub(super) async fn learn_site(
        &self,
        born: &str,
        kept: Option<&LaunchSite>,
    ) -> Result<LaunchSite, Fault> {
        let asked_at = *lock(&self.asked.site);
        let site = match self.site() {
            Ok(known)
                if asked_at.is_some_and(|at| self.is_recent(at))
                    && kept.is_some_and(|kept| known.facts == kept.facts) =>
            {
                LaunchSite { born: born.to_owned(), ..known }
            }
            _ => {
                let site = self.ask_for_site(born).await?;
                *lock(&self.asked.site) = Some(self.clock.monotonic());
                site
            }
        };
        self.use_site(site.clone());
        Ok(site)
    }

    fn is_recent(&self, asked_at: Duration) -> bool {
        self.clock.monotonic().saturating_sub(asked_at) < ASKED_EVERY
    }

    async fn ask_for_site(&self, born: &str) -> Result<LaunchSite, Fault> {
        let role_id = self.role_id().await?;
        let networks = self.networks().await?;
        let groups = self.group_networks().await?;
        one_network(&networks, &groups)?;
        let subnets = networks.into_iter().map(|(subnet, place)| (subnet, place.zone)).collect();
        Ok(LaunchSite { born: born.to_owned(), facts: Facts { role_id, subnets } })
    }

    /// The id of the role of the instance profile, which agents act as.
    async fn role_id(&self) -> Result<String, Fault> {
        let name = self.settings.profile_name();
        let answer = self.iam.get_instance_profile().instance_profile_name(name).send().await;
        let answer = answer.map_err(|error| match error.as_service_error() {
            Some(error) if error.is_no_such_entity_exception() => Fault::Denied(format!(
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

    /// Creates one template for each way to build a machine, and replaces templates in EC2 that
    /// differ from ours; without `really` it only lists the changes.
    pub(super) async fn prepare_templates(
        &self,
        classes: &[RunnerClass],
        really: bool,
    ) -> Result<Vec<String>, Fault> {
        let site = self.site()?;
        let mut wanted: BTreeMap<String, Template> = BTreeMap::new();
        for class in classes {
            let template = self.template(class, &site).await?;
            self.fits(class, &template).await?;
            wanted.insert(template.name(), template);
        }
        let names: BTreeSet<String> = wanted.keys().cloned().collect();
        let is_as_before =
            |(at, before): &(Duration, BTreeSet<String>)| *before == names && self.is_recent(*at);
        if lock(&self.asked.templates).as_ref().is_some_and(is_as_before) {
            return Ok(Vec::new());
        }
        let existing = self.templates().await?;
        let mut done = Vec::new();
        for (name, template) in &wanted {
            let found = existing.contains_key(name);
            if found && self.is_current(name, template).await? {
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
        done.extend(self.remove_unwanted(&names, &existing, really).await?);
        if really {
            *lock(&self.asked.templates) = Some((self.clock.monotonic(), names));
        }
        Ok(done)
    }

    /// Checks the image's architecture: a machine with another one would never boot.
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

    /// The stack's templates, by name.
    pub(super) async fn templates(&self) -> Result<BTreeMap<String, LaunchTemplate>, Fault> {
        let call = self.client.describe_launch_templates().max_results(TEMPLATES_PAGE);
        let call = call.filters(tags::is_of(&self.settings.stack));
        let found = call.into_paginator().items().send().collect::<Result<Vec<_>, _>>().await;
        let found = found.map_err(|error| answers::fault(&error))?;
        let named = |template: LaunchTemplate| {
            Some((template.launch_template_name()?.to_owned(), template))
        };
        Ok(found.into_iter().filter_map(named).collect())
    }

    /// Whether EC2's template of this name has our content.
    async fn is_current(&self, name: &str, template: &Template) -> Result<bool, Fault> {
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

    /// Creates a template; if it exists already, its content is the same. `labelled`: its class
    /// comes from labels.
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
            Err(error) if answers::code(&error) == Some(EXISTS_ALREADY) => Ok(()),
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

    async fn remove_unwanted(
        &self,
        wanted: &BTreeSet<String>,
        existing: &BTreeMap<String, LaunchTemplate>,
        really: bool,
    ) -> Result<Vec<String>, Fault> {
        let now = self.clock.now();
        let labelled = self.last_used(existing, wanted);
        // Templates in use stay, even above the limit; the next refresh removes them.
        let evicted = labelled::evicted(&labelled, now, LABELLED_MAX).names;
        let mut done = Vec::new();
        for (name, template) in existing.iter().filter(|(name, _)| !wanted.contains(*name)) {
            let created = template.create_time().and_then(|at| at.to_millis().ok());
            let created = created.map_or(now, Timestamp::from_millis);
            let used = labelled.get(name).copied().unwrap_or(created);
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

    /// Removes all of the stack's templates.
    pub(super) async fn remove_templates(&self) -> Result<Vec<String>, Fault> {
        let mut done = Vec::new();
        for name in self.templates().await?.into_keys() {
            self.remove_template(&name).await?;
            done.push(format!("removed launch template {name}"));
        }
        Ok(done)
    }
}

/// A subnet's zone and VPC.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    zone: Zone,
    network: String,
}

/// Checks that all subnets and security groups are of one VPC: EC2 refuses to mix them.
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
            "{first} is in {network} and {other} in {elsewhere}: all subnets and security groups of a stack \
             must be of one VPC; correct [aws] of bullpen.toml"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_security_group_of_another_network_is_named() {
        let place = |network: &str| Place { zone: Zone::new("a"), network: network.to_owned() };
        let subnets = BTreeMap::from([
            ("subnet-1".to_owned(), place("vpc-1")),
            ("subnet-2".to_owned(), place("vpc-1")),
        ]);
        let group = |network: &str| BTreeMap::from([("sg-1".to_owned(), network.to_owned())]);
        assert_eq!(one_network(&subnets, &group("vpc-1")), Ok(()));
        let error = one_network(&subnets, &group("vpc-2")).unwrap_err().to_string();
        assert!(error.contains("sg-1 in vpc-2") && error.contains("subnet-1"), "{error}");
    }
}
