//! What the demo of the service shows: its bursts, their jobs, and what should come of each.
//!
//! Not here: queueing them (`play`).

use bullpen_core::job::How;

/// Of what jobs are served: one class whose machines serve one job after another, and a pool that
/// keeps nothing ready, so that its jobs take what the class has.
pub(crate) const CONFIGURATION: &str = "\
runners:
  small: {cpu: 2, ram: 4}
pools:
  ci:
    runner: small
    schedule:
      - {name: always, hot: 0, stopped: 0}
x-bullpen:
  on-unfulfillable: cancel
  runners:
    small: {reuse: true}
";

/// What a job names in its labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Names {
    /// The class, and its run, so that no other job's runner fits.
    Class,
    /// The pool.
    Pool,
    /// A pool that there is not.
    NoSuchPool,
    /// The class, and nothing of its own: runners of such jobs fit each other.
    ClassOnly,
}

impl Names {
    /// The label of the job with this number.
    pub(super) fn label(self, number: usize) -> String {
        match self {
            Self::Class => format!("runs-on={number}/runner=small"),
            Self::Pool => format!("runs-on={number}/pool=ci"),
            Self::NoSuchPool => format!("runs-on={number}/pool=cii"),
            Self::ClassOnly => "runs-on/runner=small".to_owned(),
        }
    }

    /// What it names, for the table.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Class | Self::ClassOnly => "class small",
            Self::Pool => "pool ci",
            Self::NoSuchPool => "pool cii",
        }
    }
}

/// What should become of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
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
pub(super) struct Order {
    /// What it is called.
    pub(super) name: &'static str,
    /// What it names.
    pub(super) names: Names,
    /// What should become of it.
    pub(super) fate: Fate,
}

/// Jobs that are queued at once, after those of the burst before are over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Burst {
    /// What it shows.
    pub(super) title: &'static str,
    /// How the machines of those that run must have been come by, if that is certain.
    pub(super) how: Option<How>,
    /// Its jobs.
    pub(super) orders: &'static [Order],
}

const fn runs(name: &'static str, names: Names) -> Order {
    Order { name, names, fate: Fate::Runs }
}

/// The bursts: twenty jobs.
pub(super) const BURSTS: [Burst; 3] = [
    Burst {
        title: "burst 1, cold: six jobs and no machine; one is cancelled while its machine boots",
        how: Some(How::Created),
        orders: &[
            runs("cold 1", Names::Class),
            runs("cold 2", Names::Class),
            runs("cold 3", Names::Class),
            runs("cold 4", Names::Pool),
            runs("cold 5", Names::Pool),
            Order { name: "cancelled", names: Names::Class, fate: Fate::Cancelled },
        ],
    },
    Burst {
        title: "burst 2, warm: five jobs, and the machines of burst 1 are idle",
        how: Some(How::Reused),
        orders: &[
            runs("warm 1", Names::Class),
            runs("warm 2", Names::Class),
            runs("warm 3", Names::Class),
            runs("warm 4", Names::Pool),
            runs("warm 5", Names::Pool),
        ],
    },
    Burst {
        title: "burst 3, mixed: nine jobs for five idle machines; a runner that GitHub gives to \
                another job; a pool that there is not",
        how: None,
        orders: &[
            Order { name: "takes", names: Names::ClassOnly, fate: Fate::Takes },
            Order { name: "robbed", names: Names::ClassOnly, fate: Fate::Robbed },
            runs("mixed 1", Names::Class),
            runs("mixed 2", Names::Class),
            runs("mixed 3", Names::Class),
            runs("mixed 4", Names::Class),
            runs("mixed 5", Names::Pool),
            runs("mixed 6", Names::Pool),
            Order { name: "refused", names: Names::NoSuchPool, fate: Fate::Refused },
        ],
    },
];
