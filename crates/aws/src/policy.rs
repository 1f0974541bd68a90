//! The IAM policies of a stack, all from one table.
//!
//! A row names actions, resources, conditions and the parties that need it, and says whether we
//! call an action or AWS checks it on our behalf. A party's policy is its rows with the stack's
//! name, region and account filled in. No row reaches a resource without the stack's tag or name.
//!
//! Not here: creating roles or profiles; the operator does that.

use serde_json::{Map, Value, json};

use bullpen_core::parameters;

use crate::ec2::tags;
use crate::names::StackName;

/// A party that has a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Party {
    /// `bullpen serve`, and the operator's `refresh`, `doctor` and `destroy`.
    ControlPlane,
    /// A step of a workflow that runs `provision`, `release` or `refresh` in an existing stack. It
    /// launches, starts, terminates and tags machines and creates a launch's missing template. It
    /// creates and removes no table or queue, and stops no machine.
    Workflow,
    /// The role of instances: reads and writes an instance's own two items of the mailbox table.
    Instance,
}

/// The values that fill the table in.
#[derive(Clone, Debug)]
pub struct PolicySettings {
    /// The name of the stack.
    pub stack: StackName,
    /// The region of the stack.
    pub region: String,
    /// The account's number; with `None` any account, as a policy grants only within its own.
    pub account: Option<String>,
    /// The instance profile's name or ARN.
    pub instance_profile: String,
    /// The name of the profile's role.
    pub role: String,
    /// The subnets to launch instances in; every subnet if empty.
    pub subnets: Vec<String>,
    /// The security groups of instances; every group if empty.
    pub security_groups: Vec<String>,
    /// The addresses that instances download from, `s3://bucket/key` or others.
    pub fetched: Vec<String>,
    /// Whether workflow steps have no credential of their own and use the tokens that `refresh`
    /// stores.
    pub kept_tokens: bool,
}

/// Why an action is in a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// We call the action.
    Called,
    /// AWS checks the action when we make this call.
    For(&'static str),
}

/// The resources of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum On {
    /// Every resource; some actions accept no narrower one.
    Anything,
    /// The resources that a launch uses and creates, except instances and templates.
    LaunchParts,
    Instances,
    Templates,
    Tables,
    StateTable,
    MailboxTable,
    Queues,
    Role,
    Profile,
    ServiceRoles,
    Objects,
}

/// The condition of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum If {
    Always,
    /// The resource has the stack's tag.
    Ours,
    /// The call gives the resource the stack's tag.
    BecomesOurs,
    /// The call creates the resource with the stack's tag.
    MadeOurs,
    /// The resource has the stack's tag, and the call sets only tags that we change later.
    OursRetagged,
    /// The call passes the role to EC2.
    ForEc2,
    /// The role belongs to one of the services that launches use.
    OfLaunchServices,
    /// The item is one of the tokens that `refresh` stores.
    KeptToken,
    /// The item is an order to an instance, which may hold a credential.
    Order,
    /// The item is the calling instance's own, of this direction.
    OwnItem(&'static str),
}

/// One statement of a policy.
#[derive(Clone, Copy, Debug)]
struct Row {
    id: &'static str,
    actions: &'static [(&'static str, Why)],
    on: On,
    when: If,
    parties: &'static [Party],
    denies: bool,
}

use If::{
    Always, BecomesOurs, ForEc2, KeptToken, MadeOurs, OfLaunchServices, Order, Ours, OursRetagged,
    OwnItem,
};
use Party::{ControlPlane, Instance, Workflow};
use Why::{Called, For};

const BOTH: &[Party] = &[ControlPlane, Workflow];
const OPERATOR: &[Party] = &[ControlPlane];
const MACHINE: &[Party] = &[Instance];
const STEP: &[Party] = &[Workflow];
/// The call that launches machines.
const LAUNCH: &str = "ec2:CreateFleet";

const fn row(
    id: &'static str,
    actions: &'static [(&'static str, Why)],
    on: On,
    when: If,
    parties: &'static [Party],
) -> Row {
    Row { id, actions, on, when, parties, denies: false }
}

