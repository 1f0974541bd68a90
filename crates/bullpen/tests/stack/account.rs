//! An account of its own for each test, and commands in it.
//! Not here: assertions, except that these steps work.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use bullpen_faulty::ec2::{Ground, Options};
use bullpen_faulty::{Ec2, Ministack};
use tempfile::TempDir;

use crate::process::{self, Process, Ran};

/// DynamoDB and SQS; an access key of twelve digits is an account of its own there.
static STORES: LazyLock<Ministack> =
    LazyLock::new(|| Ministack::start().expect("`cargo xtask tools` installs it"));
static ACCOUNTS: AtomicU64 = AtomicU64::new(200_000_000_000);
const REGION: &str = "us-east-1";
/// The image of the test EC2 for `x86_64`.
const IMAGE: &str = "ami-00000000000000864";

/// Where DynamoDB and SQS are.
pub(crate) fn stores() -> SocketAddr {
    STORES.address()
}

/// An account, with a network and a role and nothing else.
pub(crate) struct Account {
    place: TempDir,
    pub(crate) ec2: Ec2,
    ground: Ground,
    number: u64,
    calls: Cell<u32>,
}

/// The ceiling, without which no command launches.
pub(crate) const CEILING: &str = "[ceilings]\nstack = 20\n";

impl Account {
    pub(crate) fn new() -> Self {
        let ec2 = Ec2::start(&Options::default()).expect("`cargo xtask tools` installs it");
        let ground = ec2.admin().ground(REGION);
        let place = tempfile::Builder::new().prefix("bp").tempdir().expect("a directory");
        let number = ACCOUNTS.fetch_add(1, Ordering::Relaxed);
        Self { place, ec2, ground, number, calls: Cell::new(0) }
    }

    /// The `bullpen.toml` of a stack, as its user would write it.
    pub(crate) fn file(&self, stack: &str) -> String {
        let Ground { profile, security_group, subnets } = &self.ground;
        format!(
            "[stack]\nname = {stack:?}\n[aws]\nregion = {REGION:?}\nsubnets = {subnets:?}\n\
             security-groups = [{security_group:?}]\ninstance-profile = {profile:?}\n\
             [images]\nubuntu24-full-x64 = {IMAGE:?}\n{CEILING}"
        )
    }

