//! The lines that set up the world: they come before all other lines.
//!
//! Not here: making the world (`runner`).

use std::time::Duration;

use bullpen_core::creation::{Ceiling, Scope};
use bullpen_core::ids::ClassName;
use bullpen_core::limits::{Limit, LimitField, Limits};

use super::verb::Setting;
use super::words::{Misspelt, Words};

impl Default for Setting {
    fn default() -> Self {
        /// Enough for every scenario that is not about a ceiling.
        const MACHINES_MAX: u32 = 100;
        let ceilings = vec![Ceiling { scope: Scope::Stack, max: MACHINES_MAX }];
        let limits = Limits::DEFAULT;
        Self { seed: 1, limits, ceilings, weak: false, skew: Duration::ZERO }
    }
}

pub(super) type Setter = fn(&mut Setting, &mut Words) -> Result<(), Misspelt>;

/// Every line that sets up the world.
pub(super) const SETTERS: [(&str, Setter); 5] =
    [("seed", seed), ("ceiling", ceiling), ("limit", limit), ("stores", stores), ("skew", skew)];

fn seed(setting: &mut Setting, words: &mut Words) -> Result<(), Misspelt> {
    setting.seed = words.plain("a seed, such as 7,")?.number()?;
    Ok(())
}

/// `ceiling 10`, or `ceiling 4 class=large`; a repeated line replaces the ceiling of that scope.
fn ceiling(setting: &mut Setting, words: &mut Words) -> Result<(), Misspelt> {
    let max = words.plain("how many machines there may be")?.number()?;
    let scope = match words.option("class") {
        Some(class) => Scope::Class(ClassName::new(&class.text)),
        None => Scope::Stack,
    };
    setting.ceilings.retain(|ceiling| ceiling.scope != scope);
    setting.ceilings.push(Ceiling { scope, max });
    Ok(())
}

fn stores(setting: &mut Setting, words: &mut Words) -> Result<(), Misspelt> {
    let word = words.plain("weak or strong")?;
    setting.weak = word.one_of("kind of store", &[("weak", true), ("strong", false)])?;
    Ok(())
}

fn skew(setting: &mut Setting, words: &mut Words) -> Result<(), Misspelt> {
    setting.skew = words.plain("how far clocks may differ")?.time()?;
    Ok(())
}

fn limit(setting: &mut Setting, words: &mut Words) -> Result<(), Misspelt> {
    let mut changed = false;
    for Limit { key, field, .. } in Limits::ALL {
        let Some(value) = words.option(key) else { continue };
        match field {
            LimitField::Duration(field) => *field(&mut setting.limits) = value.time()?,
            LimitField::Count(field) => *field(&mut setting.limits) = value.number()?,
        }
        changed = true;
    }
    if !changed && words.nothing_left() {
        return Err(words.after().wrong("a limit is missing, such as uses-max=2"));
    }
    setting.limits.check().map_err(|broken| words.after().wrong(broken.to_string()))
}