/// The permissions of all parties.
const TABLE: &[Row] = &[
    row(
        "Look",
        &[
            ("ec2:DescribeImages", Called),
            ("ec2:DescribeInstanceTypes", Called),
            ("ec2:DescribeInstances", Called),
            ("ec2:DescribeLaunchTemplateVersions", Called),
            ("ec2:DescribeLaunchTemplates", Called),
            ("ec2:DescribeSecurityGroups", Called),
            ("ec2:DescribeSubnets", Called),
        ],
        On::Anything,
        Always,
        BOTH,
    ),
    row("Quotas", &[("servicequotas:GetServiceQuota", Called)], On::Anything, Always, OPERATOR),
    row(
        "Launch",
        &[("ec2:CreateFleet", Called), ("ec2:RunInstances", For(LAUNCH))],
        On::LaunchParts,
        Always,
        BOTH,
    ),
    row(
        "LaunchTagged",
        &[("ec2:CreateFleet", Called), ("ec2:RunInstances", For(LAUNCH))],
        On::Instances,
        BecomesOurs,
        BOTH,
    ),
    row(
        "LaunchFromOurs",
        &[("ec2:CreateFleet", Called), ("ec2:RunInstances", For(LAUNCH))],
        On::Templates,
        Ours,
        BOTH,
    ),
    row("TagWhatIsMade", &[("ec2:CreateTags", For(LAUNCH))], On::Anything, MadeOurs, BOTH),
    row("Tag", &[("ec2:CreateTags", Called)], On::Instances, OursRetagged, BOTH),
    row(
        "StartAndEnd",
        &[("ec2:StartInstances", Called), ("ec2:TerminateInstances", Called)],
        On::Instances,
        Ours,
        BOTH,
    ),
    row("Stop", &[("ec2:StopInstances", Called)], On::Instances, Ours, OPERATOR),
    row("MakeTemplates", &[("ec2:CreateLaunchTemplate", Called)], On::Templates, BecomesOurs, BOTH),
    row("RemoveTemplates", &[("ec2:DeleteLaunchTemplate", Called)], On::Templates, Ours, OPERATOR),
    row("PassTheRole", &[("iam:PassRole", For(LAUNCH))], On::Role, ForEc2, BOTH),
    row("KnowTheRole", &[("iam:GetInstanceProfile", Called)], On::Profile, Always, BOTH),
    row(
        "FirstLaunch",
        &[("iam:CreateServiceLinkedRole", For(LAUNCH))],
        On::ServiceRoles,
        OfLaunchServices,
        BOTH,
    ),
    row(
        "Ledger",
        &[
            ("dynamodb:BatchGetItem", Called),
            ("dynamodb:ConditionCheckItem", For("dynamodb:TransactWriteItems")),
            ("dynamodb:DeleteItem", For("dynamodb:TransactWriteItems")),
            ("dynamodb:DescribeContinuousBackups", Called),
            ("dynamodb:DescribeTable", Called),
            ("dynamodb:DescribeTimeToLive", Called),
            ("dynamodb:GetItem", Called),
            ("dynamodb:PutItem", Called),
            ("dynamodb:Query", Called),
            ("dynamodb:UpdateItem", Called),
        ],
        On::Tables,
        Always,
        BOTH,
    ),
    Row {
        denies: true,
        ..row(
            "NoKeptTokens",
            &[
                ("dynamodb:BatchGetItem", Called),
                ("dynamodb:ConditionCheckItem", Called),
                ("dynamodb:DeleteItem", Called),
                ("dynamodb:GetItem", Called),
                ("dynamodb:PutItem", Called),
                ("dynamodb:Query", Called),
                ("dynamodb:UpdateItem", Called),
            ],
            On::StateTable,
            KeptToken,
            STEP,
        )
    },
    // A step reads an order only to settle its own unanswered write, with `GetItem`. It reads
    // reports in batches.
    Row {
        denies: true,
        ..row(
            "OrdersOneByOne",
            &[("dynamodb:BatchGetItem", Called), ("dynamodb:Query", Called)],
            On::MailboxTable,
            Order,
            STEP,
        )
    },
    row(
        "Tables",
        &[
            ("dynamodb:CreateTable", Called),
            ("dynamodb:DeleteTable", Called),
            ("dynamodb:UpdateContinuousBackups", Called),
            ("dynamodb:UpdateTimeToLive", Called),
        ],
        On::Tables,
        Always,
        OPERATOR,
    ),
    row(
        "Messages",
        &[
            ("sqs:ChangeMessageVisibility", Called),
            ("sqs:DeleteMessage", For("sqs:DeleteMessageBatch")),
            ("sqs:GetQueueAttributes", Called),
            ("sqs:GetQueueUrl", Called),
            ("sqs:ReceiveMessage", Called),
            ("sqs:SendMessage", For("sqs:SendMessageBatch")),
        ],
        On::Queues,
        Always,
        BOTH,
    ),
    row(
        "Queues",
        &[
            ("sqs:CreateQueue", Called),
            ("sqs:DeleteQueue", Called),
            ("sqs:SetQueueAttributes", Called),
        ],
        On::Queues,
        Always,
        OPERATOR,
    ),
    row("ReadOwnOrders", &[("dynamodb:GetItem", Called)], On::MailboxTable, OwnItem("in"), MACHINE),
    row(
        "WriteOwnReport",
        &[("dynamodb:UpdateItem", Called)],
        On::MailboxTable,
        OwnItem("out"),
        MACHINE,
    ),
    row("FetchPrograms", &[("s3:GetObject", Called)], On::Objects, Always, MACHINE),
    Row {
        denies: true,
        ..row(
            "NeverTag",
            &[("ec2:CreateTags", Called), ("ec2:DeleteTags", Called)],
            On::Anything,
            Always,
            MACHINE,
        )
    },
];