    /// Runs a command about a stack with this file; the given endpoints win.
    pub(crate) async fn run_with(&self, file: &str, line: &str, more: &[(&str, &str)]) -> Ran {
        let number = self.calls.get() + 1;
        self.calls.set(number);
        let path = self.place.path().join(format!("{number}.toml"));
        fs::write(&path, file).expect("it can be written");
        let ec2 = self.ec2.url();
        let mut environment: BTreeMap<String, String> = [
            ("PATH", "/usr/bin:/bin".to_owned()),
            ("HOME", self.place.path().join("home").display().to_string()),
            ("INPUT_ENGINE", "aws".to_owned()),
            ("INPUT_STACK", path.display().to_string()),
            ("GITHUB_REPOSITORY", "acme/app".to_owned()),
            ("AWS_ENDPOINT_URL", STORES.url()),
            ("AWS_ENDPOINT_URL_EC2", ec2.clone()),
            ("AWS_ENDPOINT_URL_IAM", ec2.clone()),
            ("AWS_ENDPOINT_URL_STS", ec2.clone()),
            ("AWS_ENDPOINT_URL_SERVICE_QUOTAS", ec2),
            ("AWS_ACCESS_KEY_ID", self.number.to_string()),
            ("AWS_SECRET_ACCESS_KEY", "not a secret".to_owned()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        environment.extend(more.iter().map(|(name, value)| ((*name).into(), (*value).into())));
        let output = self.place.path().join(number.to_string());
        Process::start(&process::built(), None, line, &environment, &output).ends().await
    }

    /// Runs a command about a stack.
    pub(crate) async fn run(&self, stack: &str, line: &str) -> Ran {
        self.run_with(&self.file(stack), line, &[]).await
    }

    /// Whether a command created its user's home.
    pub(crate) fn has_home(&self) -> bool {
        self.place.path().join("home").exists()
    }

    /// Launches an instance with a stack's tags.
    pub(crate) fn instance_of(&self, stack: &str) {
        let tags = [("bullpen:stack", stack), ("bullpen:intent", "i"), ("bullpen:class", "small")];
        let tags: Vec<String> = tags
            .iter()
            .enumerate()
            .map(|(at, (key, value))| {
                let tag = format!("TagSpecification.1.Tag.{}", at + 1);
                format!("{tag}.Key={key}&{tag}.Value={value}")
            })
            .collect();
        let body = format!(
            "Action=RunInstances&ImageId={IMAGE}&InstanceType=m5.large&MinCount=1&MaxCount=1&\
             TagSpecification.1.ResourceType=instance&{}",
            tags.join("&")
        );
        let said = self.ask_ec2(&body);
        assert!(said.contains("<instanceId>"), "{said}");
    }

    /// The number of a stack's instances that are not terminated.
    pub(crate) fn instances(&self, stack: &str) -> usize {
        let states = ["pending", "running", "stopping", "stopped"];
        let states: Vec<String> =
            (1..).zip(states).map(|(at, state)| format!("Filter.2.Value.{at}={state}")).collect();
        let body = format!(
            "Action=DescribeInstances&Filter.1.Name=tag:bullpen:stack&Filter.1.Value.1={stack}&\
             Filter.2.Name=instance-state-name&{}",
            states.join("&")
        );
        self.ask_ec2(&body).matches("<instanceId>").count()
    }

    /// Everything of a stack, byte for byte: its tables, its queues, its instances and templates.
    pub(crate) fn all_of(&self, stack: &str) -> Vec<String> {
        let mut all = Vec::new();
        for table in ["state", "mailbox"] {
            let body = format!("{{\"TableName\":\"{stack}-{table}\"}}");
            all.push(self.ask_stores("DynamoDB_20120810.Scan", &body));
        }
        let body = format!("{{\"QueueNamePrefix\":\"{stack}-\"}}");
        all.push(self.ask_stores("AmazonSQS.ListQueues", &body));
        for action in ["DescribeInstances", "DescribeLaunchTemplates"] {
            let filter = format!("Filter.1.Name=tag:bullpen:stack&Filter.1.Value.1={stack}");
            let said = self.ask_ec2(&format!("Action={action}&{filter}"));
            let lines = said.lines().filter(|line| !line.contains("requestId"));
            all.push(lines.collect::<Vec<_>>().join("\n"));
        }
        all
    }

    fn ask_ec2(&self, body: &str) -> String {
        let body = format!("{body}&Version=2016-11-15").replace(':', "%3A");
        let kind = "Content-Type: application/x-www-form-urlencoded";
        self.ask(self.ec2.address(), "ec2", kind, &body)
    }

    fn ask_stores(&self, target: &str, body: &str) -> String {
        let service = if target.starts_with("Dynamo") { "dynamodb" } else { "sqs" };
        let kind = format!("Content-Type: application/x-amz-json-1.0\r\nX-Amz-Target: {target}");
        self.ask(STORES.address(), service, &kind, body)
    }

    /// One request by hand: this program does not link the SDK.
    fn ask(&self, to: SocketAddr, service: &str, kind: &str, body: &str) -> String {
        let number = self.number;
        let who = format!("Credential={number}/20260101/{REGION}/{service}/aws4_request");
        let request = format!(
            "POST / HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\n{kind}\r\nAuthorization: \
             AWS4-HMAC-SHA256 {who}, SignedHeaders=host, Signature=0\r\nContent-Length: {}\r\n\r\n\
             {body}",
            body.len()
        );
        let mut stream = TcpStream::connect(to).expect("it listens");
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers in text");
        let (head, body) = answer.split_once("\r\n\r\n").expect("an answer has a head");
        assert!(head.starts_with("HTTP/1.1 200"), "{head}\n{body}");
        body.to_owned()
    }
}
