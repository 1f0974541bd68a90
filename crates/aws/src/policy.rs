//! Who may do what at AWS: every policy of a stack, from one table.
//!
//! A row says which actions, on what, under which conditions, who needs it, and whether we call it or AWS
//! asks for it on our behalf. A policy is the rows of one party, with the stack's name, region and account
//! filled in. Nothing in it reaches what does not carry the stack's tag or name.
//!
//! Three parties. The *control plane* is `bullpen serve`, and whoever runs `refresh`, `doctor` and
//! `destroy`. A *workflow* step gets and gives back machines with `provision`, `release` and `refresh` in a
//! stack that is there: it launches, starts, ends and tags machines and makes the launch template of a
//! launch if that is missing, but makes and removes no table or queue, and stops no machine. An *instance*
//! reads and writes its own two items of the mailbox table.
//!
//! Not here: making roles or profiles; they are the user's.

use serde_json::{Map, Value, json};

use bullpen_core::parameters;

use crate::ec2::tags;
use crate::names::StackName;

/// Whose policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Party {
    /// The service, and an operator's commands.
    ControlPlane,
    /// A step of a workflow.
    Workflow,
    /// The role of instances.
    Instance,
}

/// What fills the table in.
#[derive(Clone, Debug)]
pub struct PolicySettings {
    /// Whose.
    pub stack: StackName,
    /// Where.
    pub region: String,
    /// The account's number; nothing for any, as a policy's account is its own.
    pub account: Option<String>,
    /// The instance profile's name or ARN.
    pub instance_profile: String,
    /// The name of its role.
    pub role: String,
    /// Where instances may be launched; anywhere if none is named.
    pub subnets: Vec<String>,
    /// What they are guarded by; anything if none is named.
    pub security_groups: Vec<String>,
    /// What instances fetch, `s3://bucket/key` or otherwise.
    pub fetched: Vec<String>,
    /// Whether a workflow's steps have no credential of their own, and need the tokens that `refresh`
    /// keeps.
    pub kept_tokens: bool,
}

/// Why an action is in a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// We call it.
    Called,
    /// AWS asks for it on behalf of this call of ours.
    For(&'static str),
}

/// What a row is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum On {
    /// Actions that know no resources.
    Anything,
    /// What a launch makes and is made from, beside instances and templates.
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

/// Under which conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum If {
    Always,
    /// It carries the stack's tag.
    Ours,
    /// It is given the stack's tag.
    BecomesOurs,
    /// It is given the stack's tag as it is made.
    MadeOurs,
    /// It carries the stack's tag, and only tags that change are put on.
    OursRetagged,
    /// It is handed to EC2.
    ForEc2,
    /// It is a role of one of the services that launches go through.
    OfLaunchServices,
    /// The item is one of the tokens that `refresh` keeps.
    KeptToken,
    /// The item is an order to an instance, which may hold a credential.
    Order,
    /// The item is the caller's own of this kind.
    OwnItem(&'static str),
}

/// A row.
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
/// The call that a launch is.
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

/// Everything that anybody may do.
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
    // A step settles an order of its own by `GetItem`, and reads reports in batches.
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

/// A party's policy.
pub fn document(party: Party, settings: &PolicySettings) -> Value {
    let rows = TABLE.iter().filter(|row| row.parties.contains(&party));
    let rows = rows.filter(|row| !(settings.kept_tokens && row.when == KeptToken));
    let statements: Vec<Value> = rows.filter_map(|row| statement(row, settings)).collect();
    json!({ "Version": "2012-10-17", "Statement": statements })
}

/// Who may be the role of instances: instances.
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

/// What a party is allowed, and why.
pub fn allowed(party: Party) -> Vec<(&'static str, Why)> {
    let rows = TABLE.iter().filter(|row| row.parties.contains(&party) && !row.denies);
    let mut all: Vec<_> = rows.flat_map(|row| row.actions).copied().collect();
    all.sort_by_key(|(action, _)| *action);
    all.dedup_by_key(|(action, _)| *action);
    all
}

/// A row as a statement; nothing if there is nothing that it would be about.
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

    /// Something that is in no region.
    fn global(&self, service: &str, rest: &str) -> String {
        format!("arn:{}:{service}::{}:{rest}", self.partition(), self.account())
    }

    /// Which of AWS's worlds the region is of.
    fn partition(&self) -> &'static str {
        match &*self.region {
            region if region.starts_with("cn-") => "aws-cn",
            region if region.starts_with("us-gov-") => "aws-us-gov",
            _ => "aws",
        }
    }

    /// The object that is fetched from S3; nothing if it is fetched from elsewhere.
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
                // An image has no account in its name.
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

    /// With its indexes.
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
        let told = match when {
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
            // One such item among others is enough: a batch must not bring it along.
            KeptToken => json!({ "ForAnyValue:StringEquals": {
                "dynamodb:LeadingKeys": [format!("d#{}", parameters::TOKENS)],
            } }),
            // As above.
            Order => json!({ "ForAnyValue:StringLike": { "dynamodb:LeadingKeys": ["in#*"] } }),
            // A request without a leading key would pass "all of none are".
            OwnItem(kind) => json!({
                "ForAllValues:StringEquals": {
                    "dynamodb:LeadingKeys": [format!("{kind}#${{aws:userid}}")],
                },
                "Null": { "dynamodb:LeadingKeys": "false" },
            }),
        };
        match told {
            Value::Object(told) => told,
            _ => Map::new(),
        }
    }
}

#[cfg(test)]
mod tests;
