//! One cloud for all worlds of this program, and a world in it: a stack of its own name.
//!
//! An instance is a process of the test EC2's hook, in a root of its own; its image has the agent
//! that was built beside this program, and a runner program for the stand-in GitHub. Not here: the
//! emulators' processes (`bullpen-faulty`), or the program that plays an instance (the hook).

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use bullpen_faulty::ec2::{Ground, Options};
use bullpen_faulty::{Ec2, tool};

use crate::emulator::{EMULATOR, environment};
use crate::world::World;

const REGION: &str = "eu-west-1";
/// The account in the emulator of DynamoDB and SQS; stacks of one account differ in their names.
const ACCOUNT: &str = "200000000000";
/// The test EC2's image for x64.
const AMI: &str = "ami-00000000000000864";
/// The hook: the program that plays an instance.
const HOOK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../aws/tests/machine/hook");
const BULLPEN: &str = env!("CARGO_BIN_EXE_bullpen");

/// Its runner program; the command is linked beside it, where the job's user may run it.
const LISTENER: &str = "#!/bin/sh\nexec \"${0%/*}/bullpen\" stand-in-runner \"$@\"\n";

static STACKS: AtomicU64 = AtomicU64::new(1);

/// The cloud.
pub(crate) static CLOUD: LazyLock<Cloud> = LazyLock::new(Cloud::start);

/// A test EC2 and what an account brings there.
pub(crate) struct Cloud {
    pub(crate) ec2: Ec2,
    ground: Ground,
}

impl Cloud {
    fn start() -> Self {
        let python = tool("BULLPEN_EC2", "moto-", Path::new("bin/python"));
        let python = python.expect("`cargo xtask tools` installs it");
        let own = [("BULLPEN_EC2", python), ("BULLPEN_IMAGE", image())];
        let own = own.map(|(name, path)| (name.into(), path.into_os_string()));
        let found = [
            ("AWS_ENDPOINT_URL", EMULATOR.url()),
            ("AWS_REGION", REGION.to_owned()),
            ("AWS_ACCESS_KEY_ID", ACCOUNT.to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "not a secret".to_owned()),
            // The prefix of worlds' directories: jobs write there, and wait for files there.
            ("BULLPEN_SHARED", "bp".to_owned()),
        ];
        let found = found.map(|(name, value)| (name.into(), value.into()));
        // Every machine's console output, for the analysis of a failure.
        let logs = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ec2-consoles");
        let _ = fs::remove_dir_all(&logs);
        fs::create_dir_all(&logs).expect("it can be made");
        let options = Options {
            real_clock: true,
            hook: vec![HOOK.into()],
            logs: Some(logs),
            environment: own.into_iter().chain(found).collect(),
        };
        let ec2 = Ec2::start(&options).expect("it starts");
        let ground = ec2.admin().ground(REGION);
        Self { ec2, ground }
    }

    /// The processes of all worlds' machines, by instance.
    pub(crate) fn machines_on(&self) -> Vec<String> {
        self.ec2.admin().processes().into_keys().collect()
    }

    /// A hook's machine has no packet filter, and shares root's directories with this host.
    fn sections(&self, stack: &str) -> String {
        let Ground { profile, security_group, subnets } = &self.ground;
        format!(
            "[stack]\nname = {stack:?}\n[aws]\nregion = {REGION:?}\nsubnets = {subnets:?}\n\
             security-groups = [{security_group:?}]\ninstance-profile = {profile:?}\n\
             [images]\nubuntu24-full-x64 = {AMI:?}\n[ceilings]\nstack = 100\n\
             [instance]\nsudo = false\nmetadata = \"open\"\n"
        )
    }
}

/// The directory that every machine has in its root.
fn image() -> PathBuf {
    let image = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ec2-image");
    let agent = Path::new(BULLPEN).with_file_name("bullpen-agent-ec2");
    let built = "`cargo build --workspace --features=bullpen/aws --bins` builds it";
    assert!(agent.exists(), "{} is not there: {built}", agent.display());
    let runner = image.join("opt/actions-runner/bin");
    let opt = image.join("opt/bullpen");
    for directory in [&runner, &opt] {
        fs::create_dir_all(directory).expect("it can be made");
    }
    link(&agent, &opt.join("bullpen-agent"));
    link(Path::new(BULLPEN), &runner.join("bullpen"));
    let listener = runner.join("Runner.Listener");
    fs::write(&listener, LISTENER).expect("it can be written");
    fs::set_permissions(&listener, fs::Permissions::from_mode(0o755)).expect("it is ours");
    image
}

fn link(from: &Path, to: &Path) {
    let _ = fs::remove_file(to);
    fs::hard_link(from, to).expect("they are in one place");
}

impl World {
    /// A stack in the cloud, with this `runs-on.yml` and these limits, refreshed once.
    pub(crate) async fn in_cloud(config: &str, limits: &[(&str, &str)]) -> Self {
        let world = Self::unmade(config, limits).await;
        world.run("refresh").await.exits(0);
        world
    }

    /// A stack in the cloud before its first refresh.
    pub(crate) async fn unmade(config: &str, limits: &[(&str, &str)]) -> Self {
        let mut world = Self::configured(config, limits).await;
        world.on_files = false;
        let stack = format!("world-{}", STACKS.fetch_add(1, Ordering::Relaxed));
        let file = world.path("bullpen.toml");
        let limits = fs::read_to_string(&file).expect("it is written");
        fs::write(&file, CLOUD.sections(&stack) + &limits).expect("it can be written");
        // Jobs run as another user than the test.
        let open_to_all = fs::Permissions::from_mode(0o777);
        fs::set_permissions(world.path("."), open_to_all).expect("it is ours");
        world.environment.extend(environment());
        let ec2 = CLOUD.ec2.url();
        for (name, value) in [
            ("INPUT_FLEET", "ec2"),
            ("AWS_ENDPOINT_URL_EC2", &ec2),
            ("AWS_ENDPOINT_URL_IAM", &ec2),
            ("AWS_ENDPOINT_URL_STS", &ec2),
            ("AWS_ENDPOINT_URL_SERVICE_QUOTAS", &ec2),
            ("AWS_REGION", REGION),
            ("AWS_ACCESS_KEY_ID", ACCOUNT),
        ] {
            world.environment.insert(name.to_owned(), value.to_owned());
        }
        world
    }
}
