//! The fleet port on EC2: launch, start, stop, terminate, tag and describe machines.
//!
//! A launch is one `CreateFleet` of type instant with a token derived from its intent. Image and
//! boot script are in a launch template named after its content; a launch without it creates it and
//! asks again. Nothing else is retried: the engine could not fence a repeated launch or stop that
//! it does not know. The fleet ignores resources without the stack's tag.
//!
//! Not here: call rates (`core::rates`), the programs on a machine ([`crate::boot`], the agent).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use aws_config::SdkConfig;
use aws_sdk_ec2::Client;
use aws_sdk_ec2::operation::create_fleet::builders::CreateFleetInputBuilder;
use aws_sdk_ec2::types::{Filter, Instance, Reservation};
use bullpen_agent::machine::{MailboxPlace, RunnerProgram, UserData};
use bullpen_core::class::RunnerClass;
use bullpen_core::creation::LaunchRequest;
use bullpen_core::ids::{InstanceId, IntentId};
use bullpen_core::ports::{
    Clock, Fault, Fleet, Launched, LearnedSite, Listing, Machine, MachineState, Page, Site,
    StartOutcome, StopOrder, Tag, Tags, Unreadable,
};
use bullpen_core::rates::Rates;
use bullpen_core::site::SiteDocument;
use bullpen_core::time::Timestamp;

use crate::boot;
use crate::config::timeouts;
use launch::{LaunchRefusals, LaunchedInstance};
use settings::Ec2Settings;
use site::LaunchSite;
use template::Template;
use types::Types;

mod actions;
mod answers;
mod image;
mod labelled;
mod launch;
mod machines;
mod prepare;
pub mod settings;
pub mod site;
pub mod tags;
mod template;
mod types;

/// How long a call may take. EC2 launches before it answers, which takes seconds.
const CALL_TIMEOUT: Duration = Duration::from_secs(20);
/// How many machines EC2 describes in one page.
const PAGE: i32 = 1_000;
/// How many filter values EC2 accepts in one call; one of them is the stack's tag.
const FILTER_VALUES_MAX: usize = 200;
/// EC2's codes for a missing template.
const NO_TEMPLATE: [&str; 3] = [
    "InvalidLaunchTemplateName.NotFoundException",
    "InvalidLaunchTemplateId.NotFound",
    "InvalidLaunchTemplateId.VersionNotFound",
];
/// How long a search for a launch is remembered: longer than the engine asks for one launch.
const LOOKED_FOR: Duration = Duration::from_secs(60 * 60);
/// EC2's code for a token that was used with other parameters.
const OTHER_LAUNCH: &str = "IdempotentParameterMismatch";

/// The fleet of one stack in EC2.
pub struct Ec2Fleet<C> {
    client: Client,
    iam: aws_sdk_iam::Client,
    settings: Ec2Settings,
    /// The payload of every machine, without its class's scripts and its mailbox. Without it (no
    /// GitHub repository or organization is known) nothing can be launched.
    user_data: Option<UserData>,
    clock: Arc<C>,
    site: RwLock<Option<LaunchSite>>,
    asked: prepare::LastAsked,
    /// This process's last launch from each template that comes from labels.
    used: Mutex<BTreeMap<String, Timestamp>>,
    /// Launches made earlier with other parameters, and since when this process searches their
    /// machines.
    looked_for: Mutex<BTreeMap<IntentId, Duration>>,
    types: Types,
    images: image::Images,
}

impl<C: Clock> Ec2Fleet<C> {
    /// Creates the adapter; makes no call yet.
    pub fn new(
        config: &SdkConfig,
        settings: Ec2Settings,
        user_data: impl Into<Option<UserData>>,
        clock: Arc<C>,
    ) -> Self {
        let timeouts = timeouts(CALL_TIMEOUT);
        let ec2 = aws_sdk_ec2::config::Builder::from(config).timeout_config(timeouts.clone());
        let iam = aws_sdk_iam::config::Builder::from(config).timeout_config(timeouts);
        Self {
            client: Client::from_conf(ec2.build()),
            iam: aws_sdk_iam::Client::from_conf(iam.build()),
            settings,
            user_data: user_data.into(),
            clock,
            site: RwLock::default(),
            asked: prepare::LastAsked::default(),
            used: Mutex::default(),
            looked_for: Mutex::default(),
            types: Types::default(),
            images: image::Images::default(),
        }
    }

    fn site(&self) -> Result<LaunchSite, Fault> {
        let site = self.site.read().unwrap_or_else(PoisonError::into_inner).clone();
        site.ok_or_else(|| {
            let text = "subnets and role of this stack are not known yet: run `bullpen refresh`";
            Fault::Denied(text.to_owned())
        })
    }

