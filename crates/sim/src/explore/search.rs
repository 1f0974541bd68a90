//! Breadth-first search: every state that can be reached, and the shortest way to a broken one.
//!
//! What is kept of a visited state is its fingerprint, its parent and which of the parent's steps led
//! to it; the way to a state is found again by taking those steps from the beginning. Only the states
//! of the present level are kept whole.
//!
//! Visited fingerprints are in a table of our own: open addressing over `u128`, sixteen bytes a state
//! at a load of at most three quarters. An ordered set costs a walk over scattered memory for each of
//! the many lookups a state needs; the standard hash set is banned for its order, which this table
//! never shows: it answers one question.
//!
//! Not here: what a state is (`world`), what its steps are (`actors`).

use super::rules::Property;
use super::world::ExploredWorld;
use super::{Config, Counterexample, Explored};

/// Told about every finished level.
pub type Progress<'p> = &'p mut dyn FnMut(&Explored);

/// The fingerprints of the states that were reached.
struct Visited {
    places: Vec<u128>,
    count: usize,
}

impl Visited {
    fn new() -> Self {
        Self { places: vec![0; 1 << 12], count: 0 }
    }

    /// Whether this one is new.
    fn insert(&mut self, print: u128) -> bool {
        if self.count * 4 >= self.places.len() * 3 {
            let larger = vec![0; self.places.len() * 2];
            let old = std::mem::replace(&mut self.places, larger);
            for print in old.into_iter().filter(|print| *print != 0) {
                let place = self.place(print);
                self.places[place] = print;
            }
        }
        let place = self.place(print);
        let is_new = self.places[place] == 0;
        if is_new {
            self.places[place] = print;
            self.count += 1;
        }
        is_new
    }

    /// Where it is, or would be.
    fn place(&self, print: u128) -> usize {
        let mask = self.places.len() - 1;
        let low = print & u128::try_from(mask).expect("a length fits");
        let mut place = usize::try_from(low).expect("it is below a length");
        while self.places[place] != 0 && self.places[place] != print {
            place = (place + 1) & mask;
        }
        place
    }

    const fn bytes(&self) -> usize {
        self.places.len() * 16
    }
}

/// How a state was first reached.
#[derive(Clone, Copy)]
struct Arrival {
    parent: u32,
    step: u16,
}

/// Explores until nothing is left, a bound is reached, or a property is broken.
pub(super) fn search(config: &Config, progress: Progress<'_>) -> Explored {
    let mut visited = Visited::new();
    let mut arrivals: Vec<Arrival> = Vec::new();
    let mut level: Vec<(u32, ExploredWorld)> = Vec::new();
    let mut explored = Explored::default();
    let beginning = ExploredWorld::begin(config);
    visited.insert(beginning.fingerprint());
    arrivals.push(Arrival { parent: 0, step: 0 });
    level.push((0, beginning));
    while !level.is_empty() {
        explored.states = arrivals.len();
        explored.frontier = level.len();
        explored.bytes = visited.bytes() + arrivals.capacity() * size_of::<Arrival>();
        progress(&explored);
        if config.depth.is_some_and(|depth| explored.depth >= depth) {
            return explored;
        }
        let mut following = Vec::new();
        for (node, world) in std::mem::take(&mut level) {
            let steps = world.steps(config, false);
            if let Some(property) = world.stuck(config, steps.is_empty()) {
                explored.found = Some(trace(config, &arrivals, node, None, property));
                return explored;
            }
            for (index, (_, next)) in steps.into_iter().enumerate() {
                explored.steps += 1;
                let step = u16::try_from(index).expect("a state has far fewer than 65536 steps");
                if let Some(property) = next.broken() {
                    explored.found = Some(trace(config, &arrivals, node, Some(step), property));
                    explored.states = arrivals.len();
                    return explored;
                }
                if !visited.insert(next.fingerprint()) {
                    continue;
                }
                if arrivals.len() >= config.states_max {
                    return explored;
                }
                let child = u32::try_from(arrivals.len()).expect("states_max fits");
                arrivals.push(Arrival { parent: node, step });
                following.push((child, next));
            }
        }
        explored.depth += 1;
        level = following;
    }
    explored.states = arrivals.len();
    explored.frontier = 0;
    explored.complete = true;
    explored
}

/// The steps from the beginning to what is broken, in words.
fn trace(
    config: &Config,
    arrivals: &[Arrival],
    last: u32,
    step: Option<u16>,
    property: Property,
) -> Counterexample {
    let mut indices: Vec<u16> = step.into_iter().collect();
    let mut node = last;
    while node != 0 {
        let arrival = arrivals[node as usize];
        indices.push(arrival.step);
        node = arrival.parent;
    }
    let mut world = ExploredWorld::begin(config);
    let mut said = Vec::new();
    for index in indices.into_iter().rev() {
        let mut steps = world.steps(config, true);
        let (label, next) = steps.swap_remove(usize::from(index));
        said.push(format!("{label}  [{}]", next.summary()));
        world = next;
    }
    Counterexample { property, steps: said }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_knows_what_it_has_seen_while_it_grows() {
        let mut visited = Visited::new();
        let prints = |salt: u128| (1..20_000_u128).map(move |word| word * 0x1_0001 + salt);
        assert!(prints(0).all(|print| visited.insert(print)));
        assert!(!prints(0).any(|print| visited.insert(print)));
        assert_eq!(visited.count, 19_999);
        assert!(visited.places.len() * 3 >= visited.count * 4);
    }
}