/// The policy document of a party.
pub fn document(party: Party, settings: &PolicySettings) -> Value {
    let rows = TABLE.iter().filter(|row| row.parties.contains(&party));
    let rows = rows.filter(|row| !(settings.kept_tokens && row.when == KeptToken));
    let statements: Vec<Value> = rows.filter_map(|row| statement(row, settings)).collect();
    json!({ "Version": "2012-10-17", "Statement": statements })
}

/// The trust policy of the instances' role: EC2 instances may assume it.
pub fn instance_trust() -> Value {
    json!({
        "Version": "2012-10-17",
        "Statement": [{
            "Effect": "Allow",
            "Principal": { "Service": "ec2.amazonaws.com" },
            "Action": "sts:AssumeRole",
        }],
    })
}

/// The actions that a party is allowed, and why.
pub fn allowed(party: Party) -> Vec<(&'static str, Why)> {
    let rows = TABLE.iter().filter(|row| row.parties.contains(&party) && !row.denies);
    let mut all: Vec<_> = rows.flat_map(|row| row.actions).copied().collect();
    all.sort_by_key(|(action, _)| *action);
    all.dedup_by_key(|(action, _)| *action);
    all
}

/// The statement of a row; `None` if the settings name no resource for it.
fn statement(row: &Row, settings: &PolicySettings) -> Option<Value> {
    let resources = settings.resources(row.on);
    let actions: Vec<&str> = row.actions.iter().map(|(action, _)| *action).collect();
    let mut statement = json!({
        "Sid": row.id,
        "Effect": if row.denies { "Deny" } else { "Allow" },
        "Action": actions,
        "Resource": resources,
    });
    let condition = settings.condition(row.when);
    if !condition.is_empty() {
        statement["Condition"] = Value::Object(condition);
    }
    (!resources.is_empty()).then_some(statement)
}

impl PolicySettings {
    fn account(&self) -> &str {
        self.account.as_deref().unwrap_or("*")
    }

    fn arn(&self, service: &str, rest: &str) -> String {
        format!("arn:{}:{service}:{}:{}:{rest}", self.partition(), self.region, self.account())
    }

    /// The ARN of a resource without a region.
    fn global(&self, service: &str, rest: &str) -> String {
        format!("arn:{}:{service}::{}:{rest}", self.partition(), self.account())
    }