    fn use_site(&self, site: LaunchSite) {
        *self.site.write().unwrap_or_else(PoisonError::into_inner) = Some(site);
    }

    /// The launch template for a class. Asks EC2 only if the image has no fixed id.
    async fn template(&self, class: &RunnerClass, site: &LaunchSite) -> Result<Template, Fault> {
        let (now, images) = (self.clock.monotonic(), &self.settings.images);
        let ami = self.images.ami(&self.client, class, images, now).await?;
        let user_data = self.user_data(class, site)?;
        Ok(Template::of(class, ami, &self.settings, user_data))
    }

    /// The boot script for machines of a class, in base64.
    fn user_data(&self, class: &RunnerClass, site: &LaunchSite) -> Result<String, Fault> {
        let missing = || {
            Fault::Denied("no repository is configured for the runners: give --repository".into())
        };
        let mut payload = self.user_data.clone().ok_or_else(missing)?.of_class(&class.scripts);
        if let MailboxPlace::DynamoDb { key, .. } = &mut payload.mailbox {
            *key = Some(format!("{}:{{instance}}", site.facts.role_id));
        }
        if let RunnerProgram::Image { download, .. } = &mut payload.runner {
            *download = self.settings.runners.get(&class.architecture).cloned();
        }
        let plan = boot::BootPlan {
            watchdog: self.settings.watchdog,
            patience: boot::PATIENCE,
            agent: self.settings.agents.get(&class.architecture).cloned(),
            user: Some(self.settings.user.clone()),
            sudo: self.settings.sudo,
            docker: self.settings.docker,
            payload: payload.to_text(),
        };
        let script = boot::render(&plan);
        let script =
            script.map_err(|error| Fault::Denied(format!("class {}: {error}", class.name)))?;
        Ok(aws_smithy_types::base64::encode(script))
    }

    async fn launch_fleet(&self, request: &LaunchRequest) -> Result<Launched, Fault> {
        let site = self.site()?;
        if !self.settings.subnets.iter().any(|subnet| site.facts.subnets.contains_key(subnet)) {
            let text = "none of `subnets` under [aws] is known to this stack yet: run \
                        `bullpen refresh`";
            return Err(Fault::Denied(text.to_owned()));
        }
        let template = self.template(&request.class, &site).await?;
        if !request.avoid.is_empty() {
            self.types.load_class(&self.client, &request.class).await?;
        }
        let fitting = self.types.of(&request.class);
        let name = template.name();
        let Some(call) = launch::call(&name, &self.settings, &site, request, &fitting) else {
            return Ok(Launched::default());
        };
        let token = launch::token(&self.settings, &site, request);
        // Load the machine types during the launch: the caller must be able to record the machines
        // at once.
        let types = self.types.load_class(&self.client, &request.class);
        let sent = self.send((call, &token), &template, request);
        let (_, sent) = futures_util::future::join(types, sent).await;
        let sent = sent?;
        self.note_use(&name, &request.class);
        match sent {
            Fleets::Answered(answer) => self.record_launch(&answer, request, &site).await,
            Fleets::MadeBefore(machines) => Ok(Launched { machines, ..Launched::default() }),
        }
    }

    /// Asks for a fleet, and again if it had to make the template first. Both calls use the same
    /// token: with another token, a second process that asks once the template exists would launch
    /// twice. If EC2 repeats its earlier answer although the template exists now, nothing is
    /// launched, and the next launch has another token.
    async fn send(
        &self,
        (call, token): (CreateFleetInputBuilder, &str),
        template: &Template,
        request: &LaunchRequest,
    ) -> Result<Fleets, Fault> {
        let mut created = false;
        loop {
            match call.clone().client_token(token).send_with(&self.client).await {
                Ok(answer) if !created && lacks_template(&answer) => {}
                Ok(answer) => return Ok(Fleets::Answered(Box::new(answer))),
                Err(error) => match answers::code(&error) {
                    Some(code) if NO_TEMPLATE.contains(&code) && !created => {}
                    // Launched before with another template.
                    Some(OTHER_LAUNCH) => return self.made_before(request).await,
                    _ => return Err(answers::fault(&error)),
                },
            }
            self.make_for_launch(template, &request.class).await?;
            created = true;
        }
    }

