-- One document per job. `body` is opaque here; the columns are what it is listed by.
CREATE TABLE job_rows (
    job        TEXT PRIMARY KEY,
    revision   INTEGER NOT NULL,
    body       TEXT NOT NULL,
    lane       TEXT,
    repository TEXT,
    next_look  INTEGER,
    forget_at  INTEGER NOT NULL,
    CHECK ((lane IS NULL) = (repository IS NULL))
) STRICT;

CREATE INDEX job_rows_waiting ON job_rows (lane, repository, job) WHERE lane IS NOT NULL;
CREATE INDEX job_rows_due ON job_rows (next_look, job) WHERE next_look IS NOT NULL;
CREATE INDEX job_rows_forgotten ON job_rows (forget_at);
