//! What the demo of the service shows: its bursts, their jobs, and what should come of each.
//!
//! Not here: queueing them (`play`).

use bullpen_core::job::MachineSource;

/// Of what jobs are served: one class whose machines serve one job after another, a pool that keeps two
/// of them running, and a pool that keeps two stopped.
pub(crate) const CONFIGURATION: &str = "\
runners:
  small: {cpu: 2, ram: 4}
pools:
  ci:
    runner: small
    schedule:
      - {name: always, hot: 2, stopped: 0}
  nightly:
    runner: small
    schedule:
      - {name: always, hot: 0, stopped: 2}
x-bullpen:
  on-unfulfillable: cancel
  runners:
    small: {reuse: true}
";

/// The numbers of a stack on one host, whose calls are not late and whose clock is one: nobody has a
/// minute to see a machine stopped.
pub(crate) const STACK: &str = "\
[limits]
converge = \"2s\"
stop-fence = \"3s\"
stop-send-within = \"1s\"
stop-call-timeout = \"1s\"
clock-skew = \"1s\"
";

/// The head of a label that only jobs of one run have.
const OWN_RUN: &str = "runs-on=${{ github.run_id }}";

/// What a job names in its labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Names {
    /// The class, and its run, so that no other job's runner fits.
    Class,
    /// The pool of hot machines.
    Hot,
    /// The pool of stopped ones.
    Stopped,
    /// A pool that there is not.
    NoSuchPool,
    /// The class, and nothing of its own: runners of such jobs fit each other.
    ClassOnly,
}

impl Names {
    /// The label of the job with this number.
    pub(super) fn label(self, number: usize) -> String {
        match self {
            Self::Class => format!("{OWN_RUN}-{number}/runner=small"),
            Self::Hot => format!("{OWN_RUN}-{number}/pool=ci"),
            Self::Stopped => format!("{OWN_RUN}-{number}/pool=nightly"),
            Self::NoSuchPool => format!("{OWN_RUN}-{number}/pool=cii"),
            Self::ClassOnly => "runs-on/runner=small".to_owned(),
        }
    }

    /// What it names, for the table.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Class | Self::ClassOnly => "class small",
            Self::Hot => "pool ci",
            Self::Stopped => "pool nightly",
            Self::NoSuchPool => "pool cii",
        }
    }
}

/// What should become of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExpectedEnd {
    /// It runs.
    Runs,
    /// It runs on a runner that was made for the next one: its own webhook comes late.
    Takes,
    /// It runs, though the runner that was made for it was given to another.
    Robbed,
    /// Somebody cancels it while its machine boots.
    Cancelled,
    /// It is given up, and its author told.
    Refused,
}

/// One job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DemoJob {
    /// What it is called.
    pub(super) name: &'static str,
    /// What it names.
    pub(super) names: Names,
    /// What should become of it.
    pub(super) fate: ExpectedEnd,
}

/// Jobs that are queued at once, after those of the burst before are over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Burst {
    /// What it shows.
    pub(super) title: &'static str,
    /// How the machines of those that run must have been come by, if that is certain.
    pub(super) how: Option<MachineSource>,
    /// How many must have had a machine that stood by: hot, and stopped.
    pub(super) standby: (usize, usize),
    /// Its jobs.
    pub(super) orders: &'static [DemoJob],
}

const fn runs(name: &'static str, names: Names) -> DemoJob {
    DemoJob { name, names, fate: ExpectedEnd::Runs }
}

/// The bursts: twenty jobs.
pub(super) const BURSTS: [Burst; 4] = [
    Burst {
        title: "burst 1, cold: four jobs that name no pool, and no machine for them; one is \
                cancelled while its machine boots",
        how: Some(MachineSource::Created),
        standby: (0, 0),
        orders: &[
            runs("cold 1", Names::Class),
            runs("cold 2", Names::Class),
            runs("cold 3", Names::Class),
            DemoJob { name: "cancelled", names: Names::Class, fate: ExpectedEnd::Cancelled },
        ],
    },
    Burst {
        title: "burst 2, warm: three jobs, and the machines of burst 1 are idle",
        how: Some(MachineSource::Reused),
        standby: (0, 0),
        orders: &[
            runs("warm 1", Names::Class),
            runs("warm 2", Names::Class),
            runs("warm 3", Names::Class),
        ],
    },
    Burst {
        title: "burst 3, standing by: three jobs for the two hot machines of pool ci, three for the \
                two stopped ones of pool nightly; two overflow",
        how: None,
        standby: (2, 2),
        orders: &[
            runs("ci 1", Names::Hot),
            runs("ci 2", Names::Hot),
            runs("nightly 1", Names::Stopped),
            runs("nightly 2", Names::Stopped),
            runs("ci 3", Names::Hot),
            runs("nightly 3", Names::Stopped),
        ],
    },
    Burst {
        title: "burst 4, mixed: seven jobs at once; a runner that GitHub gives to another job; a \
                pool that there is not",
        how: None,
        standby: (0, 0),
        orders: &[
            DemoJob { name: "takes", names: Names::ClassOnly, fate: ExpectedEnd::Takes },
            DemoJob { name: "robbed", names: Names::ClassOnly, fate: ExpectedEnd::Robbed },
            runs("mixed 1", Names::Class),
            runs("mixed 2", Names::Class),
            runs("mixed 3", Names::Hot),
            runs("mixed 4", Names::Stopped),
            DemoJob { name: "refused", names: Names::NoSuchPool, fate: ExpectedEnd::Refused },
        ],
    },
];
