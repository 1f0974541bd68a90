//! Tags: by what our machines are known in EC2, and what people read there.
//!
//! Everything with [`STACK`] and our name is ours, and nothing else is: policies say so too.
//!
//! Not here: what tags mean (`core::ports::Tag`).

use aws_sdk_ec2::types::{Filter, ResourceType, Tag as Ec2Tag, TagSpecification};
use bullpen_core::creation::LaunchRequest;
use bullpen_core::instance::standby::StandbyStatus;
use bullpen_core::ports::{Tag, Tags};

use super::filter;
use crate::names::StackName;

/// Whose it is.
pub const STACK: &str = "bullpen:stack";
/// The intent it was launched under.
pub(super) const INTENT: &str = "bullpen:intent";
/// The class it was launched as.
pub(super) const CLASS: &str = "bullpen:class";
/// The pool it was launched for.
pub(super) const POOL: &str = "bullpen:pool";
/// What it was built from.
const SPEC: &str = "bullpen:spec";
/// What its pool says of it.
const STANDBY: &str = "bullpen:standby-status";
/// Whether a job ever started on it.
const JOB_STARTED: &str = "bullpen:job-started";
/// What is put on later and changes.
pub(crate) const CHANGING: [&str; 2] = [STANDBY, JOB_STARTED];
/// What a launch template was made for.
pub(super) const MADE_FOR: &str = "bullpen:made-for";
/// For a class that no configuration names.
pub(super) const FOR_LABELS: &str = "labels";
/// What the console shows.
const NAME: &str = "Name";

fn tag(key: &str, value: impl Into<String>) -> Ec2Tag {
    Ec2Tag::builder().key(key).value(value).build()
}

/// What everything of a stack carries.
pub(crate) fn of_stack(stack: &StackName) -> Vec<Ec2Tag> {
    vec![tag(STACK, stack.to_string()), tag(NAME, format!("bullpen-{stack}"))]
}

/// What a launch template carries.
pub(super) fn of_template(stack: &StackName, labelled: bool) -> Vec<Ec2Tag> {
    let mut tags = of_stack(stack);
    tags.extend(labelled.then(|| tag(MADE_FOR, FOR_LABELS)));
    tags
}

/// What the machines of a launch carry.
pub(super) fn of_launch(stack: &StackName, request: &LaunchRequest) -> TagSpecification {
    let whose = request.pool.as_ref().map_or(request.class.name.as_str(), |pool| pool.as_str());
    let mut tags = vec![
        tag(STACK, stack.to_string()),
        tag(NAME, format!("bullpen-{stack}-{whose}")),
        tag(INTENT, request.intent.as_str()),
        tag(CLASS, request.class.name.as_str()),
        tag(SPEC, request.spec_hash.as_str()),
    ];
    tags.extend(request.pool.as_ref().map(|pool| tag(POOL, pool.as_str())));
    TagSpecification::builder().resource_type(ResourceType::Instance).set_tags(Some(tags)).build()
}

/// One that is put on later.
pub(crate) fn later(one: Tag) -> Ec2Tag {
    match one {
        Tag::Standby(status) => tag(STANDBY, status.as_str()),
        Tag::JobStarted => tag(JOB_STARTED, "true"),
    }
}

/// What was put on later.
pub(super) fn put_on(tags: &[Ec2Tag]) -> Tags {
    let standby = value(tags, STANDBY);
    Tags {
        standby: StandbyStatus::ALL.into_iter().find(|one| Some(one.as_str()) == standby),
        job_started: value(tags, JOB_STARTED) == Some("true"),
    }
}

/// A tag's value.
pub(super) fn value<'a>(tags: &'a [Ec2Tag], key: &str) -> Option<&'a str> {
    tags.iter().find(|tag| tag.key() == Some(key))?.value()
}

/// Everything of a stack.
pub(crate) fn is_of(stack: &StackName) -> Filter {
    with(STACK, stack.to_string())
}

/// Everything with this tag.
pub(super) fn with(key: &str, value: impl Into<String>) -> Filter {
    filter(&format!("tag:{key}"), [value])
}
