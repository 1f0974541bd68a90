//! `bullpen pools pause`, `resume` and `drain`: what an operator orders of a pool, and what follows.
//!
//! An order is remembered with the pool, and whoever keeps it follows. It needs no good configuration:
//! a pool that is remembered can be ordered about when its file cannot be read.
//!
//! Not here: following it (`bullpen serve`).

use std::time::Duration;

use bullpen_core::explain::span;
use bullpen_core::ids::PoolName;
use bullpen_core::instance::standby::StandbyStatus;
use bullpen_core::pool::{Blueprints, OperatorOrder};
use bullpen_core::ports::{Fault, Ports};
use bullpen_engine::Stack;
use bullpen_engine::pools::{Ordered, SurveyedPool, order as give, survey};
use serde_json::json;

use super::view::{self, PoolsCommand, PoolsView, unknown, unseen};
use crate::exit::Exit;
use crate::inputs::{CommonArgs, Environment};
use crate::render;
use crate::runtime::GithubAccess;
use crate::workflow::Failure;

/// Which pool.
#[derive(Debug, clap::Args)]
pub(super) struct OrderArgs {
    /// The pool
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    common: CommonArgs,
}

/// Orders this of a pool; nothing takes back what was ordered.
pub(super) async fn order(
    args: &OrderArgs,
    order: Option<OperatorOrder>,
    environment: &Environment,
) -> Result<Exit, Failure> {
    view::visit(&args.common, environment, Ordering { name: &args.name, order }).await
}

struct Ordering<'a> {
    name: &'a str,
    order: Option<OperatorOrder>,
}

impl PoolsCommand for Ordering<'_> {
    async fn run<P: Ports<Forge = GithubAccess>>(
        self,
        sight: PoolsView<P>,
    ) -> Result<Exit, Failure> {
        let PoolsView { stack, configured, json, .. } = sight;
        let (blueprints, trouble) = match configured {
            Ok(blueprints) => (blueprints, None),
            Err(failure) => (None, Some(failure)),
        };
        let none = Blueprints::default();
        let by = blueprints.as_ref().unwrap_or(&none);
        let names = view::names(&stack, by).await.map_err(|fault| unseen(&fault))?;
        let name = PoolName::new(self.name);
        if !names.contains(&name) {
            return Err(trouble.unwrap_or_else(|| unknown(self.name, &names)));
        }
        let given = give(&stack, &name, self.order).await;
        let given = given.map_err(|fault| Failure::of("could not order it", &fault))?;
        // The order holds, whatever can be said of the machines.
        let (in_use, others) = machines(&stack, by, &name).await.unwrap_or_default();
        let follows = Follows {
            order: self.order,
            is_new: given == Ordered::Now,
            is_configured: blueprints.map(|by| by.pools.contains_key(&name)),
            in_use,
            others,
            within: stack.limits.converge * 3 / 2,
        };
        if json {
            render::json(&follows.json(&name));
        } else {
            render::page(&follows.text(&name));
        }
        Ok(Exit::Done)
    }
}

/// How many of its machines somebody uses, and how many nobody does.
async fn machines<P: Ports>(
    stack: &Stack<P>,
    configured: &Blueprints,
    pool: &PoolName,
) -> Result<(u32, u32), Fault> {
    let found = survey(stack, configured, std::slice::from_ref(pool)).await?;
    let statuses = found.iter().flat_map(SurveyedPool::statuses);
    let (used, others): (Vec<_>, Vec<_>) =
        statuses.partition(|(status, _)| *status == StandbyStatus::Detached);
    let sum = |part: Vec<(StandbyStatus, u32)>| part.into_iter().map(|(_, count)| count).sum();
    Ok((sum(used), sum(others)))
}

/// What follows from an order.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Follows {
    order: Option<OperatorOrder>,
    /// Whether it was not so already.
    is_new: bool,
    /// Whether the pool is configured, if anybody knows.
    is_configured: Option<bool>,
    in_use: u32,
    others: u32,
    /// The longest until whoever keeps the pool looks at it again; they look between half of a
    /// convergence's time and three halves of it.
    within: Duration,
}

impl Follows {
    fn text(&self, pool: &PoolName) -> String {
        let within = span(self.within);
        let (is, by) = if self.is_new {
            ("is", format!("Whoever keeps it follows within {within}: "))
        } else {
            ("was already", String::new())
        };
        let Self { in_use, others, .. } = self;
        let back = format!("`bullpen pools resume {pool}` takes it back.");
        let emptied = format!(
            "what nobody uses ends ({others} now).\nIn use, and left to finish: {in_use}. Nothing \
             is launched."
        );
        match self.order {
            Some(OperatorOrder::Pause) => format!(
                "pool {pool} {is} paused.\n{by}nothing is launched, stopped or ended.\nJobs still \
                 get its machines, and those still end when their time is over.\n{back}"
            ),
            Some(OperatorOrder::Drain) => {
                format!("pool {pool} {is} drained.\n{by}{emptied}\n{back}")
            }
            None if self.is_configured == Some(false) => {
                format!("pool {pool} is under no order, and no longer configured.\n{by}{emptied}")
            }
            None if self.is_new => {
                format!("pool {pool} is kept again.\n{by}it is made what it should be.")
            }
            None => format!("pool {pool} was neither paused nor drained: nothing changes."),
        }
    }

    fn json(&self, pool: &PoolName) -> String {
        let within = u64::try_from(self.within.as_millis()).unwrap_or(u64::MAX);
        json!({
            "pool": pool,
            "order": self.order,
            "already": !self.is_new,
            "configured": self.is_configured,
            "in_use": self.in_use,
            "not_in_use": self.others,
            "within_ms": within,
        })
        .to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_says_what_follows_and_when_in_lines_that_fit() {
        let pool = PoolName::new("a-pool-with-a-name");
        for order in [None, Some(OperatorOrder::Pause), Some(OperatorOrder::Drain)] {
            for (is_new, is_configured) in
                [(true, Some(true)), (false, Some(true)), (true, Some(false)), (false, None)]
            {
                let within = Duration::from_secs(45);
                let follows =
                    Follows { order, is_new, is_configured, in_use: 17, others: 42, within };
                let text = follows.text(&pool);
                assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
                assert_eq!(text.contains("within 45 s"), is_new, "{text}");
                let empties = order == Some(OperatorOrder::Drain)
                    || (order.is_none() && is_configured == Some(false));
                assert_eq!(text.contains("42 now") && text.contains("finish: 17"), empties);
            }
        }
    }
}
