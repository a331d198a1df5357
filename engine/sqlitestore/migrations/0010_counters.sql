-- What the processes over the file count together: n until ends (nanoseconds since 1970 UTC).

CREATE TABLE counters (
  name BLOB    PRIMARY KEY,
  n    INTEGER NOT NULL,
  ends INTEGER NOT NULL
) STRICT;

CREATE INDEX counters_ends ON counters (ends);