    /// The AWS partition of the region.
    fn partition(&self) -> &'static str {
        match &*self.region {
            region if region.starts_with("cn-") => "aws-cn",
            region if region.starts_with("us-gov-") => "aws-us-gov",
            _ => "aws",
        }
    }

    /// The ARN of an object in S3; `None` for another address.
    fn object(&self, url: &str) -> Option<String> {
        url.strip_prefix("s3://").map(|path| format!("arn:{}:s3:::{path}", self.partition()))
    }

    fn resources(&self, on: On) -> Vec<String> {
        let ec2 = |rest: &str| self.arn("ec2", rest);
        let each = |kind: &str, ids: &[String]| -> Vec<String> {
            let any = ["*".to_owned()];
            let ids = if ids.is_empty() { &any[..] } else { ids };
            ids.iter().map(|id| ec2(&format!("{kind}/{id}"))).collect()
        };
        match on {
            On::Anything => vec!["*".to_owned()],
            On::LaunchParts => {
                // The ARN of an image has no account.
                let mut parts =
                    vec![format!("arn:{}:ec2:{}::image/*", self.partition(), self.region)];
                let kinds = ["fleet", "network-interface", "spot-instances-request", "volume"];
                parts.extend(kinds.map(|kind| ec2(&format!("{kind}/*"))));
                parts.extend(each("subnet", &self.subnets));
                parts.extend(each("security-group", &self.security_groups));
                parts
            }
            On::Instances => vec![ec2("instance/*")],
            On::Templates => vec![ec2("launch-template/*")],
            On::Tables => {
                let mut tables = self.state_table();
                tables.push(self.mailbox_table());
                tables
            }
            On::StateTable => self.state_table(),
            On::MailboxTable => vec![self.mailbox_table()],
            On::Queues => vec![self.arn("sqs", &format!("{}-*", self.stack))],
            On::Role => vec![self.global("iam", &format!("role/{}", self.role))],
            On::Profile => vec![self.profile()],
            On::ServiceRoles => vec![self.global("iam", "role/aws-service-role/*")],
            On::Objects => self.fetched.iter().filter_map(|url| self.object(url)).collect(),
        }
    }

    /// The state table and its indexes.
    fn state_table(&self) -> Vec<String> {
        let state = self.arn("dynamodb", &format!("table/{}", self.stack.state_table()));
        let indexes = format!("{state}/index/*");
        vec![state, indexes]
    }

    fn mailbox_table(&self) -> String {
        self.arn("dynamodb", &format!("table/{}", self.stack.mailbox_table()))
    }

    fn profile(&self) -> String {
        if self.instance_profile.starts_with("arn:") {
            return self.instance_profile.clone();
        }
        self.global("iam", &format!("instance-profile/{}", self.instance_profile))
    }

    fn condition(&self, when: If) -> Map<String, Value> {
        let stack = self.stack.to_string();
        let (carries, is_given) =
            (format!("aws:ResourceTag/{}", tags::STACK), format!("aws:RequestTag/{}", tags::STACK));
        let condition = match when {
            Always => json!({}),
            Ours => json!({ "StringEquals": { carries: stack } }),
            BecomesOurs => json!({ "StringEquals": { is_given: stack } }),
            MadeOurs => json!({ "StringEquals": {
                "ec2:CreateAction": ["CreateFleet", "CreateLaunchTemplate", "RunInstances"],
                is_given: stack,
            } }),
            OursRetagged => json!({
                "StringEquals": { carries: stack },
                "ForAllValues:StringEquals": { "aws:TagKeys": tags::CHANGING },
            }),
            ForEc2 => json!({ "StringEquals": { "iam:PassedToService": "ec2.amazonaws.com" } }),
            OfLaunchServices => json!({ "StringEquals": {
                "iam:AWSServiceName": ["ec2fleet.amazonaws.com", "spot.amazonaws.com"],
            } }),
            // `ForAnyValue`, so that a batch with one such item among others is denied too.
            KeptToken => json!({ "ForAnyValue:StringEquals": {
                "dynamodb:LeadingKeys": [format!("d#{}", parameters::TOKENS)],
            } }),
            Order => json!({ "ForAnyValue:StringLike": { "dynamodb:LeadingKeys": ["in#*"] } }),
            // `ForAllValues` allows a request without a leading key; `Null` refuses it.
            OwnItem(kind) => json!({
                "ForAllValues:StringEquals": {
                    "dynamodb:LeadingKeys": [format!("{kind}#${{aws:userid}}")],
                },
                "Null": { "dynamodb:LeadingKeys": "false" },
            }),
        };
        match condition {
            Value::Object(condition) => condition,
            _ => Map::new(),
        }
    }
}

#[cfg(test)]
mod tests;
