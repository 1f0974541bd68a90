//! Machines in EC2.
//!
//! A launch is one `CreateFleet` of type instant, under a token of its intent: asked again, EC2 answers
//! the same. What a machine boots from and runs is in a launch template that is named after its content
//! (`template`); a launch that EC2 answers with "no such template" makes it and asks again. Nothing is
//! tried again besides: a launch or a stop that is repeated behind the engine's back would be one that it
//! cannot fence.
//!
//! Everything that is asked for carries the stack's tag, and what does not is not seen.
//!
//! | module | |
//! |---|---|
//! | `launch` | the fleet's request and answer |
//! | `template`, `prepare` | launch templates, and what `refresh` makes and learns |
//! | `labelled` | how many templates labels may make, and which go first |
//! | `actions` | start, stop, end, tag, in batches |
//! | `machines`, `types`, `image`, `tags` | what EC2 says, in our words |
//!
//! Not here: how often EC2 may be asked (`core::rates`, the engine), or what runs on a machine
//! ([`crate::boot`], `bullpen-agent`).

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
use bullpen_core::parameters::LaunchSite;
use bullpen_core::ports::{
    Clock, Fault, Fleet, Launched, Machine, MachineState, StartOutcome, StopOrder, Tag, Tags,
};
use bullpen_core::rates::Rates;
use bullpen_core::time::Timestamp;

use crate::boot;
use crate::config::timeouts;
use launch::{LaunchRefusals, LaunchedInstance};
use settings::Ec2Settings;
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
pub mod tags;
mod template;
mod types;

/// How long a call may take. EC2 launches before it answers, which takes seconds.
const CALL_TIMEOUT: Duration = Duration::from_secs(20);
/// As many machines as EC2 describes in one answer.
const PAGE: i32 = 1_000;
/// As many values as EC2 takes in the filters of one call; one is the stack's.
const FILTER_VALUES_MAX: usize = 200;
/// What says that a template is not there.
const NO_TEMPLATE: [&str; 3] = [
    "InvalidLaunchTemplateName.NotFoundException",
    "InvalidLaunchTemplateId.NotFound",
    "InvalidLaunchTemplateId.VersionNotFound",
];
/// How long a launch that is looked for is remembered: longer than anybody asks for one.
const LOOKED_FOR: Duration = Duration::from_secs(60 * 60);
/// What says that a launch of this token was made, and was another.
const OTHER_LAUNCH: &str = "IdempotentParameterMismatch";

/// A stack's machines in EC2.
pub struct Ec2Fleet<C> {
    client: Client,
    iam: aws_sdk_iam::Client,
    settings: Ec2Settings,
    /// What every machine is told, but for its class's scripts and where its mailbox is; nothing if
    /// nobody says whose runners they have, and then none can be launched.
    user_data: Option<UserData>,
    clock: Arc<C>,
    ground: RwLock<Option<LaunchSite>>,
    asked: prepare::LastAsked,
    /// When this process last launched from which template that labels made.
    used: Mutex<BTreeMap<String, Timestamp>>,
    /// Since when launches are looked for that were made under other terms.
    looked_for: Mutex<BTreeMap<IntentId, Duration>>,
    types: Types,
    images: image::Images,
}

impl<C: Clock> Ec2Fleet<C> {
    /// Nothing is asked yet.
    pub fn new(
        config: &SdkConfig,
        settings: Ec2Settings,
        user_data: impl Into<Option<UserData>>,
        clock: Arc<C>,
    ) -> Self {
        let timeouts = timeouts(CALL_TIMEOUT);
        let ec2 = aws_sdk_ec2::config::Builder::from(config).timeout_config(timeouts.clone());
        let iam = aws_sdk_iam::config::Builder::from(config).timeout_config(timeouts);
        let ground = RwLock::new(settings.ground.clone());
        Self {
            client: Client::from_conf(ec2.build()),
            iam: aws_sdk_iam::Client::from_conf(iam.build()),
            settings,
            user_data: user_data.into(),
            clock,
            ground,
            asked: prepare::LastAsked::default(),
            used: Mutex::default(),
            looked_for: Mutex::default(),
            types: Types::default(),
            images: image::Images::default(),
        }
    }

