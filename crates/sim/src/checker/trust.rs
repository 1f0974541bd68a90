//! Which trust group's code GitHub started on a machine, and which owners may claim it afterwards:
//! owners of the same trust group, and none after untrusted code.
//!
//! GitHub may give a runner to any job with the same labels. A violation is a machine that another
//! group claims afterwards, and a used machine whose runner can take a fork's or Dependabot's job.
//!
//! Not here: the trust group in the record ([`super::fit`]).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use bullpen_core::ids::{InstanceId, TrustGroup};
use bullpen_core::invariants::{Invariant, Violation};
use bullpen_core::job::Origin;

/// The origin of code that ran on a machine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Code {
    /// Code of a trust group.
    Of(TrustGroup),
    /// Code of a fork, or of Dependabot.
    Untrusted(Origin),
    /// A job of another run, on a machine that was for one run alone.
    OfAStranger,
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Of(group) => write!(f, "code of {group}"),
            Self::OfAStranger => f.write_str("a stranger's job"),
            Self::Untrusted(origin) => write!(f, "untrusted code ({})", origin.as_str()),
        }
    }
}

/// The code that ran on each machine.
#[derive(Debug, Default)]
pub(super) struct Traces(BTreeMap<InstanceId, BTreeSet<Code>>);

impl Traces {
    /// Code runs on a machine: untrusted code must not follow trusted code.
    pub(super) fn ran(&mut self, machine: &InstanceId, code: Code) -> Result<(), Violation> {
        let before = self.0.entry(machine.clone()).or_default();
        let trusted = before.iter().find(|code| matches!(code, Code::Of(_)));
        let what = trusted.filter(|_| matches!(code, Code::Untrusted(_)));
        let what = what.map(|trusted| format!("{code} runs on it after {trusted}"));
        before.insert(code);
        match what {
            None => Ok(()),
            Some(what) => Err(Violation {
                invariant: Invariant::OneOwner,
                instance: Some(machine.clone()),
                what,
            }),
        }
    }

    /// A machine is claimed for a trust group: no other group's code may have run on it.
    pub(super) fn claimed(&self, machine: &InstanceId, by: TrustGroup) -> Result<(), Violation> {
        let (ours, group) = (Code::Of(by.clone()), by);
        let others = self.0.get(machine).into_iter().flatten().find(|code| **code != ours);
        match others {
            None => Ok(()),
            Some(code) => Err(Violation {
                invariant: Invariant::OneOwner,
                instance: Some(machine.clone()),
                what: format!("claimed for {group}, and {code} ran on it"),
            }),
        }
    }
}
