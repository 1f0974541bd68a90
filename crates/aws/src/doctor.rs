//! Checks of AWS for `bullpen doctor`: the caller's identity, the clock, which calls are allowed,
//! the vCPU quotas. They change nothing: calls that would are dry runs.
//!
//! EC2 answers a dry run with `DryRunOperation` if the call is allowed and `UnauthorizedOperation`
//! if it is denied; other errors say nothing about permissions.
//!
//! Not here: judging the results (the `bullpen` command), tables ([`crate::setup`]), or what
//! `refresh` checks anyway (`Fleet::learn`, `Fleet::prepare`).

use std::sync::{Arc, Mutex, PoisonError};

use aws_config::SdkConfig;
use aws_sdk_ec2::Client;
use aws_sdk_ec2::error::ProvideErrorMetadata;
use aws_sdk_ec2::types::{
    FleetLaunchTemplateConfigRequest, FleetLaunchTemplateSpecificationRequest, FleetType,
    LaunchTemplateSpecification, RequestLaunchTemplateData, Reservation, ResourceType,
    TagSpecification, TargetCapacitySpecificationRequest,
};
use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::interceptors::Intercept;
use aws_smithy_runtime_api::client::interceptors::context::BeforeDeserializationInterceptorContextRef;
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_runtime_api::client::result::SdkError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::DateTime;
use aws_smithy_types::config_bag::ConfigBag;
use aws_smithy_types::date_time::Format;
use bullpen_core::class::Usage;
use bullpen_core::ports::Fault;
use bullpen_core::time::Timestamp;

use crate::ec2::tags;
use crate::fault::judge;
use crate::names::StackName;

/// The quotas of the standard families (A, C, D, H, I, M, R, T, Z), in vCPUs.
const ON_DEMAND_QUOTA: &str = "L-1216C47A";
const SPOT_QUOTA: &str = "L-34B43A08";

/// The caller's identity at AWS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The account's number.
    pub account: String,
    /// The ARN of the caller's user or role.
    pub arn: String,
    /// AWS's time, to the second; none if the answer has no `date` header.
    pub at: Option<Timestamp>,
}

/// Asks STS for the caller's identity.
pub async fn identity(config: &SdkConfig) -> Result<Identity, Fault> {
    let date = DateHeader::default();
    let call = aws_sdk_sts::Client::new(config).get_caller_identity().customize();
    let answer = call.interceptor(date.clone()).send().await;
    let answer = answer.map_err(|error| judge(&error).fault())?;
    Ok(Identity {
        account: answer.account().unwrap_or_default().to_owned(),
        arn: answer.arn().unwrap_or_default().to_owned(),
        at: date.read(),
    })
}

/// Keeps the `date` header of the answer.
#[derive(Clone, Debug, Default)]
struct DateHeader(Arc<Mutex<Option<String>>>);

impl DateHeader {
    fn read(&self) -> Option<Timestamp> {
        let text = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        let at = DateTime::from_str(&text, Format::HttpDate).ok()?;
        at.to_millis().ok().map(Timestamp::from_millis)
    }
}

impl Intercept for DateHeader {
    fn name(&self) -> &'static str {
        "date"
    }

    fn read_before_deserialization(
        &self,
        context: &BeforeDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let date = context.response().headers().get("date").map(str::to_owned);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = date;
        Ok(())
    }
}

/// How many vCPUs of the standard families may run at once.
pub async fn quota(config: &SdkConfig, usage: Usage) -> Result<f64, Fault> {
    let code = match usage {
        Usage::OnDemand => ON_DEMAND_QUOTA,
        Usage::Spot => SPOT_QUOTA,
    };
    let client = aws_sdk_servicequotas::Client::new(config);
    let answer = client.get_service_quota().service_code("ec2").quota_code(code).send().await;
    let answer = answer.map_err(|error| judge(&error).fault())?;
    let value = answer.quota().and_then(aws_sdk_servicequotas::types::ServiceQuota::value);
    value.ok_or_else(|| Fault::Unclassified(format!("quota {code} missing in the answer of AWS")))
}

/// EC2's answer to a dry run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The call is allowed.
    Allowed,
    /// The call is denied.
    Denied,
    /// Unknown: there is nothing to try the call with, or EC2 gave another error.
    Unknown(String),
}

/// Every call that changes something in EC2, each with EC2's answer to its dry run.
pub async fn permissions(
    config: &SdkConfig,
    stack: &StackName,
    subnet: &str,
) -> Result<Vec<(&'static str, Answer)>, Fault> {
    let asked = Asked::find(Client::new(config), stack, subnet).await?;
    let mut answers = vec![("ec2:CreateLaunchTemplate", asked.create_template().await)];
    answers.extend(asked.with_template().await);
    answers.extend(asked.with_instance().await);
    Ok(answers)
}

