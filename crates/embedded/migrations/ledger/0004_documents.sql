-- Documents of the engine's own: requests by run attempt, parameters, kept tokens. `body` is opaque here.
CREATE TABLE documents (
    collection TEXT NOT NULL,
    name       TEXT NOT NULL,
    revision   INTEGER NOT NULL,
    body       TEXT NOT NULL,
    forget_at  INTEGER,
    PRIMARY KEY (collection, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX documents_forgettable ON documents (forget_at) WHERE forget_at IS NOT NULL;
