-- instance is the one that the question was about, '' for none.

ALTER TABLE refusals ADD COLUMN instance TEXT NOT NULL DEFAULT '';
