//! Whose code ran on a machine, by what GitHub started there, and who may have it after that: those of
//! the same trust group, and nobody after code that is not trusted.
//!
//! GitHub may give a runner to another job of the same labels, whosever it is. To hand the machine on
//! afterwards is a fault; and so is a runner on a used machine that a fork's or Dependabot's job fits.
//!
//! Not here: what the record says of it ([`super::fit`]).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use bullpen_core::ids::{InstanceId, TrustGroup};
use bullpen_core::invariants::{Invariant, Violation};
use bullpen_core::job::Origin;

/// Whose code it was.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Code {
    /// A trust group's.
    Of(TrustGroup),
    /// A fork's, or Dependabot's.
    Untrusted(Origin),
    /// A job's of another run, on a machine that was for one run alone.
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

/// Whose code ran where.
#[derive(Debug, Default)]
pub(super) struct Traces(BTreeMap<InstanceId, BTreeSet<Code>>);

impl Traces {
    /// Somebody's code runs on a machine.
    pub(super) fn ran(&mut self, machine: &InstanceId, code: Code) -> Result<(), Violation> {
        let before = self.0.entry(machine.clone()).or_default();
        let trusted = before.iter().find(|code| matches!(code, Code::Of(_)));
        let what = trusted.filter(|_| matches!(code, Code::Untrusted(_)));
        let what = what.map(|trusted| format!("{code} runs on it, and {trusted} ran there before"));
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

    /// A machine is claimed for a trust group.
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
