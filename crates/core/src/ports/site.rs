//! The port to what a fleet must know and have in its cloud before it can launch.
//!
//! `refresh` looks after it: it keeps the facts, and makes what launches need. One adapter is both a
//! fleet and its site; a fleet that needs nothing keeps the methods' own bodies.
//!
//! Not here: machines ([`super::Fleet`]), or the document's form ([`crate::site`]).

use std::future::Future;

use super::Fault;
use crate::class::RunnerClass;
use crate::site::SiteDocument;

/// What a site has learned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LearnedSite {
    /// The facts, for `refresh` to keep.
    pub document: SiteDocument,
    /// What they are, in a few words for people, as in "the role and 3 subnets".
    pub what: String,
}

/// What a fleet must know and have in its cloud before it can launch.
///
/// Contract: every method may be called again and by several processes at once. What `learn` returned
/// in one process, `recall` accepts in every other of the same fleet.
///
/// Weak arm: `prepare` and `dismantle` may have done some of their work when they fail.
pub trait Site: Send + Sync {
    /// Uses the facts that an earlier refresh kept. Makes no call. [`Fault::Unreadable`]: another
    /// fleet wrote the document.
    fn recall(&self, kept: &SiteDocument) -> Result<(), Fault> {
        let _ = kept;
        Ok(())
    }
    /// Asks the cloud for the facts that launches need, and uses them from now on; `None` if they
    /// need none. The document contains `born`. If the answer differs from `kept`, the site has just
    /// asked.
    fn learn(
        &self,
        born: &str,
        kept: Option<&SiteDocument>,
    ) -> impl Future<Output = Result<Option<LearnedSite>, Fault>> + Send {
        let _ = (born, kept);
        async { Ok(None) }
    }
    /// Creates the cloud resources that launches of these classes need, and removes those that no
    /// class needs any more. Returns a line for people about each change. Unless `really` is set,
    /// it changes nothing and returns the changes that it would make.
    fn prepare(
        &self,
        classes: &[RunnerClass],
        really: bool,
    ) -> impl Future<Output = Result<Vec<String>, Fault>> + Send {
        let _ = (classes, really);
        async { Ok(Vec::new()) }
    }
    /// Removes everything that `prepare` created; returns a line for people about each removal.
    fn dismantle(&self) -> impl Future<Output = Result<Vec<String>, Fault>> + Send {
        async { Ok(Vec::new()) }
    }
}
