-- What the processes over one database share. A lease that was given back has ended at 0 and keeps
-- its number.

CREATE TABLE leases (
  name   bytea  PRIMARY KEY,
  owner  bytea  NOT NULL,
  number bigint NOT NULL,
  ends   bigint NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE cursors (
  name     bytea  PRIMARY KEY,
  position bigint NOT NULL,
  filter   bytea  NOT NULL,
  made_at  bigint NOT NULL,
  moved_at bigint NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE data_keys (
  instance     text COLLATE "C" NOT NULL,
  number       bigint NOT NULL,
  wrapped      bytea  NOT NULL, -- zeros once it was destroyed
  under        text   NOT NULL,
  made_at      bigint NOT NULL,
  destroyed_at bigint NOT NULL, -- the least of all numbers while it is not
  PRIMARY KEY (instance, number)
);