    fn ground(&self) -> Result<LaunchSite, Fault> {
        let ground = self.ground.read().unwrap_or_else(PoisonError::into_inner).clone();
        ground.ok_or_else(|| {
            let what =
                "this stack knows nothing of its subnets and its role yet: run `bullpen refresh`";
            Fault::Denied(what.to_owned())
        })
    }

    /// What machines of a class are launched from. Asks EC2 only where the image has no fixed id.
    async fn template(&self, class: &RunnerClass, ground: &LaunchSite) -> Result<Template, Fault> {
        let (now, images) = (self.clock.monotonic(), &self.settings.images);
        let ami = self.images.ami(&self.client, class, images, now).await?;
        let user_data = self.user_data(class, ground)?;
        Ok(Template::of(class, ami, &self.settings, user_data))
    }

    /// The script that machines of a class boot with, as EC2 wants it.
    fn user_data(&self, class: &RunnerClass, ground: &LaunchSite) -> Result<String, Fault> {
        let nobody =
            || Fault::Denied("nothing says whose runners machines have: give --repository".into());
        let mut told = self.user_data.clone().ok_or_else(nobody)?.of_class(&class.scripts);
        if let MailboxPlace::DynamoDb { key, .. } = &mut told.mailbox {
            *key = Some(format!("{}:{{instance}}", ground.role_id));
        }
        if let RunnerProgram::Image { download, .. } = &mut told.runner {
            *download = self.settings.runners.get(&class.architecture).cloned();
        }
        let plan = boot::BootPlan {
            watchdog: self.settings.watchdog,
            patience: boot::PATIENCE,
            agent: self.settings.agents.get(&class.architecture).cloned(),
            user: Some(self.settings.user.clone()),
            sudo: self.settings.sudo,
            docker: self.settings.docker,
            payload: told.to_text(),
        };
        let script = boot::render(&plan);
        let script =
            script.map_err(|error| Fault::Denied(format!("class {}: {error}", class.name)))?;
        Ok(aws_smithy_types::base64::encode(script))
    }

    async fn launch_fleet(&self, request: &LaunchRequest) -> Result<Launched, Fault> {
        let ground = self.ground()?;
        if !self.settings.subnets.iter().any(|subnet| ground.subnets.contains_key(subnet)) {
            let what = "none of `subnets` under [aws] is known to this stack yet: run \
                        `bullpen refresh`";
            return Err(Fault::Denied(what.to_owned()));
        }
        let template = self.template(&request.class, &ground).await?;
        if !request.avoid.is_empty() {
            self.types.hear_of_class(&self.client, &request.class).await?;
        }
        let fitting = self.types.of(&request.class);
        let name = template.name();
        let Some(call) = launch::call(&name, &self.settings, &ground, request, &fitting) else {
            return Ok(Launched::default());
        };
        let token = launch::token(&self.settings, &ground, request);
        // What the machines are is asked meanwhile: once they are there, they must be recorded.
        let types = self.types.hear_of_class(&self.client, &request.class);
        let sent = self.send((call, &token), &template, request);
        let (_, sent) = futures_util::future::join(types, sent).await;
        let sent = sent?;
        self.note_use(&name, &request.class);
        match sent {
            Fleets::Answered(answer) => self.take_in(&answer, request, &ground).await,
            Fleets::MadeBefore(machines) => Ok(Launched { machines, ..Launched::default() }),
        }
    }