    /// The machines of a launch whose answer EC2 no longer gives. If there are fewer than were
    /// requested, EC2 may have launched fewer or may not show all of them yet; only after
    /// `shown_within` is the result final.
    async fn made_before(&self, request: &LaunchRequest) -> Result<Fleets, Fault> {
        let (intent, now) = (&request.intent, self.clock.monotonic());
        tracing::info!(%intent, "launch made before with other parameters");
        let instances =
            self.found(vec![tags::with(tags::INTENT, intent.as_str()), self.is_ours()]).await?;
        let is_all = instances.len() >= usize::try_from(request.count).unwrap_or(usize::MAX);
        let machines = self.machines_of(instances).await?.into_iter();
        let alive = machines.filter(|machine| machine.state != MachineState::Gone).collect();
        let mut looked_for = lock(&self.looked_for);
        looked_for.retain(|_, since| now.saturating_sub(*since) < LOOKED_FOR);
        let since = *looked_for.entry(intent.clone()).or_insert(now);
        if !is_all && now.saturating_sub(since) < self.settings.shown_within {
            return Err(Fault::Unavailable(format!(
                "launch {intent} was made before with other parameters, and EC2 does not show it yet"
            )));
        }
        looked_for.remove(intent);
        Ok(Fleets::MadeBefore(alive))
    }

    async fn record_launch(
        &self,
        answer: &aws_sdk_ec2::operation::create_fleet::CreateFleetOutput,
        request: &LaunchRequest,
        site: &LaunchSite,
    ) -> Result<Launched, Fault> {
        let launched = launch::launched(answer, site);
        let LaunchRefusals { shortages, explanation, refusal } = launch::refusals(answer, site);
        let explanation = match (explanation, refusal) {
            // Under this token EC2 would repeat its answer, so a transient fault is left to the
            // next launch.
            (None, Some(fault)) if launched.is_empty() && !fault.is_transient() => {
                return Err(fault);
            }
            (explanation, Some(fault)) if launched.is_empty() => Some(explanation.map_or_else(
                || fault.to_string(),
                |explanation| format!("{explanation}; {fault}"),
            )),
            (explanation, _) => explanation,
        };
        // Usually all types are known by now. If EC2 fails here, the engine repeats the whole
        // launch, and EC2 gives the same answer.
        let names = launched.iter().map(|one| one.instance_type.clone());
        self.types.load(&self.client, names).await?;
        let machine = |one: &LaunchedInstance| self.machine(one, request, site);
        let machines = launched.iter().map(machine).collect::<Result<_, Fault>>()?;
        Ok(Launched { machines, shortages, explanation })
    }

    fn machine(
        &self,
        one: &LaunchedInstance,
        request: &LaunchRequest,
        site: &LaunchSite,
    ) -> Result<Machine, Fault> {
        let facts = self.types.get(&one.instance_type).ok_or_else(|| {
            Fault::Unavailable(format!(
                "facts of type {} missing in the answer of EC2",
                one.instance_type
            ))
        })?;
        Ok(Machine {
            id: one.id.clone(),
            state: MachineState::Pending,
            intent: request.intent.clone(),
            class: request.class.name.clone(),
            pool: request.pool.clone(),
            instance_type: one.instance_type.clone(),
            vcpu: facts.vcpu,
            memory_mib: facts.memory_mib,
            architecture: facts.architecture,
            zone: one.zone.clone(),
            usage: one.usage,
            launched_at: self.clock.now(),
            mailbox: machines::mailbox(&site.facts.role_id, &one.id),
            tags: Tags::default(),
        })
    }

    /// A page of the stack's machines, without terminated ones.
    async fn page(&self, after: Option<&str>) -> Result<Page<Machine>, Fault> {
        let alive = ["pending", "running", "stopping", "stopped", "shutting-down"];
        let filters = vec![filter("instance-state-name", alive), self.is_ours()];
        let call = self.client.describe_instances().max_results(PAGE).set_filters(Some(filters));
        let answer = call.set_next_token(after.map(str::to_owned)).send().await;
        let answer = answer.map_err(|error| answers::fault(&error))?;
        let next = answer.next_token.filter(|token| !token.is_empty());
        let reservations = answer.reservations.unwrap_or_default();
        Ok(Page::of(self.machines_of(instances(reservations)).await?.into(), next))
    }

    /// The instances that pass these filters, terminated ones included. Selects by filter because
    /// one unknown id in a call by ids is an error for all.
    async fn found(&self, filters: Vec<Filter>) -> Result<Vec<Instance>, Fault> {
        let call = self.client.describe_instances().max_results(PAGE).set_filters(Some(filters));
        let pages = call.into_paginator().items().send().collect::<Result<Vec<_>, _>>().await;
        Ok(instances(pages.map_err(|error| answers::fault(&error))?))
    }

    fn is_ours(&self) -> Filter {
        tags::is_of(&self.settings.stack)
    }

