-- Events that the reader of a cursor could not hand on.

CREATE TABLE dead_letters (
  cursor   bytea  NOT NULL,
  position bigint NOT NULL,
  instance text COLLATE "C" NOT NULL,
  seq      bigint NOT NULL,
  tries    bigint NOT NULL,
  cause    bytea  NOT NULL,
  at       bigint NOT NULL,
  PRIMARY KEY (cursor, position)
);