    /// Asks for a fleet, and once more if its template had to be made first. Under the same token: with
    /// another, whoever asks again when the template is there would launch twice. If EC2 answers what it
    /// answered before, template or not, nothing is launched, and the next launch has another token.
    async fn send(
        &self,
        (call, token): (CreateFleetInputBuilder, &str),
        template: &Template,
        request: &LaunchRequest,
    ) -> Result<Fleets, Fault> {
        let mut made = false;
        loop {
            match call.clone().client_token(token).send_with(&self.client).await {
                Ok(answer) if !made && lacks_template(&answer) => {}
                Ok(answer) => return Ok(Fleets::Answered(Box::new(answer))),
                Err(error) => match answers::code(&error) {
                    Some(code) if NO_TEMPLATE.contains(&code) && !made => {}
                    // It was launched under other terms: with a template that is no longer the one.
                    Some(OTHER_LAUNCH) => return self.made_before(request).await,
                    _ => return Err(answers::fault(&error)),
                },
            }
            self.make_for_launch(template, &request.class).await?;
            made = true;
        }
    }

    /// What came of a launch whose answer EC2 does not give any more. Fewer than were wanted may be all
    /// that came, or all that can be seen yet: for as long as machines may be late, nobody knows.
    async fn made_before(&self, request: &LaunchRequest) -> Result<Fleets, Fault> {
        let (intent, now) = (&request.intent, self.clock.monotonic());
        tracing::info!(%intent, "a launch was made before, under other terms; looking for it");
        let came = self.found([tags::with(tags::INTENT, intent.as_str())]).await?;
        let is_all = came.len() >= usize::try_from(request.count).unwrap_or(usize::MAX);
        let machines = self.in_our_words(came).await?.into_iter();
        let alive = machines.filter(|machine| machine.state != MachineState::Gone).collect();
        let mut looked_for = lock(&self.looked_for);
        looked_for.retain(|_, since| now.saturating_sub(*since) < LOOKED_FOR);
        let since = *looked_for.entry(intent.clone()).or_insert(now);
        if !is_all && now.saturating_sub(since) < self.settings.shown_within {
            return Err(Fault::Unavailable(format!(
                "launch {intent} was made before, under other terms, and is not to be seen yet"
            )));
        }
        looked_for.remove(intent);
        Ok(Fleets::MadeBefore(alive))
    }

    async fn take_in(
        &self,
        answer: &aws_sdk_ec2::operation::create_fleet::CreateFleetOutput,
        request: &LaunchRequest,
        ground: &LaunchSite,
    ) -> Result<Launched, Fault> {
        let came = launch::came(answer, ground);
        let LaunchRefusals { shortages, said, refusal } = launch::against(answer, ground);
        let said = match (said, refusal) {
            // Asked again under this token, EC2 would say the same: what passes is for the next launch.
            (None, Some(fault)) if came.is_empty() && !fault.is_transient() => return Err(fault),
            (said, Some(fault)) if came.is_empty() => {
                Some(said.map_or_else(|| fault.to_string(), |said| format!("{said}; {fault}")))
            }
            (said, _) => said,
        };
        // As a rule all of them are known by now. If EC2 does not say, the whole launch is asked for
        // again, and answered the same.
        let names = came.iter().map(|one| one.instance_type.clone());
        self.types.hear_of(&self.client, names).await?;
        let machine = |one: &LaunchedInstance| self.machine(one, request, ground);
        let machines = came.iter().map(machine).collect::<Result<_, Fault>>()?;
        Ok(Launched { machines, shortages, said })
    }

    fn machine(
        &self,
        one: &LaunchedInstance,
        request: &LaunchRequest,
        ground: &LaunchSite,
    ) -> Result<Machine, Fault> {
        let facts = self.types.get(&one.instance_type).ok_or_else(|| {
            Fault::Unavailable(format!("EC2 does not say what a {} is", one.instance_type))
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
            mailbox: machines::mailbox(&ground.role_id, &one.id),
            tags: Tags::default(),
        })
    }

    /// Our machines that also pass these filters. Those that ended long ago are left out.
    async fn seen(&self, filters: Vec<Filter>) -> Result<Vec<Machine>, Fault> {
        let alive = ["pending", "running", "stopping", "stopped", "shutting-down"];
        let alive = filter("instance-state-name", alive);
        let found = self.found(filters.into_iter().chain([alive])).await?;
        self.in_our_words(found).await
    }

