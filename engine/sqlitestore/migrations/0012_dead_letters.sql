-- Events that the reader of a cursor could not hand on.

CREATE TABLE dead_letters (
  cursor   TEXT    NOT NULL,
  position INTEGER NOT NULL,
  instance TEXT    NOT NULL,
  seq      INTEGER NOT NULL,
  tries    INTEGER NOT NULL,
  cause    TEXT    NOT NULL,
  at       INTEGER NOT NULL,
  UNIQUE (cursor, position)
) STRICT;
