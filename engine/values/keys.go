package values

import (
	"context"
	"errors"
	"fmt"

	"github.com/gavel-mcp/gavel/engine/store"
)

// list returns the data keys of an instance, or ErrNoKey if there are none.
func (k *Keyring) list(ctx context.Context, instance string) (rows []store.DataKey, err error) {
	for row, err := range k.keys.DataKeys(ctx, instance, 0) {
		if err != nil {
			return nil, err
		}
		if row.Instance != instance {
			break
		}
		rows = append(rows, row)
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("%w: %s", ErrNoKey, instance)
	}
	return rows, nil
}

// forget drops a key, the newest key and the context of an instance from the caches, so that nothing is
// sealed or opened with the key in its old form.
func (k *Keyring) forget(instance string, number int) {
	k.cache.Remove(keyID{instance, 0})
	k.cache.Remove(keyID{instance, number})
	k.contexts.Remove(instance)
}

// Rotate gives an instance a new data key for future values and returns its number. Values that are
// already sealed stay as they are. It returns ErrNoKey or ErrDestroyed.
func (k *Keyring) Rotate(ctx context.Context, instance string) (number int, err error) {
	for {
		rows, err := k.list(ctx, instance)
		if err != nil {
			return 0, err
		}
		last := rows[len(rows)-1]
		if len(last.Wrapped) == 0 {
			return 0, ErrDestroyed
		}
		if err = k.add(ctx, instance, last.Number+1); !errors.Is(err, store.ErrConflict) {
			k.forget(instance, last.Number)
			return last.Number + 1, err
		}
	}
}

// Shred destroys all data keys of an instance and returns their number. It also overwrites keys that
// are destroyed already, in case a copy was left. It returns ErrNoKey if there are none.
func (k *Keyring) Shred(ctx context.Context, instance string) (n int, err error) {
	for again := true; again; {
		rows, err := k.list(ctx, instance)
		if err != nil {
			return 0, err
		}
		n, again = len(rows), false
		for _, was := range rows {
			gone := was
			if gone.Wrapped = nil; gone.DestroyedAt.IsZero() {
				gone.DestroyedAt = recordTime()
				again = true // repeat until no other process has added or rewrapped a key in between
			}
			if err := k.keys.PutDataKey(ctx, gone, &was); err != nil && !errors.Is(err, store.ErrConflict) {
				return 0, err
			}
			k.forget(instance, was.Number)
		}
	}
	return n, nil
}

// Rewrap wraps a data key with the current secret if it is wrapped with old, and reports whether it did. It returns
// ErrUnreadable if the key is wrapped with another secret, and ErrDamagedKey if its own secret does not unwrap it.
func (k *Keyring) Rewrap(ctx context.Context, was store.DataKey, old []byte) (bool, error) {
	if len(was.Wrapped) == 0 {
		return false, nil
	}
	plain, err := k.wrap.open(was)
	if err == nil {
		return false, nil
	}
	if old != nil && !errors.Is(err, ErrDamagedKey) {
		plain, err = newWrapper(old).open(was)
	}
	if err != nil {
		return false, err
	}
	row := was
	k.wrap.seal(plain, &row)
	k.forget(was.Instance, was.Number)
	return true, k.keys.PutDataKey(ctx, row, &was)
}