    async fn machines_of(&self, instances: Vec<Instance>) -> Result<Vec<Machine>, Fault> {
        let all = self.readable(instances).await?.into_iter();
        Ok(all.filter_map(Result::ok).collect())
    }

    /// Reads each instance, by its tags. Tags may be gone from a machine that is gone itself; any
    /// other machine without them is unreadable.
    async fn readable(
        &self,
        instances: Vec<Instance>,
    ) -> Result<Vec<Result<Machine, Unreadable>>, Fault> {
        // A process without a launch site has launched nothing and only lists.
        let role_id = self.site().map(|site| site.facts.role_id).unwrap_or_default();
        let stack = self.settings.stack.to_string();
        let ours = |one: &Instance| tags::value(one.tags(), tags::STACK) == Some(stack.as_str());
        let names = instances.iter().filter(|one| ours(one)).filter_map(machines::instance_type);
        self.types.load(&self.client, names).await?;
        let read = |one: &Instance| {
            let machine = machines::machine(one, &self.types, &role_id).filter(|_| ours(one));
            machine.map(Ok).or_else(|| machines::unreadable(one).map(Err))
        };
        Ok(instances.iter().filter_map(read).collect())
    }
}

fn instances(reservations: Vec<Reservation>) -> Vec<Instance> {
    reservations.into_iter().flat_map(|found| found.instances.unwrap_or_default()).collect()
}

/// EC2's answer, or the machines of the same launch made earlier.
enum Fleets {
    Answered(Box<aws_sdk_ec2::operation::create_fleet::CreateFleetOutput>),
    MadeBefore(Vec<Machine>),
}

/// A filter for resources that have one of these values.
fn filter(name: &str, values: impl IntoIterator<Item = impl Into<String>>) -> Filter {
    let values = values.into_iter().map(Into::into).collect();
    Filter::builder().name(name).set_values(Some(values)).build()
}

/// Ignores poisoning: after a panic the value is still the last one written.
fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether EC2 answered with no machine because the template is missing.
fn lacks_template(answer: &aws_sdk_ec2::operation::create_fleet::CreateFleetOutput) -> bool {
    let about_it = |code: Option<&str>| code.is_some_and(|code| NO_TEMPLATE.contains(&code));
    answer.instances().is_empty() && answer.errors().iter().any(|one| about_it(one.error_code()))
}

impl<C: Clock> Fleet for Ec2Fleet<C> {
    fn rates(&self) -> Rates {
        Rates::ec2()
    }

    async fn launch(&self, request: &LaunchRequest) -> Result<Launched, Fault> {
        // The future is large: boxed, so that callers' futures stay small.
        Box::pin(self.launch_fleet(request)).await
    }

    async fn start(&self, ids: &[InstanceId]) -> Result<Vec<(InstanceId, StartOutcome)>, Fault> {
        self.start_all(ids).await
    }

    async fn stop(&self, orders: &[StopOrder]) -> Result<(), Fault> {
        self.stop_all(orders).await
    }

    async fn terminate(&self, ids: &[InstanceId]) -> Result<(), Fault> {
        self.terminate_all(ids).await
    }

    async fn tag(&self, ids: &[InstanceId], tag: Tag) -> Result<(), Fault> {
        self.tag_all(ids, tag).await
    }

    async fn list(&self, after: Option<&str>) -> Result<Page<Machine>, Fault> {
        self.page(after).await
    }

    async fn describe(&self, ids: &[InstanceId]) -> Result<Listing<Machine>, Fault> {
        let mut found = Vec::new();
        for batch in ids.chunks(FILTER_VALUES_MAX - 1) {
            let ids = batch.iter().map(InstanceId::as_str);
            found.extend(self.found(vec![filter("instance-id", ids)]).await?);
        }
        Ok(self.readable(found).await?.into_iter().collect())
    }

    fn shows_within(&self) -> Duration {
        self.settings.shown_within
    }
}

impl<C: Clock> Site for Ec2Fleet<C> {
    fn recall(&self, kept: &SiteDocument) -> Result<(), Fault> {
        self.use_site(LaunchSite::read(kept)?);
        Ok(())
    }

    async fn learn(
        &self,
        born: &str,
        kept: Option<&SiteDocument>,
    ) -> Result<Option<LearnedSite>, Fault> {
        let kept = kept.map(LaunchSite::read).transpose()?;
        let site = self.learn_site(born, kept.as_ref()).await?;
        Ok(Some(site.learned()))
    }

    async fn prepare(&self, classes: &[RunnerClass], really: bool) -> Result<Vec<String>, Fault> {
        self.prepare_templates(classes, really).await
    }

    async fn dismantle(&self) -> Result<Vec<String>, Fault> {
        self.remove_templates().await
    }
}
