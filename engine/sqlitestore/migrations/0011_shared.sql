-- What the processes over one store share. A lease that was given back has ended at 0 and keeps its
-- number. The row of a data key is overwritten in place, at the same length, when the key is destroyed:
-- no older copy of it is left in the file.

CREATE TABLE leases (
  name   TEXT    PRIMARY KEY,
  owner  TEXT    NOT NULL,
  number INTEGER NOT NULL,
  ends   INTEGER NOT NULL
) STRICT;

CREATE TABLE cursors (
  name     BLOB    PRIMARY KEY,
  position INTEGER NOT NULL,
  filter   BLOB    NOT NULL,
  made_at  INTEGER NOT NULL,
  moved_at INTEGER NOT NULL
) STRICT;

CREATE TABLE data_keys (
  instance     TEXT    NOT NULL,
  number       INTEGER NOT NULL,
  wrapped      BLOB    NOT NULL, -- zeros once it was destroyed
  under        TEXT    NOT NULL,
  made_at      INTEGER NOT NULL,
  destroyed_at INTEGER NOT NULL, -- the least of all numbers while it is not
  UNIQUE (instance, number)
) STRICT;