    /// Our instances that also pass these filters, ended ones too. A filter passes over what EC2 does
    /// not know; asked for by its id, one such instance would be an error for all.
    async fn found(
        &self,
        filters: impl IntoIterator<Item = Filter>,
    ) -> Result<Vec<Instance>, Fault> {
        let filters = filters.into_iter().chain([tags::is_of(&self.settings.stack)]).collect();
        let call = self.client.describe_instances().max_results(PAGE).set_filters(Some(filters));
        let pages = call.into_paginator().items().send().collect::<Result<Vec<_>, _>>().await;
        let reservations = pages.map_err(|error| answers::fault(&error))?;
        let instances = |found: Reservation| found.instances.unwrap_or_default();
        Ok(reservations.into_iter().flat_map(instances).collect())
    }

    async fn in_our_words(&self, instances: Vec<Instance>) -> Result<Vec<Machine>, Fault> {
        // Whoever knows no role yet has launched nothing, and only looks.
        let role_id = self.ground().map(|ground| ground.role_id).unwrap_or_default();
        let ours = |instance: &Instance| {
            let stack = tags::value(instance.tags(), tags::STACK);
            stack == Some(self.settings.stack.to_string().as_str())
        };
        let instances: Vec<Instance> = instances.into_iter().filter(ours).collect();
        let names = instances.iter().filter_map(machines::instance_type);
        self.types.hear_of(&self.client, names).await?;
        let machine = |one: &Instance| machines::machine(one, &self.types, &role_id);
        Ok(instances.iter().filter_map(machine).collect())
    }
}

/// What came of asking for a fleet.
enum Fleets {
    Answered(Box<aws_sdk_ec2::operation::create_fleet::CreateFleetOutput>),
    MadeBefore(Vec<Machine>),
}

/// What has one of these.
fn filter(name: &str, values: impl IntoIterator<Item = impl Into<String>>) -> Filter {
    let values = values.into_iter().map(Into::into).collect();
    Filter::builder().name(name).set_values(Some(values)).build()
}

/// What a panic left behind is still what was written last.
fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A fleet may be answered, with nothing in it but that there is no such template.
fn lacks_template(answer: &aws_sdk_ec2::operation::create_fleet::CreateFleetOutput) -> bool {
    let about_it = |code: Option<&str>| code.is_some_and(|code| NO_TEMPLATE.contains(&code));
    answer.instances().is_empty() && answer.errors().iter().any(|one| about_it(one.error_code()))
}

impl<C: Clock> Fleet for Ec2Fleet<C> {
    fn rates(&self) -> Rates {
        Rates::ec2()
    }

    async fn launch(&self, request: &LaunchRequest) -> Result<Launched, Fault> {
        // It is large, and whoever awaits it would carry it along.
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

    async fn list(&self) -> Result<Vec<Machine>, Fault> {
        self.seen(Vec::new()).await
    }

    async fn describe(&self, ids: &[InstanceId]) -> Result<Vec<Machine>, Fault> {
        let mut found = Vec::new();
        for batch in ids.chunks(FILTER_VALUES_MAX - 1) {
            let ids = batch.iter().map(InstanceId::as_str);
            found.extend(self.found([filter("instance-id", ids)]).await?);
        }
        self.in_our_words(found).await
    }

    async fn learn(
        &self,
        born: &str,
        kept: Option<&LaunchSite>,
    ) -> Result<Option<LaunchSite>, Fault> {
        self.learn_ground(born, kept).await.map(Some)
    }

    fn shows_within(&self) -> Duration {
        self.settings.shown_within
    }

    async fn prepare(&self, classes: &[RunnerClass], really: bool) -> Result<Vec<String>, Fault> {
        self.prepare_templates(classes, really).await
    }

    async fn dismantle(&self) -> Result<Vec<String>, Fault> {
        self.remove_templates().await
    }
}
