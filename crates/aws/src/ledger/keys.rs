//! Keys of the ledger's items, and the indexes that list them.
//!
//! A key is `pk` and `sk`. Records, intents and rows are spread over [`SHARDS`] values of `pk` by
//! their id, which is `sk`. Four local secondary indexes list them by an attribute `by_…`; an item
//! without the attribute is not in the index, so a listing reads no ended items. DynamoDB changes a
//! local index in the same write as the item and reads it consistently, so it can be a directory.
//!
//! Not here: reading them ([`super::listing`]).

use bullpen_core::creation::Scope;
use bullpen_core::ids::{ClassName, InstanceId, IntentId, JobId, LeaseName, PoolName, Repository};
use bullpen_core::instance::{Owner, Record, State};
use bullpen_core::ports::{ItemKind, JobRow, WaitingAt};
use bullpen_core::time::Timestamp;

use crate::names::spread;
use crate::table::Key;

/// How many values of `pk` each kind of item is spread over. Each takes a thousand writes a second
/// and ten gigabytes, so eight are far above what one account can launch. Never change it: the
/// ledger would no longer find its items.
pub(crate) const SHARDS: u64 = 8;

/// Separates the parts of a sort key: no name contains it, and it sorts below every character that
/// names contain.
const SEPARATOR: char = '\u{1f}';
/// Sorts above every character that names contain.
const LAST: char = '\u{10ffff}';

/// A kind of item that is spread over several values of `pk`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Record,
    Intent,
    Row,
}

impl Kind {
    /// One of this kind's values of `pk`.
    pub(crate) fn partition(self, shard: u64) -> String {
        let letter = match self {
            Self::Record => 'i',
            Self::Intent => 'n',
            Self::Row => 'j',
        };
        format!("{letter}#{shard}")
    }

    /// The kind of its items.
    pub(crate) const fn item(self) -> ItemKind {
        match self {
            Self::Record => ItemKind::Record,
            Self::Intent => ItemKind::Intent,
            Self::Row => ItemKind::Row,
        }
    }

    /// The key of this id.
    pub(crate) fn key(self, id: &str) -> Key {
        Key { pk: self.partition(spread(id) % SHARDS), sk: Some(id.to_owned()) }
    }
}

pub(crate) fn record(id: &InstanceId) -> Key {
    Kind::Record.key(id.as_str())
}

pub(crate) fn intent(id: &IntentId) -> Key {
    Kind::Intent.key(id.as_str())
}

pub(crate) fn row(job: &JobId) -> Key {
    Kind::Row.key(job.as_str())
}

pub(crate) fn lease(name: &LeaseName) -> Key {
    Key { pk: format!("l#{name}"), sk: Some("lease".to_owned()) }
}

pub(crate) fn document(collection: &str, name: &str) -> Key {
    Key { pk: documents(collection), sk: Some(name.to_owned()) }
}

/// The `pk` of a collection. All documents of one share it: a collection is small and read as one.
pub(crate) fn documents(collection: &str) -> String {
    format!("d#{collection}")
}

pub(crate) fn counter(scope: &Scope) -> Key {
    let pk = match scope {
        Scope::Stack => "c#stack".to_owned(),
        Scope::Class(class) => format!("c#class#{class}"),
        Scope::Pool(pool) => format!("c#pool#{pool}"),
    };
    Key { pk, sk: Some("count".to_owned()) }
}

/// A local index. Its sort key attribute has the index's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Index {
    /// Records by owner; rows by lane and repository.
    Place,
    /// Idle shared records by class, oldest first.
    Idle,
    /// Live records by pool; open intents.
    Live,
    /// Records and rows by the time at which they are due.
    Due,
}

impl Index {
    /// Every index.
    pub(crate) const ALL: [Self; 4] = [Self::Place, Self::Idle, Self::Live, Self::Due];

    /// The name of the index and of its attribute.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Place => "by_place",
            Self::Idle => "by_idle",
            Self::Live => "by_live",
            Self::Due => "by_due",
        }
    }
}

/// A range of one index: its sort keys from `first` to `last`, both included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) index: Index,
    pub(crate) first: String,
    pub(crate) last: String,
}

impl Range {
    /// All sort keys that begin with this text.
    fn beginning(index: Index, with: String) -> Self {
        Self { index, last: format!("{with}{LAST}"), first: with }
    }

    /// Whether no key can be in the range. DynamoDB refuses a query for such a range.
    pub(crate) fn is_empty(&self) -> bool {
        self.first > self.last
    }

    /// The rest of the range after this sort key.
    pub(crate) fn after(self, key: &str) -> Self {
        // The least text above `key`: no name has this character.
        Self { first: format!("{key}\u{1}"), ..self }
    }
}

/// An owner with its kind, so that a job and a pool of the same name are two owners.
fn owner_prefix(owner: &Owner) -> String {
    match owner {
        Owner::Request(id) => format!("request/{id}{SEPARATOR}"),
        Owner::Job(id) => format!("job/{id}{SEPARATOR}"),
        Owner::Pool(name) => format!("pool/{name}{SEPARATOR}"),
    }
}

/// The directory of an owner's records.
pub(crate) fn held_by(owner: &Owner) -> Range {
    Range::beginning(Index::Place, owner_prefix(owner))
}

