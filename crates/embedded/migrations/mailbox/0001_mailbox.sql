-- The control plane's record of each instance. `change` rises with every write, so that a waiter
-- can tell what it has read from what came after.
CREATE TABLE inboxes (
    key    TEXT PRIMARY KEY,
    change INTEGER NOT NULL,
    body   TEXT NOT NULL
) STRICT;

-- The agent's record: the beat here, each kind of signal in a row of its own.
CREATE TABLE reports (
    key    TEXT PRIMARY KEY,
    change INTEGER NOT NULL,
    boot   TEXT,
    seq    INTEGER,
    at     INTEGER,
    beat   TEXT
) STRICT, WITHOUT ROWID;

CREATE TABLE signals (
    key        TEXT NOT NULL,
    kind       TEXT NOT NULL,
    generation INTEGER NOT NULL,
    body       TEXT NOT NULL,
    PRIMARY KEY (key, kind)
) STRICT;

-- Until when a mailbox is kept, in whole hours since the epoch: a beat every few seconds then
-- touches this table but once an hour.
CREATE TABLE keepings (
    key        TEXT PRIMARY KEY,
    keep_until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX keepings_over ON keepings (keep_until);
