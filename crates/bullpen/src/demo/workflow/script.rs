//! The script of the workflow demo: its runs, their requests, and the expected outcome.
//!
//! Not here: making the requests (`play`).

use bullpen_core::class::Usage;

/// The number of machines from each source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tiers {
    /// Idle machines.
    pub(super) reused: u32,
    /// Stopped machines.
    pub(super) started: u32,
    /// New machines.
    pub(super) created: u32,
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DemoRequest {
    /// Its id.
    pub(super) id: &'static str,
    /// The number of machines, and of jobs.
    pub(super) count: u32,
    /// Spot or on-demand; machines of the other usage do not match.
    pub(super) usage: Usage,
    /// The expected sources of its machines.
    pub(super) expected: Tiers,
}

/// One workflow run; it makes its requests at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// Its name in the table.
    pub(super) name: &'static str,
    /// Its title in the output.
    pub(super) title: &'static str,
    /// Its requests.
    pub(super) requests: &'static [DemoRequest],
}

const COLD: Tiers = Tiers { reused: 0, started: 0, created: 4 };
const WARM: Tiers = Tiers { reused: 4, started: 0, created: 0 };

/// The runs, one after another. The requests of the last run read the same queue: the request for
/// spot machines, which are not idle, must not cost the other request an idle machine.
pub(super) const RUNS: [Run; 3] = [
    Run {
        name: "cold",
        title: "run 1, cold: there is no machine yet",
        requests: &[DemoRequest {
            id: "1.1.build",
            count: 4,
            usage: Usage::OnDemand,
            expected: COLD,
        }],
    },
    Run {
        name: "warm",
        title: "run 2, warm: the same request, on the machines of run 1",
        requests: &[DemoRequest {
            id: "2.1.build",
            count: 4,
            usage: Usage::OnDemand,
            expected: WARM,
        }],
    },
    Run {
        name: "mixed",
        title: "run 3, mixed: two requests at once, and no idle machine for the spot request",
        requests: &[
            DemoRequest { id: "3.1.build", count: 4, usage: Usage::OnDemand, expected: WARM },
            DemoRequest {
                id: "3.1.spot",
                count: 2,
                usage: Usage::Spot,
                expected: Tiers { reused: 0, started: 0, created: 2 },
            },
        ],
    },
];
