-- calls is how many calls of an instance are not settled for good, subject what the instance
-- alone is about: NULL for nothing. Few instances have either.

ALTER TABLE instances ADD COLUMN calls INTEGER NOT NULL DEFAULT 0;
ALTER TABLE instances ADD COLUMN subject TEXT;
CREATE INDEX instances_calls ON instances (id) WHERE calls > 0;
CREATE UNIQUE INDEX instances_subject ON instances (workflow, subject) WHERE subject IS NOT NULL;
