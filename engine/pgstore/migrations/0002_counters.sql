-- What processes count together: n until ends (nanoseconds since 1970 UTC).

CREATE TABLE counters (
  name bytea  PRIMARY KEY,
  n    bigint NOT NULL,
  ends bigint NOT NULL
) WITH (fillfactor = 50);

CREATE INDEX counters_ends ON counters (ends);

-- Values that processes replace whole.
CREATE TABLE entries (
  name    text COLLATE "C" PRIMARY KEY,
  version bigint NOT NULL,
  body    bytea  NOT NULL
);
