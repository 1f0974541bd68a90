//! The tags of our resources in EC2.
//!
//! A resource belongs to a stack if and only if it carries [`STACK`] with the stack's name;
//! policies check the same.
//!
//! Not here: what the tags mean (`core::ports::Tag`).

use aws_sdk_ec2::types::{Filter, ResourceType, Tag as Ec2Tag, TagSpecification};
use bullpen_core::creation::LaunchRequest;
use bullpen_core::instance::standby::StandbyStatus;
use bullpen_core::ports::{Tag, Tags};

use super::filter;
use crate::names::StackName;

/// The stack that owns the resource.
pub const STACK: &str = "bullpen:stack";
/// The machine's intent.
pub(super) const INTENT: &str = "bullpen:intent";
/// The machine's class.
pub(super) const CLASS: &str = "bullpen:class";
/// The pool that the machine was launched for.
pub(super) const POOL: &str = "bullpen:pool";
/// The hash of the spec that the machine was built from.
const SPEC: &str = "bullpen:spec";
/// The machine's standby status in its pool.
const STANDBY: &str = "bullpen:standby-status";
/// Whether a job ever started on the machine.
const JOB_STARTED: &str = "bullpen:job-started";
/// The tags that are set after the launch and may change.
pub(crate) const CHANGING: [&str; 2] = [STANDBY, JOB_STARTED];
/// The origin of a launch template.
pub(super) const MADE_FOR: &str = "bullpen:made-for";
/// The value of [`MADE_FOR`] if labels made the template's class.
pub(super) const FOR_LABELS: &str = "labels";
/// The name that the AWS console shows.
const NAME: &str = "Name";

fn tag(key: &str, value: impl Into<String>) -> Ec2Tag {
    Ec2Tag::builder().key(key).value(value).build()
}

/// The tags of every resource of a stack.
pub(crate) fn of_stack(stack: &StackName) -> Vec<Ec2Tag> {
    vec![tag(STACK, stack.to_string()), tag(NAME, format!("bullpen-{stack}"))]
}

/// The tags of a launch template.
pub(super) fn of_template(stack: &StackName, labelled: bool) -> Vec<Ec2Tag> {
    let mut tags = of_stack(stack);
    tags.extend(labelled.then(|| tag(MADE_FOR, FOR_LABELS)));
    tags
}

/// The tags of the machines of a launch.
pub(super) fn of_launch(stack: &StackName, request: &LaunchRequest) -> TagSpecification {
    let owner = request.pool.as_ref().map_or(request.class.name.as_str(), |pool| pool.as_str());
    let mut tags = vec![
        tag(STACK, stack.to_string()),
        tag(NAME, format!("bullpen-{stack}-{owner}")),
        tag(INTENT, request.intent.as_str()),
        tag(CLASS, request.class.name.as_str()),
        tag(SPEC, request.spec_hash.as_str()),
    ];
    tags.extend(request.pool.as_ref().map(|pool| tag(POOL, pool.as_str())));
    TagSpecification::builder().resource_type(ResourceType::Instance).set_tags(Some(tags)).build()
}

/// EC2's tag for a tag that is set after the launch.
pub(crate) fn later(one: Tag) -> Ec2Tag {
    match one {
        Tag::Standby(status) => tag(STANDBY, status.as_str()),
        Tag::JobStarted => tag(JOB_STARTED, "true"),
    }
}

/// Reads the tags that are set after the launch.
pub(super) fn put_on(tags: &[Ec2Tag]) -> Tags {
    let standby = value(tags, STANDBY);
    Tags {
        standby: StandbyStatus::ALL.into_iter().find(|one| Some(one.as_str()) == standby),
        job_started: value(tags, JOB_STARTED) == Some("true"),
    }
}

/// The value of a tag.
pub(super) fn value<'a>(tags: &'a [Ec2Tag], key: &str) -> Option<&'a str> {
    tags.iter().find(|tag| tag.key() == Some(key))?.value()
}

/// A filter for the resources of a stack.
pub(crate) fn is_of(stack: &StackName) -> Filter {
    with(STACK, stack.to_string())
}

/// A filter for resources with this tag.
pub(super) fn with(key: &str, value: impl Into<String>) -> Filter {
    filter(&format!("tag:{key}"), [value])
}
