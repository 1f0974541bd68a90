//! The GitHub client: its accounts, each with a budget, and calls that read all pages of a list.
//!
//! Not here: the single calls (`runners`, `runs`), and the ports (`forge`, `job_forge`).

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use bullpen_core::clock_witness::ClockWitness;
use bullpen_core::forge_rates::CallCounts;
use bullpen_core::mailbox::Secret;
use bullpen_core::ports::{Clock, Fault, UnfinishedRun};
use hyper::header::HeaderValue;

use crate::fault::NotFoundMeans;
use crate::groups::KnownGroups;
use crate::limits::PAGES_MAX;
use crate::login::Account;
use crate::runners::Token;
use crate::runs::WorkflowJob;
use crate::seen::SeenPages;
use crate::settings::{BadSettings, Login, Scope, Settings};
use crate::wire::{Answer, Call, Wire};

/// The installations of our Apps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installed {
    /// The ids of the installations.
    pub ids: BTreeSet<u64>,
    /// Whether GitHub answered for every App.
    pub is_complete: bool,
}

/// A GitHub client for one scope. Share it: it keeps connections and tokens.
pub struct GitHub<C> {
    pub(crate) wire: Wire<C>,
    pub(crate) scope: Scope,
    pub(crate) prefix: String,
    pub(crate) runner_group: u64,
    /// Runner groups by name; locked during the call, so that many callers make one call.
    pub(crate) groups: tokio::sync::Mutex<Option<KnownGroups>>,
    /// Registers any number of runners; locked during the call, so that many callers make one call.
    pub(crate) registration: tokio::sync::Mutex<Option<Token>>,
    /// What the search for jobs without a webhook has read.
    pub(crate) seen_runs: SeenPages<UnfinishedRun>,
    pub(crate) seen_jobs: SeenPages<WorkflowJob>,
    /// At least one account; the first account's App receives the webhooks.
    accounts: Vec<Account>,
}

impl<C> fmt::Debug for GitHub<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scope, prefix) = (&self.scope, &self.prefix);
        f.debug_struct("GitHub")
            .field("scope", scope)
            .field("prefix", prefix)
            .finish_non_exhaustive()
    }
}

impl<C: Clock> GitHub<C> {
    /// Makes a client; calls nothing yet.
    pub fn new(settings: &Settings, clock: Arc<C>) -> Result<Self, BadSettings> {
        if settings.prefix.is_empty() {
            return Err(BadSettings::NoPrefix);
        }
        if let Login::Token(token) = &settings.login {
            if !is_sendable(token) {
                return Err(BadSettings::Token);
            }
            if !settings.more_apps.is_empty() {
                return Err(BadSettings::MixedLogins);
            }
        }
        Ok(Self {
            wire: Wire::new(settings, clock)?,
            scope: settings.scope.clone(),
            prefix: settings.prefix.clone(),
            runner_group: settings.runner_group,
            groups: tokio::sync::Mutex::new(None),
            registration: tokio::sync::Mutex::new(None),
            seen_runs: SeenPages::default(),
            seen_jobs: SeenPages::default(),
            accounts: accounts(settings),
        })
    }

    /// How far the process's clock is off, by the dates of GitHub's answers.
    pub fn clock_witness(&self) -> ClockWitness {
        self.wire.witness().clone()
    }

    /// Makes a call with the account that can make it soonest.
    pub(crate) async fn call(&self, call: &Call) -> Result<Answer, Fault> {
        self.cheapest(call).1.call(&self.wire, call).await
    }

    /// Makes a call as the App that receives the webhooks; `None` if the login is a token.
    pub(crate) async fn call_as_app(&self, call: &Call) -> Result<Option<Answer>, Fault> {
        self.first().call_as_app(&self.wire, call).await
    }

    /// The current installations of our Apps for the scope; `None` if the login is a token. Fails
    /// if GitHub does not answer for the first App, which receives the webhooks; leaves out other
    /// Apps for which GitHub does not answer.
    pub async fn installations(&self) -> Result<Option<Installed>, Fault> {
        let first = self.in_time(self.first().installation(&self.wire)).await?;
        let Some(first) = first else { return Ok(None) };
        let mut installed = Installed { ids: [first].into(), is_complete: true };
        for account in self.accounts.iter().skip(1) {
            match self.in_time(account.installation(&self.wire)).await {
                Ok(id) => installed.ids.extend(id),
                Err(fault) => {
                    tracing::warn!(%fault, "an App's installation is unknown");
                    installed.is_complete = false;
                }
            }
        }
        Ok(Some(installed))
    }

    /// How many calls this client has made, by purpose.
    pub fn calls(&self) -> CallCounts {
        let mut all = CallCounts::new();
        self.accounts.iter().for_each(|account| account.add_counts(&mut all));
        all
    }

    /// At least one account; the first account's App receives the webhooks.
    pub(crate) fn accounts(&self) -> &[Account] {
        &self.accounts
    }

    /// Whether the login is an App, not a token.
    pub(crate) fn is_app(&self) -> bool {
        self.first().session.is_app()
    }

    fn first(&self) -> &Account {
        self.accounts.first().expect("settings always have a login")
    }

    /// The account that can make this call soonest, with its number; among equals, the account with
    /// the most budget.
    pub(crate) fn cheapest(&self, call: &Call) -> (usize, &Account) {
        let now = self.wire.clock().monotonic();
        let cost = |(_, account): &(usize, &Account)| {
            let mut budget = account.meter.budget();
            (budget.wait(now, call.priority, call.points()), Reverse(budget.left(now)))
        };
        let accounts = self.accounts.iter().enumerate();
        accounts.min_by_key(cost).unwrap_or_else(|| (0, self.first()))
    }

    /// Reads every page of a listing, and parses each with `read`.
    pub(crate) async fn pages<T>(
        &self,
        first: Call,
        absent: NotFoundMeans,
        read: impl Fn(&Answer) -> Result<Vec<T>, Fault>,
    ) -> Result<Vec<T>, Fault> {
        let mut items = Vec::new();
        let (purpose, priority) = (first.purpose, first.priority);
        let mut next = Some(first.path);
        for _ in 0..PAGES_MAX {
            let Some(path) = next else { return Ok(items) };
            let call = Call { priority, ..Call::get(purpose, path) };
            let answer = self.call(&call).await?.accepted(absent)?;
            items.extend(read(&answer)?);
            next = answer.next;
        }
        match next {
            None => Ok(items),
            // Part of a listing must not pass for all of it.
            Some(_) => Err(Fault::Unreadable(format!("a listing of more than {PAGES_MAX} pages"))),
        }
    }
}

fn accounts(settings: &Settings) -> Vec<Account> {
    let more = settings.more_apps.iter().cloned().map(Login::App);
    let logins = std::iter::once(settings.login.clone()).chain(more);
    logins.map(|login| Account::new(&login, &settings.scope)).collect()
}

fn is_sendable(token: &Secret) -> bool {
    let fits = !token.reveal().is_empty() && !token.reveal().contains(char::is_whitespace);
    fits && HeaderValue::from_str(token.reveal()).is_ok()
}