/// A record's sort key in its owner's directory.
pub(crate) fn place(owner: &Owner, id: &InstanceId) -> String {
    format!("{}{id}", owner_prefix(owner))
}

/// The directory of a class's idle records.
pub(crate) fn idle_in(class: &ClassName) -> Range {
    Range::beginning(Index::Idle, format!("{class}{SEPARATOR}"))
}

/// A record's sort key in its class's directory, while it has an advert.
pub(crate) fn idle(record: &Record) -> Option<String> {
    let State::Idle { since, .. } = record.state else { return None };
    record.advert().map(|advert| format!("{}{SEPARATOR}{}", advert.class, timed(since, &record.id)))
}

/// The directory of a pool's live records.
pub(crate) fn standing_by(pool: &PoolName) -> Range {
    Range::beginning(Index::Live, format!("{pool}{SEPARATOR}"))
}

/// All live records, or all open intents.
pub(crate) fn all_live() -> Range {
    // Sorts below every name; DynamoDB refuses an empty bound.
    Range { index: Index::Live, first: "\u{1}".to_owned(), last: LAST.to_string() }
}

/// A live record's sort key in its pool's directory.
pub(crate) fn live(record: &Record) -> Option<String> {
    let pool = record.facts.pool.as_ref().map_or("", PoolName::as_str);
    record.state.is_live().then(|| format!("{pool}{SEPARATOR}{}", record.id))
}

/// A sort key of a time and an id, in the order of times.
pub(crate) fn timed(at: Timestamp, id: impl std::fmt::Display) -> String {
    // With the sign bit flipped, hexadecimal digits sort as the times do.
    let ordered = at.as_millis().cast_unsigned() ^ (1 << 63);
    format!("{ordered:016x}{SEPARATOR}{id}")
}

/// Records or rows that are due by `before`.
pub(crate) fn due_by(before: Timestamp) -> Range {
    Range { index: Index::Due, first: "0".to_owned(), last: timed(before, LAST) }
}

/// A row's sort key in its lane.
pub(crate) fn waiting(row: &JobRow) -> Option<String> {
    row.waiting
        .as_ref()
        .map(|at| format!("{}{SEPARATOR}{}{SEPARATOR}{}", at.lane, at.repository, row.job))
}

/// The rows of one repository that wait in a lane.
pub(crate) fn waiting_at(at: &WaitingAt) -> Range {
    Range::beginning(Index::Place, format!("{}{SEPARATOR}{}{SEPARATOR}", at.lane, at.repository))
}

/// The rows that wait in a lane; with `after`, only those of the repositories after it.
pub(crate) fn lane(lane: &str, after: Option<&str>) -> Range {
    let all = Range::beginning(Index::Place, format!("{lane}{SEPARATOR}"));
    match after {
        // Sorts above every job of this repository and below the next repository.
        Some(repository) => {
            Range { first: format!("{lane}{SEPARATOR}{repository}{SEPARATOR}{LAST}"), ..all }
        }
        None => all,
    }
}

/// The repository in a row's sort key.
pub(crate) fn repository(place: &str) -> Option<Repository> {
    place.split(SEPARATOR).nth(1).map(Repository::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_order_as_their_digits_do() {
        let times = [i64::MIN, -1, 0, 1, 1_767_600_000_000, i64::MAX];
        let keys = times.map(|millis| timed(Timestamp::from_millis(millis), "i-1"));
        assert!(keys.is_sorted() && keys[0] != keys[1], "{keys:?}");
        let range = due_by(Timestamp::from_millis(1));
        assert!(keys[3] <= range.last && keys[4] > range.last && range.first < keys[0]);
    }

    #[test]
    fn an_owners_range_holds_only_its_own_records() {
        let range = held_by(&Owner::Job("j-1".into()));
        let holds = |key: &str| range.first.as_str() <= key && key <= range.last.as_str();
        assert!(holds(&place(&Owner::Job("j-1".into()), &"i-1".into())));
        assert!(!holds(&place(&Owner::Job("j-10".into()), &"i-1".into())));
        assert!(!holds(&place(&Owner::Pool("j-1".into()), &"i-1".into())));
    }

    #[test]
    fn a_cursor_skips_only_its_own_key() {
        let (one, ten) = (timed(Timestamp::EPOCH, "i-1"), timed(Timestamp::EPOCH, "i-10"));
        let range = due_by(Timestamp::EPOCH).after(&one);
        assert!(range.first > one && range.first < ten && range.last > ten);
    }

    #[test]
    fn a_lane_goes_on_after_a_repository() {
        let key = |repository: &str| format!("pool/a{SEPARATOR}{repository}{SEPARATOR}j-1");
        let range = lane("pool/a", Some("o/b"));
        assert!(range.first > key("o/b"), "the repository's jobs are skipped");
        let is_in_range = range.first < key("o/b2") && key("o/b2") <= range.last;
        assert!(is_in_range, "a repository whose name begins the same is listed");
        assert!(range.last < format!("pool/a2{SEPARATOR}o/a{SEPARATOR}j-1"));
        assert_eq!(repository(&key("o/b")), Some(Repository::new("o/b")));
    }

    #[test]
    fn an_items_key_never_changes() {
        assert_eq!(record(&"i-1".into()), Key { pk: "i#7".into(), sk: Some("i-1".into()) });
        assert_eq!(intent(&"n-1".into()).pk, "n#6");
    }
}
