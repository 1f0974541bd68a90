//! `bullpen pools plan`: what would be done for each pool now. It does nothing, and takes no lease.
//!
//! Not here: planning (`bullpen_core::pool`).

use bullpen_core::ids::PoolName;
use bullpen_core::ports::Ports;
use bullpen_engine::pools::{SurveyedPool, survey};
use serde_json::{Value, json};

use super::view::{self, PoolsCommand, PoolsView, unknown, unseen};
use super::words;
use crate::exit::Exit;
use crate::inputs::{CommonArgs, Environment};
use crate::render;
use crate::runtime::GithubAccess;
use crate::workflow::Failure;

/// Which pools.
#[derive(Debug, clap::Args)]
pub(super) struct PlanArgs {
    /// Only these pools [default: all that are configured or remembered]
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    common: CommonArgs,
}

/// Plans.
pub(super) async fn plan(args: &PlanArgs, environment: &Environment) -> Result<Exit, Failure> {
    view::visit(&args.common, environment, Planning { names: &args.names }).await
}

struct Planning<'a> {
    names: &'a [String],
}

impl PoolsCommand for Planning<'_> {
    async fn run<P: Ports<Forge = GithubAccess>>(
        self,
        sight: PoolsView<P>,
    ) -> Result<Exit, Failure> {
        let PoolsView { stack, configured, json, .. } = sight;
        // Without it every pool would seem to be removed.
        let configured = configured?.ok_or_else(unconfigured)?;
        let all = view::names(&stack, &configured).await.map_err(|fault| unseen(&fault))?;
        let asked = selected(&all, self.names)?;
        let (left, planned): (Vec<PoolName>, Vec<PoolName>) =
            asked.into_iter().partition(|name| configured.unbuildable.contains_key(name));
        let found = survey(&stack, &configured, &planned).await.map_err(|fault| unseen(&fault))?;
        for name in left {
            let why = &configured.unbuildable[&name];
            render::talk(&format!("pool {name} is left alone: {why}"));
        }
        if json {
            render::json(&found.iter().map(object).collect::<Value>().to_string());
        } else {
            let texts: Vec<String> = found.iter().map(text).collect();
            render::page(&if texts.is_empty() { "no pools".to_owned() } else { texts.join("\n") });
        }
        let is_settled = found.iter().all(|found| found.plan.actions.is_empty());
        Ok(if is_settled { Exit::Done } else { Exit::Planned })
    }
}

fn unconfigured() -> Failure {
    Failure {
        exit: Exit::Usage,
        what: "nothing says what is configured, and so there is nothing to plan by".to_owned(),
        hint: Some("give --config FILE, or --repository ORGANISATION with a credential".to_owned()),
    }
}

/// Those of the pools that are asked for, all if none is.
fn selected(all: &[PoolName], wanted: &[String]) -> Result<Vec<PoolName>, Failure> {
    if let Some(missing) = wanted.iter().find(|name| !all.iter().any(|it| it.as_str() == **name)) {
        return Err(unknown(missing, all));
    }
    let is_asked = |name: &&PoolName| {
        wanted.is_empty() || wanted.iter().any(|wanted| name.as_str() == wanted.as_str())
    };
    Ok(all.iter().filter(is_asked).cloned().collect())
}

fn text(found: &SurveyedPool) -> String {
    let actions = found.plan.actions.iter().flat_map(words::action).collect::<Vec<_>>();
    let said = match actions.len() {
        0 => "nothing to do".to_owned(),
        1 => "1 action".to_owned(),
        count => format!("{count} actions"),
    };
    let mut text = vec![format!("{}  {said}", found.pool)];
    let told = actions.iter().enumerate();
    text.extend(told.map(|(at, one)| words::lines(if at == 0 { "does" } else { "" }, one)));
    let notes = found.plan.notes.iter().enumerate();
    text.extend(
        notes.map(|(at, note)| words::lines(if at == 0 { "waits" } else { "" }, &note.to_string())),
    );
    text.join("\n")
}

fn object(found: &SurveyedPool) -> Value {
    let words: Vec<String> = found.plan.notes.iter().map(ToString::to_string).collect();
    json!({
        "pool": found.pool,
        "target": found.desired.target,
        "actions": found.plan.actions,
        "notes": found.plan.notes,
        "words": words,
    })
}
