//! The script of the service's demo: its bursts, their jobs, and each job's expected end.
//!
//! Not here: queueing them (`play`).

use bullpen_core::job::MachineSource;

/// The configuration: a class whose machines serve one job after another, a pool with two hot
/// machines, and a pool with two stopped machines.
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

/// The numbers of the stack. They are small, so that the demo is short, which is safe on one host
/// with one clock and without late calls.
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

/// The class or pool in a job's label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Names {
    /// The class, with the job's run in the label, so that no other job's runner fits.
    Class,
    /// The pool of hot machines.
    Hot,
    /// The pool of stopped machines.
    Stopped,
    /// A pool that does not exist.
    NoSuchPool,
    /// The class, without a run in the label: runners of such jobs fit each other.
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

    /// The text for the table.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Class | Self::ClassOnly => "class small",
            Self::Hot => "pool ci",
            Self::Stopped => "pool nightly",
            Self::NoSuchPool => "pool cii",
        }
    }
}

/// The expected end of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExpectedEnd {
    /// It runs.
    Runs,
    /// It runs on the next job's runner, because its own webhook comes late.
    Takes,
    /// It runs, though GitHub gave its first runner to another job.
    Robbed,
    /// The demo cancels it while its machine boots.
    Cancelled,
    /// The service gives it up and tells its author.
    Refused,
}

/// One job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DemoJob {
    /// Its name.
    pub(super) name: &'static str,
    /// The class or pool in its label.
    pub(super) names: Names,
    /// Its expected end.
    pub(super) expected: ExpectedEnd,
}

/// Jobs that are queued at once, after the jobs of the burst before have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Burst {
    /// The title in the output.
    pub(super) title: &'static str,
    /// The source of the machines of all jobs that run, if it is certain.
    pub(super) how: Option<MachineSource>,
    /// The fewest jobs with a standby machine: a hot one, and a stopped one.
    pub(super) standby: (usize, usize),
    /// Its jobs.
    pub(super) orders: &'static [DemoJob],
}

const fn runs(name: &'static str, names: Names) -> DemoJob {
    DemoJob { name, names, expected: ExpectedEnd::Runs }
}

/// The bursts: twenty jobs.
pub(super) const BURSTS: [Burst; 4] = [
    Burst {
        title: "burst 1, cold: four jobs without a pool, and no idle machine; the demo cancels one \
                while its machine boots",
        how: Some(MachineSource::Created),
        standby: (0, 0),
        orders: &[
            runs("cold 1", Names::Class),
            runs("cold 2", Names::Class),
            runs("cold 3", Names::Class),
            DemoJob { name: "cancelled", names: Names::Class, expected: ExpectedEnd::Cancelled },
        ],
    },
    Burst {
        title: "burst 2, warm: three jobs on the idle machines of burst 1",
        how: Some(MachineSource::Reused),
        standby: (0, 0),
        orders: &[
            runs("warm 1", Names::Class),
            runs("warm 2", Names::Class),
            runs("warm 3", Names::Class),
        ],
    },
    Burst {
        title: "burst 3, standby: three jobs for the two hot machines of pool ci, three for the two \
                stopped machines of pool nightly; two overflow",
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
        title: "burst 4, mixed: seven jobs at once; GitHub gives a job's runner to another job; a \
                job names a pool that does not exist",
        how: None,
        standby: (0, 0),
        orders: &[
            DemoJob { name: "takes", names: Names::ClassOnly, expected: ExpectedEnd::Takes },
            DemoJob { name: "robbed", names: Names::ClassOnly, expected: ExpectedEnd::Robbed },
            runs("mixed 1", Names::Class),
            runs("mixed 2", Names::Class),
            runs("mixed 3", Names::Hot),
            runs("mixed 4", Names::Stopped),
            DemoJob { name: "refused", names: Names::NoSuchPool, expected: ExpectedEnd::Refused },
        ],
    },
];
