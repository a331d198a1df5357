-- Few events are checkpoints or removals, and they are looked for in histories of any length.
CREATE INDEX events_marks ON events (n, seq) WHERE kind = 'checkpointed' OR kind = 'truncated';