/// The resources that dry runs name.
struct Asked<'a> {
    client: Client,
    stack: &'a StackName,
    subnet: &'a str,
    /// A launch template of the stack, if there is one.
    template: Option<String>,
    /// A machine of the stack, if there is one.
    instance: Option<String>,
}

impl<'a> Asked<'a> {
    async fn find(client: Client, stack: &'a StackName, subnet: &'a str) -> Result<Self, Fault> {
        let templates = client.describe_launch_templates().filters(tags::is_of(stack));
        let templates = templates.send().await.map_err(|error| judge(&error).fault())?;
        let template = templates.launch_templates().first();
        let template = template.and_then(|one| one.launch_template_name()).map(str::to_owned);
        let instances = client.describe_instances().filters(tags::is_of(stack)).send().await;
        let instances = instances.map_err(|error| judge(&error).fault())?;
        let instance = instances.reservations().iter().flat_map(Reservation::instances).next();
        let instance = instance.and_then(|one| one.instance_id()).map(str::to_owned);
        Ok(Self { client, stack, subnet, template, instance })
    }

    fn tags(&self, kind: ResourceType) -> TagSpecification {
        let tags = tags::of_stack(self.stack);
        TagSpecification::builder().resource_type(kind).set_tags(Some(tags)).build()
    }

    async fn create_template(&self) -> Answer {
        let call = self
            .client
            .create_launch_template()
            .dry_run(true)
            .launch_template_name(format!("bullpen-{}-doctor", self.stack))
            .launch_template_data(RequestLaunchTemplateData::builder().ebs_optimized(true).build())
            .tag_specifications(self.tags(ResourceType::LaunchTemplate));
        verdict(&call.send().await)
    }

    async fn with_template(&self) -> Vec<(&'static str, Answer)> {
        let Some(name) = &self.template else {
            let nothing = "the stack has no launch template yet: run `bullpen refresh`";
            return ["ec2:CreateFleet", "ec2:RunInstances", "ec2:DeleteLaunchTemplate"]
                .map(|action| (action, Answer::Unknown(nothing.to_owned())))
                .to_vec();
        };
        let template = FleetLaunchTemplateSpecificationRequest::builder()
            .launch_template_name(name)
            .version("1");
        let config = FleetLaunchTemplateConfigRequest::builder()
            .launch_template_specification(template.build());
        let one = TargetCapacitySpecificationRequest::builder().total_target_capacity(1);
        let fleet = self
            .client
            .create_fleet()
            .dry_run(true)
            .r#type(FleetType::Instant)
            .launch_template_configs(config.build())
            .target_capacity_specification(one.build())
            .tag_specifications(self.tags(ResourceType::Instance));
        let template =
            LaunchTemplateSpecification::builder().launch_template_name(name).version("1");
        let run = self
            .client
            .run_instances()
            .dry_run(true)
            .min_count(1)
            .max_count(1)
            .subnet_id(self.subnet)
            .launch_template(template.build())
            .tag_specifications(self.tags(ResourceType::Instance));
        let delete = self.client.delete_launch_template().dry_run(true).launch_template_name(name);
        vec![
            ("ec2:CreateFleet", verdict(&fleet.send().await)),
            ("ec2:RunInstances", verdict(&run.send().await)),
            ("ec2:DeleteLaunchTemplate", verdict(&delete.send().await)),
        ]
    }

    async fn with_instance(&self) -> Vec<(&'static str, Answer)> {
        let actions =
            ["ec2:StartInstances", "ec2:StopInstances", "ec2:TerminateInstances", "ec2:CreateTags"];
        let Some(id) = &self.instance else {
            let nothing = "the stack has no machine to try it with yet";
            return actions.map(|action| (action, Answer::Unknown(nothing.to_owned()))).to_vec();
        };
        let start = self.client.start_instances().dry_run(true).instance_ids(id).send().await;
        let stop = self.client.stop_instances().dry_run(true).instance_ids(id).send().await;
        let end = self.client.terminate_instances().dry_run(true).instance_ids(id).send().await;
        let tag = tags::later(bullpen_core::ports::Tag::JobStarted);
        let tag = self.client.create_tags().dry_run(true).resources(id).tags(tag).send().await;
        actions
            .into_iter()
            .zip([verdict(&start), verdict(&stop), verdict(&end), verdict(&tag)])
            .collect()
    }
}

/// Reads EC2's answer to a dry run.
fn verdict<T, E>(answer: &Result<T, SdkError<E, HttpResponse>>) -> Answer
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
{
    match answer {
        Ok(_) => Answer::Unknown("EC2 executed a dry run".to_owned()),
        Err(error) => match error.as_service_error().and_then(ProvideErrorMetadata::code) {
            Some("DryRunOperation") => Answer::Allowed,
            Some("UnauthorizedOperation") => Answer::Denied,
            Some(code) => Answer::Unknown(format!("EC2 answered {code}")),
            None => Answer::Unknown(judge(error).fault().to_string()),
        },
    }
}
